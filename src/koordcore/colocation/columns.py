"""Batch and mid overcommit of a whole cluster as array operations.

Cpu is counted in nano-cores and memory in milli-bytes, both int64, nodes in the order given. The numbers are
those of :func:`~koordcore.colocation.batch.batch_of_node` and :func:`~koordcore.colocation.mid.mid_of_node`
node by node; NUMA nodes are left to those.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.colocation.usage import dangling_metrics, node_use, pod_uses
from koordcore.errors import ModelError
from koordcore.model.colocation import (
    DEFAULT_STRATEGY,
    STATIC_MODE,
    CalculatePolicy,
    ColocationStrategy,
    NodeLoad,
    overlay,
)
from koordcore.model.durations import MINUTE
from koordcore.model.metrics import NodeMetric
from koordcore.model.resources import CPU, MEMORY
from koordcore.protocol.qos import PriorityClass

Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

_CPU_STEP: Final = 1
_MEMORY_STEP: Final = 1_000_000
"""Nano-bytes of a milli-byte, the finest amount of memory that a column holds."""
_UNITS: Final = np.array([[1_000_000], [1000]], dtype=np.int64)
"""Column steps of a milli-core and of a byte."""
_LIMIT: Final = 1 << 61
_TOO_LARGE: Final = "an amount is too large for a column (over 9 million cores or 9 petabytes)"
_NEVER: Final = -(1 << 62)
_LATEST: Final = 3 << 61
"""Moments that a column holds: 1824 to 2189, which leaves room for the longest degrade time."""


class Outcome(IntEnum):
    """How a node came out; codes of :attr:`ClusterLending.batch_outcome` and ``mid_outcome``."""

    LENT = 0
    DEGRADED = 1
    FAILED = 2
    DISABLED = 3


@record(eq=False, kw_only=True)
class PodColumns:
    """Prod and mid pods that are running or pending, and metrics whose pod is gone.

    Parameters
    ----------
    row
        Row of the node, shape (P,).
    request, used, peak
        Column amounts, shape (2, P); ``peak`` is 0 for a pod without metric, as the node level counts it.
    unallocatable
        Whether the request lessens the unallocated part that mid may take (prod pods), shape (P,).
    """

    row: Ints
    request: Ints
    used: Ints
    peak: Ints
    unallocatable: Bools


@record(eq=False, kw_only=True)
class LoadColumns:
    """Nodes as the kernels see them: shape (2, N) for amounts (cpu, memory), (N,) for the rest.

    Parameters
    ----------
    names
        Of the nodes, by row.
    capacity, reserved, system, host_high, host_prod
        As in :class:`~koordcore.colocation.usage.NodeUse`.
    unused
        Capacity less measured use; 0 where either resource was not measured.
    reclaimable
        Predicted to be left by prod.
    updated
        Moment of the last report, nanoseconds since 1970; far in the past without one.
    has_content, has_allocatable
        Whether the report has a body, and the node an allocatable.
    pods
        What runs on them.
    """

    names: tuple[str, ...]
    capacity: Ints
    reserved: Ints
    system: Ints
    host_high: Ints
    host_prod: Ints
    unused: Ints
    reclaimable: Ints
    updated: Ints
    has_content: Bools
    has_allocatable: Bools
    pods: PodColumns


@record(eq=False, kw_only=True)
class StrategyColumns:
    """The strategy in force per node: shape (2, N) for what differs between cpu and memory, else (N,)."""

    enabled: Bools
    degrade_minutes: Ints
    reclaim_percent: Ints
    policy: Ints
    batch_cap_percent: Ints
    static: Bools
    static_percent: Ints
    unallocated_percent: Ints
    mid_percent: Ints


@record(eq=False, kw_only=True)
class ClusterLending:
    """What every node lends, by row: milli-cores (row 0) and bytes (row 1).

    Parameters
    ----------
    names
        Of the nodes.
    batch, mid
        Shape (2, N); 0 where nothing is lent.
    batch_outcome, mid_outcome
        :class:`Outcome` codes, shape (N,).
    capacity, margin, taken, pods
        Terms of the batch waterfall in the same units, rounded up, shape (2, N).
    """

    names: tuple[str, ...]
    batch: Ints
    mid: Ints
    batch_outcome: Ints
    mid_outcome: Ints
    capacity: Ints
    margin: Ints
    taken: Ints
    pods: Ints


_POLICIES: Final = {
    CalculatePolicy.USAGE: 0,
    CalculatePolicy.REQUEST: 1,
    CalculatePolicy.MAX_USAGE_REQUEST: 2,
}
_MAX_PERCENT: Final = 1_000_000
_MAX_MINUTES: Final = 36_000_000
_NO_CAP: Final = -_MAX_PERCENT - 1


def _pair(cpu: int, memory: int) -> tuple[int, int]:
    return cpu // _CPU_STEP, -(-memory // _MEMORY_STEP)


def _columns(pairs: Sequence[tuple[int, int]]) -> Ints:
    """Stack pairs as (2, n) and refuse what could overflow a sum."""
    try:
        table = np.array(pairs, dtype=np.int64).reshape(-1, 2).T.copy()
    except OverflowError:
        raise ModelError(_TOO_LARGE) from None
    if table.size and max(int(table.max()), -int(table.min())) >= _LIMIT >> 8:
        raise ModelError(_TOO_LARGE)
    return table


def compile_loads(nodes: Iterable[NodeLoad]) -> LoadColumns:
    """Make columns of nodes, once for many questions.

    Memory is rounded up to milli-bytes, the step in which Kubernetes rounds too.

    Raises
    ------
    ModelError
        When an amount, or the sum of a node's pods, is too large for int64.
    """
    loads = tuple(nodes)
    uses = [node_use(node) for node in loads]
    rows: list[int] = []
    request: list[tuple[int, int]] = []
    used: list[tuple[int, int]] = []
    peak: list[tuple[int, int]] = []
    prod: list[bool] = []
    for row, node in enumerate(loads):
        for one in pod_uses(node):
            rows.append(row)
            request.append(_pair(one.request.cpu, one.request.memory))
            used.append(_pair(one.used.cpu, one.used.memory))
            peak.append(_pair(one.peak.cpu, one.peak.memory) if one.measured else (0, 0))
            prod.append(one.pod.priority_class != PriorityClass.MID)
        for metric in dangling_metrics(node):
            pair = _pair(metric.usage.get(CPU, 0), metric.usage.get(MEMORY, 0))
            rows.append(row)
            request.append((0, 0))
            used.append(pair)
            peak.append(pair)
            prod.append(False)
    pods = PodColumns(
        row=np.array(rows, dtype=np.int64),
        request=_columns(request),
        used=_columns(used),
        peak=_columns(peak),
        unallocatable=np.array(prod, dtype=np.bool_),
    )
    _check_sums(pods, len(loads))
    metrics = [node.metric for node in loads]
    return LoadColumns(
        names=tuple(node.name for node in loads),
        capacity=_columns([_pair(use.capacity.cpu, use.capacity.memory) for use in uses]),
        reserved=_columns([_pair(use.reserved.cpu, use.reserved.memory) for use in uses]),
        system=_columns([_pair(use.system.cpu, use.system.memory) for use in uses]),
        host_high=_columns([_pair(use.host_high.cpu, use.host_high.memory) for use in uses]),
        host_prod=_columns([_pair(use.host_prod.cpu, use.host_prod.memory) for use in uses]),
        unused=_columns([_unused(node) for node in loads]),
        reclaimable=_columns([_reclaimable(node) for node in loads]),
        updated=np.array([_moment(one) for one in metrics], dtype=np.int64),
        has_content=np.array(
            [one is not None and one.node_usage is not None for one in metrics], dtype=np.bool_
        ),
        has_allocatable=np.array([node.allocatable is not None for node in loads], dtype=np.bool_),
        pods=pods,
    )


def _moment(metric: NodeMetric | None) -> int:
    if metric is None or metric.update_time is None:
        return _NEVER
    return min(max(metric.update_time, _NEVER + 1), _LATEST)


def _check_sums(pods: PodColumns, count: int) -> None:
    for amounts in (pods.request, pods.used, pods.peak):
        for row in amounts:
            sums = np.bincount(pods.row, weights=np.abs(row).astype(np.float64), minlength=count)
            if sums.size and float(sums.max()) >= _LIMIT:
                raise ModelError("the pods of a node add up to more than a column holds")


def _unused(node: NodeLoad) -> tuple[int, int]:
    usage = node.metric.node_usage if node.metric else None
    if usage is None or CPU not in usage or MEMORY not in usage:
        return 0, 0
    return _pair(node.capacity.get(CPU, 0) - usage[CPU], node.capacity.get(MEMORY, 0) - usage[MEMORY])


def _reclaimable(node: NodeLoad) -> tuple[int, int]:
    found = node.metric.prod_reclaimable if node.metric else None
    return (0, 0) if found is None else _pair(found.get(CPU, 0), found.get(MEMORY, 0))


def compile_strategies(
    strategies: Iterable[ColocationStrategy], *, enabled: Iterable[bool]
) -> StrategyColumns:
    """Make columns of the strategies in force, one per node.

    What a strategy does not say is taken from the defaults; percentages beyond a million count as a million,
    a degrade time beyond 68 years as that. Equal strategies are read once.
    """
    read: dict[ColocationStrategy, tuple[int, ...]] = {}
    rows = []
    for strategy in strategies:
        if strategy not in read:
            read[strategy] = _strategy_row(overlay(DEFAULT_STRATEGY, strategy))
        rows.append(read[strategy])
    table = np.array(rows, dtype=np.int64).reshape(-1, 13).T.copy()
    return StrategyColumns(
        enabled=np.array(list(enabled), dtype=np.bool_),
        degrade_minutes=table[0],
        reclaim_percent=table[1:3],
        policy=table[3:5],
        batch_cap_percent=table[5:7],
        static=table[7].astype(np.bool_),
        static_percent=table[8:10],
        unallocated_percent=table[10],
        mid_percent=table[11:13],
    )


def _strategy_row(strategy: ColocationStrategy) -> tuple[int, ...]:
    peak = CalculatePolicy.MAX_USAGE_REQUEST
    cpu_policy = _POLICIES[peak if strategy.cpu_calculate_policy == peak else CalculatePolicy.USAGE]
    memory_policy = next(
        (code for policy, code in _POLICIES.items() if policy == strategy.memory_calculate_policy), 0
    )
    caps = (strategy.batch_cpu_threshold_percent, strategy.batch_memory_threshold_percent)
    minutes = max(-_MAX_MINUTES, min(_MAX_MINUTES, strategy.degrade_time_minutes or 0))
    return minutes, *_bounded(
        strategy.cpu_reclaim_threshold_percent or 0,
        strategy.memory_reclaim_threshold_percent or 0,
        cpu_policy,
        memory_policy,
        *(_NO_CAP if cap is None else max(cap, -_MAX_PERCENT) for cap in caps),
        int(strategy.mid_reclaim_mode == STATIC_MODE),
        strategy.mid_static_cpu_reserved_percent or 0,
        strategy.mid_static_memory_reserved_percent or 0,
        strategy.mid_unallocated_percent or 0,
        strategy.mid_cpu_threshold_percent or 0,
        strategy.mid_memory_threshold_percent or 0,
    )


def _bounded(*numbers: int) -> tuple[int, ...]:
    return tuple(max(_NO_CAP, min(_MAX_PERCENT, number)) for number in numbers)


def _up(amounts: Ints) -> Ints:
    """Milli-cores and bytes, rounded away from zero."""
    return np.sign(amounts) * -(-np.abs(amounts) // _UNITS)


def _share(units: Ints, ratio: NDArray[np.float64]) -> Ints:
    """A ratio of whole units: the float product, cut towards zero."""
    return np.trunc(units.astype(np.float64) * ratio).astype(np.int64)


def _per_node(pods: PodColumns, amounts: Ints, count: int) -> Ints:
    sums = np.zeros((2, count), dtype=np.int64)
    for resource in range(2):
        np.add.at(sums[resource], pods.row, amounts[resource])
    return sums


def lend_cluster(loads: LoadColumns, strategies: StrategyColumns, now: int) -> ClusterLending:
    """Compute what every node lends to batch and mid pods.

    Parameters
    ----------
    loads, strategies
        Columns of the same nodes in the same order.
    now
        Moment of the decision, nanoseconds since 1970.

    Raises
    ------
    ModelError
        When the two have different numbers of nodes.
    """
    count = len(loads.names)
    if strategies.enabled.shape != (count,):
        raise ModelError(f"{strategies.enabled.size} strategies for {count} nodes")
    stale = (loads.updated == _NEVER) | (now > loads.updated + strategies.degrade_minutes * MINUTE)
    on = strategies.enabled
    batch_outcome = np.select(
        [~on, stale, ~loads.has_content],
        [Outcome.DISABLED, Outcome.DEGRADED, Outcome.FAILED],
        default=Outcome.LENT,
    ).astype(np.int64)
    mid_outcome = np.select(
        [~on, ~loads.has_allocatable, stale, ~strategies.static & ~loads.has_content],
        [Outcome.DISABLED, Outcome.FAILED, Outcome.DEGRADED, Outcome.FAILED],
        default=Outcome.LENT,
    ).astype(np.int64)
    pods = loads.pods
    sums = np.stack([_per_node(pods, part, count) for part in (pods.used, pods.request, pods.peak)])
    capacity = _up(loads.capacity)
    margin = _share(capacity, (100 - strategies.reclaim_percent) / 100.0) * _UNITS
    by_request = strategies.policy == _POLICIES[CalculatePolicy.REQUEST]
    system = loads.system + loads.host_high
    taken = np.where(by_request, loads.reserved, np.maximum(system, loads.reserved))
    counted = np.take_along_axis(sums, strategies.policy[None], axis=0)[0]
    batch = np.maximum(loads.capacity - margin - taken - counted, 0)
    cap = strategies.batch_cap_percent
    capped = np.maximum(np.minimum(batch, _share(capacity, cap / 100.0) * _UNITS), 0)
    batch = np.where(cap == _NO_CAP, batch, capped)
    # Milli-cores of batch are rounded up and bytes down, as the scalar form gives them.
    shown = np.stack([-(-batch[0] // _UNITS[0]), batch[1] // _UNITS[1]])
    return ClusterLending(
        names=loads.names,
        batch=np.where(batch_outcome == Outcome.LENT, shown, 0),
        mid=np.where(mid_outcome == Outcome.LENT, _mid(loads, strategies, capacity), 0),
        batch_outcome=batch_outcome,
        mid_outcome=mid_outcome,
        capacity=capacity,
        margin=_up(margin),
        taken=_up(taken),
        pods=_up(counted),
    )


def _mid(loads: LoadColumns, strategies: StrategyColumns, capacity: Ints) -> Ints:
    pods = loads.pods
    asked = _per_node(pods, np.where(pods.unallocatable, pods.request, 0), len(loads.names))
    taken = np.maximum(loads.reserved, loads.system + loads.host_prod)
    unallocated = _up(np.maximum(loads.capacity - taken - asked, 0))
    base = np.maximum(np.minimum(_up(loads.reclaimable), _up(loads.unused)), 0)
    dynamic = base + _share(unallocated, strategies.unallocated_percent / 100.0)
    static = _share(capacity, strategies.static_percent / 100.0)
    lent = np.where(strategies.static, static, dynamic)
    return np.maximum(np.minimum(lent, _share(capacity, strategies.mid_percent / 100.0)), 0)
