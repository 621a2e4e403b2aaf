"""Several policies on one snapshot: who lands elsewhere, and what that costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import PODS_ROW, IntMatrix
from koordcore._notebook import html_table
from koordcore._record import record
from koordcore.allocators.gang.objective import domains_used
from koordcore.errors import ModelError
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.decisions import Bound, Nominated, NotOurs, Unschedulable, Waiting
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.nodes import ZONE_LABEL
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.resources import CPU, MEMORY, PODS, counted
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.scheduling.network_trees import network_tree
from koordcore.scheduling.plugins.gpu_share import demand_of
from koordcore.scoring.fragmentation import WorkloadMix, workload_mix
from koordcore.scoring.gpu_share import CARD, GpuDemand
from koordcore.simulate.cluster import ClusterFragmentation, fragmentation_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once

_ZONE: Final = "zone"
_NODE: Final = "node"
_WHOLE: Final = 10_000
"""Shares are given in hundredths of a percent: whole numbers, so that they are the same everywhere."""
_HALF_WORD: Final = 24


@record(kw_only=True)
class ResourceUse:
    """How one resource is used over the nodes that have it, in hundredths of a percent of what a node offers.

    Parameters
    ----------
    mean, deviation, highest
        Requested share per node: its mean, its standard deviation (0 is perfect balance) and the largest.
    stranded
        Share of what is free that a pod of the work, drawn at random, cannot use, since the node lacks
        something else for it or not enough is left.
    """

    mean: int
    deviation: int
    highest: int
    stranded: int


@record(kw_only=True)
class PolicyOutcome:
    """What one policy made of the pods.

    Parameters
    ----------
    name
        What the caller calls the policy.
    result
        All decisions, and the cluster afterwards.
    bound, unschedulable, waiting
        How many pods got a node, found none, wait for something else, such as the rest of their gang.
    domains
        How many nodes, zones and network domains the placed pods lie in, by layer.
    gang_domains
        The same, added up over the gangs that were placed: lower is nearer together.
    resources
        Use by resource name, in the end.
    nominated, not_ours
        How many pods are promised a node that others leave first, and how many are of schedulers that the
        policy does not name, which it does not decide.
    evicted, started
        Pods that leave for others, and milli-cards of the pods that start, with those for whom they leave.
    fragmentation
        Idle cards and how many of them the work cannot use (FGD); ``None`` in a cluster without cards.
    """

    name: str
    result: ScheduleResult
    bound: int
    unschedulable: int
    waiting: int
    nominated: int = 0
    not_ours: int = 0
    domains: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    gang_domains: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    resources: immutabledict[str, ResourceUse] = attrs.field(default=EMPTY, converter=frozen)
    evicted: int = 0
    started: int = 0
    fragmentation: ClusterFragmentation | None = None

    @property
    def disruption(self) -> float | None:
        """Evictions for each card that starts; ``None`` where no card does."""
        return self.evicted * CARD / self.started if self.started else None


@record
class Landing:
    """A pod that lands differently: its node under each policy, in their order; empty for no node."""

    pod: PodKey
    nodes: tuple[str, ...]


@record(kw_only=True)
class Comparison:
    """Several policies on one snapshot.

    Parameters
    ----------
    outcomes
        One per policy, in the order given.
    elsewhere
        The pods that do not land on the same node under all of them, in queue order.
    """

    outcomes: tuple[PolicyOutcome, ...]
    elsewhere: tuple[Landing, ...]

    def __repr__(self) -> str:
        """Count under each policy who is placed; the outcomes say it all."""
        placed = ", ".join(f"{one.name} places {one.bound}" for one in self.outcomes)
        return f"<Comparison: {placed}; {len(self.elsewhere)} pods land elsewhere>"

    def _repr_html_(self) -> str:
        """Show the table in a notebook."""
        return html_table(repr(self)[1:-1], self.table())

    def table(self) -> dict[str, list[Any]]:
        """Give the outcomes as columns by name, as pandas, polars and pyarrow take them.

        Returns
        -------
        dict
            A row per policy: ``policy``, ``placed``, ``unschedulable``, ``waiting``, ``nominated``,
            ``not ours``, ``elsewhere`` (pods that land on another node than under the first policy),
            ``evicted``; ``nodes`` and other layers with new pods, and ``gang nodes`` and so on, added up over
            gangs; for CPU and memory the shares of a node's room in percent; ``idle cards`` and
            ``fragmented cards``, ``None`` without cards.
        """
        made: dict[str, list[Any]] = {
            "policy": [one.name for one in self.outcomes],
            "placed": [one.bound for one in self.outcomes],
            "unschedulable": [one.unschedulable for one in self.outcomes],
            "waiting": [one.waiting for one in self.outcomes],
            "nominated": [one.nominated for one in self.outcomes],
            "not ours": [one.not_ours for one in self.outcomes],
            "elsewhere": [self.moved(one.name) for one in self.outcomes],
            "evicted": [one.evicted for one in self.outcomes],
        }
        for head, layers in (
            ("", [one.domains for one in self.outcomes]),
            ("gang ", [one.gang_domains for one in self.outcomes]),
        ):
            for layer in dict.fromkeys(layer for one in layers for layer in one):
                made[f"{head}{layer}s"] = [one.get(layer, 0) for one in layers]
        for name in (CPU, MEMORY):
            uses = [one.resources.get(name) for one in self.outcomes]
            for share in ("mean", "deviation", "highest", "stranded"):
                made[f"{name} {share} %"] = [
                    None if use is None else getattr(use, share) / 100 for use in uses
                ]
        cards = [one.fragmentation for one in self.outcomes]
        made["idle cards"] = [None if one is None else one.idle / CARD for one in cards]
        made["fragmented cards"] = [None if one is None else one.fragmented / CARD for one in cards]
        return made

    def moved(self, name: str) -> int:
        """Count the pods that land elsewhere under a policy than under the first one.

        Raises
        ------
        ModelError
            When no policy is called that.
        """
        names = [one.name for one in self.outcomes]
        if name not in names:
            raise ModelError(f"no policy {name} was compared, only {', '.join(names)}")
        column = names.index(name)
        return sum(one.nodes[column] != one.nodes[0] for one in self.elsewhere)


def compare_policies(
    snapshot: ClusterSnapshot,
    policies: Mapping[str, Policy],
    pods: Iterable[Pod] | None = None,
    *,
    now: datetime | None = None,
    limits: Limits = DEFAULT_LIMITS,
    preempt: PreemptionRules | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Comparison:
    """Ask several policies about the same pods on the same cluster.

    Each policy starts from the snapshot as it is given; none sees what another one did. Each decides the pods
    of the schedulers that it names, as in :func:`koordcore.schedule`; all others land nowhere under it.

    Parameters
    ----------
    snapshot
        The cluster.
    policies
        Name to policy; the first one is what the others are compared with.
    pods
        Whom to place; the snapshot's pending pods when left out.
    now, limits, preempt
        As for :func:`koordcore.schedule`.
    progress
        Told after each policy how many have been asked.

    Raises
    ------
    ModelError
        When there is no policy, or for the reasons of :func:`koordcore.schedule`.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot, Node, Pod, Policy
    >>> room = {"cpu": 4000, "memory": 2**33, "pods": 9}
    >>> nodes = [Node(name=name, allocatable=room) for name in ("a", "b")]
    >>> pods = [Pod(name=name, requests={"cpu": 1000}) for name in ("x", "y")]
    >>> bare = Policy(plugins=Policy().plugins[:1])
    >>> found = compare_policies(ClusterSnapshot(nodes=nodes), {"stock": Policy(), "bare": bare}, pods)
    >>> [(str(one.pod), one.nodes) for one in found.elsewhere], found.moved("bare")
    ([('default/y', ('b', 'a'))], 1)
    """
    if not isinstance(policies, Mapping):
        raise TypeError(f"policies: expected policies by name, got {policies!r:.60}")
    if not policies:
        raise ModelError("policies: at least one is needed")
    asked = None if pods is None else list(pods)
    whole = snapshot if asked is None else snapshot.with_pending(*asked)
    work = [*whole.bound_pods(), *whole.pending]
    mix, shapes = _card_mix(work), Counter(_shape(pod) for pod in work)
    outcomes = []
    for name, policy in policies.items():
        result = schedule(snapshot, asked, policy=policy, now=now, limits=limits, preempt=preempt)
        outcomes.append(_outcome(name, result, mix, shapes))
        progress(len(outcomes))
    nodes = [{one.pod: one.node for one in outcome.result.bound} for outcome in outcomes]
    landings = (
        Landing(one.pod, tuple(table.get(one.pod, "") for table in nodes))
        for one in outcomes[0].result.decisions
    )
    return Comparison(
        outcomes=tuple(outcomes), elsewhere=tuple(one for one in landings if len(set(one.nodes)) > 1)
    )


def _card_mix(pods: Iterable[Pod]) -> WorkloadMix | None:
    """Give what the work asks of cards; pods that ask for the impossible are no work."""
    demands = list(_demands(pods))
    return workload_mix(demands) if any(one.gpus for one in demands) else None


def _demands(pods: Iterable[Pod]) -> Iterator[GpuDemand]:
    for pod in pods:
        try:
            yield demand_of(pod)
        except ModelError:
            continue


def _shape(pod: Pod) -> tuple[tuple[str, int], ...]:
    """What takes part of a node's room; a pod is one pod, whatever it asks for."""
    kept = (pair for pair in pod.requests.items() if pair[1] > 0 and pair[0] != PODS and counted(pair[0]))
    return tuple(sorted(kept))


def _outcome(
    name: str,
    result: ScheduleResult,
    mix: WorkloadMix | None,
    shapes: Counter[tuple[tuple[str, int], ...]],
) -> PolicyOutcome:
    end = result.snapshot
    cards = None if mix is None else fragmentation_of(end, mix)
    gangs: Counter[str] = Counter()
    for plan in result.jobs:
        gangs.update(_layer_names(plan.domains))
    return PolicyOutcome(
        name=name,
        result=result,
        bound=sum(isinstance(one, Bound) for one in result.decisions),
        unschedulable=sum(isinstance(one, Unschedulable) for one in result.decisions),
        waiting=sum(isinstance(one, Waiting) for one in result.decisions),
        nominated=sum(isinstance(one, Nominated) for one in result.decisions),
        not_ours=sum(isinstance(one, NotOurs) for one in result.decisions),
        evicted=len({one.pod for plan in result.preemptions for one in plan.victims}),
        started=_started(result),
        domains=_domains(end, result.bound),
        gang_domains=gangs,
        resources=_uses(end, shapes),
        fragmentation=cards,
    )


def _started(result: ScheduleResult) -> int:
    """Count the milli-cards of who is placed or nominated."""
    nodes = {one.pod for one in result.decisions if isinstance(one, Bound | Nominated)}
    pods = [pod for pod in map(result.snapshot.pod, nodes) if pod is not None]
    return sum(demand.total for demand in _demands(pods))


def _layer_names(counts: Mapping[str, int]) -> dict[str, int]:
    """Call the layers as a table does: ``SpineLayer`` is a spine, the lowest layer is the node."""
    return {
        layer.removesuffix("Layer").removesuffix("Topology").lower(): count for layer, count in counts.items()
    }


def _domains(end: ClusterSnapshot, bound: Iterable[Bound]) -> dict[str, int]:
    """Count where the placed pods lie: zones, the layers of the network from the top down, nodes."""
    used = {one.node for one in bound}
    found = {}
    zones = {state.name: state.node.labels.get(ZONE_LABEL, "") for state in end.nodes}
    if any(zones.values()):
        found[_ZONE] = len({zones[node] for node in used if zones[node]})
    tree = once(end, network_tree)
    if tree is not None:
        counts = np.array([name in used for name in tree.nodes], np.int64)
        found |= _layer_names(domains_used(tree, counts))
    return {**found, _NODE: len(used)}


def _uses(end: ClusterSnapshot, shapes: Counter[tuple[tuple[str, int], ...]]) -> dict[str, ResourceUse]:
    layout = end.layout
    asked = {CPU, MEMORY}.union(name for shape in shapes for name, _ in shape)
    free = np.maximum(layout.allocatable - end.columns.requested, 0)
    stranded = _stranded(end, free, shapes)
    found = {}
    for row, name in enumerate(layout.resources):
        there = np.flatnonzero(layout.allocatable[row])
        if name not in asked or not len(there):
            continue
        # Python's integers, since a share of bytes times ten thousand is more than 64 bits can hold.
        shares = [
            _WHOLE * used // whole
            for used, whole in zip(
                end.columns.requested[row, there].tolist(),
                layout.allocatable[row, there].tolist(),
                strict=True,
            )
        ]
        number, total = len(shares), sum(shares)
        variance = number * sum(share * share for share in shares) - total * total
        found[name] = ResourceUse(
            mean=total // number,
            deviation=math.isqrt(variance) // number,
            highest=max(shares),
            stranded=stranded[row],
        )
    return found


def _stranded(
    end: ClusterSnapshot, free: IntMatrix, shapes: Counter[tuple[tuple[str, int], ...]]
) -> list[int]:
    """Give the share of each free resource that pods of the work cannot use, by row of the layout."""
    index, whole = end.layout.index, _sums(free)
    lost = [0] * len(whole)
    for shape, count in shapes.items():
        fits = free[PODS_ROW] > 0
        for name, amount in shape:
            fits &= free[index[name]] >= amount if name in index else False
        for row, usable in enumerate(_sums(free[:, fits])):
            lost[row] += count * (whole[row] - usable)
    work = shapes.total()
    return [
        _WHOLE * part // (work * total) if total and work else 0
        for part, total in zip(lost, whole, strict=True)
    ]


def _sums(amounts: IntMatrix) -> list[int]:
    """Add up rows whose sum may be more than 64 bits can hold."""
    high, low = (amounts >> _HALF_WORD).sum(axis=1), (amounts & ((1 << _HALF_WORD) - 1)).sum(axis=1)
    return [(upper << _HALF_WORD) + lower for upper, lower in zip(high.tolist(), low.tolist(), strict=True)]
