"""Colocation on the wire: the strategy's JSON, node annotations and labels, NUMA zones.

Keys inside annotations match without case, as upstream's decoder does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.colocation import (
    ColocationConfig,
    ColocationStrategy,
    NodeStrategy,
    RawRequirement,
    RawSelector,
    ThirdPartyAllocation,
    ZoneLoad,
)
from koordcore.model.metrics import NOTHING_MEASURED, Measured, parse_measured
from koordcore.model.quantity import format_quantity
from koordcore.model.resources import BATCH_MEMORY
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_duration,
    as_float,
    as_int,
    as_mapping,
    as_str,
    as_str_mapping,
    list_of,
    load_json,
    optional,
    show,
)
from koordcore.protocol.numbers import parse_float

ANNOTATION_COLOCATION_STRATEGY: Final = "node.koordinator.sh/colocation-strategy"
ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE: Final = "node.koordinator.sh/originExtendedAllocatable"
ANNOTATION_THIRD_PARTY_ALLOCATIONS: Final = "node.koordinator.sh/thirdPartyAllocations"
ANNOTATION_RESOURCE_STATUS: Final = "scheduling.koordinator.sh/resource-status"

STRATEGY_RATIO_LABELS: Final[Mapping[str, str]] = immutabledict(
    {
        "node.koordinator.sh/cpu-reclaim-ratio": "cpu_reclaim_threshold_percent",
        "node.koordinator.sh/memory-reclaim-ratio": "memory_reclaim_threshold_percent",
        "node.koordinator.sh/mid-static-cpu-reserved-ratio": "mid_static_cpu_reserved_percent",
        "node.koordinator.sh/mid-static-memory-reserved-ratio": "mid_static_memory_reserved_percent",
    }
)
"""Label of a node that gives a ratio, to the percent field of the strategy that it replaces."""

T = TypeVar("T")

_INT64: Final = 1 << 63
_NOTHING: Final[Mapping[str, Json]] = immutabledict()
_NO_ZONES: Final[tuple[ZoneLoad, ...]] = ()
_NO_PAIRS: Final[tuple[tuple[str, Measured], ...]] = ()


def _integer(value: Json) -> int:
    number = as_int(value)
    if not -_INT64 <= number < _INT64:
        raise ManifestError.at("", f"expected an integer of 64 bits, got {number}")
    return number


def _durations(value: Json) -> tuple[int, ...] | None:
    return optional(as_mapping(value), "durations", list_of(as_duration), None, fold_case=True)


def _extensions(value: Json) -> immutabledict[str, object]:
    return immutabledict(as_mapping(value))


_WIRE: Final[Mapping[str, tuple[str, Callable[[Json], object]]]] = immutabledict(
    {
        "enable": ("enable", as_bool),
        "metricAggregateDurationSeconds": ("metric_aggregate_duration_seconds", _integer),
        "metricReportIntervalSeconds": ("metric_report_interval_seconds", _integer),
        "metricAggregatePolicy": ("metric_aggregate_durations", _durations),
        "metricMemoryCollectPolicy": ("metric_memory_collect_policy", as_str),
        "cpuReclaimThresholdPercent": ("cpu_reclaim_threshold_percent", _integer),
        "cpuCalculatePolicy": ("cpu_calculate_policy", as_str),
        "memoryReclaimThresholdPercent": ("memory_reclaim_threshold_percent", _integer),
        "memoryCalculatePolicy": ("memory_calculate_policy", as_str),
        "degradeTimeMinutes": ("degrade_time_minutes", _integer),
        "updateTimeThresholdSeconds": ("update_time_threshold_seconds", _integer),
        "resourceDiffThreshold": ("resource_diff_threshold", as_float),
        "midReclaimMode": ("mid_reclaim_mode", as_str),
        "midCPUThresholdPercent": ("mid_cpu_threshold_percent", _integer),
        "midMemoryThresholdPercent": ("mid_memory_threshold_percent", _integer),
        "midUnallocatedPercent": ("mid_unallocated_percent", _integer),
        "midStaticCPUReservedPercent": ("mid_static_cpu_reserved_percent", _integer),
        "midStaticMemoryReservedPercent": ("mid_static_memory_reserved_percent", _integer),
        "batchCPUThresholdPercent": ("batch_cpu_threshold_percent", _integer),
        "batchMemoryThresholdPercent": ("batch_memory_threshold_percent", _integer),
        "extensions": ("extensions", _extensions),
    }
)
STRATEGY_FIELDS: Final[Mapping[str, str]] = immutabledict({wire: name for wire, (name, _) in _WIRE.items()})
"""Field in JSON to that of the strategy."""


def parse_strategy(raw: Json) -> ColocationStrategy:
    """Read a strategy; fields that are absent or null say nothing, unknown ones are ignored.

    Raises
    ------
    ManifestError
        When a known field has another type; a fraction or exponent is no integer.
    """
    fields = as_mapping(raw)
    said: dict[str, object] = {}
    for wire, (name, convert) in _WIRE.items():
        value = optional(fields, wire, convert, None, fold_case=True)
        if value is not None:
            said[name] = value
    return ColocationStrategy(**said)  # type: ignore[arg-type]  # each converter gives its field's type


def parse_ratio(text: str) -> float:
    """Read the text of a label that gives a ratio.

    Raises
    ------
    ManifestError
        When it is no number of at least 0, or one in percent is no integer of 64 bits; upstream then passes
        the label over.
    """
    ratio = parse_float(text)
    if not 0 <= ratio * 100 < _INT64:
        raise ManifestError.at("", f"expected a ratio of at least 0, got {show(text)}")
    return ratio


def _requirement(value: Json) -> RawRequirement:
    raw = as_mapping(value)
    return RawRequirement(
        key=optional(raw, "key", as_str, "", fold_case=True),
        operator=optional(raw, "operator", as_str, "", fold_case=True),
        values=optional(raw, "values", list_of(as_str), (), fold_case=True),
    )


def _labels(value: Json) -> immutabledict[str, str]:
    return immutabledict(as_str_mapping(value))


def parse_selector(value: Json) -> RawSelector:
    """Read a label selector as written; whether it can be evaluated is decided where it is used."""
    raw = as_mapping(value)
    return RawSelector(
        match_labels=optional(raw, "matchLabels", _labels, None, fold_case=True),
        match_expressions=optional(raw, "matchExpressions", list_of(_requirement), None, fold_case=True),
    )


def parse_node_strategy(raw: Json) -> NodeStrategy:
    """Read one entry of ``nodeConfigs``."""
    fields = as_mapping(raw)
    return NodeStrategy(
        strategy=parse_strategy(fields),
        name=optional(fields, "name", as_str, "", fold_case=True),
        selector=optional(fields, "nodeSelector", parse_selector, None, fold_case=True),
    )


def parse_config(raw: Json) -> ColocationConfig:
    """Read the content of the key ``colocation-config``, without defaults.

    Raises
    ------
    ManifestError
        With the path of what has another type.
    """
    fields = as_mapping(raw)
    return ColocationConfig(
        strategy=parse_strategy(fields),
        node_strategies=optional(fields, "nodeConfigs", list_of(parse_node_strategy), (), fold_case=True),
    )


def _resource_list(value: Json) -> Measured:
    return parse_measured(as_mapping(value))


def _annotation(
    annotations: Mapping[str, str], key: str, read: Callable[[Mapping[str, Json]], T]
) -> T | None:
    text = annotations.get(key)
    if text is None:
        return None
    try:
        value = load_json(text)
        return read({} if value is None else as_mapping(value))
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{key}]") from None


def numa_nodes_of(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """Give the NUMA nodes that a pod's resource status lists, in its order, repeated ones included.

    Raises
    ------
    ManifestError
        When the annotation cannot be read; upstream's overcommit then takes it as empty.
    """
    if ANNOTATION_RESOURCE_STATUS not in annotations:
        return ()

    def node(value: Json) -> int:
        return optional(as_mapping(value), "node", _integer, 0, fold_case=True)

    def read(raw: Mapping[str, Json]) -> tuple[int, ...]:
        return optional(raw, "numaNodeResources", list_of(node), (), fold_case=True)

    return _annotation(annotations, ANNOTATION_RESOURCE_STATUS, read) or ()


def third_party_allocations_of(annotations: Mapping[str, str]) -> tuple[ThirdPartyAllocation, ...]:
    """Give what other systems have allocated on a node.

    Raises
    ------
    ManifestError
        When the annotation cannot be read.
    """

    def allocation(value: Json) -> ThirdPartyAllocation:
        raw = as_mapping(value)
        return ThirdPartyAllocation(
            name=optional(raw, "name", as_str, "", fold_case=True),
            priority=optional(raw, "priority", as_str, "", fold_case=True),
            resources=optional(raw, "resources", _resource_list, NOTHING_MEASURED, fold_case=True),
        )

    def read(raw: Mapping[str, Json]) -> tuple[ThirdPartyAllocation, ...]:
        return optional(raw, "allocations", list_of(allocation), (), fold_case=True)

    return _annotation(annotations, ANNOTATION_THIRD_PARTY_ALLOCATIONS, read) or ()


def format_origin_allocatable(annotations: Mapping[str, str], batch: Mapping[str, int]) -> tuple[str, str]:
    """Give key and text of the annotation that records batch amounts before third parties take theirs.

    Parameters
    ----------
    annotations
        Annotations of the node; other names in the old record are kept, a broken one is replaced.
    batch
        Milli-cores and bytes by batch resource name.
    """

    def read(raw: Mapping[str, Json]) -> Mapping[str, Json]:
        return optional(raw, "resources", as_mapping, _NOTHING, fold_case=True)

    try:
        kept = dict(_annotation(annotations, ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE, read) or {})
        parse_measured(kept)
    except ManifestError:
        kept = {}
    kept.update(
        (name, format_quantity(amount, binary=name == BATCH_MEMORY)) for name, amount in batch.items()
    )
    text = json.dumps({"resources": dict(sorted(kept.items()))}, separators=(",", ":"))
    return ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE, text
