"""What the load-aware plugin is told: thresholds, weights, how usage is estimated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.resources import CPU, MEMORY

Percents: TypeAlias = immutabledict[str, int]
"""Resource name to percent points, or to a weight."""

NO_PERCENTS: Final[Percents] = immutabledict()

_DEFAULT_WEIGHTS: Final[Percents] = immutabledict({CPU: 1, MEMORY: 1})
_DEFAULT_THRESHOLDS: Final[Percents] = immutabledict({CPU: 65, MEMORY: 95})
_DEFAULT_FACTORS: Final[Percents] = immutabledict({CPU: 85, MEMORY: 70})


class Aggregation(StrEnum):
    """Statistic of a node's usage over a window; ``NONE`` takes the latest usage."""

    AVG = "avg"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"
    NONE = ""


def _percents(values: Mapping[str, int]) -> Percents:
    return immutabledict(sorted(values.items()))


def _aggregation(path: str, text: str) -> list[str]:
    known = [str(one) for one in Aggregation if one]
    if not text or text in known:
        return []
    listed = ", ".join(f'"{one}"' for one in known)
    return [f'{path}: Unsupported value: "{text}": supported values: {listed}']


def _duration(path: str, nanoseconds: int) -> list[str]:
    if nanoseconds >= 0:
        return []
    shown = f"{nanoseconds / 10**9:g}s"
    return [f"{path}: Invalid value: {shown}: duration must be >= 0"]


def _percent_problem(path: str, what: str, values: Percents, lowest: int) -> list[str]:
    """Name the first entry outside ``lowest``..100, in upstream's words; one message for a whole map."""
    shown = json.dumps(dict(values), separators=(",", ":"))
    for name, value in values.items():
        if value < lowest or value > 100:
            bound = "be a positive value" if value < lowest else "be less than 100"
            text = f"{what} of {name} should {bound}, got {value}"
            return [f"{path}: Invalid value: {shown}: {text}"]
    return []


@names_its_fields
@record(kw_only=True)
class AggregatedArgs:
    """Use of windowed statistics instead of the latest usage.

    Parameters
    ----------
    usage_thresholds
        Percent of the node above which the filter refuses; the filter uses statistics only with thresholds
        and a type.
    usage_type, usage_duration
        Statistic and window (nanoseconds) of the filter; 0 is the longest window with data.
    score_type, score_duration
        The same for the score.
    """

    usage_thresholds: Percents = attrs.field(default=NO_PERCENTS, converter=_percents)
    usage_type: str = ""
    usage_duration: int = 0
    score_type: str = ""
    score_duration: int = 0

    __attrs_post_init__ = check_fields

    def problems(self) -> list[str]:
        """List what upstream's validation says."""
        return [
            *_percent_problem("aggregated.usageThresholds", "resource Threshold", self.usage_thresholds, 0),
            *_aggregation("aggregated.usageAggregationType", self.usage_type),
            *_duration("aggregated.usageAggregatedDuration", self.usage_duration),
            *_aggregation("aggregated.scoreAggregationType", self.score_type),
            *_duration("aggregated.scoreAggregatedDuration", self.score_duration),
        ]

    @property
    def filters(self) -> bool:
        """The filter looks at statistics."""
        return bool(self.usage_thresholds and self.usage_type)


@record(kw_only=True)
class LoadThresholds:
    """The three sections of thresholds, of the arguments or of a node's annotation.

    Parameters
    ----------
    usage, prod
        Percent of the node that all pods, or prod pods alone, may use; 0 is no limit.
    aggregated
        Thresholds on a statistic; ``None`` where there are none.
    """

    usage: Percents = NO_PERCENTS
    prod: Percents = NO_PERCENTS
    aggregated: AggregatedArgs | None = None

    __attrs_post_init__ = check_fields


def _thresholds(values: Mapping[str, int]) -> Percents:
    return _percents(values) if values else _DEFAULT_THRESHOLDS


def _factors(values: Mapping[str, int]) -> Percents:
    return _percents({**_DEFAULT_FACTORS, **values})


@names_its_fields
@record(kw_only=True)
class LoadAwareArgs:
    """Arguments of LoadAwareScheduling, with upstream's defaults in place.

    Parameters
    ----------
    filter_expired_node_metrics
        The filter looks at the age of a metric.
    node_metric_expiration_seconds
        Age from which a metric is expired, in seconds.
    enable_schedule_when_node_metrics_expired
        An expired metric passes the filter; it scores 0 all the same.
    dominant_resource_weight
        Weight (0..100) of the smallest of all resource scores.
    resource_weights
        Weight (1..100) of each resource's score; cpu and memory alike where nothing at all has a weight.
    usage_thresholds
        Percent of the node above which the filter refuses; empty stands for cpu 65 and memory 95, and
        explicit zeros for no limit.
    prod_usage_thresholds
        The same for what prod pods use, applied to prod pods.
    prod_usage_include_sys
        What the system uses counts as prod.
    score_according_prod_usage
        Prod pods are scored on what prod pods use.
    estimated_scaling_factors
        Percent of its request that a pod is expected to use; cpu 85 and memory 70 are added where missing.
    estimated_seconds_after_pod_scheduled, estimated_seconds_after_initialized
        How long the estimate of a pod counts beside its metric; ``None`` or 0 is off.
    allow_customize_estimation
        Pods may give their own factors and seconds by annotation.
    aggregated
        Use of windowed statistics.
    supported_resources
        Further columns to keep.

    Raises
    ------
    ModelError
        With the text of upstream's validation (``validation_pluginargs.go``).
    """

    filter_expired_node_metrics: bool = True
    node_metric_expiration_seconds: int = 180
    enable_schedule_when_node_metrics_expired: bool = False
    dominant_resource_weight: int = 0
    resource_weights: Percents = attrs.field(default=NO_PERCENTS, converter=_percents)
    usage_thresholds: Percents = attrs.field(default=NO_PERCENTS, converter=_thresholds)
    prod_usage_thresholds: Percents = attrs.field(default=NO_PERCENTS, converter=_percents)
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool = False
    estimator: str = "defaultEstimator"
    estimated_scaling_factors: Percents = attrs.field(default=NO_PERCENTS, converter=_factors)
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    aggregated: AggregatedArgs | None = None
    supported_resources: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if not self.resource_weights and not self.dominant_resource_weight:
            object.__setattr__(self, "resource_weights", _DEFAULT_WEIGHTS)
        problems = self._problems()
        if len(problems) == 1:
            raise ModelError(problems[0])
        if problems:
            raise ModelError(f"[{', '.join(dict.fromkeys(problems))}]")

    def _problems(self) -> list[str]:
        found = []
        if self.node_metric_expiration_seconds <= 0:
            found.append(
                f"nodeMetricExpiredSeconds: Invalid value: {self.node_metric_expiration_seconds}: "
                "nodeMetricExpiredSeconds should be a positive value"
            )
        found += _percent_problem("resourceWeights", "resource Weight", self.resource_weights, 1)
        dominant = self.dominant_resource_weight
        if not 0 <= dominant <= 100:
            bound = "not be a negative value" if dominant < 0 else "be less than 100"
            found.append(
                f"dominantResourceWeight: Invalid value: {dominant}: dominantResourceWeight should {bound}"
            )
        found += _percent_problem("usageThresholds", "resource Threshold", self.usage_thresholds, 0)
        factors = self.estimated_scaling_factors
        found += _percent_problem("estimatedScalingFactors", "estimated resource ScalingFactor", factors, 1)
        missing = next((name for name in self.resource_weights if name not in factors), None)
        if missing is not None:
            found.append(f'estimatedScalingFactors: Not found: "{missing}"')
        if self.aggregated is not None:
            found += self.aggregated.problems()
        return found

    @property
    def thresholds(self) -> LoadThresholds:
        """The thresholds of a node that has none of its own."""
        return LoadThresholds(
            usage=self.usage_thresholds, prod=self.prod_usage_thresholds, aggregated=self.aggregated
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Every resource that is looked at, by name: cpu, memory, and whatever the arguments name."""
        names = {CPU, MEMORY, *self.supported_resources}
        for section in (
            self.usage_thresholds,
            self.prod_usage_thresholds,
            self.resource_weights,
            self.estimated_scaling_factors,
        ):
            names.update(section)
        if self.aggregated is not None:
            names.update(self.aggregated.usage_thresholds)
        return tuple(sorted(names))
