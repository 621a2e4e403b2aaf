"""Where the columns of a snapshot come from: those of an earlier one on its line, or nodes and pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from koordcore._arrays import columns_again, compile_columns, compile_layout, widened_layout
from koordcore._columns import ClusterColumns, ClusterLayout
from koordcore._line import Place
from koordcore.snapshot.following import StatePair, moves_of, net_states

if TYPE_CHECKING:
    from koordcore.snapshot.cluster import ClusterSnapshot


def layout_of(snapshot: ClusterSnapshot) -> ClusterLayout:
    """Give the layout that an earlier snapshot of the line had, if it will do, or compile one."""
    known: ClusterLayout | None
    known, place = snapshot._past.get(compile_layout, (None, snapshot.place))
    known = None if known is None else _led(known, place, snapshot.place)
    if known is None:
        known = compile_layout(snapshot.nodes)
    snapshot._past[compile_layout] = (known, snapshot.place)
    return known


def columns_of(snapshot: ClusterSnapshot) -> ClusterColumns:
    """Give the dynamic columns, made of those of an earlier snapshot of the line where there are any."""
    found: ClusterColumns | None = None
    # Those that were carried along, and those that were last made on this line.
    for known, place in (
        snapshot._columns_before,
        snapshot._past.get(compile_columns, (None, snapshot.place)),
    ):
        if known is None or found is not None or not _counted(known.layout, snapshot.layout):
            continue
        path = place.path(snapshot.place)
        if path is not None:
            found = _columns_with(known, snapshot.layout, net_states(path))
    if found is None:
        found = compile_columns(snapshot.layout, snapshot._nodes)
    snapshot._past[compile_columns] = (found, snapshot.place)
    return found


def _led(layout: ClusterLayout, start: Place, end: Place) -> ClusterLayout | None:
    """Give the layout of one place as that of another; ``None`` where its nodes are not the same."""
    path = start.path(end)
    if path is None or any(delta.moves for delta in path):
        return None
    states = {row: after for delta in path for row, _, after in delta.nodes if after is not None}
    if any(state.node is not layout.nodes[row] for row, state in states.items()):
        return None
    pods = (pod for state in states.values() for pod in state.pods)
    return widened_layout(layout, (name for pod in pods for name in pod.requests))


def _counted(one: ClusterLayout, other: ClusterLayout) -> bool:
    """Tell whether a layout counts all resources of another one."""
    return one.resources is other.resources or all(name in other.index for name in one.resources)


def _columns_with(known: ClusterColumns, layout: ClusterLayout, pairs: Sequence[StatePair]) -> ClusterColumns:
    if not pairs and known.layout.resources == layout.resources:
        return known
    edits = moves_of(pairs, known.layout.row_of, layout.row_of)
    return columns_again(known, layout, pairs, edits)
