"""Every running pod as columns, kept along a line of snapshots: a change costs what changed."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar

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
from koordcore.model.selectors import EVERYTHING, LabelSelector
from koordcore.preemption.parties import ByNode
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.preemption import is_protected
from koordcore.protocol.quota import quota_label
from koordcore.protocol.times import moment_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_rows, derived, moves_since, once

T = TypeVar("T")

_FEW: Final = 4
"""Where more than a quarter of the nodes changed, making all columns anew is no slower."""


def covers(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Tell whether evicting a pod uses a budget up; one that is being disrupted is counted already."""
    return selects(budget, pod.namespace, pod.labels) and pod.name not in budget.disrupted_pods


def selects(budget: PodDisruptionBudget, namespace: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a budget is for pods with some labels; an empty selector is for nobody here."""
    selector = budget.selector
    return budget.namespace == namespace and selector != EVERYTHING and selector.matches(labels)


def told_by(budgets: Iterable[PodDisruptionBudget]) -> tuple[str, ...]:
    """Give the keys of the labels that budgets ask for."""
    keys = set[str]()
    for one in budgets:
        keys.update(one.selector.match_labels, (asked.key for asked in one.selector.requirements))
    return tuple(sorted(keys))


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


Sort: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""The namespace of a pod, and those of its labels that count."""


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
    sort, sorts
        Index of its namespace and labels among the sorted ones of all, shape (V,).
    told
        Keys of the labels that count there: those that disruption budgets ask for.
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
    sort: IntVector
    sorts: tuple[Sort, ...]
    told: tuple[str, ...] = ()
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

    def selected(self, budget: PodDisruptionBudget) -> BoolVector:
        """Tell for which of the sorts of pods a budget is, to be read only."""
        key = budget.namespace, budget.selector
        if key not in self._selected:
            of_sort = [selects(budget, namespace, labels) for namespace, labels in self._told_apart]
            self._selected[key] = np.array(of_sort, dtype=np.bool_)
        return self._selected[key]

    @cached_property
    def _selected(self) -> dict[tuple[str, LabelSelector], BoolVector]:
        return {}

    @cached_property
    def _told_apart(self) -> list[tuple[str, dict[str, str]]]:
        return [(namespace, dict(labels)) for namespace, labels in self.sorts]

    def marked(self, named: Collection[Leaving]) -> BoolVector:
        """Tell which of the pods are named, shape (V,)."""
        marked = np.zeros(len(self.pods), dtype=np.bool_)
        keys, rows = {key for key, _ in named}, np.array(sorted({row for _, row in named}), dtype=np.int64)
        firsts, lasts = np.searchsorted(self.node, rows), np.searchsorted(self.node, rows, side="right")
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            marked[first:last] = [pod.key in keys for pod in self.pods[first:last]]
        return marked


def running_pods(
    layout: ClusterLayout,
    bound: Iterable[Pod],
    groups: GroupTable | None = None,
    told: tuple[str, ...] = (),
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
    told
        Keys of the labels that disruption budgets ask for.
    """
    listed = [
        (row, pod.key, pod) for pod in bound if (row := layout.row_of.get(pod.node_name or "")) is not None
    ]
    listed.sort(key=lambda entry: entry[:2])
    return _columns(layout, [pod for *_, pod in listed], [row for row, *_ in listed], groups, told)


def running_on(snapshot: ClusterSnapshot) -> RunningPods:
    """Give the columns of a snapshot; they follow its changes."""
    return derived(snapshot, _running, _running_again, replaced=True)


def _running(snapshot: ClusterSnapshot) -> RunningPods:
    told = once(snapshot, _told)
    return running_pods(snapshot.layout, snapshot.bound_pods(), _groups(snapshot), told)


def _told(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    return told_by(snapshot.of(PodDisruptionBudget))


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
    retold = once(snapshot, _told) != value.told
    if regrouped or retold or len(changed) * _FEW > len(nodes):
        return _running(snapshot)
    if not changed:
        return value
    pods = (pod for row in changed for pod in snapshot.nodes[row].pods)
    fresh = running_pods(snapshot.layout, pods, groups, value.told)
    return _spliced(value, fresh, np.array(changed, dtype=np.int64))


def _columns(
    layout: ClusterLayout,
    pods: Sequence[Pod],
    rows: Sequence[int],
    groups: GroupTable | None,
    told: tuple[str, ...],
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
    teams, team = _numbered((quota_label(pod.labels), pod.namespace) for pod in pods)
    sorts, sort = _numbered(
        (pod.namespace, tuple((key, pod.labels[key]) for key in told if key in pod.labels)) for pod in pods
    )
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
        team=team,
        teams=teams,
        sort=sort,
        sorts=sorts,
        told=told,
        nodes=len(layout.names),
        resources=layout.resources,
    )


def _numbered(values: Iterable[T]) -> tuple[tuple[T, ...], IntVector]:
    """Give the values that occur, sorted, and which of them each is."""
    listed = list(values)
    names = tuple(sorted(set(listed)))  # type: ignore[type-var]  # pairs of texts
    index = {name: number for number, name in enumerate(names)}
    return names, np.array([index[one] for one in listed], dtype=np.int64)


def _spliced(old: RunningPods, fresh: RunningPods, rows: IntVector) -> RunningPods:
    """Replace the pods of some nodes; ``rows`` ascend, and ``fresh`` has the pods of these nodes only."""
    starts, ends = np.searchsorted(old.node, rows), np.searchsorted(old.node, rows, side="right")
    first, last = np.searchsorted(fresh.node, rows), np.searchsorted(fresh.node, rows, side="right")
    kept = np.ones(len(old.pods), dtype=np.bool_)
    for start, end in zip(starts, ends, strict=True):
        kept[start:end] = False
    gangs, gang, own = _joined((old.gangs, old.gang), (fresh.gangs, fresh.gang), kept)
    teams, team, theirs = _joined((old.teams, old.team), (fresh.teams, fresh.team), kept)

    sorts, sort, kinds = _joined((old.sorts, old.sort), (fresh.sorts, fresh.sort), kept)

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
        sort=spliced(sort, kinds),
        sorts=sorts,
        told=fresh.told,
        nodes=fresh.nodes,
        resources=fresh.resources,
    )
    origin = spliced(np.arange(len(old.pods)), -1 - np.arange(len(fresh.pods)))
    places = np.full(len(old.pods), -1, dtype=np.int64)
    places[origin[origin >= 0]] = np.flatnonzero(origin >= 0)
    if sorts is old.sorts:
        object.__setattr__(made, "_selected", old._selected)  # noqa: SLF001  # of its own kind
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
