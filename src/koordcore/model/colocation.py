"""How much may be lent, and from what: strategies, and a node as the overcommit formulas see it.

Amounts are exact, in billionths of a unit (:mod:`koordcore.model.metrics`): upstream adds quantities up
before it rounds, and ``758090681n`` of cpu is what node agents really report.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.metrics import NOTHING_MEASURED, Measured, NodeMetric

Extensions: TypeAlias = immutabledict[str, object]


STATIC_MODE: Final = "static"
"""The reclaim mode of mid resources that lends a fixed share of the capacity."""


class CalculatePolicy(StrEnum):
    """What a prod pod is taken to need."""

    USAGE = "usage"
    REQUEST = "request"
    MAX_USAGE_REQUEST = "maxUsageRequest"


@record(kw_only=True)
class ColocationStrategy:
    """How much of a node is lent; ``None`` where nothing is said.

    Percent fields are whole percents. The reclaim thresholds leave ``100 - x`` percent of the capacity as a
    safety margin and may exceed 100. ``*_calculate_policy`` of any other text counts as ``usage``.
    """

    enable: bool | None = None
    metric_aggregate_duration_seconds: int | None = None
    metric_report_interval_seconds: int | None = None
    metric_aggregate_durations: tuple[int, ...] | None = None
    metric_memory_collect_policy: str | None = None
    cpu_reclaim_threshold_percent: int | None = None
    cpu_calculate_policy: str | None = None
    memory_reclaim_threshold_percent: int | None = None
    memory_calculate_policy: str | None = None
    degrade_time_minutes: int | None = None
    update_time_threshold_seconds: int | None = None
    resource_diff_threshold: float | None = None
    mid_reclaim_mode: str | None = None
    mid_cpu_threshold_percent: int | None = None
    mid_memory_threshold_percent: int | None = None
    mid_unallocated_percent: int | None = None
    mid_static_cpu_reserved_percent: int | None = None
    mid_static_memory_reserved_percent: int | None = None
    batch_cpu_threshold_percent: int | None = None
    batch_memory_threshold_percent: int | None = None
    extensions: Extensions | None = None


NO_STRATEGY: Final = ColocationStrategy()
"""Says nothing."""

DEFAULT_STRATEGY: Final = ColocationStrategy(
    enable=False,
    metric_aggregate_duration_seconds=300,
    metric_report_interval_seconds=60,
    metric_aggregate_durations=(300 * 10**9, 600 * 10**9, 1800 * 10**9),
    metric_memory_collect_policy="usageWithoutPageCache",
    cpu_reclaim_threshold_percent=60,
    cpu_calculate_policy=CalculatePolicy.USAGE.value,
    memory_reclaim_threshold_percent=65,
    memory_calculate_policy=CalculatePolicy.USAGE.value,
    degrade_time_minutes=15,
    update_time_threshold_seconds=300,
    resource_diff_threshold=0.1,
    mid_cpu_threshold_percent=100,
    mid_memory_threshold_percent=100,
    mid_unallocated_percent=0,
    mid_static_cpu_reserved_percent=0,
    mid_static_memory_reserved_percent=0,
)
"""What holds where a configuration is silent (upstream ``sloconfig.DefaultColocationStrategy``)."""


def overlay(base: ColocationStrategy, over: ColocationStrategy) -> ColocationStrategy:
    """Put what one strategy says over another; extensions are merged by name.

    Examples
    --------
    >>> overlay(DEFAULT_STRATEGY, ColocationStrategy(enable=True)).cpu_reclaim_threshold_percent
    60
    """
    said = {name: value for name in _FIELDS if (value := getattr(over, name)) is not None}
    if not over.metric_aggregate_durations:
        said.pop("metric_aggregate_durations", None)
    if base.extensions and over.extensions:
        said["extensions"] = immutabledict({**base.extensions, **over.extensions})
    return attrs.evolve(base, **said)


_FIELDS: Final = tuple(field.name for field in attrs.fields(ColocationStrategy))


@record
class RawRequirement:
    """One expression of a selector as written, valid or not."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields


@record
class RawSelector:
    """A label selector as written, valid or not.

    Parameters
    ----------
    match_labels
        Exact labels; ``None`` where the field is absent.
    match_expressions
        Further requirements; ``None`` where the field is absent.
    """

    match_labels: immutabledict[str, str] | None = attrs.field(
        default=None, converter=attrs.converters.optional(immutabledict)
    )
    match_expressions: tuple[RawRequirement, ...] | None = None

    __attrs_post_init__ = check_fields


@record
class NodeStrategy:
    """A strategy of its own for the nodes that a selector names.

    Parameters
    ----------
    strategy
        What it says.
    name
        Name of the entry; may be empty.
    selector
        Which nodes; ``None`` selects none, an empty selector selects all.
    """

    strategy: ColocationStrategy = NO_STRATEGY
    name: str = ""
    selector: RawSelector | None = None

    __attrs_post_init__ = check_fields


@record
class ColocationConfig:
    """The strategy of a cluster with its exceptions, of which the first that selects a node holds."""

    strategy: ColocationStrategy = DEFAULT_STRATEGY
    node_strategies: tuple[NodeStrategy, ...] = ()

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PodLoad:
    """A pod as overcommit sees it.

    Parameters
    ----------
    namespace, name
        The pod.
    request
        Its effective request, exact.
    priority_class
        With the QoS default applied: ``koord-prod``, ``koord-mid``, ``koord-batch`` or ``koord-free``.
    qos
        Only ``LSE`` counts: such a pod uses all the cpu it asks for.
    phase
        Only ``Running`` and ``Pending`` pods count.
    numa_nodes
        NUMA nodes it was given, in the order written; empty where nothing is known.
    """

    namespace: str
    name: str
    request: Measured = NOTHING_MEASURED
    priority_class: str = "koord-prod"
    qos: str = "LS"
    phase: str = "Running"
    numa_nodes: tuple[int, ...] = ()

    __attrs_post_init__ = check_fields


@record
class ZoneLoad:
    """One NUMA node: its name and what of it may be allocated, exact."""

    name: str
    allocatable: Measured = NOTHING_MEASURED

    __attrs_post_init__ = check_fields


@record
class ThirdPartyAllocation:
    """Batch resources that another system has given away on this node.

    Parameters
    ----------
    name
        The other system.
    priority
        Priority class of what it runs; only ``koord-batch`` counts.
    resources
        Exact amounts by name.
    """

    name: str
    priority: str
    resources: Measured = NOTHING_MEASURED

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class NodeLoad:
    """A node as overcommit sees it.

    Parameters
    ----------
    name
        The node.
    capacity
        ``status.capacity``, exact.
    allocatable
        ``status.allocatable``, exact; ``None`` where the status has none.
    reserved
        What the reservation annotation keeps back.
    pods
        Pods on the node.
    metric
        What was measured; ``None`` without a NodeMetric.
    zones
        NUMA nodes in order of their index; empty where the topology is unknown.
    """

    name: str
    capacity: Measured = NOTHING_MEASURED
    allocatable: Measured | None = NOTHING_MEASURED
    reserved: Measured = NOTHING_MEASURED
    pods: tuple[PodLoad, ...] = ()
    metric: NodeMetric | None = None
    zones: tuple[ZoneLoad, ...] = ()

    __attrs_post_init__ = check_fields
