"""The cluster as a value.

A snapshot never changes. ``apply`` gives new ones that share what did not change; ``assume``, ``forget`` and
the ``with_*`` methods are spellings of it. Columns are made on first use and carried along where a fork can
derive them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import attrs

from koordcore._columns import ClusterColumns, ClusterLayout
from koordcore._line import KEPT, Delta, Line, Place, RecordPair
from koordcore._names import Names
from koordcore._notebook import html_table
from koordcore._table import Table
from koordcore._vector import Splice, Vector
from koordcore.errors import ModelError
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import counted
from koordcore.snapshot._draft import Draft, Lookups
from koordcore.snapshot._records import net_records
from koordcore.snapshot.changes import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    RecordAdded,
    RecordKey,
    RecordReplaced,
    record_key,
)
from koordcore.snapshot.node_values import concerned

if TYPE_CHECKING:
    from koordcore.model.decisions import Bound


T = TypeVar("T")
R = TypeVar("R")
NodeValueBuilder: TypeAlias = "Callable[[ClusterSnapshot, NodeState], Any]"
_KEY: Final = attrgetter("key")
_SHARE: Final = 4
"""Carrying a table over where more than a quarter of the nodes changed costs as much as making it anew."""


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


def _by_record_key(records: Iterable[ClusterRecord]) -> tuple[ClusterRecord, ...]:
    found = _all_of("records", records, object)
    try:
        return tuple(sorted(found, key=record_key))
    except (ModelError, TypeError) as error:
        raise ModelError(f"snapshot: records: {error}") from None


@attrs.frozen(kw_only=True, repr=False)
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
        _unique(self._record_keys, "record")
        for pod in self.pending:
            if pod.node_name is not None:
                raise ModelError(f"pod {pod.key} is bound to {pod.node_name} and cannot be pending")
        _unique([pod.key for pod in self.pending], "pending pod")

    def __getattr__(self, name: str) -> Any:
        # A snapshot that comes of another one writes its tuples out when somebody asks for them.
        if name == "nodes":
            object.__setattr__(self, name, tuple(self._nodes))
        elif name == "records":
            object.__setattr__(self, name, tuple(self._records))
        else:
            raise AttributeError(f"'ClusterSnapshot' object has no attribute {name!r}", name=name, obj=self)
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        """Count what there is; the tuples say it all."""
        pods = f"{len(self.location)} bound, {len(self.pending)} pending"
        kinds = Counter(type(one).__name__ for one in self.records)
        records = "".join(f", {count} {kind}" for kind, count in sorted(kinds.items()))
        return f"<ClusterSnapshot: {len(self.nodes)} nodes, {pods}{records}>"

    def _repr_html_(self) -> str:
        """Show the nodes in a notebook."""
        return html_table(repr(self)[1:-1], self.table())

    def table(self) -> dict[str, Any]:
        """Give the nodes as columns by name, as pandas, polars and pyarrow take them.

        Returns
        -------
        dict
            ``node``, ``ready``, ``cordoned``, ``running`` (how many pods); and two arrays of every
            resource that anybody has or asks for: what is allocatable (``cpu``), and ``cpu requested``.
        """
        from koordcore.snapshot.tables import node_table  # who looks at no table does not load it

        return node_table(self)

    # -- reading ---------------------------------------------------------------------------------------

    @property
    def shared(self) -> tuple[Vector[NodeState], Vector[ClusterRecord]]:
        """Nodes and records in sequences that share with those of other snapshots what is the same."""
        return self._nodes, self._records

    @cached_property
    def _nodes(self) -> Vector[NodeState]:
        return Vector(self.nodes)

    @cached_property
    def _records(self) -> Vector[ClusterRecord]:
        return Vector(self.records)

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
        alike = known is not None and _alike(known.layout, self.layout)
        rows = changed_on(place, self.place) if alike else None
        if known is None or rows is None:
            return compile_columns(self.layout, self.nodes)
        return _columns_with(known, self.layout, self._nodes, rows)

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
        return Table({pod.key: state.name for state in self._nodes for pod in state.pods})

    @cached_property
    def _by_type(self) -> dict[type, tuple[ClusterRecord, ...]]:
        """Records of the types that were asked for."""
        return {}

    def _span(self, kind: type) -> tuple[int, int]:
        """Give where the records of a type stand; of all types of that name, if there are several."""
        # All of one type stand together, for the name of the type comes first in the key.
        keys, name = self._record_keys, kind.__name__
        return bisect_left(keys, (name,)), bisect_left(keys, (name + "\0",))

    def has(self, kind: type) -> bool:
        """Tell whether there are records of a type."""
        if kind in self._by_type:
            return bool(self._by_type[kind])
        first, last = self._span(kind)
        return any(type(self._records[place]) is kind for place in range(first, last))

    @cached_property
    def _memo(self) -> dict[Any, Any]:
        return {}

    def of(self, kind: type[R]) -> tuple[R, ...]:
        """Give all records of one type, in the order of namespace and name."""
        found = self._by_type.get(kind)
        if found is None:
            first, last = self._span(kind)
            if last - first == len(self._records):
                ones: Iterable[ClusterRecord] = self._records
            else:
                ones = (self._records[place] for place in range(first, last))
            found = self._by_type[kind] = tuple(one for one in ones if type(one) is kind)
        return cast("tuple[R, ...]", found)

    def find(self, kind: type[R], name: str, namespace: str = "") -> R | None:
        """Give one record, or ``None``.

        Parameters
        ----------
        kind
            Class of the record.
        name, namespace
            Its key; records of the cluster as a whole are in the namespace ``""``.
        """
        if getattr(kind, "kind", None) is not None or getattr(kind, "api_version", None) is not None:
            # Records of several kinds share the type, and so may share a name.
            table: Mapping[tuple[str, str], R] = self.once(_index_of, kind)
            return table.get((namespace, name))
        found = self._find_record((kind.__name__, "", namespace, name))
        return found if isinstance(found, kind) else None

    def node(self, name: str) -> NodeState:
        """Give a node by name.

        Raises
        ------
        ModelError
            When there is no such node.
        """
        found = self._find_node(name)
        if found is None:
            raise ModelError(f"no node {name}")
        return found

    def _find_node(self, name: str) -> NodeState | None:
        """Give a node by name, or ``None``."""
        row = self._names.find(name)
        return None if row < 0 else self._nodes[row]

    def _find_pending(self, key: PodKey) -> Pod | None:
        """Give a pod that waits, or ``None``."""
        place = bisect_left(self.pending, key, key=_KEY)
        return self.pending[place] if place < len(self.pending) and self.pending[place].key == key else None

    def _find_record(self, key: RecordKey) -> ClusterRecord | None:
        """Give a record by its type, kind, namespace and name, or ``None``."""
        place = bisect_left(self._record_keys, key)
        there = place < len(self._record_keys) and self._record_keys[place] == key
        return self._records[place] if there else None

    @cached_property
    def _names(self) -> Names:
        return Names.of(state.name for state in self._nodes)

    @cached_property
    def _record_keys(self) -> list[RecordKey]:
        return [record_key(record) for record in self._records]

    def pod(self, key: PodKey | str) -> Pod | None:
        """Give a pod, bound or pending, or ``None``; a text is ``"namespace/name"``."""
        found: Pod | None = self._pods.get(PodKey.of(key))
        return found

    @cached_property
    def _pods(self) -> Table[PodKey, Pod]:
        pods = {pod.key: pod for pod in self.pending}
        pods.update((pod.key, pod) for pod in self.bound_pods())
        return Table(pods)

    def bound_pods(self) -> Iterable[Pod]:
        """Give every pod that holds room, by node and key."""
        return (pod for state in self._nodes for pod in state.pods)

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
        again: Callable[[Vector[NodeState], Vector[ClusterRecord], T, ClusterSnapshot], T],
        *,
        replaced: bool = False,
    ) -> T:
        """Compute ``build(self)`` once, or derive it from what an earlier snapshot in this one's past had.

        Parameters
        ----------
        build
            Reads nodes, pods, pending pods and records; pure, defined at module level.
        again
            Gives the same value from the nodes and records that the earlier snapshot had, its value, and this
            snapshot. Nodes and records that are the same objects are equal; the resources are the same.
        replaced
            ``again`` follows nodes that say something else, join or leave (:meth:`changed_states`); else the
            nodes themselves, without the pods on them, are the same objects in the same order.
        """
        if build not in self._memo:
            layout, nodes, records, value, place = self._past.get(build, (None, None, None, None, None))
            if layout is self.layout or (replaced and layout and layout.resources == self.layout.resources):
                self._changes[id(nodes)] = changed_on(place, self.place)
                self._states_changed[id(nodes)] = self._states_since(layout, nodes, place)
                self._rows_before[id(nodes)] = layout.row_of
                self._record_changes[id(records)] = _records_between(place, self.place)
                value = again(nodes, records, cast("T", value), self)
            else:
                value = build(self)
            self._memo[build] = value
            self._past[build] = (self.layout, self._nodes, self._records, value, self.place)
        return cast("T", self._memo[build])

    def changed_rows(self, before: Vector[NodeState]) -> list[int]:
        """Give the rows whose nodes are not the same objects as in what :meth:`derived` handed over."""
        known = self._changes.get(id(before))
        if known is None:
            known = [
                row
                for row, pair in enumerate(zip(before, self._nodes, strict=True))
                if pair[0] is not pair[1]
            ]
        return known

    def changed_states(
        self, before: Vector[NodeState]
    ) -> Sequence[tuple[NodeState | None, NodeState | None]]:
        """Give the nodes with their pods that are not the same objects as in what :meth:`derived` gave."""
        known = self._states_changed.get(id(before))
        return _differing(before, self._nodes) if known is None else known

    def moves_since(self, before: Vector[NodeState]) -> list[Splice]:
        """Give where nodes left what :meth:`derived` gave, and where others joined, one after another."""
        pairs = self.changed_states(before)
        left = [old.name for old, new in pairs if old is not None and new is None]
        came = [new.name for old, new in pairs if old is None and new is not None]
        row_of = self._rows_before.get(id(before))
        if row_of is None:
            row_of = {state.name: row for row, state in enumerate(before)}
        gone = sorted((row_of[name] for name in left), reverse=True)
        joined = sorted(map(self._names.find, came))
        return [*(Splice(row, 1, 0) for row in gone), *(Splice(row, 0, 1) for row in joined)]

    def _states_since(
        self, layout: ClusterLayout, before: Vector[NodeState], place: Place
    ) -> list[tuple[NodeState | None, NodeState | None]] | None:
        path = place.path(self.place)
        if path is None:
            return None
        names = dict.fromkeys(
            state.name for delta in path for _, *pair in delta.nodes for state in pair if state is not None
        )
        row_of = layout.row_of
        pairs = ((before[row_of[name]] if name in row_of else None, self._find_node(name)) for name in names)
        return [(old, new) for old, new in pairs if old is not new]

    def changed_records(self, before: Vector[ClusterRecord]) -> list[RecordPair]:
        """Give the records that are not the same objects as in what :meth:`derived` handed over."""
        if before is self._records:
            return []
        known = self._record_changes.get(id(before))
        return _changed_records(before, self._records) if known is None else known

    def state_at(self, row: int) -> NodeState:
        """Give the node in a row, by name, with its pods."""
        return self._nodes[row]

    @cached_property
    def _changes(self) -> dict[int, list[int] | None]:
        return {}

    @cached_property
    def _states_changed(self) -> dict[int, list[tuple[NodeState | None, NodeState | None]] | None]:
        return {}

    @cached_property
    def _rows_before(self) -> dict[int, Mapping[str, int]]:
        return {}

    @cached_property
    def _record_changes(self) -> dict[int, list[RecordPair] | None]:
        return {}

    @cached_property
    def _past(self) -> dict[Any, tuple[Any, ...]]:
        return {}

    def node_values(self, build: Callable[[ClusterSnapshot, NodeState], T]) -> Vector[T]:
        """Compute one value per node, by row, and carry it over to forks where the node did not change.

        ``build`` must be pure, defined at module level, and read only the node, its pods and the records; see
        :func:`koordcore.snapshot.per_node` for which of these.
        """
        values = self._node_memo.get(build)
        if values is None:
            values = self._node_memo[build] = Vector(build(self, state) for state in self._nodes)
        return cast("Vector[T]", values)

    @cached_property
    def _node_memo(self) -> dict[NodeValueBuilder, Vector[Any]]:
        return {}

    # -- forking ---------------------------------------------------------------------------------------

    def apply(self, *changes: Change) -> ClusterSnapshot:
        """Give the cluster after some changes, which are taken in one after another.

        Everything that was worked out and that the changes do not touch is carried along. Room is not
        checked: that is the allocators' and :func:`koordcore.verify`'s work.

        Parameters
        ----------
        changes
            See :mod:`koordcore.snapshot.changes`.

        Raises
        ------
        ModelError
            When a change does not go with what there is: it binds a pod that is bound already, or ends,
            updates, replaces or removes what is unknown.

        Examples
        --------
        >>> from koordcore import Node, Pod
        >>> from koordcore.snapshot.changes import NodeAdded, PodBound, PodEnded
        >>> one = ClusterSnapshot(nodes=[Node(name="n1", allocatable={"cpu": 4000, "pods": 110})])
        >>> two = one.apply(NodeAdded(Node(name="n2")), PodBound(Pod(name="web", node_name="n1")))
        >>> [state.name for state in two.nodes], str(two.nodes[0].pods[0].key)
        (['n1', 'n2'], 'default/web')
        >>> two.apply(PodEnded("default/web")).pod("default/web") is None
        True
        """
        places = self.location
        draft = Draft(Lookups(self._find_node, places.get, self._find_pending, self._find_record))
        for change in changes:
            draft.take(change)
        return self._drawn(draft)

    def assume(self, *pods: Pod) -> ClusterSnapshot:
        """Bind pods, each to the node it names; they leave the pending ones.

        Room is not checked: that is the allocators' and :func:`koordcore.verify`'s work.

        Raises
        ------
        ModelError
            When a pod names no node, an unknown one, or is bound already.
        """
        return self.apply(*map(PodBound, pods))

    def forget(self, *pods: PodKey | str) -> ClusterSnapshot:
        """Take pods out of the cluster, wherever they are; a text is ``"namespace/name"``.

        Raises
        ------
        ModelError
            When a pod is unknown.
        """
        return self.apply(*(PodEnded(key) for key in dict.fromkeys(map(PodKey.of, pods))))

    def with_pending(self, *pods: Pod) -> ClusterSnapshot:
        """Add pending pods, or replace those of the same key."""
        return self.apply(*map(PodPending, pods))

    def with_nodes(self, *states: NodeState | Node) -> ClusterSnapshot:
        """Add nodes, or replace those of the same name together with the pods on them."""
        latest = {state.name: state for state in _by_name(states)}
        kinds = {name: NodeAdded if self._find_node(name) is None else NodeReplaced for name in latest}
        return self.apply(*(kinds[name](state) for name, state in latest.items()))

    def without_nodes(self, *names: str) -> ClusterSnapshot:
        """Take nodes away together with the pods on them.

        Raises
        ------
        ModelError
            When a node is unknown.
        """
        return self.apply(*map(NodeRemoved, dict.fromkeys(names)))

    def with_records(self, *records: ClusterRecord) -> ClusterSnapshot:
        """Add records, or replace those of the same type and name."""
        latest = {record_key(record): record for record in records}
        kinds = {key: RecordAdded if self._find_record(key) is None else RecordReplaced for key in latest}
        return self.apply(*(kinds[key](record) for key, record in latest.items()))

    def with_states(self, states: Mapping[int, NodeState], pending: tuple[Pod, ...]) -> ClusterSnapshot:
        """Replace nodes with the pods on them, by row, and the pending ones, in order and unique already."""
        changed = tuple((row, self._nodes[row], state) for row, state in states.items())
        return self._derived(self._nodes.changed(states), changed, pending)

    def with_pods(
        self,
        pods: Mapping[str, tuple[Pod, ...]],
        pending: Iterable[Pod],
        records: Sequence[RecordPair] = (),
    ) -> ClusterSnapshot:
        """Replace the pods of some nodes, all pending pods, and some records.

        Parameters
        ----------
        pods, pending
            Who runs, and who waits.
        records
            Before, as they are here, and after.
        """
        states = {}
        for name, there in pods.items():
            row = self._names[name]
            states[row] = NodeState(self._nodes[row].node, there)
        return self._fork(states, _by_key(pending), records)

    def _drawn(self, draft: Draft) -> ClusterSnapshot:
        """Make the snapshot that a draft comes to."""
        pending, states = _pending_with(self.pending, draft.pending), draft.nodes()
        changed = [(draft.before[key], record) for key, record in draft.records.items()]
        changed = [(before, after) for before, after in changed if before is not after]
        if any(state is None or self._find_node(name) is None for name, state in states.items()):
            return self._moved(states, pending, changed)
        rows = {self._names[name]: state for name, state in states.items() if state is not None}
        return self._fork(rows, pending, changed)

    def _moved(
        self,
        states: Mapping[str, NodeState | None],
        pending: tuple[Pod, ...],
        records: Sequence[RecordPair],
    ) -> ClusterSnapshot:
        """Let nodes join and leave: rows are others then, and what is kept by row moves with them."""
        changed: list[tuple[int, NodeState | None, NodeState | None]] = []
        edits: list[Splice] = []
        there: dict[int, NodeState] = {}
        joined = 0
        for name in sorted(states):
            old, state, place = self._find_node(name), states[name], self._names.place(name)
            row = place + joined
            if old is not state:
                changed.append((place if state is None else row, old, state))
            if state is not None:
                there[row] = state
            if (old is None) != (state is None):
                edits.append(Splice(row, int(old is not None), int(state is not None)))
                joined += 1 if old is None else -1
        names = self._names.spliced(edits, {row: state.name for row, state in there.items()})
        nodes = self._nodes.spliced(edits, there)
        made = self._derived(nodes, tuple(changed), pending, records, names)
        if "layout" not in _known(self) or not self._names or not names:
            return made
        from koordcore._arrays import moved_columns, moved_layout

        layout = moved_layout(self.layout, names, there, edits)
        if layout is None:
            return made
        object.__setattr__(made, "layout", layout)
        columns = moved_columns(self.columns, layout, there, edits)
        object.__setattr__(made, "columns", columns)
        memo: dict[NodeValueBuilder, Vector[Any]] = {}
        for build, values in self._node_memo.items():
            touched = concerned(build, records)
            if touched is not None:
                anew = {row: build(made, nodes[row]) for row in {*there, *_rows_in(names, touched)}}
                memo[build] = values.spliced(edits, anew)
        object.__setattr__(made, "_node_memo", memo)
        return made

    def _fork(
        self, states: Mapping[int, NodeState], pending: tuple[Pod, ...], records: Sequence[RecordPair]
    ) -> ClusterSnapshot:
        """Replace some nodes, and carry over what can be: the layout, columns and values of nodes."""
        changed = tuple((row, self._nodes[row], state) for row, state in states.items())
        fork = self._derived(self._nodes.changed(states), changed, pending, records)
        replaced = {
            row: state.node for row, state in states.items() if state.node is not self._nodes[row].node
        }
        if not states and not records:
            # Where nothing changes, what is worked out for either serves both.
            object.__setattr__(fork, "_node_memo", self._node_memo)
        if "layout" not in _known(self) and (replaced or not states):
            return fork  # nothing is kept by row yet
        layout: ClusterLayout | None = self.layout
        if replaced:
            from koordcore._arrays import changed_layout

            layout = changed_layout(self.layout, replaced)
            if layout is None:
                return fork
        index = self.layout.index
        if any(
            name not in index and counted(name)
            for state in states.values()
            for pod in state.pods
            for name in pod.requests
        ):
            return fork  # a resource nobody had named: the layout grows, so everything is compiled anew
        object.__setattr__(fork, "layout", layout)
        self.hand_columns(fork)
        memo = {build: self._values_in(fork, build, list(states), records) for build in self._node_memo}
        if states or records:
            kept = {build: values for build, values in memo.items() if values is not None}
            object.__setattr__(fork, "_node_memo", kept)
        return fork

    def _values_in(
        self,
        fork: ClusterSnapshot,
        build: NodeValueBuilder,
        rows: Sequence[int],
        records: Sequence[RecordPair],
    ) -> Vector[Any] | None:
        """Give one value per node for a fork; ``None`` where it cannot be told which of them are others."""
        touched = concerned(build, records)
        if touched is None:
            return None
        every = {*rows, *_rows_in(self._names, touched)}
        values = self._node_memo[build]
        return values.changed({row: build(fork, fork.state_at(row)) for row in every}) if every else values

    def _derived(
        self,
        nodes: Vector[NodeState],
        changed: tuple[tuple[int, NodeState | None, NodeState | None], ...],
        pending: tuple[Pod, ...],
        records: Sequence[RecordPair] = (),
        names: Names | None = None,
    ) -> ClusterSnapshot:
        """Make a snapshot of parts that are known to be sorted and unique, without looking at them again.

        Parameters
        ----------
        changed
            The nodes that are not the same objects as here, as a :class:`Delta` has them.
        records
            Those that are not the same, before and after.
        names
            Of the nodes, where some joined or left.
        """
        made = object.__new__(ClusterSnapshot)
        kept, keys = self._records, self._record_keys
        if records:
            kept, keys = self._records_with(records)
        for name, value in (("_nodes", nodes), ("pending", pending), ("_records", kept)):
            object.__setattr__(made, name, value)
        object.__setattr__(made, "_record_keys", keys)
        # Records of types of which none changed are the same tuples.
        touched = {type(one) for pair in records for one in pair if one is not None}
        by_type = self._by_type
        if touched:
            by_type = {kind: found for kind, found in by_type.items() if kind not in touched}
        object.__setattr__(made, "_by_type", by_type)
        # One memory for all snapshots of a line: what the last of them worked out serves the others as well.
        object.__setattr__(made, "_past", self._past)
        object.__setattr__(made, "_names", self._names if names is None else names)
        object.__setattr__(made, "place", self.place.next(Delta(changed, tuple(records))))
        self._hand_tables(made, [(before, after) for _, before, after in changed])
        return made

    def _records_with(self, changed: Iterable[RecordPair]) -> tuple[Vector[ClusterRecord], list[RecordKey]]:
        """Give all records with some replaced, added or taken away, and their keys."""
        keys = self._record_keys
        moved = [pair for pair in changed if pair[0] is None or pair[1] is None]
        replaced = {
            bisect_left(keys, record_key(after)): after
            for before, after in changed
            if before is not None and after is not None
        }
        if not moved:
            return self._records.changed(replaced), keys
        records, keys = self._records.changed(replaced), list(keys)
        for before, after in moved:
            key = record_key(cast("ClusterRecord", before or after))
            place = bisect_left(keys, key)
            if after is None:
                records = records.spliced([Splice(place, 1, 0)], {})
                del keys[place]
            else:
                records = records.spliced([Splice(place, 0, 1)], {place: after})
                keys.insert(place, key)
        return records, keys

    def _hand_tables(
        self, made: ClusterSnapshot, pairs: Sequence[tuple[NodeState | None, NodeState | None]]
    ) -> None:
        """Carry the tables of pods over, where they are known here."""
        known = _known(self)
        # Where many nodes differ, making a table anew for whoever asks takes no longer than changing it.
        if not known or len(pairs) * _SHARE > len(self._nodes) + _SHARE:
            return
        gone: set[PodKey] = set()
        after: list[tuple[str, Pod]] = []
        for old, new in pairs:
            there = () if old is None else old.pods
            here = () if new is None else new.pods
            stay = {*map(id, there)} & {*map(id, here)}
            gone.update(pod.key for pod in there if id(pod) not in stay)
            after += [(pod.node_name or "", pod) for pod in here if id(pod) not in stay]
        if "location" in known:
            table = cast("Table[PodKey, str]", self.location)
            object.__setattr__(made, "location", table.changed(gone, {pod.key: name for name, pod in after}))
        if "_pods" in known:
            pods: dict[PodKey, Pod] = {}
            if made.pending is not self.pending:
                waited, wait = {*map(id, self.pending)}, {*map(id, made.pending)}
                gone.update(pod.key for pod in self.pending if id(pod) not in wait)
                pods.update((pod.key, pod) for pod in made.pending if id(pod) not in waited)
            pods.update((pod.key, pod) for _, pod in after)
            object.__setattr__(made, "_pods", self._pods.changed(gone, pods))

    def hand_columns(self, made: ClusterSnapshot) -> None:
        """Let a snapshot of the same layout make its columns out of those that are known here."""
        source = (self.columns, self.place) if "columns" in _known(self) else self._columns_before
        if source[1].at + KEPT // 2 < self.place.at:
            source = self.columns, self.place  # before the steps in between are forgotten
        object.__setattr__(made, "_columns_before", source)


def _rows_in(names: Names, wanted: Iterable[str]) -> list[int]:
    """Give the rows of those of some nodes that are there."""
    return [row for row in map(names.find, wanted) if row >= 0]


def _pending_with(pending: tuple[Pod, ...], changed: Mapping[PodKey, Pod | None]) -> tuple[Pod, ...]:
    """Give the pods that wait, by key, with some added, replaced or taken away."""
    if not changed:
        return pending
    found = list(pending)
    for key, pod in changed.items():
        place = bisect_left(found, key, key=_KEY)
        there = place < len(found) and found[place].key == key
        found[place : place + there] = [] if pod is None else [pod]
    return tuple(found)


def _records_between(start: Place, end: Place) -> list[RecordPair] | None:
    """Give the records that changed between two places; ``None`` where that is unknown."""
    path = start.path(end)
    return None if path is None else net_records(path)


def _changed_records(before: Iterable[ClusterRecord], after: Iterable[ClusterRecord]) -> list[RecordPair]:
    """Give the records that are not the same objects, before and after."""
    kept = {*map(id, before)} & {*map(id, after)}
    old = {record_key(one): one for one in before if id(one) not in kept}
    new = {record_key(one): one for one in after if id(one) not in kept}
    return [(old.get(key), new.get(key)) for key in {**old, **new}]


def _differing(
    before: Iterable[NodeState], after: Iterable[NodeState]
) -> list[tuple[NodeState | None, NodeState | None]]:
    """Give the nodes that are not the same objects, before and after."""
    old, new = {one.name: one for one in before}, {one.name: one for one in after}
    names = [name for name in {**old, **new} if old.get(name) is not new.get(name)]
    return [(old.get(name), new.get(name)) for name in names]


def _known(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Give the names of what was worked out already."""
    found = set()
    for name in ("columns", "layout", "location", "_pods"):
        try:
            object.__getattribute__(snapshot, name)
        except AttributeError:
            continue
        found.add(name)
    return frozenset(found)


def changed_on(start: Place, end: Place) -> list[int] | None:
    """Give the rows of the nodes that changed between two places, sorted.

    ``None`` where that is unknown, or where nodes joined or left.
    """
    path = start.path(end)
    if path is None or any(delta.moves for delta in path):
        return None
    return sorted({row for delta in path for row, _, _ in delta.nodes})


def _alike(one: ClusterLayout | None, other: ClusterLayout) -> bool:
    """Tell whether two layouts have the same rows and resources, whatever the nodes say."""
    return one is not None and one.row_of is other.row_of and one.resources is other.resources


def _columns_with(
    known: ClusterColumns, layout: ClusterLayout, nodes: Sequence[NodeState], rows: Sequence[int]
) -> ClusterColumns:
    if not rows:
        return known
    from koordcore._arrays import freeze, node_columns

    requested, scored = known.requested.copy(), known.scored.copy()
    for row in rows:
        requested[:, row], scored[:, row] = node_columns(layout, nodes[row].name, nodes[row].pods)
    return ClusterColumns(layout=layout, requested=freeze(requested), scored=freeze(scored))


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
