"""Which nodes are hot and which are idle (``loadaware/utilization_util.go``, ``low_node_load.go``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.durations import SECOND
from koordcore.model.metrics import NOTHING_MEASURED, Measured, NodeMetric
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.quantity import NANO
from koordcore.model.rebalance import LowNodeLoadArgs, NodePool, Thresholds
from koordcore.model.resources import MEMORY, PODS, Resources, scale_of
from koordcore.protocol.load import raw_allocatable
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.qos import PriorityClass
from koordcore.protocol.raw_selectors import selector_of

_FULL: Final = 100.0


class NodeClass(StrEnum):
    """How loaded a node is, by all of its usage and by that of prod pods."""

    LOW = "low"
    BOTH_LOW = "bothLow"
    PROD_LOW = "prodLow"
    HIGH = "high"
    PROD_HIGH = "prodHigh"
    NONE = "none"


@record
class Percents:
    """The thresholds of a pool in percent, completed."""

    high: Thresholds
    low: Thresholds
    prod_high: Thresholds
    prod_low: Thresholds


@record(kw_only=True)
class NodeLoad:
    """One node with what it uses and where its thresholds lie, all exact (billionths of a unit).

    Parameters
    ----------
    node, metric, pods
        The node, its report, and its pods that have not ended, in their order.
    allocatable
        What percentages refer to (usual integers).
    usage, prod_usage
        What everything, and what prod pods, use.
    high, low, prod_high, prod_low
        Thresholds as amounts.
    kind
        How it is classified.
    """

    node: Node
    metric: NodeMetric
    pods: tuple[Pod, ...]
    allocatable: Resources
    usage: Measured
    prod_usage: Measured
    high: Measured = NOTHING_MEASURED
    low: Measured = NOTHING_MEASURED
    prod_high: Measured = NOTHING_MEASURED
    prod_low: Measured = NOTHING_MEASURED
    kind: NodeClass = NodeClass.NONE

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.node.name


@record
class PoolLoad:
    """All nodes of one pool.

    Parameters
    ----------
    pool, percents
        The pool and its completed thresholds.
    size
        Nodes of the pool, with those that were skipped.
    loads
        Nodes with a fresh report, by name.
    skipped
        Names of the others.
    """

    pool: NodePool
    percents: Percents
    size: int
    loads: tuple[NodeLoad, ...]
    skipped: tuple[str, ...]

    def of(self, *kinds: NodeClass) -> tuple[NodeLoad, ...]:
        """List the nodes of some classes, by name."""
        return tuple(load for load in self.loads if load.kind in kinds)


def complete_thresholds(pool: NodePool) -> Percents:
    """Fill what a pool's thresholds leave out so that it limits nothing.

    Every resource of any of the four maps, and memory, gets all four. One named on neither side of a pair
    gets 100 percent there (a deviation of 0, which is no threshold); of one named on one side only, the
    other side is the neutral one: any usage up to the high threshold is low enough, any usage is below the
    missing high threshold. By deviation, where low thresholds lie below the average, the neutral one is
    negative: it lies as far above.
    """
    high, low = dict(pool.high or {}), dict(pool.low or {})
    prod_high, prod_low = dict(pool.prod_high or {}), dict(pool.prod_low or {})
    names = sorted({*high, *low, *prod_high, *prod_low, MEMORY})
    for above, below in ((high, low), (prod_high, prod_low)):
        for name in names:
            if pool.deviation:
                # No deviation below is what says "no threshold" here.
                below.setdefault(name, -above.get(name, 0))
                above.setdefault(name, _FULL if below[name] else 0)
            else:
                above.setdefault(name, max(_FULL, below.get(name, 0)))
                below.setdefault(name, above[name])
    frozen = (immutabledict(sorted(one.items())) for one in (high, low, prod_high, prod_low))
    return Percents(*frozen)


def is_under(usage: Mapping[str, int], thresholds: Mapping[str, int]) -> bool:
    """Tell whether every resource is used up to its threshold at most."""
    return all(usage.get(name, 0) <= limit for name, limit in thresholds.items())


def exceeded(usage: Mapping[str, int], thresholds: Mapping[str, int]) -> tuple[str, ...]:
    """Name the resources that are used above their thresholds, sorted."""
    return tuple(sorted(name for name, limit in thresholds.items() if usage.get(name, 0) > limit))


def is_over(usage: Mapping[str, int], thresholds: Mapping[str, int]) -> bool:
    """Tell whether one resource is used above its threshold."""
    return any(usage.get(name, 0) > limit for name, limit in thresholds.items())


def classify_pool(
    pool: NodePool,
    nodes: Iterable[Node],
    pods: Mapping[str, Iterable[Pod]],
    metrics: Mapping[str, NodeMetric],
    args: LowNodeLoadArgs,
    now: int,
) -> PoolLoad:
    """Classify the nodes of a pool.

    Parameters
    ----------
    pool
        Which nodes, and their thresholds.
    nodes
        Candidates; those that the pool does not select are left out.
    pods
        Node name to its pods; those that have ended are left out.
    metrics
        Node name to its report.
    args
        How old a report may be.
    now
        Moment in nanoseconds since 1970.
    """
    selector = None if pool.selector is None else selector_of(pool.selector)
    chosen = sorted(
        (node for node in nodes if selector is None or selector.matches(node.labels)),
        key=lambda node: node.name,
    )
    percents = complete_thresholds(pool)
    names = tuple(sorted({*percents.high, PODS}))
    loads, skipped = [], []
    for node in chosen:
        metric = metrics.get(node.name)
        if metric is None or not _fresh(metric, args.metric_expiration, now):
            skipped.append(node.name)
        else:
            alive = tuple(pod for pod in pods.get(node.name, ()) if not pod.finished)
            loads.append(_measure(node, metric, alive, names))
    averages = _averages(loads) if pool.deviation else None
    done = tuple(_classify(_with_thresholds(load, percents, averages)) for load in loads)
    return PoolLoad(pool, percents, len(chosen), done, tuple(skipped))


def _fresh(metric: NodeMetric, expiration: int, now: int) -> bool:
    if metric.node_usage is None or metric.update_time is None:
        return False
    return now - metric.update_time < expiration * SECOND


def _measure(node: Node, metric: NodeMetric, pods: tuple[Pod, ...], names: tuple[str, ...]) -> NodeLoad:
    reported = metric.pod_usages()
    usage, prod = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    for used in (metric.system_usage, *(one.usage for one in metric.pods)):
        for name, amount in used.items():
            if name in usage:
                usage[name] += amount
    productive = [pod for pod in pods if pod_priority_class(pod) is PriorityClass.PROD]
    for pod in productive:
        one = reported.get((pod.namespace, pod.name))
        if one is not None:
            for name, amount in one.usage.items():
                if name in prod:
                    prod[name] += amount
    usage[PODS], prod[PODS] = len(pods) * NANO, len(productive) * NANO
    return NodeLoad(
        node=node,
        metric=metric,
        pods=pods,
        allocatable=raw_allocatable(node),
        usage=immutabledict(usage),
        prod_usage=immutabledict(prod),
    )


def _step(name: str) -> int:
    return NANO // scale_of(name)


def _averages(loads: list[NodeLoad]) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Average usage in percent over all nodes; a node without the resource adds nothing but counts."""
    sums: tuple[dict[str, float], dict[str, float]] = ({}, {})
    for load in loads:
        for total, usage in zip(sums, (load.usage, load.prod_usage), strict=True):
            for name, used in usage.items():
                room = load.allocatable.get(name, 0)
                if room:
                    amount = -(-used // _step(name))
                    total[name] = total.get(name, 0.0) + float(amount) / float(room) * 100.0
    count = len(loads)
    node, prod = ({name: one / count for name, one in total.items()} for total in sums)
    return node, prod


def _with_thresholds(
    load: NodeLoad,
    percents: Percents,
    averages: tuple[Mapping[str, float], Mapping[str, float]] | None,
) -> NodeLoad:
    node, prod = averages or (None, None)
    low, high = _amounts(load.allocatable, percents.low, percents.high, node)
    prod_low, prod_high = _amounts(load.allocatable, percents.prod_low, percents.prod_high, prod)
    return attrs.evolve(load, low=low, high=high, prod_low=prod_low, prod_high=prod_high)


def _amounts(
    allocatable: Mapping[str, int], low: Thresholds, high: Thresholds, average: Mapping[str, float] | None
) -> tuple[Measured, Measured]:
    lows, highs = {}, {}
    for name in high:
        room, step = allocatable.get(name, 0), _step(name)
        if average is None:
            below, above = low[name], high[name]
        elif low[name] == 0:
            below = above = _FULL
        else:
            mean = average.get(name, 0.0)
            below = min(max(mean - low[name], 0.0), _FULL)
            above = min(max(mean + high[name], 0.0), _FULL)
        full = average is not None and low[name] == 0
        lows[name] = step * (room if full else _share(below, room))
        highs[name] = step * (room if full else _share(above, room))
    return immutabledict(lows), immutabledict(highs)


def _share(percent: float, amount: int) -> int:
    # In this order, as the last bit of the product decides where it is cut.
    return int(percent * 0.01 * float(amount))


def _classify(load: NodeLoad) -> NodeLoad:
    target = not load.node.unschedulable
    prod_over = is_over(load.prod_usage, load.prod_high)
    prod_under = is_under(load.prod_usage, load.prod_low)
    if target and is_under(load.usage, load.low):
        kind = NodeClass.BOTH_LOW if prod_under else NodeClass.LOW
        kind = NodeClass.PROD_HIGH if prod_over else kind
    elif is_over(load.usage, load.high):
        kind = NodeClass.HIGH
    elif prod_over:
        kind = NodeClass.PROD_HIGH
    else:
        kind = NodeClass.PROD_LOW if target and prod_under else NodeClass.NONE
    return attrs.evolve(load, kind=kind)
