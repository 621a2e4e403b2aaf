"""What is worked out of a snapshot, once, and what follows from what was worked out of an earlier one.

Nothing here is part of a snapshot's value: all of it may be dropped, and it changes no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from koordcore._line import Place, RecordPair
from koordcore._vector import Splice, Vector
from koordcore.model.nodes import NodeState
from koordcore.model.records import ClusterRecord
from koordcore.snapshot._records import net_records
from koordcore.snapshot.changes import record_key

if TYPE_CHECKING:
    from koordcore._columns import ClusterLayout
    from koordcore.snapshot.cluster import ClusterSnapshot

T = TypeVar("T")
NodeValueBuilder: TypeAlias = "Callable[[ClusterSnapshot, NodeState], Any]"


def shared(snapshot: ClusterSnapshot) -> tuple[Vector[NodeState], Vector[ClusterRecord]]:
    """Give nodes and records in sequences that share with those of other snapshots what is the same."""
    return snapshot._nodes, snapshot._records


def once(snapshot: ClusterSnapshot, compute: Callable[..., T], *arguments: Any) -> T:
    """Compute ``compute(snapshot, *arguments)`` once for a snapshot.

    The function must be pure and defined at module level; the arguments must be hashable.
    """
    key = (compute, *arguments)
    if key not in snapshot._memo:
        snapshot._memo[key] = compute(snapshot, *arguments)
    return cast("T", snapshot._memo[key])


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
        snapshot. Nodes and records that are the same objects are equal; the resources are the same.
    replaced
        ``again`` follows nodes that say something else, join or leave (:func:`changed_states`); else the
        nodes themselves, without the pods on them, are the same objects in the same order.
    """
    if build not in snapshot._memo:
        layout, nodes, records, value, place = snapshot._past.get(build, (None, None, None, None, None))
        if layout is snapshot.layout or (
            replaced and layout and layout.resources == snapshot.layout.resources
        ):
            snapshot._changes[id(nodes)] = changed_on(place, snapshot.place)
            snapshot._states_changed[id(nodes)] = _states_since(snapshot, layout, nodes, place)
            snapshot._rows_before[id(nodes)] = layout.row_of
            snapshot._record_changes[id(records)] = _records_between(place, snapshot.place)
            value = again(nodes, records, cast("T", value), snapshot)
        else:
            value = build(snapshot)
        snapshot._memo[build] = value
        snapshot._past[build] = (snapshot.layout, snapshot._nodes, snapshot._records, value, snapshot.place)
    return cast("T", snapshot._memo[build])


def changed_rows(snapshot: ClusterSnapshot, before: Vector[NodeState]) -> list[int]:
    """Give the rows whose nodes are not the same objects as in what :func:`derived` handed over."""
    known = snapshot._changes.get(id(before))
    if known is None:
        known = [
            row
            for row, pair in enumerate(zip(before, snapshot._nodes, strict=True))
            if pair[0] is not pair[1]
        ]
    return known


def changed_states(
    snapshot: ClusterSnapshot, before: Vector[NodeState]
) -> Sequence[tuple[NodeState | None, NodeState | None]]:
    """Give the nodes with their pods that are not the same objects as in what :func:`derived` gave."""
    known = snapshot._states_changed.get(id(before))
    return _differing(before, snapshot._nodes) if known is None else known


def moves_since(snapshot: ClusterSnapshot, before: Vector[NodeState]) -> list[Splice]:
    """Give where nodes left what :func:`derived` gave, and where others joined, one after another."""
    pairs = changed_states(snapshot, before)
    left = [old.name for old, new in pairs if old is not None and new is None]
    came = [new.name for old, new in pairs if old is None and new is not None]
    row_of = snapshot._rows_before.get(id(before))
    if row_of is None:
        row_of = {state.name: row for row, state in enumerate(before)}
    gone = sorted((row_of[name] for name in left), reverse=True)
    joined = sorted(map(snapshot._names.find, came))
    return [*(Splice(row, 1, 0) for row in gone), *(Splice(row, 0, 1) for row in joined)]


def _states_since(
    snapshot: ClusterSnapshot, layout: ClusterLayout, before: Vector[NodeState], place: Place
) -> list[tuple[NodeState | None, NodeState | None]] | None:
    path = place.path(snapshot.place)
    if path is None:
        return None
    names = dict.fromkeys(
        state.name for delta in path for _, *pair in delta.nodes for state in pair if state is not None
    )
    row_of = layout.row_of
    pairs = ((before[row_of[name]] if name in row_of else None, snapshot._find_node(name)) for name in names)
    return [(old, new) for old, new in pairs if old is not new]


def changed_records(snapshot: ClusterSnapshot, before: Vector[ClusterRecord]) -> list[RecordPair]:
    """Give the records that are not the same objects as in what :func:`derived` handed over."""
    if before is snapshot._records:
        return []
    known = snapshot._record_changes.get(id(before))
    return _changed_records(before, snapshot._records) if known is None else known


def records_changed(before: ClusterSnapshot, after: ClusterSnapshot) -> list[RecordPair]:
    """Give the records that are not the same objects in two snapshots, before and after."""
    if before._records is after._records:
        return []
    known = _records_between(before.place, after.place)
    return _changed_records(before._records, after._records) if known is None else known


def node_values(snapshot: ClusterSnapshot, build: Callable[[ClusterSnapshot, NodeState], T]) -> Vector[T]:
    """Compute one value per node, by row, and carry it over to forks where the node did not change.

    ``build`` must be pure, defined at module level, and read only the node, its pods and the records; see
    :func:`koordcore.snapshot.per_node` for which of these.
    """
    values = snapshot._node_memo.get(build)
    if values is None:
        values = snapshot._node_memo[build] = Vector(build(snapshot, state) for state in snapshot._nodes)
    return cast("Vector[T]", values)


def state_at(snapshot: ClusterSnapshot, row: int) -> NodeState:
    """Give the node in a row, by name, with its pods."""
    return snapshot._nodes[row]


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


def changed_on(start: Place, end: Place) -> list[int] | None:
    """Give the rows of the nodes that changed between two places, sorted.

    ``None`` where that is unknown, or where nodes joined or left.
    """
    path = start.path(end)
    if path is None or any(delta.moves for delta in path):
        return None
    return sorted({row for delta in path for row, _, _ in delta.nodes})
