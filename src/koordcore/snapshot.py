"""The cluster as a value.

A snapshot never changes. ``assume``, ``forget`` and the ``with_*`` methods give new ones that share what did
not change; columns are made on first use and carried along where a fork can derive them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import attrs

from koordcore._columns import ClusterColumns, ClusterLayout
from koordcore._line import KEPT, Delta, Line, Overlay, Place
from koordcore.errors import ModelError
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import counted

if TYPE_CHECKING:
    from koordcore.model.decisions import Bound

__all__ = ["ClusterSnapshot", "bind", "changed_on"]

T = TypeVar("T")
R = TypeVar("R")
NodeValueBuilder: TypeAlias = "Callable[[ClusterSnapshot, NodeState], Any]"


def _all_of(what: str, items: Iterable[Any], *kinds: type) -> tuple[Any, ...]:
    """Take items of some classes in; anything else is named."""
    try:
        found = tuple(items)
    except TypeError:
        raise ModelError(f"snapshot: {what}: expected several, got {items!r:.60}") from None
    if not {*map(type, found)} <= {*kinds}:  # all at a glance
        for number, item in enumerate(found):
            if not isinstance(item, kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise ModelError(f"snapshot: {what}[{number}]: expected {wanted}, got {item!r:.60}")
    return found


def _by_name(given: Iterable[NodeState | Node]) -> tuple[NodeState, ...]:
    states = _all_of("nodes", given, NodeState, Node)
    wrapped = [state if isinstance(state, NodeState) else NodeState(state) for state in states]
    return tuple(sorted(wrapped, key=lambda state: state.name))


def _by_key(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(_all_of("pending", pods, Pod), key=attrgetter("key")))


def _record_key(record: ClusterRecord) -> tuple[str, str, str, str]:
    # Workloads and raw objects of several kinds share a type, and kinds of several groups a word.
    kind = f"{getattr(record, 'kind', '')}.{getattr(record, 'api_version', '')}".strip(".")
    return (type(record).__name__, kind, record.namespace, record.name)


def _by_record_key(records: Iterable[ClusterRecord]) -> tuple[ClusterRecord, ...]:
    found = _all_of("records", records, object)
    try:
        return tuple(sorted(found, key=_record_key))
    except (AttributeError, TypeError) as error:
        raise ModelError(f"snapshot: records: expected records with name and namespace: {error}") from None


@attrs.frozen(kw_only=True)
class ClusterSnapshot:
    """Everything a decision may depend on; equal contents give equal snapshots in whatever order they come.

    Parameters
    ----------
    nodes
        Nodes with the pods that hold room on them; a plain :class:`Node` stands for an empty one.
    pending
        Pods that wait for a node.
    records
        Everything else as frozen records: gangs, quotas, reservations, devices, metrics, budgets, …

    Raises
    ------
    ModelError
        When a name stands twice, or a pending pod is bound.
    """

    nodes: tuple[NodeState, ...] = attrs.field(default=(), converter=_by_name)
    pending: tuple[Pod, ...] = attrs.field(default=(), converter=_by_key)
    records: tuple[ClusterRecord, ...] = attrs.field(default=(), converter=_by_record_key)

    def __attrs_post_init__(self) -> None:
        _unique([state.name for state in self.nodes], "node")
        _unique([_record_key(record) for record in self.records], "record")
        for pod in self.pending:
            if pod.node_name is not None:
                raise ModelError(f"pod {pod.key} is bound to {pod.node_name} and cannot be pending")
        _unique([pod.key for pod in self.pending], "pending pod")

    # -- reading ---------------------------------------------------------------------------------------

    @cached_property
    def layout(self) -> ClusterLayout:
        """Static columns."""
        from koordcore._arrays import compile_layout  # brings numpy, here and below

        return compile_layout(self.nodes)

    @cached_property
    def columns(self) -> ClusterColumns:
        """Dynamic columns."""
        from koordcore._arrays import compile_columns

        known, place = self._columns_before
        rows = None if known is None or known.layout is not self.layout else changed_on(place, self.place)
        if known is None or rows is None:
            return compile_columns(self.layout, self.nodes)
        return _columns_with(known, self.nodes, rows)

    @cached_property
    def _columns_before(self) -> tuple[ClusterColumns | None, Place]:
        """The columns of an earlier snapshot of the line, and its place."""
        return None, self.place

    @cached_property
    def place(self) -> Place:
        """Where on its line the snapshot stands; what calls have learnt waits there."""
        return Place(Line(), 0)

    @cached_property
    def location(self) -> Mapping[PodKey, str]:
        """Which node holds which pod."""
        return Overlay({pod.key: state.name for state in self.nodes for pod in state.pods})

    @cached_property
    def _records_by_type(self) -> Mapping[type, tuple[ClusterRecord, ...]]:
        grouped: dict[type, list[ClusterRecord]] = {}
        for record in self.records:
            grouped.setdefault(type(record), []).append(record)
        return {kind: tuple(records) for kind, records in grouped.items()}

    @cached_property
    def _memo(self) -> dict[Any, Any]:
        return {}

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Give all records of one type, in the order of namespace and name."""
        return cast("tuple[R, ...]", self._records_by_type.get(kind, ()))

    def find(self, kind: type[R], name: str, namespace: str = "") -> R | None:
        """Give one record, or ``None``."""
        table: Mapping[tuple[str, str], R] = self.once(_index_of, kind)
        return table.get((namespace, name))

    def node(self, name: str) -> NodeState:
        """Give a node by name.

        Raises
        ------
        ModelError
            When there is no such node.
        """
        row = self.layout.row_of.get(name)
        if row is None:
            raise ModelError(f"no node {name}")
        return self.nodes[row]

    def pod(self, key: PodKey | str) -> Pod | None:
        """Give a pod, bound or pending, or ``None``; a text is ``"namespace/name"``."""
        found: Pod | None = self._pods.get(PodKey.of(key))
        return found

    @cached_property
    def _pods(self) -> Overlay[PodKey, Pod]:
        pods = {pod.key: pod for pod in self.pending}
        pods.update((pod.key, pod) for pod in self.bound_pods())
        return Overlay(pods)

    def bound_pods(self) -> Iterable[Pod]:
        """Give every pod that holds room, by node and key."""
        return (pod for state in self.nodes for pod in state.pods)

    def once(self, compute: Callable[..., T], *arguments: Any) -> T:
        """Compute ``compute(self, *arguments)`` once for this snapshot.

        The function must be pure and defined at module level; the arguments must be hashable.
        """
        key = (compute, *arguments)
        if key not in self._memo:
            self._memo[key] = compute(self, *arguments)
        return cast("T", self._memo[key])

    def derived(
        self,
        build: Callable[[ClusterSnapshot], T],
        again: Callable[[tuple[NodeState, ...], tuple[ClusterRecord, ...], T, ClusterSnapshot], T],
    ) -> T:
        """Compute ``build(self)`` once, or derive it from what an earlier snapshot in this one's past had.

        Parameters
        ----------
        build
            Reads nodes, pods, pending pods and records; pure, defined at module level.
        again
            Gives the same value from the nodes and records that the earlier snapshot had, its value, and this
            snapshot. Nodes and records that are the same objects are equal; the nodes are as many, in the
            same order, with the same resources.
        """
        if build not in self._memo:
            layout, nodes, records, value, place = self._past.get(build, (None, (), (), None, None))
            if layout is self.layout:
                self._changes[id(nodes)] = changed_on(place, self.place)
                value = again(nodes, records, cast("T", value), self)
            else:
                value = build(self)
            self._memo[build] = value
            self._past[build] = (self.layout, self.nodes, self.records, value, self.place)
        return cast("T", self._memo[build])

    def changed_rows(self, before: tuple[NodeState, ...]) -> list[int]:
        """Give the rows whose nodes are not the same objects as in what :meth:`derived` handed over."""
        known = self._changes.get(id(before))
        if known is None:
            known = [
                row for row, pair in enumerate(zip(before, self.nodes, strict=True)) if pair[0] is not pair[1]
            ]
        return known

    @cached_property
    def _changes(self) -> dict[int, list[int] | None]:
        return {}

    @cached_property
    def _past(self) -> dict[Any, tuple[Any, ...]]:
        return {}

    def node_values(self, build: Callable[[ClusterSnapshot, NodeState], T]) -> tuple[T, ...]:
        """Compute one value per node, by row, and carry it over to forks where the node did not change.

        ``build`` must be pure, defined at module level, and read only the node, its pods and the records.
        """
        values = self._node_memo.get(build)
        if values is None:
            values = self._node_memo[build] = tuple(build(self, state) for state in self.nodes)
        return cast("tuple[T, ...]", values)

    @cached_property
    def _node_memo(self) -> dict[NodeValueBuilder, tuple[Any, ...]]:
        return {}

    # -- forking ---------------------------------------------------------------------------------------

    def assume(self, *pods: Pod) -> ClusterSnapshot:
        """Bind pods, each to the node it names; they leave the pending ones.

        Room is not checked: that is the allocators' and :func:`koordcore.verify`'s work.

        Raises
        ------
        ModelError
            When a pod names no node, an unknown one, or is bound already.
        """
        added: dict[str, list[Pod]] = {}
        for pod in pods:
            if pod.node_name is None:
                raise ModelError(f"pod {pod.key} names no node")
            if pod.key in self.location:
                raise ModelError(f"pod {pod.key} is bound to {self.location[pod.key]} already")
            added.setdefault(pod.node_name, []).append(pod)
        changed = {name: (*self.node(name).pods, *more) for name, more in added.items()}
        keys = {pod.key for pod in pods}
        pending = tuple(pod for pod in self.pending if pod.key not in keys)
        return self._fork(changed, pending)

    def forget(self, *pods: PodKey | str) -> ClusterSnapshot:
        """Take pods out of the cluster, wherever they are; a text is ``"namespace/name"``.

        Raises
        ------
        ModelError
            When a pod is unknown.
        """
        keys = [PodKey.of(one) for one in pods]
        gone = set(keys)
        unknown = [key for key in keys if self.pod(key) is None]
        if unknown:
            raise ModelError(f"no pod {unknown[0]}")
        nodes = {self.location[key] for key in keys if key in self.location}
        changed = {
            name: tuple(one for one in self.node(name).pods if one.key not in gone) for name in sorted(nodes)
        }
        pending = tuple(one for one in self.pending if one.key not in gone)
        return self._fork(changed, pending)

    def with_pending(self, *pods: Pod) -> ClusterSnapshot:
        """Add pending pods, or replace those of the same key."""
        keys = {pod.key for pod in pods}
        kept = tuple(pod for pod in self.pending if pod.key not in keys)
        return self._fork({}, (*kept, *pods))

    def with_nodes(self, *states: NodeState | Node) -> ClusterSnapshot:
        """Add nodes, or replace those of the same name."""
        merged = {state.name: state for state in self.nodes}
        merged.update((state.name, state) for state in _by_name(states))
        return attrs.evolve(self, nodes=tuple(merged.values()))

    def without_nodes(self, *names: str) -> ClusterSnapshot:
        """Take nodes away together with the pods on them.

        Raises
        ------
        ModelError
            When a node is unknown.
        """
        for name in names:
            self.node(name)
        return attrs.evolve(self, nodes=tuple(state for state in self.nodes if state.name not in names))

    def with_records(self, *records: ClusterRecord, nodes: Collection[str] | None = None) -> ClusterSnapshot:
        """Add records, or replace those of the same type and name.

        Parameters
        ----------
        nodes
            The only nodes whose values (:meth:`node_values`) the change bears on; left out, it is all.
        """
        merged = {_record_key(record): record for record in self.records}
        merged.update((_record_key(record), record) for record in records)
        if nodes is None:
            return attrs.evolve(self, records=tuple(merged.values()))
        pods = {name: self.node(name).pods for name in sorted(nodes)}
        return self._fork(pods, self.pending, _by_record_key(merged.values()))

    def with_states(
        self, nodes: tuple[NodeState, ...], pending: tuple[Pod, ...], rows: Sequence[int]
    ) -> ClusterSnapshot:
        """Replace the pods of nodes and the pending ones, all of them in order and unique already.

        Parameters
        ----------
        rows
            The nodes that are not the same objects as here.
        """
        return self._derived(nodes, pending, rows)

    def with_pods(
        self,
        pods: Mapping[str, tuple[Pod, ...]],
        pending: Iterable[Pod],
        records: tuple[ClusterRecord, ...],
    ) -> ClusterSnapshot:
        """Replace the pods of some nodes, all pending pods, and records by others of the same keys.

        Parameters
        ----------
        records
            In the order that they have here. Values of nodes that are not named must not depend on what
            differs.
        """
        return self._fork(pods, tuple(pending), None if records is self.records else records)

    def _fork(
        self,
        changed: Mapping[str, tuple[Pod, ...]],
        pending: tuple[Pod, ...],
        records: tuple[ClusterRecord, ...] | None = None,
    ) -> ClusterSnapshot:
        """Replace the pods of some nodes; carry columns and node values over for the rest."""
        row_of = self.layout.row_of
        nodes = list(self.nodes)
        rows = [row_of[name] for name in changed]
        for row, pods in zip(rows, changed.values(), strict=True):
            nodes[row] = NodeState(nodes[row].node, pods)
        fork = self._derived(tuple(nodes), _by_key(pending), rows, records)
        index = self.layout.index
        if any(
            name not in index and counted(name)
            for row in rows
            for pod in nodes[row].pods
            for name in pod.requests
        ):
            return fork  # a resource nobody had named: the layout grows, so everything is compiled anew
        object.__setattr__(fork, "layout", self.layout)
        self.hand_columns(fork)
        # Where no node changes, what is worked out for either serves both.
        memo = (
            self._node_memo
            if not rows
            else {
                build: _replace(values, {row: build(fork, nodes[row]) for row in rows})
                for build, values in self._node_memo.items()
            }
        )
        object.__setattr__(fork, "_node_memo", memo)
        return fork

    def _derived(
        self,
        nodes: tuple[NodeState, ...],
        pending: tuple[Pod, ...],
        rows: Sequence[int],
        records: tuple[ClusterRecord, ...] | None = None,
    ) -> ClusterSnapshot:
        """Make a snapshot of parts that are known to be sorted and unique, without looking at them again."""
        made = object.__new__(ClusterSnapshot)
        kept = self.records if records is None else records
        for name, value in (("nodes", nodes), ("pending", pending), ("records", kept)):
            object.__setattr__(made, name, value)
        if records is None:
            object.__setattr__(made, "_records_by_type", self._records_by_type)
        # One memory for all snapshots of a line: what the last of them worked out serves the others as well.
        object.__setattr__(made, "_past", self._past)
        changed = tuple((row, self.nodes[row], nodes[row]) for row in rows)
        object.__setattr__(made, "place", self.place.next(Delta(changed if records is None else None)))
        self._hand_tables(made, rows)
        return made

    def _hand_tables(self, made: ClusterSnapshot, rows: Sequence[int]) -> None:
        """Carry the tables of pods over, where they are known here."""
        known = _known(self)
        if "location" in known:
            gone = {pod.key for row in rows for pod in self.nodes[row].pods}
            new = {pod.key: made.nodes[row].name for row in rows for pod in made.nodes[row].pods}
            table = cast("Overlay[PodKey, str]", self.location)
            object.__setattr__(made, "location", table.changed(gone, new))
        if "_pods" in known:
            gone = {pod.key for row in rows for pod in self.nodes[row].pods}
            pods = {pod.key: pod for row in rows for pod in made.nodes[row].pods}
            if made.pending is not self.pending:
                gone.update(pod.key for pod in self.pending)
                pods.update((pod.key, pod) for pod in made.pending)
            object.__setattr__(made, "_pods", self._pods.changed(gone, pods))

    def hand_columns(self, made: ClusterSnapshot) -> None:
        """Let a snapshot of the same layout make its columns out of those that are known here."""
        source = (self.columns, self.place) if "columns" in _known(self) else self._columns_before
        if source[1].at + KEPT // 2 < self.place.at:
            source = self.columns, self.place  # before the steps in between are forgotten
        object.__setattr__(made, "_columns_before", source)


def _known(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Give the names of what was worked out already."""
    found = set()
    for name in ("columns", "location", "_pods"):
        try:
            object.__getattribute__(snapshot, name)
        except AttributeError:
            continue
        found.add(name)
    return frozenset(found)


def changed_on(start: Place, end: Place) -> list[int] | None:
    """Give the rows of the nodes that changed between two places, sorted; ``None`` where that is unknown."""
    path = start.path(end)
    if path is None:
        return None
    rows: set[int] = set()
    for delta in path:
        if delta.nodes is None:
            return None
        rows.update(row for row, _, _ in delta.nodes)
    return sorted(rows)


def _columns_with(known: ClusterColumns, nodes: Sequence[NodeState], rows: Sequence[int]) -> ClusterColumns:
    if not rows:
        return known
    from koordcore._arrays import freeze, node_columns

    layout = known.layout
    requested, scored = known.requested.copy(), known.scored.copy()
    for row in rows:
        requested[:, row], scored[:, row] = node_columns(layout, nodes[row].name, nodes[row].pods)
    return ClusterColumns(layout=layout, requested=freeze(requested), scored=freeze(scored))


def _replace(values: tuple[T, ...], changes: Mapping[int, T]) -> tuple[T, ...]:
    replaced = list(values)
    for row, value in changes.items():
        replaced[row] = value
    return tuple(replaced)


def _unique(keys: list[Any], what: str) -> None:
    if len(set(keys)) == len(keys):
        return
    seen = set()
    for key in keys:
        if key in seen:
            name = key if isinstance(key, str) else "/".join(part for part in key if part)
            raise ModelError(f"{what} {name} stands twice")
        seen.add(key)


def _index_of(snapshot: ClusterSnapshot, kind: type[Any]) -> Mapping[tuple[str, str], Any]:
    return {(record.namespace, record.name): record for record in snapshot.of(kind)}


def bind(pod: Pod, decision: Bound) -> Pod:
    """Give the pod as it stands after the decision: with its node and with what is written on it."""
    if decision.dropped:
        kept = {key: text for key, text in pod.annotations.items() if key not in decision.dropped}
        pod = attrs.evolve(pod, annotations=kept)
    return pod.at(
        decision.node,
        annotations=decision.annotations,
        labels=decision.labels,
        claims=decision.claims,
    )
