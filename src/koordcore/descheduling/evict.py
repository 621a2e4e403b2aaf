"""The reference's heuristic: evict from hot nodes, greedily, while idle nodes have room.

One round of LowNodeLoad (``loadaware/low_node_load.go``, ``utilization_util.go``), kept as it is, so that
plans can be compared with it. Nodes are visited by name where upstream takes the order of a map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import attrs

from koordcore._record import record
from koordcore.descheduling.anomaly import NO_DETECTORS, Detectors
from koordcore.descheduling.classify import (
    NodeClass,
    NodeLoad,
    Percents,
    PoolLoad,
    classify_pool,
    exceeded,
    is_over,
)
from koordcore.descheduling.migration.filter import MigrationFilter, evictability
from koordcore.descheduling.migration.limits import EvictionCounts
from koordcore.descheduling.nodefit import Fit
from koordcore.descheduling.sort import node_usage_score, sort_pods
from koordcore.model.metrics import NodeMetric, rounded
from koordcore.model.migration import JobPhase, PodMigrationJob
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quantity import NANO
from koordcore.model.rebalance import (
    NO_LIMITS,
    EvictionLimits,
    EvictorArgs,
    LowNodeLoadArgs,
    Namespaces,
    NodePool,
    PodSelector,
)
from koordcore.model.resources import PODS, scale_of
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.qos import PriorityClass
from koordcore.protocol.raw_selectors import selector_of

_NOBODY: Final[frozenset[str]] = frozenset()


@record
class Eviction:
    """A pod that was evicted, from where, and why."""

    pod: Pod
    node: str
    reason: str


class Evictor(Protocol):
    """Whoever carries evictions out."""

    def admits(self, pod: Pod) -> bool:
        """Tell whether the pod may be evicted."""

    def evict(self, pod: Pod) -> bool:
        """Evict the pod; ``False`` where that is refused."""


class CycleEvictor:
    """Decides about evictions within one cycle, by the pod's own rules or by those of migration.

    Parameters
    ----------
    rules
        What lies in the pod alone, or everything that the migration controller looks at.
    limits
        What one cycle may evict.
    refused
        ``namespace/name`` of pods whose eviction fails when it is tried.
    leaving
        Pods that go already: nobody evicts them again.
    """

    def __init__(
        self,
        rules: EvictorArgs | MigrationFilter,
        limits: EvictionLimits = NO_LIMITS,
        refused: frozenset[str] = _NOBODY,
        leaving: Collection[PodKey] = (),
    ) -> None:
        self._rules = rules
        self._leaving = frozenset(leaving)
        self._refused = refused
        self.counts = EvictionCounts(limits=limits)

    def admits(self, pod: Pod) -> bool:
        """Tell whether the pod may be evicted."""
        if pod.key in self._leaving:
            return False
        if isinstance(self._rules, MigrationFilter):
            return self._rules.refusal(pod) is None
        return evictability(pod, self._rules) is None

    def evict(self, pod: Pod) -> bool:
        """Evict the pod unless a limit, a rule or the eviction itself refuses; counts successes."""
        if not self.counts.allows(pod) or not self.admits(pod) or str(pod.key) in self._refused:
            return False
        if isinstance(self._rules, MigrationFilter):
            job = PodMigrationJob(
                name=f"{pod.namespace}-{pod.name}", pod=pod.key, pod_uid=pod.uid, phase=JobPhase.PENDING
            )
            self._rules.put(job)
        self.counts = self.counts.counted(pod)
        return True


@record
class LowNodeLoadState:
    """What is remembered from round to round: the detectors for nodes and for prod usage."""

    node: Detectors = NO_DETECTORS
    prod: Detectors = NO_DETECTORS


def admitted(
    evictor: Evictor, namespaces: Namespaces | None, selectors: Sequence[PodSelector]
) -> Callable[[Pod], bool]:
    """Make the test of a plugin: what the evictor admits, in the namespaces, with one of the selectors.

    An entry without a selector does not count; without any selector all pods pass.
    """
    compiled = [selector_of(one.selector) for one in selectors if one.selector is not None]

    def test(pod: Pod) -> bool:
        return (
            (namespaces is None or namespaces.admits(pod.namespace))
            and (not compiled or any(one.matches(pod.labels) for one in compiled))
            and evictor.admits(pod)
        )

    return test


def balance_low_node_load(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    metrics: Mapping[str, NodeMetric],
    args: LowNodeLoadArgs,
    *,
    now: int,
    evictor: Evictor,
    state: LowNodeLoadState = LowNodeLoadState(),
) -> tuple[tuple[Eviction, ...], LowNodeLoadState]:
    """Run one round over all pools.

    Parameters
    ----------
    nodes, pods, metrics
        The cluster; pods in the order in which a node lists them.
    args
        Thresholds and switches; with ``dry_run`` the evictor is only asked whom it admits.
    now
        Moment in nanoseconds since 1970.
    evictor
        Whoever carries the evictions out.
    state
        What the round before left.

    Returns
    -------
    tuple of Eviction, LowNodeLoadState
        In the order of eviction, and what the next round needs.
    """
    timeout = args.detector_cache_timeout
    state = LowNodeLoadState(state.node.live(now, timeout), state.prod.live(now, timeout))
    if args.paused:
        return (), state
    round_ = _Round(nodes, pods, metrics, args, now, evictor, state)
    processed: set[str] = set()
    for pool in args.pools:
        left = [node for node in nodes if pool.selector is None or node.name not in processed]
        processed.update(round_.balance(pool, left))
    return tuple(round_.evicted), LowNodeLoadState(round_.node_detectors, round_.prod_detectors)


@attrs.define
class _Ledger:
    """A node's load while the round goes on."""

    load: NodeLoad
    usage: dict[str, int]
    prod: dict[str, int]


class _Round:
    def __init__(
        self,
        nodes: Sequence[Node],
        pods: Sequence[Pod],
        metrics: Mapping[str, NodeMetric],
        args: LowNodeLoadArgs,
        now: int,
        evictor: Evictor,
        state: LowNodeLoadState,
    ) -> None:
        self._args, self._now, self._metrics, self._evictor = args, now, metrics, evictor
        self._fit = Fit(nodes, pods)
        self._pods: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.node_name:
                self._pods.setdefault(pod.node_name, []).append(pod)
        self._admits = admitted(evictor, args.namespaces, args.pod_selectors)
        self.node_detectors, self.prod_detectors = state.node, state.prod
        self.evicted: list[Eviction] = []

    def balance(self, pool: NodePool, nodes: Sequence[Node]) -> Iterable[str]:
        """Balance one pool; gives the names of its hot nodes, which later pools leave alone."""
        loads = classify_pool(pool, nodes, self._pods, self._metrics, self._args, self._now)
        hot, prod_hot = loads.of(NodeClass.HIGH), loads.of(NodeClass.PROD_HIGH)
        if not hot and not prod_hot:
            return ()
        sources = self._sighted(pool, hot, prod=False)
        prod_sources = self._sighted(pool, prod_hot, prod=True)
        if (sources or prod_sources) and self._has_targets(loads):
            self._relieve(loads, sources, prod_sources)
            self._mark_normal(pool, sources, prod_sources)
            return [load.name for load in hot]
        return ()

    def _sighted(self, pool: NodePool, hot: tuple[NodeLoad, ...], *, prod: bool) -> tuple[NodeLoad, ...]:
        condition = pool.anomaly
        if condition is None or condition.consecutive_abnormalities == 1:
            return hot
        detectors = self.prod_detectors if prod else self.node_detectors
        for load in hot:
            detectors = detectors.seen(load.name, condition, abnormal=True, now=self._now)
        if prod:
            self.prod_detectors = detectors
        else:
            self.node_detectors = detectors
        return tuple(load for load in hot if detectors.anomalous(load.name))

    def _has_targets(self, loads: PoolLoad) -> bool:
        low, both = loads.of(NodeClass.LOW), loads.of(NodeClass.BOTH_LOW)
        prod_low = loads.of(NodeClass.PROD_LOW)
        count = len(low) + len(both) + len(prod_low)
        if not count:
            return False
        self.node_detectors = self.node_detectors.reset((load.name for load in (*low, *both)), self._now)
        self.prod_detectors = self.prod_detectors.reset((load.name for load in prod_low), self._now)
        return count > self._args.number_of_nodes and count < loads.size

    def _mark_normal(
        self, pool: NodePool, sources: tuple[NodeLoad, ...], prod_sources: tuple[NodeLoad, ...]
    ) -> None:
        condition = pool.anomaly
        if condition is None or condition.consecutive_abnormalities == 1:
            return
        for load in sources:
            self.node_detectors = self.node_detectors.seen(
                load.name, condition, abnormal=False, now=self._now
            )
        for load in prod_sources:
            self.prod_detectors = self.prod_detectors.seen(
                load.name, condition, abnormal=False, now=self._now
            )

    def _relieve(
        self, loads: PoolLoad, sources: tuple[NodeLoad, ...], prod_sources: tuple[NodeLoad, ...]
    ) -> None:
        def ledgers(*kinds: NodeClass) -> list[_Ledger]:
            return [_Ledger(one, dict(one.usage), dict(one.prod_usage)) for one in loads.of(*kinds)]

        low, both, prod_low = (
            ledgers(NodeClass.LOW),
            ledgers(NodeClass.BOTH_LOW),
            ledgers(NodeClass.PROD_LOW),
        )
        room, prod_room = _rooms([*low, *both]), _prod_rooms(prod_low)
        both_room, both_prod_room = _rooms(both), _prod_rooms(both)
        node_targets = sorted([*low, *both], key=lambda one: one.load.name)
        if node_targets:
            self._pass(loads, sources, node_targets, room, prod=False)
        for name, amount in both_prod_room.items():
            shared = min(amount, both_room.get(name, 0), room.get(name, 0))
            prod_room[name] = prod_room.get(name, 0) + shared
        prod_targets = sorted([*prod_low, *both], key=lambda one: one.load.name)
        if prod_targets:
            self._pass(loads, prod_sources, prod_targets, prod_room, prod=True)

    def _pass(
        self,
        loads: PoolLoad,
        sources: tuple[NodeLoad, ...],
        targets: list[_Ledger],
        room: dict[str, int],
        *,
        prod: bool,
    ) -> None:
        weights = loads.pool.weights

        def heat(load: NodeLoad) -> int:
            usage = rounded(load.prod_usage if prod else load.usage)
            return -node_usage_score(usage, load.allocatable, weights)

        for load in sorted(sources, key=heat):
            source = _Ledger(load, dict(load.usage), dict(load.prod_usage))
            candidates = [pod for pod in load.pods if self._removable(pod, load, targets, prod=prod)]
            ordered = self._ordered(candidates, source, weights, prod=prod)
            self._drain(source, ordered, room, loads.percents, prod=prod)

    def _removable(self, pod: Pod, load: NodeLoad, targets: list[_Ledger], *, prod: bool) -> bool:
        if prod and pod_priority_class(pod) is not PriorityClass.PROD:
            return False
        if not self._admits(pod):
            return False
        if not self._args.node_fit:
            return True
        reported = load.metric.pod_usages().get((pod.namespace, pod.name))
        if reported is None:
            return False
        for target in targets:
            if self._fit.failures(pod, target.load.name):
                continue
            usage = target.prod if prod else target.usage
            high = target.load.prod_high if prod else target.load.high
            taken = reported.usage
            if any(usage.get(name, 0) + taken.get(name, 0) > limit for name, limit in high.items()):
                continue
            for name in high:
                usage[name] = usage.get(name, 0) + taken.get(name, 0)
            return True
        return False

    def _ordered(
        self, pods: list[Pod], source: _Ledger, weights: Mapping[str, int], *, prod: bool
    ) -> tuple[Pod, ...]:
        load = source.load
        usage, high = (load.prod_usage, load.prod_high) if prod else (load.usage, load.high)
        over = exceeded(usage, high)
        excess = rounded({name: usage.get(name, 0) - high[name] for name in over})
        reported = load.metric.pod_usages()
        used = {
            (pod.namespace, pod.name): rounded(reported[pod.namespace, pod.name].usage)
            for pod in pods
            if (pod.namespace, pod.name) in reported
        }
        weigh = {name: weights.get(name, 0) for name in over}
        return sort_pods(pods, usage=used, excess=excess, weights=weigh)

    def _drain(
        self,
        source: _Ledger,
        pods: tuple[Pod, ...],
        room: dict[str, int],
        percents: Percents,
        *,
        prod: bool,
    ) -> None:
        load = source.load
        reported = load.metric.pod_usages()
        high = load.prod_high if prod else load.high
        for pod in pods:
            if not is_over(source.prod if prod else source.usage, high):
                self._recovered(load.name, prod=prod)
                return
            if any(left <= 0 for left in room.values()):
                return
            if not self._admits(pod):
                continue
            reason = _reason(source, percents, prod=prod)
            if not self._args.dry_run and not self._evictor.evict(pod):
                continue
            self.evicted.append(Eviction(pod, load.name, reason))
            metric = reported.get((pod.namespace, pod.name))
            if metric is None:
                continue
            for name in room:
                taken = NANO if name == PODS else metric.usage.get(name, 0)
                room[name] -= taken
                source.usage[name] = source.usage.get(name, 0) - taken
                if prod:
                    source.prod[name] = source.prod.get(name, 0) - taken

    def _recovered(self, node: str, *, prod: bool) -> None:
        if prod:
            self.prod_detectors = self.prod_detectors.reset([node], self._now)
        else:
            self.node_detectors = self.node_detectors.reset([node], self._now)


def _rooms(targets: list[_Ledger]) -> dict[str, int]:
    room: dict[str, int] = {}
    for one in targets:
        for name, limit in one.load.high.items():
            room[name] = room.get(name, 0) + limit - one.usage.get(name, 0)
    return room


def _prod_rooms(targets: list[_Ledger]) -> dict[str, int]:
    room: dict[str, int] = {}
    for one in targets:
        for name, limit in one.load.prod_high.items():
            room[name] = room.get(name, 0) + limit - one.prod.get(name, 0)
    return room


def _reason(source: _Ledger, percents: Percents, *, prod: bool) -> str:
    load = source.load
    usage, high = (source.prod, load.prod_high) if prod else (source.usage, load.high)
    limits = percents.prod_high if prod else percents.high
    label = "prod" if prod else "node"
    parts = []
    for name in exceeded(usage, high):
        used = _percent(-(-usage.get(name, 0) // (NANO // scale_of(name))), load.allocatable.get(name, 0))
        parts.append(f"{label} {name} usage({used:.2f}%)>threshold({limits[name]:.2f}%)")
    return f"node is overutilized, {', '.join(parts)}"


def _percent(amount: int, room: int) -> float:
    return amount / room * 100.0 if room else 0.0
