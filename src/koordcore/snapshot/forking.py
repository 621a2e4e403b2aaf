"""Snapshots that come of others: what does not change is carried along."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from koordcore._line import Delta, RecordPair
from koordcore._vector import Names, Splice, Table, Vector, gone_and_come
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import counted
from koordcore.snapshot._draft import Draft
from koordcore.snapshot.changes import RecordKey, record_key
from koordcore.snapshot.following import NodeValueBuilder, concerned, state_at

if TYPE_CHECKING:
    from koordcore._columns import ClusterColumns, ClusterLayout
    from koordcore.snapshot.cluster import ClusterSnapshot

_KEY: Final = attrgetter("key")
_SHARE: Final = 4
"""Carrying a table over where more than a quarter of the nodes changed costs as much as making it anew."""
_BEHIND: Final = 32
"""Steps by which columns that nobody asks for may be behind: what they have missed is made up for at once."""
_COUNTED: Final = 24
"""The same where somebody keeps count of them, so that they are seldom made up for."""


def with_states(
    snapshot: ClusterSnapshot, states: Mapping[int, NodeState], pending: tuple[Pod, ...]
) -> ClusterSnapshot:
    """Replace nodes with the pods on them, by row, and the pending ones, in order and unique already."""
    changed = tuple((row, snapshot._nodes[row], state) for row, state in states.items())
    return _derived(snapshot, snapshot._nodes.changed(states), changed, pending)


def with_pods(
    snapshot: ClusterSnapshot,
    pods: Mapping[str, tuple[Pod, ...]],
    pending: Iterable[Pod],
    records: Sequence[RecordPair] = (),
) -> ClusterSnapshot:
    """Replace the pods of some nodes, all pending pods, and some records.

    Parameters
    ----------
    records
        Before, as they are here, and after.
    """
    states = {}
    for name, there in pods.items():
        row = snapshot._names[name]
        states[row] = NodeState(snapshot._nodes[row].node, there)
    waiting = snapshot.pending if pending is snapshot.pending else tuple(sorted(pending, key=_KEY))
    return _fork(snapshot, states, waiting, records)


def drawn(snapshot: ClusterSnapshot, draft: Draft) -> ClusterSnapshot:
    """Make the snapshot that a draft comes to."""
    pending, states = _pending_with(snapshot.pending, draft.pending), draft.nodes()
    changed = [(draft.before[key], record) for key, record in draft.records.items()]
    changed = [(before, after) for before, after in changed if before is not after]
    if any(state is None or snapshot._find_node(name) is None for name, state in states.items()):
        return _moved(snapshot, states, pending, changed)
    rows = {snapshot._names[name]: state for name, state in states.items() if state is not None}
    return _fork(snapshot, rows, pending, changed)


def _moved(
    snapshot: ClusterSnapshot,
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
        old, state, place = snapshot._find_node(name), states[name], snapshot._names.place(name)
        row = place + joined
        if old is not state:
            changed.append((place if state is None else row, old, state))
        if state is not None:
            there[row] = state
        if (old is None) != (state is None):
            edits.append(Splice(row, int(old is not None), int(state is not None)))
            joined += 1 if old is None else -1
    names = snapshot._names.spliced(edits, {row: state.name for row, state in there.items()})
    like = snapshot._names.order, names.order
    nodes = snapshot._nodes.spliced(edits, there, like)
    made = _derived(snapshot, nodes, tuple(changed), pending, records, names)
    if _kept(snapshot, "layout") is None or not snapshot._names or not names:
        return made
    from koordcore._arrays import moved_layout

    layout = moved_layout(snapshot.layout, snapshot._names, names, there, edits)
    object.__setattr__(made, "layout", layout)
    hand_columns(snapshot, made)
    memo: dict[NodeValueBuilder, Vector[Any]] = {}
    for build, values in snapshot._node_memo.copy().items():  # another thread may work out more meanwhile
        touched = concerned(build, records)
        if touched is not None:
            anew = {row: build(made, nodes[row]) for row in {*there, *_rows_in(names, touched)}}
            memo[build] = values.spliced(edits, anew, like)
    object.__setattr__(made, "_node_memo", memo)
    return made


def _fork(
    snapshot: ClusterSnapshot,
    states: Mapping[int, NodeState],
    pending: tuple[Pod, ...],
    records: Sequence[RecordPair],
) -> ClusterSnapshot:
    """Replace some nodes, and carry over what can be: the layout, columns and values of nodes."""
    changed = tuple((row, snapshot._nodes[row], state) for row, state in states.items())
    fork = _derived(snapshot, snapshot._nodes.changed(states), changed, pending, records)
    replaced = {
        row: state.node for row, state in states.items() if state.node is not snapshot._nodes[row].node
    }
    if not states and not records:
        # Where nothing changes, what is worked out for either serves both.
        object.__setattr__(fork, "_node_memo", snapshot._node_memo)
    layout: ClusterLayout | None = _kept(snapshot, "layout")
    if layout is None:
        if replaced or not states:
            return fork  # nothing is kept by row yet
        layout = snapshot.layout
    if replaced:
        from koordcore._arrays import changed_layout

        layout = changed_layout(snapshot.layout, replaced)
    new = {name for _, before, after in changed for name in _named_anew(layout, before, after)}
    if new:
        from koordcore._arrays import widened_layout

        layout = widened_layout(layout, new)
    object.__setattr__(fork, "layout", layout)
    hand_columns(snapshot, fork)
    if states or records:
        rows, known = list(states), snapshot._node_memo.copy()  # another thread may work out more meanwhile
        memo = {build: _values_in(known[build], fork, build, rows, records) for build in known}
        kept = {build: values for build, values in memo.items() if values is not None}
        object.__setattr__(fork, "_node_memo", kept)
    return fork


def _named_anew(layout: ClusterLayout, before: NodeState, after: NodeState) -> Iterator[str]:
    """Name the resources without a row that pods which came to a node ask for."""
    index = layout.index
    for pod in gone_and_come(before.pods, after.pods)[1]:
        yield from (name for name in pod.requests if name not in index and counted(name))


def with_waiting(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> ClusterSnapshot:
    """Add pods that wait, or replace those of the same key; none of them is bound here."""
    return _fork(snapshot, {}, _pending_with(snapshot.pending, {pod.key: pod for pod in pods}), ())


def _values_in(
    values: Vector[Any],
    fork: ClusterSnapshot,
    build: NodeValueBuilder,
    rows: Sequence[int],
    records: Sequence[RecordPair],
) -> Vector[Any] | None:
    """Give one value per node for a fork; ``None`` where it cannot be told which of them are others."""
    touched = concerned(build, records)
    if touched is None:
        return None
    every = {*rows, *_rows_in(fork._names, touched)}
    return values.changed({row: build(fork, state_at(fork, row)) for row in every}) if every else values


def _derived(
    snapshot: ClusterSnapshot,
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
    made = object.__new__(type(snapshot))
    kept, keys = snapshot._records, snapshot._record_keys
    if records:
        kept, keys = _records_with(snapshot, records)
    for name, value in (("_nodes", nodes), ("pending", pending), ("_records", kept)):
        object.__setattr__(made, name, value)
    object.__setattr__(made, "_record_keys", keys)
    # Records of types of which none changed are the same tuples.
    touched = {type(one) for pair in records for one in pair if one is not None}
    by_type = snapshot._by_type
    if touched:
        by_type = {kind: found for kind, found in by_type.copy().items() if kind not in touched}
    object.__setattr__(made, "_by_type", by_type)
    # One memory for all snapshots of a line: what the last of them worked out serves the others as well.
    object.__setattr__(made, "_past", snapshot._past)
    object.__setattr__(made, "_names", snapshot._names if names is None else names)
    object.__setattr__(made, "place", snapshot.place.next(Delta(changed, tuple(records))))
    _hand_tables(snapshot, made, [(before, after) for _, before, after in changed])
    return made


def _records_with(
    snapshot: ClusterSnapshot, changed: Iterable[RecordPair]
) -> tuple[Vector[ClusterRecord], list[RecordKey]]:
    """Give all records with some replaced, added or taken away, and their keys."""
    keys = snapshot._record_keys
    moved = [pair for pair in changed if pair[0] is None or pair[1] is None]
    replaced = {
        bisect_left(keys, record_key(after)): after
        for before, after in changed
        if before is not None and after is not None
    }
    if not moved:
        return snapshot._records.changed(replaced), keys
    records, keys = snapshot._records.changed(replaced), list(keys)
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
    snapshot: ClusterSnapshot,
    made: ClusterSnapshot,
    pairs: Sequence[tuple[NodeState | None, NodeState | None]],
) -> None:
    """Carry the tables of pods over, where they are known here."""
    # Where many nodes differ, making a table anew for whoever asks takes no longer than changing it.
    if len(pairs) * _SHARE > len(snapshot._nodes) + _SHARE:
        return
    location: Table[PodKey, str] | None = _kept(snapshot, "location")
    known: Table[PodKey, Pod] | None = _kept(snapshot, "_pods")
    if location is None and known is None:
        return
    gone: set[PodKey] = set()
    after: list[tuple[str, Pod]] = []
    for old, new in pairs:
        there = () if old is None else old.pods
        here = () if new is None else new.pods
        before, behind = {*map(id, there)}, {*map(id, here)}
        if not before <= behind:
            gone.update([pod.key for pod in there if id(pod) not in behind])
        after += [(pod.node_name or "", pod) for pod in here if id(pod) not in before]
    if location is not None:
        moved = location.changed(gone, {pod.key: name for name, pod in after}) if gone or after else location
        object.__setattr__(made, "location", moved)
    if known is not None:
        waited, wait = gone_and_come(snapshot.pending, made.pending)
        gone.update(pod.key for pod in waited)
        pods = {pod.key: pod for pod in wait}
        pods.update((pod.key, pod) for _, pod in after)
        object.__setattr__(made, "_pods", known.changed(gone, pods) if gone or pods else known)


def hand_columns(
    snapshot: ClusterSnapshot,
    made: ClusterSnapshot,
    counted: Callable[[], ClusterColumns | None] | None = None,
) -> None:
    """Let a snapshot of the same resources make its columns out of those that are known here.

    Parameters
    ----------
    counted
        Gives those of the snapshot that was made, where somebody keeps count of them.
    """
    columns = _kept(snapshot, "columns")
    source = snapshot._columns_before if columns is None else (columns, snapshot.place)
    behind = 0 if source[0] is None else snapshot.place.at - source[1].at
    known = counted() if counted is not None and behind > _COUNTED else None
    if known is not None:
        source = known, made.place
    elif behind > _BEHIND:
        source = snapshot.columns, snapshot.place  # a little at a time, and before steps are forgotten
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


def _kept(snapshot: ClusterSnapshot, name: str) -> Any | None:
    """Give what was worked out already under a name; ``None`` for what nobody has asked for yet."""
    try:
        return object.__getattribute__(snapshot, name)
    except AttributeError:
        return None
