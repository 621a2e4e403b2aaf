"""Arguments and annotations of load-aware scheduling on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.load import NO_PERCENTS, AggregatedArgs, LoadAwareArgs, LoadThresholds, Percents
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.resources import Resources, make_resources, parse_resources
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_duration,
    as_int,
    as_mapping,
    as_str,
    list_of,
    load_json,
    optional,
)
from koordcore.protocol.numbers import parse_decimal
from koordcore.protocol.reserved_on_node import trimmed_allocatable

ANNOTATION_USAGE_THRESHOLDS: Final = "scheduling.koordinator.sh/usage-thresholds"
ANNOTATION_SCALING_FACTORS: Final = "scheduling.koordinator.sh/load-estimated-scaling-factors"
ANNOTATION_SECONDS_AFTER_SCHEDULED: Final = (
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
)
ANNOTATION_SECONDS_AFTER_INITIALIZED: Final = (
    "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
)
ANNOTATION_RAW_ALLOCATABLE: Final = "node.koordinator.sh/raw-allocatable"


def _percents(value: Json) -> Percents:
    raw = as_mapping(value)
    # Go leaves the zero value where a map entry is null.
    return Percents({name: 0 if one is None else optional(raw, name, as_int, 0) for name, one in raw.items()})


def _aggregated(value: Json, *, fold_case: bool) -> AggregatedArgs:
    raw = as_mapping(value)
    return AggregatedArgs(
        usage_thresholds=optional(raw, "usageThresholds", _percents, NO_PERCENTS, fold_case=fold_case),
        usage_type=optional(raw, "usageAggregationType", as_str, "", fold_case=fold_case),
        usage_duration=optional(raw, "usageAggregatedDuration", as_duration, 0, fold_case=fold_case),
        score_type=optional(raw, "scoreAggregationType", as_str, "", fold_case=fold_case),
        score_duration=optional(raw, "scoreAggregatedDuration", as_duration, 0, fold_case=fold_case),
    )


def _args_aggregated(value: Json) -> AggregatedArgs | None:
    return _aggregated(value, fold_case=False)


def _annotated_aggregated(value: Json) -> AggregatedArgs | None:
    return _aggregated(value, fold_case=True)


def _optional_int(value: Json) -> int | None:
    return as_int(value)


def parse_load_aware_args(raw: Mapping[str, Json]) -> LoadAwareArgs:
    """Read ``LoadAwareSchedulingArgs`` of a scheduler configuration and put upstream's defaults in place.

    Raises
    ------
    ManifestError
        When a field has the wrong type.
    ModelError
        When upstream's validation refuses the values.
    """
    return LoadAwareArgs(
        filter_expired_node_metrics=optional(raw, "filterExpiredNodeMetrics", as_bool, True),
        node_metric_expiration_seconds=optional(raw, "nodeMetricExpirationSeconds", as_int, 180),
        enable_schedule_when_node_metrics_expired=optional(
            raw, "enableScheduleWhenNodeMetricsExpired", as_bool, False
        ),
        dominant_resource_weight=optional(raw, "dominantResourceWeight", as_int, 0),
        resource_weights=optional(raw, "resourceWeights", _percents, NO_PERCENTS),
        usage_thresholds=optional(raw, "usageThresholds", _percents, NO_PERCENTS),
        prod_usage_thresholds=optional(raw, "prodUsageThresholds", _percents, NO_PERCENTS),
        prod_usage_include_sys=optional(raw, "prodUsageIncludeSys", as_bool, False),
        score_according_prod_usage=optional(raw, "scoreAccordingProdUsage", as_bool, False),
        estimator=optional(raw, "estimator", as_str, "") or "defaultEstimator",
        estimated_scaling_factors=optional(raw, "estimatedScalingFactors", _percents, NO_PERCENTS),
        estimated_seconds_after_pod_scheduled=optional(
            raw, "estimatedSecondsAfterPodScheduled", _optional_int, None
        ),
        estimated_seconds_after_initialized=optional(
            raw, "estimatedSecondsAfterInitialized", _optional_int, None
        ),
        allow_customize_estimation=optional(raw, "allowCustomizeEstimation", as_bool, False),
        aggregated=optional(raw, "aggregated", _args_aggregated, None),
        supported_resources=optional(raw, "supportedResources", list_of(as_str), ()),
    )


def parse_usage_thresholds(text: str) -> LoadThresholds:
    """Read the thresholds that a node sets for itself.

    Raises
    ------
    ManifestError
        When the text cannot be read; upstream then keeps the defaults.
    """
    raw = as_mapping(load_json(text))
    return LoadThresholds(
        usage=optional(raw, "usageThresholds", _percents, NO_PERCENTS, fold_case=True),
        prod=optional(raw, "prodUsageThresholds", _percents, NO_PERCENTS, fold_case=True),
        aggregated=optional(raw, "aggregatedUsage", _annotated_aggregated, None, fold_case=True),
    )


def node_thresholds(node: Node, defaults: LoadThresholds) -> LoadThresholds:
    """Give the thresholds of one node: a section of its annotation that says anything replaces the default.

    What cannot be read leaves the defaults, as upstream does (ruling 20; the loader reports it).
    """
    text = node.annotations.get(ANNOTATION_USAGE_THRESHOLDS)
    if text is None:
        return defaults
    try:
        own = parse_usage_thresholds(text)
    except ManifestError:
        return defaults
    statistic = own.aggregated if own.aggregated is not None and own.aggregated.filters else None
    return LoadThresholds(
        usage=own.usage or defaults.usage,
        prod=own.prod or defaults.prod,
        aggregated=statistic or defaults.aggregated,
    )


def parse_scaling_factors(text: str) -> Percents:
    """Read a pod's own scaling factors.

    Raises
    ------
    ManifestError
        When the text is no JSON object of integers.
    """
    value = load_json(text)
    return NO_PERCENTS if value is None else _percents(value)


def custom_scaling_factors(pod: Pod) -> Percents:
    """Give a pod's own scaling factors; none where there is no annotation or it cannot be read."""
    text = pod.annotations.get(ANNOTATION_SCALING_FACTORS)
    if text is None:
        return NO_PERCENTS
    try:
        return parse_scaling_factors(text)
    except ManifestError:
        return NO_PERCENTS


def custom_seconds(pod: Pod, annotation: str) -> int | None:
    """Give a pod's own number of seconds; ``None`` where it is absent, negative or unreadable."""
    text = pod.annotations.get(annotation)
    try:
        seconds = -1 if text is None else parse_decimal(text)
    except ManifestError:
        return None
    return seconds if seconds >= 0 else None


def raw_capacity(node: Node) -> Resources:
    """Give a node's allocatable, less what it keeps back, as it was before amplification.

    The annotation overlays single names; one that cannot be read leaves the plain allocatable.
    """
    allocatable = node.allocatable
    if node.annotations:
        allocatable = trimmed_allocatable(allocatable, node.annotations)
    text = node.annotations.get(ANNOTATION_RAW_ALLOCATABLE)
    if not text:
        return allocatable
    try:
        value = load_json(text)
        raw = {} if value is None else parse_resources(as_mapping(value))
    except ManifestError:
        return allocatable
    return make_resources({**allocatable, **raw})


def raw_allocatable(node: Node) -> Resources:
    """Give what the node's annotation says was allocatable before amplification, else its allocatable.

    The annotation replaces the whole list; one that cannot be read does not count. The descheduler refers
    percentages to these amounts.
    """
    text = node.annotations.get(ANNOTATION_RAW_ALLOCATABLE)
    if not text:
        return node.allocatable
    try:
        value = load_json(text)
        return node.allocatable if value is None else parse_resources(as_mapping(value))
    except ManifestError:
        return node.allocatable
