"""Policies back to a KubeSchedulerConfiguration of ``v1``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from koordcore.errors import ModelError
from koordcore.manifests.encode import node_affinity_manifest, spread_constraint_manifest
from koordcore.manifests.plugins import PLUGIN_POINTS
from koordcore.model.load import AggregatedArgs, LoadAwareArgs
from koordcore.model.policy import (
    BalancedArgs,
    FeatureSetting,
    FitArgs,
    FitPlusArgs,
    InterPodArgs,
    NodeAffinityArgs,
    Policy,
    ScarceArgs,
    ScoringStrategy,
    SpreadArgs,
    SpreadDefaulting,
)
from koordcore.protocol.times import format_duration

__all__ = ["ARGS_WRITERS", "configuration_manifest"]

_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_NEEDED: Final = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
"""Without these a scheduler does not start."""

Object = dict[str, Any]


def _weights(pairs: Iterable[tuple[str, int]]) -> list[Object]:
    return [{"name": name, "weight": weight} for name, weight in pairs]


def _given(**fields: Any) -> Object:
    return {key: value for key, value in fields.items() if value not in (None, (), [], {}, "")}


def _fit(args: FitArgs) -> Object:
    scoring: Object = {"type": str(args.strategy), "resources": _weights(args.resources)}
    if args.strategy is ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO:
        shape = [{"utilization": one.utilization, "score": one.score} for one in args.shape]
        scoring["requestedToCapacityRatio"] = {"shape": shape}
    return {
        "scoringStrategy": scoring,
        **_given(ignoredResources=list(args.ignored), ignoredResourceGroups=list(args.ignored_groups)),
    }


def _balanced(args: BalancedArgs) -> Object:
    return {"resources": _weights(args.resources)}


def _node_affinity(args: NodeAffinityArgs) -> Object:
    return {} if args.added is None else {"addedAffinity": node_affinity_manifest(args.added)}


def _fit_plus(args: FitPlusArgs) -> Object:
    return {
        "resources": {
            name: {"type": strategy, "weight": weight} for name, (strategy, weight) in args.resources.items()
        }
    }


def _scarce(args: ScarceArgs) -> Object:
    return {"resources": list(args.resources)}


def _spread(args: SpreadArgs) -> Object:
    written: Object = {"defaultingType": str(args.defaulting)}
    if args.defaulting is SpreadDefaulting.LIST:
        written["defaultConstraints"] = [spread_constraint_manifest(one) for one in args.default_constraints]
    return written


def _interpod(args: InterPodArgs) -> Object:
    return {
        "hardPodAffinityWeight": args.hard_pod_affinity_weight,
        "ignorePreferredTermsOfExistingPods": args.ignore_preferred_terms_of_existing_pods,
    }


def _aggregated(args: AggregatedArgs) -> Object:
    def duration(nanoseconds: int) -> str:
        return format_duration(nanoseconds) if nanoseconds else ""

    return _given(
        usageThresholds=dict(args.usage_thresholds),
        usageAggregationType=args.usage_type,
        usageAggregatedDuration=duration(args.usage_duration),
        scoreAggregationType=args.score_type,
        scoreAggregatedDuration=duration(args.score_duration),
    )


def _load_aware(args: LoadAwareArgs) -> Object:
    return {
        "filterExpiredNodeMetrics": args.filter_expired_node_metrics,
        "nodeMetricExpirationSeconds": args.node_metric_expiration_seconds,
        "enableScheduleWhenNodeMetricsExpired": args.enable_schedule_when_node_metrics_expired,
        "usageThresholds": dict(args.usage_thresholds),
        "prodUsageIncludeSys": args.prod_usage_include_sys,
        "scoreAccordingProdUsage": args.score_according_prod_usage,
        "estimator": args.estimator,
        "estimatedScalingFactors": dict(args.estimated_scaling_factors),
        "allowCustomizeEstimation": args.allow_customize_estimation,
        **_given(
            resourceWeights=dict(args.resource_weights),
            dominantResourceWeight=args.dominant_resource_weight or None,
            prodUsageThresholds=dict(args.prod_usage_thresholds),
            estimatedSecondsAfterPodScheduled=args.estimated_seconds_after_pod_scheduled,
            estimatedSecondsAfterInitialized=args.estimated_seconds_after_initialized,
            supportedResources=list(args.supported_resources),
        ),
        **({} if args.aggregated is None else {"aggregated": _aggregated(args.aggregated)}),
    }


ARGS_WRITERS: Final[Mapping[type, Callable[[Any], Object]]] = {
    FitArgs: _fit,
    BalancedArgs: _balanced,
    NodeAffinityArgs: _node_affinity,
    FitPlusArgs: _fit_plus,
    ScarceArgs: _scarce,
    SpreadArgs: _spread,
    InterPodArgs: _interpod,
    LoadAwareArgs: _load_aware,
}
"""Record of arguments to what writes it with the field names of ``v1``."""


def configuration_manifest(*policies: Policy) -> Object:
    """Write policies as one configuration, a profile each.

    Every profile turns the defaults off and lists what it wants, so that it means the same under any version
    of the scheduler. Reading it back gives equal policies, as long as the features that filter stand before
    those that only score.

    Raises
    ------
    ModelError
        When arguments are of a kind that cannot be written.
    """
    return {
        "apiVersion": _VERSION,
        "kind": "KubeSchedulerConfiguration",
        "profiles": [_profile(policy) for policy in policies],
    }


def _profile(policy: Policy) -> Object:
    plugins: Object = {"multiPoint": {"disabled": [{"name": "*"}]}}
    for point in ("preFilter", "filter"):
        names = [one.name for one in policy.features if one.filters and _speaks(one.name, point)]
        if names:
            plugins[point] = {"enabled": [{"name": name} for name in names]}
    scorers = [one for one in policy.features if one.scores]
    if scorers:
        plugins["score"] = {"enabled": [{"name": one.name, "weight": one.weight} for one in scorers]}
        names = [one.name for one in scorers if _speaks(one.name, "preScore")]
        if names:
            plugins["preScore"] = {"enabled": [{"name": name} for name in names]}
    plugins.update({point: {"enabled": [{"name": name}]} for point, name in _NEEDED.items()})
    config = [_config(one) for one in policy.features if one.args is not None]
    return {
        "schedulerName": policy.name,
        "percentageOfNodesToScore": policy.percentage_of_nodes,
        "plugins": plugins,
        **({"pluginConfig": config} if config else {}),
    }


def _speaks(name: str, point: str) -> bool:
    return point in PLUGIN_POINTS.get(name, ("filter", "score"))


def _config(setting: FeatureSetting) -> Object:
    write = ARGS_WRITERS.get(type(setting.args))
    if write is None:
        raise ModelError(f"{setting.name}: arguments of {type(setting.args).__name__} cannot be written")
    kind = {"apiVersion": _VERSION, "kind": f"{setting.name}Args"}
    return {"name": setting.name, "args": {**kind, **write(setting.args)}}
