"""What a call has learnt goes with its result: the next call on the line goes on with it.

A warm state is a workspace with its plugins, classes, masks and scores. It stands on one snapshot; a call on
another one of the line leads it there by the pods that came and left, and by nodes and records that changed.
A plugin that cannot follow is made anew. A warm state may be dropped at any time; it changes no answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from koordcore._line import Delta, Place
from koordcore.framework.change_reader import ClusterChanges, changes_between
from koordcore.framework.node_moves import departures_between
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.policy import Policy
from koordcore.snapshot import ClusterSnapshot

_LONGEST: Final = 200_000
"""Entries of the journal after which a state is built anew, so that a long line does not grow."""
_SHARE: Final = 4
"""Following more than a quarter of the nodes costs more than building anew."""


class _Warm(NamedTuple):
    place: Place
    workspace: Workspace
    plugins: PluginSet


def take_warm(
    snapshot: ClusterSnapshot, policy: Policy, now: datetime | None
) -> tuple[Workspace, PluginSet] | None:
    """Take what an earlier call has learnt, led to a snapshot; ``None`` where there is nothing of use."""
    found: _Warm | None = snapshot.place.line.pool.take(policy)
    if found is None:
        return None
    workspace, plugins = found.workspace, found.plugins
    deltas = found.place.path(snapshot.place)
    if deltas is None:
        return None
    if sum(len(delta.nodes) for delta in deltas) * _SHARE > len(workspace.layout.names) + _SHARE:
        return None
    moved = any(delta.moves for delta in deltas)
    if moved and snapshot.layout.resources != workspace.layout.resources:
        return None
    changes = _with_rows(found, snapshot, deltas) if moved else changes_between(deltas)
    if not workspace.advance(snapshot, changes, plugins.removed, plugins.placed):
        return None
    workspace.now = now
    plugins.follow(changes, moved=moved)
    return workspace, plugins


def _with_rows(found: _Warm, snapshot: ClusterSnapshot, deltas: Sequence[Delta]) -> ClusterChanges:
    """Give a state the rows of a snapshot, where nodes joined or left; gives what else changed."""
    workspace, plugins = found.workspace, found.plugins
    rows, noted = (workspace.layout.row_of, snapshot.layout.row_of), len(workspace.journal)
    between = departures_between(deltas, *rows, noted)
    for row, state in between.left.items():
        for pod in state.pods:
            workspace.evict(pod.key, row)
            plugins.removed(pod, row)
    workspace.move(snapshot.layout, between)
    plugins.move(between.moves)
    return between.changes


def hand_back(workspace: Workspace, plugins: PluginSet, policy: Policy) -> None:
    """Leave what a call has learnt with the snapshot that its workspace stands on."""
    if len(workspace.journal) <= _LONGEST:
        workspace.settle()
        place = workspace.snapshot.place
        place.line.pool.put(policy, _Warm(place, workspace, plugins))
