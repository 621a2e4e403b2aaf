"""Arguments of the descheduler's plugins on the wire: strict decoding, defaults, and the records they make.

Decoding is strict as upstream's: an unknown field or a value of the wrong type is an error. Defaulting gives
the versioned object as it would be printed; what is left out when empty is left out here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from immutabledict import immutabledict

from koordcore.errors import ManifestError, ModelError
from koordcore.model.mappings import EMPTY
from koordcore.model.migration import DEFAULT_JOB_MODE, JobMode
from koordcore.model.rebalance import (
    DEFAULT_POOL,
    AnomalyCondition,
    EvictionLimits,
    EvictorArgs,
    LowNodeLoadArgs,
    MigrationControllerArgs,
    Namespaces,
    NodePool,
    ObjectLimiter,
    PodSelector,
)
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.colocation import parse_selector
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_duration,
    as_int,
    as_mapping,
    as_str,
    at,
    collect,
    list_of,
    optional,
)
from koordcore.protocol.selector_text import label_selector_of
from koordcore.protocol.strict_fields import (
    Converter,
    as_duration_text,
    as_number,
    as_share,
    map_of,
    number_or_text,
    struct,
)

_MINUTE: Final = "1m0s"
_DEFAULT_WEIGHTED: Final = ("cpu", "memory")


_strings: Final = list_of(as_str)
_requirement: Final = struct({"key": as_str, "operator": as_str, "values": _strings}, frozenset({"key"}))
_selector: Final = struct({"matchLabels": map_of(as_str), "matchExpressions": list_of(_requirement)})
_namespaces: Final = struct({"include": _strings, "exclude": _strings})
_pod_selectors: Final = list_of(struct({"name": as_str, "selector": _selector}, frozenset({"selector"})))
_anomaly: Final = struct(
    {"timeout": as_duration_text, "consecutiveAbnormalities": as_int, "consecutiveNormalities": as_int},
    frozenset({"timeout"}),
)
_thresholds: Final[Mapping[str, Converter]] = {
    "useDeviationThresholds": as_bool,
    "highThresholds": map_of(as_number),
    "lowThresholds": map_of(as_number),
    "prodHighThresholds": map_of(as_number),
    "prodLowThresholds": map_of(as_number),
    "resourceWeights": map_of(as_int),
    "anomalyCondition": _anomaly,
    "nodeSelector": _selector,
}
_INHERITED: Final = ("highThresholds", "lowThresholds", "prodHighThresholds", "prodLowThresholds")
_POINTERS: Final = frozenset({"nodeSelector", "anomalyCondition", "evictableNamespaces", *_INHERITED})
_pool: Final = struct({"name": as_str, **_thresholds}, _POINTERS | {"resourceWeights"})
_low_node_load: Final = struct(
    {
        "paused": as_bool,
        "dryRun": as_bool,
        "numberOfNodes": as_int,
        "nodeMetricExpirationSeconds": as_int,
        "nodeFit": as_bool,
        "evictableNamespaces": _namespaces,
        "podSelectors": _pod_selectors,
        "detectorCacheTimeout": as_duration_text,
        "nodePools": list_of(_pool),
        **_thresholds,
    },
    _POINTERS
    | {
        "paused",
        "dryRun",
        "numberOfNodes",
        "nodeMetricExpirationSeconds",
        "nodeFit",
        "detectorCacheTimeout",
        "useDeviationThresholds",
    },
)


def default_low_node_load(raw: Mapping[str, Json]) -> dict[str, Any]:
    """Decode ``LowNodeLoadArgs`` and put the defaults in place.

    A pool takes whole maps that it lacks, and counts that are 0, from the block at the top.

    Raises
    ------
    ManifestError
        When a field is unknown or of the wrong type.
    """
    return _printed(_completed_low_node_load(raw))


def _completed_low_node_load(raw: Mapping[str, Json]) -> dict[str, Any]:
    done: dict[str, Any] = _low_node_load(raw)
    done.setdefault("nodeMetricExpirationSeconds", 180)
    done.setdefault("nodeFit", True)
    done.setdefault("detectorCacheTimeout", "5m0s")
    weights = dict(done.get("resourceWeights", {}))
    named = {*done.get("lowThresholds", {}), *done.get("highThresholds", {}), *_DEFAULT_WEIGHTED}
    for name in sorted(named):
        if weights.get(name, 0) <= 0:
            weights[name] = 1
    done["resourceWeights"] = weights
    top = done.setdefault("anomalyCondition", {"timeout": _MINUTE})
    top.setdefault("consecutiveAbnormalities", 5)
    top.setdefault("consecutiveNormalities", 3)
    for pool in done.get("nodePools", ()):
        for name in _INHERITED:
            if name in done:
                pool.setdefault(name, dict(done[name]))
        pool.setdefault("resourceWeights", dict(weights))
        condition = pool.setdefault("anomalyCondition", dict(top))
        for count in ("consecutiveAbnormalities", "consecutiveNormalities"):
            condition.setdefault(count, top[count])
    return done


def _printed(done: dict[str, Any]) -> dict[str, Any]:
    for block in (done, *done.get("nodePools", ())):
        for name in (*_INHERITED, "resourceWeights"):
            if block.get(name) == {}:
                del block[name]
    return done


def _namespaces_of(value: Json) -> Namespaces:
    raw = as_mapping(value)
    return Namespaces(optional(raw, "include", _strings, ()), optional(raw, "exclude", _strings, ()))


def _pod_selector_of(value: Json) -> PodSelector:
    raw = as_mapping(value)
    return PodSelector(optional(raw, "name", as_str, ""), optional(raw, "selector", parse_selector, None))


def _table_of(value: Json) -> immutabledict[str, Any]:
    return immutabledict(sorted(as_mapping(value).items()))


def _condition_of(value: Json) -> AnomalyCondition:
    raw = as_mapping(value)
    return AnomalyCondition(
        timeout=optional(raw, "timeout", as_duration, 0),
        consecutive_abnormalities=optional(raw, "consecutiveAbnormalities", as_int, 0),
        consecutive_normalities=optional(raw, "consecutiveNormalities", as_int, 0),
    )


def _pool_of(value: Json) -> NodePool:
    raw = as_mapping(value)
    return NodePool(
        name=optional(raw, "name", as_str, ""),
        selector=optional(raw, "nodeSelector", parse_selector, None),
        deviation=optional(raw, "useDeviationThresholds", as_bool, False),
        high=optional(raw, "highThresholds", _table_of, None),
        low=optional(raw, "lowThresholds", _table_of, None),
        prod_high=optional(raw, "prodHighThresholds", _table_of, None),
        prod_low=optional(raw, "prodLowThresholds", _table_of, None),
        weights=optional(raw, "resourceWeights", _table_of, immutabledict()),
        anomaly=optional(raw, "anomalyCondition", _condition_of, None),
    )


def low_node_load_args(raw: Mapping[str, Json]) -> LowNodeLoadArgs:
    """Read ``LowNodeLoadArgs`` with defaults; the block at the top becomes the first pool.

    Raises
    ------
    ManifestError
        When a field is unknown or of the wrong type.
    """
    done = _completed_low_node_load(raw)
    pools = [{**done, "name": DEFAULT_POOL}, *done.get("nodePools", ())]
    return LowNodeLoadArgs(
        paused=done.get("paused", False),
        dry_run=done.get("dryRun", False),
        number_of_nodes=done.get("numberOfNodes", 0),
        metric_expiration=done["nodeMetricExpirationSeconds"],
        node_fit=done["nodeFit"],
        namespaces=optional(done, "evictableNamespaces", _namespaces_of, None),
        pod_selectors=optional(done, "podSelectors", list_of(_pod_selector_of), ()),
        detector_cache_timeout=as_duration(done["detectorCacheTimeout"]),
        pools=collect(_pool_of, pools),
    )


def _switch(*names: str) -> dict[str, Converter]:
    return dict.fromkeys(names, as_bool)


_priority_threshold: Final = struct({"name": as_str, "value": as_int}, frozenset({"value"}))
_limiter: Final = struct(
    {"duration": as_duration_text, "maxMigrating": as_share, "burst": as_int},
    frozenset({"duration", "maxMigrating"}),
)
_EVICTOR: Final[Mapping[str, Converter]] = {
    **_switch("evictFailedBarePods", "evictAllBarePods", "evictLocalStoragePods"),
    **_switch("evictSystemCriticalPods", "ignorePvcPods"),
    "priorityThreshold": _priority_threshold,
    "labelSelector": _selector,
    "namespaces": _namespaces,
    "skipEvictionGates": _strings,
}
_PRINTED_SWITCHES: Final = (
    "evictFailedBarePods",
    "evictAllBarePods",
    "evictLocalStoragePods",
    "evictSystemCriticalPods",
    "ignorePvcPods",
)
_COUNTS: Final = ("maxMigratingGlobally", "maxMigratingPerNamespace", "maxMigratingPerNode")
_SHARES: Final = ("maxMigratingPerWorkload", "maxUnavailablePerWorkload")
_migration_controller: Final = struct(
    {
        **_EVICTOR,
        **_switch("dryRun", "nodeFit", "skipCheckExpectedReplicas"),
        "maxConcurrentReconciles": as_int,
        "nodeSelector": as_str,
        **dict.fromkeys(_COUNTS, as_int),
        **dict.fromkeys(_SHARES, as_share),
        "objectLimiters": map_of(_limiter),
        "defaultJobMode": as_str,
        "defaultJobTTL": as_duration_text,
        "schedulerNames": _strings,
        "evictQPS": number_or_text,
        "evictBurst": as_int,
        "evictionPolicy": as_str,
        "defaultDeleteOptions": as_mapping,
        "arbitrationArgs": struct(
            {"enabled": as_bool, "interval": as_duration_text}, frozenset({"interval"})
        ),
    },
    frozenset(
        {
            *_COUNTS,
            *_SHARES,
            *_PRINTED_SWITCHES,
            "maxConcurrentReconciles",
            "defaultJobTTL",
            "evictQPS",
            "evictBurst",
            "labelSelector",
            "namespaces",
            "priorityThreshold",
            "arbitrationArgs",
        }
    ),
)


def default_migration_controller(raw: Mapping[str, Json]) -> dict[str, Any]:
    """Decode ``MigrationControllerArgs`` and put the defaults in place.

    Raises
    ------
    ManifestError
        When a field is unknown or of the wrong type.
    """
    done: dict[str, Any] = _migration_controller(raw)
    done.setdefault("maxConcurrentReconciles", 1)
    for name in _PRINTED_SWITCHES:
        done.setdefault(name, False)
    done.setdefault("maxMigratingPerNode", 2)
    done.setdefault("objectLimiters", {"workload": {"duration": "5m0s"}})
    for limiter in done["objectLimiters"].values():
        limiter.setdefault("duration", "0s")
    done.setdefault("defaultJobMode", str(DEFAULT_JOB_MODE))
    done.setdefault("defaultJobTTL", "5m0s")
    done.setdefault("schedulerNames", ["koord-scheduler"])
    done.setdefault("evictQPS", 10)
    done.setdefault("evictBurst", 1)
    done.setdefault("evictionPolicy", "Eviction")
    arbitration = done.setdefault("arbitrationArgs", {"enabled": True})
    arbitration.setdefault("interval", "500ms")
    return done


def parse_evictor_args(raw: Mapping[str, Json], *, priorities: Mapping[str, int] = EMPTY) -> EvictorArgs:
    """Read the fields that say which pods may be evicted at all; others are not looked at.

    Parameters
    ----------
    raw
        The fields.
    priorities
        PriorityClasses and their values: a threshold by name is that of its class.

    Raises
    ------
    ManifestError
        When a field is of the wrong type, or there is no such class.
    """
    return EvictorArgs(
        evict_failed_bare_pods=optional(raw, "evictFailedBarePods", as_bool, False),
        evict_all_bare_pods=optional(raw, "evictAllBarePods", as_bool, False),
        evict_local_storage_pods=optional(raw, "evictLocalStoragePods", as_bool, False),
        evict_system_critical_pods=optional(raw, "evictSystemCriticalPods", as_bool, False),
        ignore_pvc_pods=optional(raw, "ignorePvcPods", as_bool, False),
        priority_threshold=optional(raw, "priorityThreshold", partial(_threshold_of, priorities), None),
        label_selector=optional(raw, "labelSelector", parse_selector, None),
        namespaces=optional(raw, "namespaces", _namespaces_of, None),
        skip_gates=frozenset(optional(raw, "skipEvictionGates", _strings, ())),
    )


def _threshold_of(priorities: Mapping[str, int], value: Json) -> int | None:
    raw = as_mapping(value)
    number, name = optional(raw, "value", as_int, None), optional(raw, "name", as_str, "")
    if number is not None or not name:
        return number
    if name not in priorities:
        raise ManifestError.at("name", f"there is no PriorityClass {name}; give its value instead")
    return priorities[name]


def _limiter_of(value: Json) -> ObjectLimiter:
    raw = as_mapping(value)
    return ObjectLimiter(
        duration=optional(raw, "duration", as_duration, 0),
        max_migrating=optional(raw, "maxMigrating", as_share, None),
        burst=optional(raw, "burst", as_int, 0) or 1,
    )


def _node_selectors(value: Json) -> tuple[LabelSelector, ...]:
    text = as_str(value).strip()
    try:
        return (label_selector_of(text),) if text else ()
    except ModelError as error:
        raise ManifestError.at("", str(error)) from None


def _limiters_of(value: Json) -> immutabledict[str, ObjectLimiter]:
    limiters = ((name, at(f"[{name}]", _limiter_of, one)) for name, one in as_mapping(value).items())
    return immutabledict(sorted(limiters))


def migration_controller_args(
    raw: Mapping[str, Json], *, priorities: Mapping[str, int] = EMPTY
) -> MigrationControllerArgs:
    """Read ``MigrationControllerArgs`` with defaults.

    Parameters
    ----------
    raw
        The arguments.
    priorities
        PriorityClasses and their values, which a threshold by name needs.

    Raises
    ------
    ManifestError
        When a field is unknown, of the wrong type, or the mode of jobs or a PriorityClass is unknown.
    """
    done = default_migration_controller(raw)
    mode = done["defaultJobMode"]
    if mode not in list(JobMode):
        raise ManifestError.at("defaultJobMode", f"must be {' or '.join(JobMode)}")
    return MigrationControllerArgs(
        dry_run=done.get("dryRun", False),
        evictor=parse_evictor_args(done, priorities=priorities),
        node_fit=done.get("nodeFit", False),
        max_migrating_globally=done.get("maxMigratingGlobally"),
        max_migrating_per_namespace=done.get("maxMigratingPerNamespace"),
        max_migrating_per_node=done.get("maxMigratingPerNode"),
        max_migrating_per_workload=done.get("maxMigratingPerWorkload"),
        max_unavailable_per_workload=done.get("maxUnavailablePerWorkload"),
        skip_check_expected_replicas=done.get("skipCheckExpectedReplicas", False),
        limiters=optional(done, "objectLimiters", _limiters_of, immutabledict()),
        default_job_mode=JobMode(mode),
        default_job_ttl=as_duration(done["defaultJobTTL"]),
        # Left out, it holds for jobs alone.
        scheduler_names=tuple(done["schedulerNames"]) if raw.get("schedulerNames") else None,
        node_selectors=optional(done, "nodeSelector", _node_selectors, ()),
    )


_COMMON: Final[Mapping[str, Converter]] = {
    "paused": as_bool,
    "nodeSelector": _selector,
    "evictableNamespaces": _namespaces,
    "podSelectors": _pod_selectors,
    "resources": _strings,
}
_COMMON_POINTERS: Final = frozenset({"paused", "nodeSelector", "evictableNamespaces"})


def parse_eviction_limits(raw: Mapping[str, Json]) -> EvictionLimits:
    """Read the eviction limits of a ``DeschedulerConfiguration``; other fields are not looked at."""
    return EvictionLimits(
        per_node=optional(raw, "maxNoOfPodsToEvictPerNode", _count, None),
        per_namespace=optional(raw, "maxNoOfPodsToEvictPerNamespace", _count, None),
        total=optional(raw, "maxNoOfPodsToEvictTotal", _count, None),
    )


def _count(value: Json) -> int:
    number = as_int(value)
    if number < 0:
        raise ManifestError.at("", f"must not be negative, got {number}")
    return number
