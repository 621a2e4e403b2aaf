"""Every running pod as columns, kept along a line of snapshots: a change costs what changed."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import PODS_ROW, BoolVector, ClusterLayout, IntMatrix, IntVector
from koordcore._record import record
from koordcore._vector import Vector
from koordcore.allocators.gang.group_table import GroupTable, group_table
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import EVERYTHING
from koordcore.preemption.parties import ByNode
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.preemption import is_protected
from koordcore.protocol.quota import quota_label
from koordcore.protocol.times import moment_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_rows, derived, moves_since, once

_FEW: Final = 4
"""Where more than a quarter of the nodes changed, making all columns anew is no slower."""


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Tell whether evicting a pod uses a disruption budget up.

    A budget with an empty selector selects nobody here, and a pod that is being disrupted already is counted.
    """
    return (
        budget.namespace == pod.namespace
        and budget.selector != EVERYTHING
        and budget.selector.matches(pod.labels)
        and pod.name not in budget.disrupted_pods
    )


def amounts_of(layout: ClusterLayout, pod: Pod) -> IntVector:
    """Give what a pod holds per resource, shape (R,); itself counts as one of ``pods``."""
    amounts = np.zeros(len(layout.resources), dtype=np.int64)
    for name, amount in pod.requests.items():
        row = layout.index.get(name)
        if row is not None:
            amounts[row] = amount
    amounts[PODS_ROW] = 1
    return amounts


Leaving: TypeAlias = tuple[PodKey, int]
"""A pod with the row of its node."""


@record(eq=False, kw_only=True)
class RunningPods:
    """Every running pod as columns, by node, then key; V of them. Says nothing of who preempts.

    Parameters
    ----------
    pods
        The pods.
    node, amounts, priority
        Row of its node, what it holds, shape (R, V), and its priority.
    evictable, leaving
        Neither protected nor static; about to go anyhow, shape (V,).
    gang, gangs
        Index of each pod's gang among the sorted ids of all, -1 for none, shape (V,).
    whole
        Ids of those that are Kubernetes' groups and leave as a whole or not at all.
    grouped
        Kubernetes' groups had a say in the columns.
    team, teams
        Index of the quota that its label names and its namespace, among the sorted pairs of all, shape (V,).
    nodes, resources
        How many nodes there are, and the resources of the rows of ``amounts``.
    """

    pods: tuple[Pod, ...]
    node: IntVector
    amounts: IntMatrix
    priority: IntVector
    evictable: BoolVector
    leaving: BoolVector
    gang: IntVector
    gangs: tuple[str, ...]
    team: IntVector
    teams: tuple[tuple[str, str], ...]
    whole: frozenset[str] = frozenset()
    grouped: bool = False
    nodes: int
    resources: tuple[str, ...]

    @cached_property
    def every(self) -> IntVector:
        """The numbers of all pods, shape (V,), to be read only."""
        every = np.arange(len(self.pods))
        every.flags.writeable = False
        return every

    @cached_property
    def by_node(self) -> ByNode:
        """What the pods of each node come to."""
        return ByNode(self.node, self.amounts, self.nodes)

    @cached_property
    def own_priority(self) -> IntVector:
        """The priority of each pod itself, whatever its group says, shape (V,)."""
        return np.array([pod.priority for pod in self.pods], dtype=np.int64)

    @cached_property
    def by_importance(self) -> IntVector:
        """The numbers of all pods, the least important first: by priority, later start, name, shape (V,)."""
        return np.array(self._ranked[::-1], dtype=np.int64)

    @cached_property
    def _ranked(self) -> list[int]:
        return sorted(range(len(self.pods)), key=self._importance)

    def _rank_like(self, old: RunningPods, places: IntVector, fresh: Iterable[int]) -> None:
        """Take over the order of pods that are known, by their new places, -1 for none."""
        try:
            known = object.__getattribute__(old, "_ranked")
        except AttributeError:
            return  # nobody has asked for it yet
        there = places[known]
        ranked: list[int] = there[there >= 0].tolist()
        for one in fresh:
            insort(ranked, one, key=self._importance)
        object.__setattr__(self, "_ranked", ranked)

    def _importance(self, number: int) -> tuple[int, bool, int, str, str]:
        pod = self.pods[number]
        start = 0 if pod.started is None else moment_of(pod.started)
        return (-pod.priority, pod.started is None, start, pod.namespace, pod.name)

    def marked(self, named: Collection[Leaving]) -> BoolVector:
        """Tell which of the pods are named, shape (V,)."""
        marked = np.zeros(len(self.pods), dtype=np.bool_)
        keys, rows = {key for key, _ in named}, np.array(sorted({row for _, row in named}), dtype=np.int64)
        firsts, lasts = np.searchsorted(self.node, rows), np.searchsorted(self.node, rows, side="right")
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            marked[first:last] = [pod.key in keys for pod in self.pods[first:last]]
        return marked


def running_pods(
    layout: ClusterLayout, bound: Iterable[Pod], groups: GroupTable | None = None
) -> RunningPods:
    """Make the columns of the pods that run on known nodes; groups say who leaves together, and for whom.

    Parameters
    ----------
    layout
        Rows of the nodes and of the resources.
    bound
        The pods; those on unknown nodes are passed over.
    groups
        ``None`` where everybody is a group of one.
    """
    listed = [
        (row, pod.key, pod) for pod in bound if (row := layout.row_of.get(pod.node_name or "")) is not None
    ]
    listed.sort(key=lambda entry: entry[:2])
    return _columns(layout, [pod for *_, pod in listed], [row for row, *_ in listed], groups)


def running_on(snapshot: ClusterSnapshot) -> RunningPods:
    """Give the columns of a snapshot; they follow its changes."""
    return derived(snapshot, _running, _running_again, replaced=True)


def _running(snapshot: ClusterSnapshot) -> RunningPods:
    return running_pods(snapshot.layout, snapshot.bound_pods(), _groups(snapshot))


def _groups(snapshot: ClusterSnapshot) -> GroupTable | None:
    groups = once(snapshot, group_table)
    return groups if groups.nodes else None


def _running_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    value: RunningPods,
    snapshot: ClusterSnapshot,
) -> RunningPods:
    """Make the columns of the changed nodes anew; all of them where nodes joined or left."""
    if value.resources != snapshot.layout.resources or moves_since(snapshot, nodes):
        return _running(snapshot)
    groups = _groups(snapshot)
    changed = changed_rows(snapshot, nodes)
    # What groups say of their members is part of the columns.
    regrouped = changed_records(snapshot, records) and (groups is not None or value.grouped)
    if regrouped or len(changed) * _FEW > len(nodes):
        return _running(snapshot)
    if not changed:
        return value
    pods = (pod for row in changed for pod in snapshot.nodes[row].pods)
    fresh = running_pods(snapshot.layout, pods, groups)
    return _spliced(value, fresh, np.array(changed, dtype=np.int64))


def _columns(
    layout: ClusterLayout, pods: Sequence[Pod], rows: Sequence[int], groups: GroupTable | None
) -> RunningPods:
    names, priorities, whole = [], [], set()
    for pod in pods:
        gang = gang_name(pod.labels, pod.annotations)
        unit, priority = ("", None) if groups is None else groups.disruption_of(pod)
        if unit:
            whole.add(unit)
        names.append(unit or (f"{pod.namespace}/{gang}" if gang else ""))
        priorities.append(pod.priority if priority is None else priority)
    gangs = tuple(sorted(set(names) - {""}))
    index = {"": -1, **{name: number for number, name in enumerate(gangs)}}
    pairs = [(quota_label(pod.labels), pod.namespace) for pod in pods]
    teams = tuple(sorted(set(pairs)))
    number_of = {pair: number for number, pair in enumerate(teams)}
    known: dict[tuple[tuple[str, int], ...], int] = {}
    shapes, columns = [], []
    for pod in pods:
        shape = tuple(pod.requests.items())
        if shape not in known:
            known[shape] = len(known)
            columns.append(amounts_of(layout, pod))
        shapes.append(known[shape])
    table = np.stack(columns, axis=1) if columns else None
    nothing = np.zeros((len(layout.resources), 0), dtype=np.int64)
    return RunningPods(
        pods=tuple(pods),
        node=np.array(rows, dtype=np.int64),
        amounts=nothing if table is None else table[:, shapes],
        priority=np.array(priorities, dtype=np.int64),
        evictable=np.array([not is_protected(pod.labels) and not pod.fixed for pod in pods], dtype=np.bool_),
        leaving=np.array([pod.leaving for pod in pods], dtype=np.bool_),
        gang=np.array([index[name] for name in names], dtype=np.int64),
        gangs=gangs,
        whole=frozenset(whole),
        grouped=groups is not None,
        team=np.array([number_of[pair] for pair in pairs], dtype=np.int64),
        teams=teams,
        nodes=len(layout.names),
        resources=layout.resources,
    )


def _spliced(old: RunningPods, fresh: RunningPods, rows: IntVector) -> RunningPods:
    """Replace the pods of some nodes; ``rows`` ascend, and ``fresh`` has the pods of these nodes only."""
    starts, ends = np.searchsorted(old.node, rows), np.searchsorted(old.node, rows, side="right")
    first, last = np.searchsorted(fresh.node, rows), np.searchsorted(fresh.node, rows, side="right")
    kept = np.ones(len(old.pods), dtype=np.bool_)
    for start, end in zip(starts, ends, strict=True):
        kept[start:end] = False
    gangs, gang, own = _joined((old.gangs, old.gang), (fresh.gangs, fresh.gang), kept)
    teams, team, theirs = _joined((old.teams, old.team), (fresh.teams, fresh.team), kept)

    def spliced(before: NDArray[Any], after: NDArray[Any]) -> NDArray[Any]:
        parts, at = [], 0
        for start, end, low, high in zip(starts, ends, first, last, strict=True):
            parts += [before[..., at:start], after[..., low:high]]
            at = int(end)
        return np.concatenate([*parts, before[..., at:]], axis=-1)

    pods: list[Pod] = []
    at = 0
    for start, end, low, high in zip(
        starts.tolist(), ends.tolist(), first.tolist(), last.tolist(), strict=True
    ):
        pods += old.pods[at:start]
        pods += fresh.pods[low:high]
        at = end
    pods += old.pods[at:]
    made = RunningPods(
        pods=tuple(pods),
        node=spliced(old.node, fresh.node),
        amounts=spliced(old.amounts, fresh.amounts),
        priority=spliced(old.priority, fresh.priority),
        evictable=spliced(old.evictable, fresh.evictable),
        leaving=spliced(old.leaving, fresh.leaving),
        gang=spliced(gang, own),
        gangs=gangs,
        whole=(old.whole | fresh.whole).intersection(gangs),
        grouped=fresh.grouped,
        team=spliced(team, theirs),
        teams=teams,
        nodes=fresh.nodes,
        resources=fresh.resources,
    )
    origin = spliced(np.arange(len(old.pods)), -1 - np.arange(len(fresh.pods)))
    places = np.full(len(old.pods), -1, dtype=np.int64)
    places[origin[origin >= 0]] = np.flatnonzero(origin >= 0)
    made._rank_like(old, places, np.flatnonzero(origin < 0).tolist())  # noqa: SLF001  # of its own kind
    return made


def _joined(
    old: tuple[tuple[Any, ...], IntVector], fresh: tuple[tuple[Any, ...], IntVector], kept: BoolVector
) -> tuple[tuple[Any, ...], IntVector, IntVector]:
    """Number the names of pods that stay and of fresh ones anew; give both numberings."""
    names, number = old
    more, there = fresh
    left = number[~kept]
    if {names[one] for one in left[left >= 0].tolist()} <= set(more) <= set(names):
        return names, number, _renumbered(more, there, names)
    present: list[int] = np.unique(number[kept & (number >= 0)]).tolist()
    joined = tuple(sorted({*(names[one] for one in present), *more}))
    return joined, _renumbered(names, number, joined), _renumbered(more, there, joined)


def _renumbered(names: tuple[Any, ...], number: IntVector, joined: tuple[Any, ...]) -> IntVector:
    index = {name: position for position, name in enumerate(joined)}
    table = np.array([*(index.get(name, -1) for name in names), -1], dtype=np.int64)
    renumbered: IntVector = table[number]
    return renumbered
