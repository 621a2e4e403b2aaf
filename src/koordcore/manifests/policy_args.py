"""Arguments of scheduler plugins back to JSON, with the field names of ``v1``.

The stock plugins' arguments and those of load-aware scheduling are written in full; of the other Koordinator
plugins only what differs from the default is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from immutabledict import immutabledict

from koordcore.errors import ModelError
from koordcore.manifests.encode import node_affinity_manifest, spread_constraint_manifest
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.durations import format_duration
from koordcore.model.feature_gates import GATED_ARGUMENTS
from koordcore.model.gangs import CoschedulingArgs
from koordcore.model.load import AggregatedArgs, LoadAwareArgs
from koordcore.model.numa import NUMAArgs
from koordcore.model.plugin_args import (
    BalancedArgs,
    FitArgs,
    FitPlusArgs,
    InterPodArgs,
    NodeAffinityArgs,
    ScarceArgs,
    ScoringStrategy,
    SpreadArgs,
    SpreadDefaulting,
)
from koordcore.model.quotas import QuotaPolicy
from koordcore.model.reservations import PreAllocationArgs, ReservationArgs
from koordcore.model.resources import format_resources

if TYPE_CHECKING:
    from koordcore.model.claims import ClaimArgs

Object = dict[str, Any]


def _weights(pairs: Iterable[tuple[str, int]]) -> list[Object]:
    return [{"name": name, "weight": weight} for name, weight in pairs]


def _given(**fields: Any) -> Object:
    return {key: value for key, value in fields.items() if value not in (None, (), [], {}, "")}


def _fit(args: FitArgs) -> Object:
    scoring: Object = {"type": str(args.strategy), "resources": _weights(args.resources)}
    if args.shape:
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
    def rated(one: tuple[str, int]) -> Object:
        return {"type": one[0], "weight": one[1]}

    named = {name: rated(one) for name, one in args.resources.items()}
    others = {} if args.extended is None else {"extendedResources": rated(args.extended)}
    return {**({"resources": named} if named or not others else {}), **others}


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


def _numa(args: NUMAArgs) -> Object:
    return {
        "defaultCPUBindPolicy": str(args.default_bind_policy or ""),
        "scoringStrategy": {"type": str(args.scoring), "resources": _weights(args.weights)},
        "numaScoringStrategy": {"type": str(args.numa_scoring), "resources": _weights(args.weights)},
    }


def _devices(args: DevicePolicy) -> Object:
    namespace, name = args.template_source
    templates = {
        "configMapNamespace": namespace,
        "configMapName": name,
        "matchedResources": sorted(args.template_resources),
    }
    usual = DevicePolicy()
    configured = (args.template_source, args.template_resources) != (
        usual.template_source,
        usual.template_resources,
    )
    models = [{"vendor": vendor, "model": model} for vendor, model in args.unshareable_models]
    return {
        "scoringStrategy": {"type": str(args.strategy), "resources": _weights(args.weights.items())},
        "disableDeviceNUMATopologyAlignment": not args.align_numa,
        **_given(
            gpuSharedResourceTemplatesConfig=templates if configured else {}, gpuShareUnsupportedModels=models
        ),
    }


def _changed(args: Any, default: Any, names: Mapping[str, str]) -> Object:
    """Write the fields that differ from the default; ``names`` maps ours to the wire's."""
    return {
        wire: getattr(args, field)
        for field, wire in names.items()
        if getattr(args, field) != getattr(default, field)
    }


def _gangs(args: CoschedulingArgs) -> Object:
    written = _changed(
        args,
        CoschedulingArgs(),
        {
            "default_match_policy": "defaultMatchPolicy",
            "controller_workers": "controllerWorkers",
            "enable_preemption": "enablePreemption",
            "aware_network_topology": "awareNetworkTopology",
            "gang_fit": "gangFit",
        },
    )
    if args.default_timeout != CoschedulingArgs().default_timeout:
        written["defaultTimeout"] = format_duration(args.default_timeout)
    return {key: str(value) if isinstance(value, str) else value for key, value in written.items()}


def _quota(args: QuotaPolicy) -> Object:
    default = QuotaPolicy()
    if args.checks:
        raise ModelError("ElasticQuota: checks are functions, which arguments do not hold")
    written = _changed(
        args,
        default,
        {
            "enable_runtime_quota": "enableRuntimeQuota",
            "enable_min_quota_scale": "enableMinQuotaScale",
            "enable_check_parent_quota": "enableCheckParentQuota",
            "disable_default_quota_preemption": "disableDefaultQuotaPreemption",
            "monitor_all_quotas": "monitorAllQuotas",
        },
    )
    if args.delay_evict != default.delay_evict:
        written["delayEvictTime"] = format_duration(args.delay_evict)
    limits = {
        "default_quota_group_max": "defaultQuotaGroupMax",
        "system_quota_group_max": "systemQuotaGroupMax",
    }
    written.update(
        {wire: format_resources(amounts) for wire, amounts in _changed(args, default, limits).items()}
    )
    return written


def _hints(args: int) -> Object:
    return {"maxHintNodes": args}


def _claims(args: ClaimArgs) -> Object:
    written: Object = {}
    if not args.packed:
        written["scoringStrategy"] = {"type": str(ScoringStrategy.LEAST_ALLOCATED)}
    fields = {"mode": "allocationMode", "await_claims": "awaitClaims"}
    changed = _changed(args, type(args)(), fields)
    return written | {key: value if isinstance(value, bool) else str(value) for key, value in changed.items()}


def _reservations(args: ReservationArgs) -> Object:
    default = ReservationArgs()
    if args.skip_fits_node:
        raise ModelError("Reservation: skip_fits_node is a feature gate, which arguments do not hold")
    written = _changed(
        args,
        default,
        {
            "enable_preemption": "enablePreemption",
            "min_candidate_nodes_percentage": "minCandidateNodesPercentage",
            "min_candidate_nodes_absolute": "minCandidateNodesAbsolute",
            "controller_workers": "controllerWorkers",
            "gc_duration": "gcDurationSeconds",
            "gc_interval": "gcIntervalSeconds",
            "disable_garbage_collection": "disableGarbageCollection",
            "resync_interval": "resyncIntervalSeconds",
            "matching": "matching",
        },
    )
    names = {
        "cluster_mode": "enableClusterMode",
        "label": "clusterLabelKey",
        "priority_annotation": "clusterPriorityAnnotationKey",
        "prefer_none": "preferNoPreAllocatedPods",
    }
    return {
        **written,
        **_given(
            preAllocationConfig=_changed(args.pre_allocation, PreAllocationArgs(), names),
            ignoredResources=list(args.ignored_resources),
            ignoredResourceGroups=list(args.ignored_groups),
        ),
    }


ARGS_WRITERS: Final[Mapping[str, Callable[[Any], Object]]] = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "NodeAffinity": _node_affinity,
    "NodeResourcesFitPlus": _fit_plus,
    "ScarceResourceAvoidance": _scarce,
    "PodTopologySpread": _spread,
    "InterPodAffinity": _interpod,
    "DynamicResources": _claims,
    "LoadAwareScheduling": _load_aware,
    "NodeNUMAResource": _numa,
    "DeviceShare": _devices,
    "ElasticQuota": _quota,
    "SchedulingHint": _hints,
    "Coscheduling": _gangs,
    "Reservation": _reservations,
}
"""Plugin name to what writes its arguments."""


OUR_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = immutabledict(
    {
        "NodeResourcesFitPlus": ("extendedResources",),
        "DynamicResources": ("scoringStrategy", "allocationMode", "awaitClaims"),
        "Coscheduling": ("gangFit",),
        "Reservation": ("matching",),
    }
)
"""Plugin to the arguments that no other scheduler knows."""


def gates_of(name: str, args: Any) -> dict[str, bool]:
    """Give the feature gates that a plugin's arguments amount to, where they differ from the default."""
    kind, fields = GATED_ARGUMENTS.get(name, (type(None), {}))
    if not fields or not isinstance(args, kind):
        return {}
    default = kind()
    given = {gate: getattr(args, field) for gate, field in fields.items()}
    return {gate: on for gate, on in given.items() if on != getattr(default, fields[gate])}


def write_args(name: str, args: Any) -> Object:
    """Write a plugin's arguments.

    Raises
    ------
    ModelError
        When the plugin's arguments cannot be written, or hold something that has no field.
    """
    if isinstance(args, immutabledict):
        return {key: _thawed(value) for key, value in args.items()}  # of a plugin of an installed package
    write = ARGS_WRITERS.get(name)
    if write is None:
        raise ModelError(f"{name}: arguments of {type(args).__name__} cannot be written")
    return write(args)


def _thawed(value: Any) -> Any:
    if isinstance(value, immutabledict):
        return {key: _thawed(one) for key, one in value.items()}
    return [_thawed(one) for one in value] if isinstance(value, tuple) else value
