"""What is worked out of a snapshot, once; what follows from an earlier one; and what lies between the two.

Nothing here is part of a snapshot's value: all of it may be dropped, and it changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from koordcore._line import Delta, RecordPair
from koordcore._record import alike_but_for, differing, fields_of
from koordcore._vector import Splice, Vector, gone_and_come
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import NodeState
from koordcore.model.records import ClusterRecord
from koordcore.snapshot.changes import RecordKey, record_key

if TYPE_CHECKING:
    from koordcore.model.nodes import Node
    from koordcore.model.pods import Pod
    from koordcore.snapshot.cluster import ClusterSnapshot


_FEW: Final = 192
"""Three for each node that changed: so few are followed, whatever pods have left them."""

T = TypeVar("T")
NodeValueBuilder: TypeAlias = "Callable[[ClusterSnapshot, NodeState], Any]"
StatePair: TypeAlias = "tuple[NodeState | None, NodeState | None]"
"""A node with its pods before and after; ``None`` where it was not, or is no longer, there."""


def shared(snapshot: ClusterSnapshot) -> tuple[Vector[NodeState], Vector[ClusterRecord]]:
    """Give nodes and records in sequences that share with those of other snapshots what is the same."""
    return snapshot._nodes, snapshot._records


def once(snapshot: ClusterSnapshot, compute: Callable[..., T], *arguments: Any) -> T:
    """Compute ``compute(snapshot, *arguments)`` once for a snapshot.

    The function must be pure and defined at module level; the arguments must be hashable.
    """
    key, memo = (compute, *arguments), snapshot._memo
    if key not in memo:
        memo[key] = compute(snapshot, *arguments)
    return cast("T", memo[key])


def derived(
    snapshot: ClusterSnapshot,
    build: Callable[[ClusterSnapshot], T],
    again: Callable[[Vector[NodeState], Vector[ClusterRecord], T, ClusterSnapshot], T],
    *,
    replaced: bool = False,
) -> T:
    """Compute ``build(snapshot)`` once, or derive it from what an earlier snapshot in this one's past had.

    Parameters
    ----------
    build
        Reads nodes, pods, pending pods and records; pure, defined at module level.
    again
        Gives the same value from the nodes and records that the earlier snapshot had, its value, and this
        snapshot. Nodes and records that are the same objects are equal.
    replaced
        ``again`` follows nodes that say something else, join or leave (:func:`changed_states`), and reads no
        column of a resource; else the nodes themselves, without the pods on them, are the same objects in
        the same order, and so are the resources.
    """
    memo = snapshot._memo
    if build in memo:
        return cast("T", memo[build])
    layout, nodes, records, value, place = snapshot._past.get(build, (None, None, None, None, None))
    if layout is snapshot.layout or (replaced and layout):
        # Told under the identity of the vectors that `again` is handed: whoever asks for what changed
        # in them finds it there, and whoever asks about others has them compared item by item.
        since = place.path(snapshot.place), layout.row_of
        snapshot._since[id(nodes)] = snapshot._since[id(records)] = since
        value = again(nodes, records, cast("T", value), snapshot)
    else:
        value = build(snapshot)
    know(snapshot, build, value)
    return value


def know(snapshot: ClusterSnapshot, build: Callable[[ClusterSnapshot], T], value: T) -> None:
    """Let :func:`derived` give a value that is known already to be that of ``build(snapshot)``."""
    snapshot._memo[build] = value
    # Forks inherit the past: whichever of them asks next goes on from here.
    snapshot._past[build] = (snapshot.layout, snapshot._nodes, snapshot._records, value, snapshot.place)


def apart(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Let what follows from a snapshot remember for itself; it is one that nobody else has yet.

    Snapshots share what the last of them worked out. Where two lines go on side by side, each would be led on
    from the other, over all that has happened since they parted.
    """
    object.__setattr__(snapshot, "_past", dict(snapshot._past))
    return snapshot


def changed_rows(snapshot: ClusterSnapshot, before: Vector[NodeState]) -> list[int]:
    """Give the rows whose nodes are not the same objects as in what :func:`derived` handed over."""
    known = changed_on(_since(snapshot, before)[0])
    if known is None:
        known = [
            row
            for row, pair in enumerate(zip(before, snapshot._nodes, strict=True))
            if pair[0] is not pair[1]
        ]
    return known


def changed_states(snapshot: ClusterSnapshot, before: Vector[NodeState]) -> Sequence[StatePair]:
    """Give the nodes with their pods that are not the same objects as in what :func:`derived` gave."""
    path, _ = _since(snapshot, before)
    return _differing(before, snapshot._nodes) if path is None else net_states(path)


def moves_since(snapshot: ClusterSnapshot, before: Vector[NodeState]) -> list[Splice]:
    """Give where nodes left what :func:`derived` gave, and where others joined, one after another."""
    _, row_of = _since(snapshot, before)
    if row_of is None:
        row_of = {state.name: row for row, state in enumerate(before)}
    return moves_of(changed_states(snapshot, before), row_of, snapshot._names)


def moves_of(pairs: Iterable[StatePair], before: Mapping[str, int], after: Mapping[str, int]) -> list[Splice]:
    """Give where nodes left and joined, one after another, of those that changed; rows are told by name."""
    gone: list[int] = []
    came: list[int] = []
    for old, new in pairs:
        if new is None and old is not None:
            gone.append(before[old.name])
        elif old is None and new is not None:
            came.append(after[new.name])
    gone.sort(reverse=True)
    return [*(Splice(row, 1, 0) for row in gone), *(Splice(row, 0, 1) for row in sorted(came))]


def net_states(deltas: Iterable[Delta]) -> list[StatePair]:
    """Give each node that is not the same object after some steps, before and after."""
    states: dict[str, StatePair] = {}
    for delta in deltas:
        for _, before, after in delta.nodes:
            one = before if after is None else after
            assert one is not None  # a step says something
            name = one.node.name
            states[name] = (states[name][0] if name in states else before, after)
    # A path through a fork goes back and forth: what ends as the object that it was has not changed.
    return [pair for pair in states.values() if pair[0] is not pair[1]]


def steps_between(before: ClusterSnapshot, after: ClusterSnapshot) -> Sequence[Delta]:
    """Give the steps from one snapshot to another; one, of all that differs, where they are forgotten."""
    path = before.place.path(after.place)
    if path is not None:
        return path
    states: Iterable[StatePair]
    if before._names.order is after._names.order:
        states = zip(*before._nodes.apart(after._nodes), strict=True)
    else:
        states = _differing(before._nodes, after._nodes)
    nodes = []
    for old, new in states:
        there, one = (before, old) if new is None else (after, new)
        assert one is not None  # nodes that differ are somewhere
        nodes.append((there._names[one.name], old, new))
    return [Delta(tuple(nodes), tuple(_changed_records(before._records, after._records)))]


def near(deltas: Sequence[Delta], most: int, number: Callable[[], int]) -> bool:
    """Tell whether to lead a state of one snapshot to another one takes less than to make it anew.

    Parameters
    ----------
    deltas
        The steps between.
    most
        How many nodes may be others; one that joined or left takes as long to follow as three.
    number
        Counts the pods that run in the first snapshot: where most of them leave, the few that stay are sooner
        taken in anew. Nodes are, too, some eight in the time of one pod.
    """
    if 3 * sum(len(delta.nodes) for delta in deltas) <= min(most, _FEW):
        return True
    told = [delta.nodes for delta in deltas if delta.nodes]
    nodes = left = 0
    # Nothing is made of a single step: it may be of thousands of nodes, and the garbage collector would wake.
    for _, old, new in told[0] if len(told) == 1 else [(0, *pair) for pair in net_states(deltas)]:
        nodes += 3 if old is None or new is None else 1
        left += len(old.pods) if old is not None else 0
        left -= len(new.pods) if new is not None else 0
    return nodes <= most and 2 * left <= number() + most // 8


def changed_records(snapshot: ClusterSnapshot, before: Vector[ClusterRecord]) -> list[RecordPair]:
    """Give the records that are not the same objects as in what :func:`derived` handed over."""
    if before is snapshot._records:
        return []
    path, _ = _since(snapshot, before)
    return _changed_records(before, snapshot._records) if path is None else net_records(path)


def _since(
    snapshot: ClusterSnapshot, before: Vector[Any]
) -> tuple[Sequence[Delta] | None, Mapping[str, int] | None]:
    """Give the steps that lead here from what :func:`derived` handed over, and the rows of nodes there.

    ``None`` for what is not known.
    """
    return snapshot._since.get(id(before), (None, None))


def records_changed(before: ClusterSnapshot, after: ClusterSnapshot) -> list[RecordPair]:
    """Give the records that are not the same objects in two snapshots, before and after."""
    if before._records is after._records:
        return []
    path = before.place.path(after.place)
    return _changed_records(before._records, after._records) if path is None else net_records(path)


def node_values(snapshot: ClusterSnapshot, build: Callable[[ClusterSnapshot, NodeState], T]) -> Vector[T]:
    """Compute one value per node, by row, and carry it over to forks where the node did not change.

    ``build`` must be pure, defined at module level, and read only the node, its pods and the records; see
    :func:`koordcore.snapshot.per_node` for which of these.
    """
    values = snapshot._node_memo.get(build)
    if values is None:
        values = snapshot._node_memo[build] = Vector(build(snapshot, state) for state in snapshot._nodes)
    return cast("Vector[T]", values)


def kept_values(snapshot: ClusterSnapshot, build: Callable[..., T]) -> Vector[T] | None:
    """Give the values of nodes that a snapshot has already; ``None`` where :func:`node_values` makes them."""
    return snapshot._node_memo.get(build)


def state_at(snapshot: ClusterSnapshot, row: int) -> NodeState:
    """Give the node in a row, by name, with its pods."""
    return snapshot._nodes[row]


def _changed_records(before: Iterable[ClusterRecord], after: Iterable[ClusterRecord]) -> list[RecordPair]:
    """Give the records that are not the same objects, before and after."""
    kept = {*map(id, before)} & {*map(id, after)}
    old = {record_key(one): one for one in before if id(one) not in kept}
    new = {record_key(one): one for one in after if id(one) not in kept}
    return [(old.get(key), new.get(key)) for key in {**old, **new}]


def _differing(before: Iterable[NodeState], after: Iterable[NodeState]) -> list[StatePair]:
    """Give the nodes that are not the same objects, before and after."""
    old, new = {one.name: one for one in before}, {one.name: one for one in after}
    names = [name for name in {**old, **new} if old.get(name) is not new.get(name)]
    return [(old.get(name), new.get(name)) for name in names]


def changed_on(path: Sequence[Delta] | None) -> list[int] | None:
    """Give the rows of the nodes that changed on a path, sorted.

    ``None`` where the path is unknown, or where nodes joined or left.
    """
    rows = set[int]()
    for delta in path or ():
        for row, before, after in delta.nodes:
            if before is None or after is None:
                return None
            rows.add(row)
    return None if path is None else sorted(rows)


def net_records(deltas: Iterable[Delta]) -> list[RecordPair]:
    """Give each record that is not the same object after some steps, before and after."""
    told = [delta.records for delta in deltas if delta.records]
    if len(told) == 1:
        return [pair for pair in told[0] if pair[0] is not pair[1]]
    records: dict[RecordKey, RecordPair] = {}
    for said in told:
        for pair in said:
            one = pair[0] if pair[1] is None else pair[1]
            assert one is not None  # a pair says something
            key = record_key(one)
            records[key] = (records[key][0] if key in records else pair[0], pair[1])
    return [pair for pair in records.values() if pair[0] is not pair[1]]


class NodeValue(Generic[T]):
    """What makes a value of one node, and the types of records that it reads beside the node and its pods.

    Of these it reads only those that name the node: by their own name, or as the node in their status.
    """

    def __init__(
        self,
        build: Callable[[ClusterSnapshot, NodeState], T],
        reads: frozenset[type],
        unread: Mapping[type, frozenset[str]],
    ) -> None:
        self._build = build
        self._reads, self._unread = reads, unread
        update_wrapper(self, build)

    def concerned(self, before: ClusterRecord | None, after: ClusterRecord | None) -> bool:
        """Tell whether a record that changed may make a difference."""
        kind = type(before if after is None else after)
        if kind not in self._reads:
            return False
        unread = self._unread.get(kind)
        return not (unread and before and after and alike_but_for(unread, before, after))

    def __call__(self, snapshot: ClusterSnapshot, state: NodeState) -> T:
        """Make the value of one node."""
        return self._build(snapshot, state)


def per_node(
    *reads: type, unread: Mapping[type, frozenset[str]] = EMPTY
) -> Callable[[Callable[[ClusterSnapshot, NodeState], T]], NodeValue[T]]:
    """Declare what records a value of a node is made of, so that a change of others leaves it alone.

    Parameters
    ----------
    reads
        Types of records; see :class:`NodeValue`. A function without this may read all records.
    unread
        Fields of these that it does not read.
    """

    def declare(build: Callable[[ClusterSnapshot, NodeState], T]) -> NodeValue[T]:
        return NodeValue(build, frozenset(reads), unread)

    return declare


def concerned(build: Callable[..., Any], records: Sequence[RecordPair]) -> set[str] | None:
    """Give the names of the nodes whose values change with some records; ``None`` for all nodes."""
    if not records:
        return set()
    if not isinstance(build, NodeValue):
        return None
    ones = (one for pair in records if build.concerned(*pair) for one in pair if one is not None)
    return {getattr(getattr(one, "status", None), "node_name", "") or one.name for one in ones}


E = TypeVar("E")


class ChangeReader(Generic[E]):
    """Goes through a growing list, such as the journal of a workspace, every entry once.

    Where a list is read for every pod, as in :class:`~koordcore.framework.scheduling_class.SchedulingClass`,
    a number of its own takes the reader's place.

    Parameters
    ----------
    entries
        The list; it only ever grows.
    start
        Place of the first entry to be read; when left out, what is there already counts as read.
    """

    __slots__ = ("_entries", "_read")

    def __init__(self, entries: Sequence[E], start: int | None = None) -> None:
        self._entries = entries
        self._read = len(entries) if start is None else start

    def unread(self) -> Sequence[E]:
        """Give the entries that came since the last call; empty for none."""
        begin, self._read = self._read, len(self._entries)
        return self._entries[begin : self._read]


class ClusterChanges(NamedTuple):
    """What came, left and was replaced between two snapshots with the same rows.

    Parameters
    ----------
    pods
        ``(pod, row, +1 or -1)`` for every pod that came or left; one that says something else did both.
    nodes
        Row, and the node itself before and after, of each that was replaced.
    records
        Type, and what was there before and after, of each record that was added, replaced or removed.
    states
        Row, and the node with its pods before and after, of each that is not the same object.
    said
        Names of the fields of :class:`Node` in which any node that was replaced says something else; all of
        them where one joined.
    """

    pods: Sequence[tuple[Pod, int, int]]
    nodes: Mapping[int, tuple[Node, Node]]
    records: Mapping[type, Sequence[RecordPair]]
    states: Mapping[int, tuple[NodeState, NodeState]]
    said: frozenset[str] = frozenset()


def changes_between(path: Sequence[Delta]) -> ClusterChanges:
    """Add steps up in which no nodes joined or left."""
    states: dict[int, tuple[NodeState, NodeState]] = {}
    for delta in path:
        for row, before, after in delta.nodes:
            assert before is not None and after is not None  # noqa: PT018  # they would have joined or left
            states[row] = (states[row][0] if row in states else before, after)
    return changes_of(states, path)


def changes_of(states: Mapping[int, tuple[NodeState, NodeState]], path: Sequence[Delta]) -> ClusterChanges:
    """Tell what changed by the nodes that are not the same, by row, and the steps that led there."""
    pods: list[tuple[Pod, int, int]] = []
    for row in sorted(states):
        pods += _moved(row, *states[row])
    nodes = {
        row: (before.node, after.node)
        for row, (before, after) in states.items()
        if before.node is not after.node
    }
    by_type: dict[type, list[RecordPair]] = {}
    for old, new in net_records(path):
        by_type.setdefault(type(new if old is None else old), []).append((old, new))
    pods.sort(key=lambda moved: moved[2])  # who leaves goes first
    return ClusterChanges(pods, nodes, by_type, states, _said(nodes.values()))


def _said(replaced: Iterable[tuple[Node, Node]]) -> frozenset[str]:
    """Give the names of the fields in which nodes say something else."""
    # Under another name is a node that joined, of which nothing was known.
    return frozenset().union(
        *(differing(one, two) if one.name == two.name else fields_of(two) for one, two in replaced)
    )


def _moved(row: int, before: NodeState, after: NodeState) -> Iterable[tuple[Pod, int, int]]:
    """Give who left a node and who came."""
    left, came = gone_and_come(before.pods, after.pods)
    return [*((pod, row, -1) for pod in left), *((pod, row, 1) for pod in came)]
