"""LoadAwareScheduling: nodes that are busy in fact, whatever is requested on them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore._vector import Vector
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.hints import ROOM
from koordcore.framework.lacks import Lack
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.load import LoadAwareArgs
from koordcore.model.mappings import EMPTY
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.protocol.times import moment_of
from koordcore.scheduling.plugins.resources import OFFERS
from koordcore.scoring.load import EXPIRED, FITS, LoadState
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import (
    ClusterChanges,
    changed_records,
    changed_states,
    derived,
    moves_since,
    state_at,
)


def clock(workspace: Workspace) -> int:
    """Give the moment of the call in nanoseconds; without one, that of the newest metric."""
    return newest(workspace.snapshot) if workspace.now is None else moment_of(workspace.now)


def newest(snapshot: ClusterSnapshot) -> int:
    """Give the moment of the newest metric, in nanoseconds; zero where there is none."""
    return derived(snapshot, _newest, _newest_again, replaced=True)


def _newest(snapshot: ClusterSnapshot) -> int:
    return max(map(_updated, snapshot.of(NodeMetric)), default=0)


def _newest_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], known: int, snapshot: ClusterSnapshot
) -> int:
    del nodes
    pairs = changed_records(snapshot, records)
    come = max((_updated(new) for _, new in pairs if isinstance(new, NodeMetric)), default=0)
    if come >= known or all(_updated(old) < known for old, _ in pairs if isinstance(old, NodeMetric)):
        return max(come, known)
    return _newest(snapshot)


def _updated(metric: NodeMetric) -> int:
    return max(metric.update_time or 0, 0)


@record
class _Compiled:
    """What the load of a snapshot is compiled by; equal arguments find what was compiled before."""

    args: LoadAwareArgs

    def __call__(self, snapshot: ClusterSnapshot) -> LoadState:
        return LoadState.of_snapshot(snapshot, self.args, newest(snapshot))

    def again(
        self,
        nodes: Vector[NodeState],
        records: Vector[ClusterRecord],
        value: LoadState,
        snapshot: ClusterSnapshot,
    ) -> LoadState:
        """Make the rows of nodes anew that changed since, or whose metrics did."""
        states = changed_states(snapshot, nodes)
        row_of = snapshot.layout.row_of
        ones = (before or after for before, after in changed_records(snapshot, records))
        changed = {row_of[after.name] for _, after in states if after is not None}
        changed.update(row_of[one.node] for one in ones if isinstance(one, NodeMetric) and one.node in row_of)
        if not changed and not states:
            return value
        moves = moves_since(snapshot, nodes)
        state = value.fork()
        if state.go_to(newest(snapshot)) is None:
            return self(snapshot)
        if moves:
            state.move(moves)
        renew(state, snapshot, sorted(changed))
        return state


def renew(
    state: LoadState, snapshot: ClusterSnapshot, rows: Sequence[int], new: Mapping[str, NodeMetric] = EMPTY
) -> None:
    """Make the load of some nodes anew, from what a snapshot says of them.

    Parameters
    ----------
    state, snapshot, rows
        Of whom, from what, and which.
    new
        Metrics of the snapshot that need not be searched for, by node.
    """
    states = [state_at(snapshot, row) for row in rows]
    names = (one.name for one in states)
    found = ((name, new[name] if name in new else snapshot.find(NodeMetric, name)) for name in names)
    metrics = {name: metric for name, metric in found if metric is not None}
    state.renew(rows, [one.node for one in states], metrics, [one.pods for one in states])


def load_state(snapshot: ClusterSnapshot, args: LoadAwareArgs, now: int) -> LoadState:
    """Give the load of a snapshot at a moment, to be changed at will.

    It is compiled once; later calls, for snapshots that come of this one as well, look at what changed.
    """
    compiled = _Compiled(args)
    state = derived(snapshot, compiled, compiled.again, replaced=True).at(now)
    return LoadState.of_snapshot(snapshot, args, now) if state is None else state


class LoadEvaluator(Evaluator):
    """Filter and score of one kind of pods."""

    scope = Scope.NODE

    def __init__(self, plugin: LoadAware, pod: Pod) -> None:
        self._plugin = plugin
        self._request = plugin.state.request_of(pod)

    def moved(self) -> bool:
        return True

    def fits(self, view: NodeView) -> BoolVector | None:
        state = self._plugin.state
        return state.allows(self._request, view.rows) if state.filters(self._request) else None

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        state = self._plugin.state
        codes = state.fit(self._request, view.rows)
        return [(state.reasons[code], codes == code) for code in np.unique(codes).tolist() if code]

    def lacks(self, view: NodeView) -> Sequence[Lack]:
        state = self._plugin.state
        codes, found = state.fit(self._request, view.rows), []
        for code in np.unique(codes).tolist():
            there, reason = codes == code, state.reasons[code]
            if code == EXPIRED:
                found.append(Lack(there, reason))
            elif code != FITS:
                found.append(Lack(there, reason, *state.short_of(self._request, code, view.rows)))
        return found

    def scores(self, view: NodeView) -> IntVector:
        return self._plugin.state.score(self._request, view.rows)


class UnmeasuredEvaluator(Evaluator):
    """No node reports its load: all pass and none scores."""

    def __init__(self, number: int) -> None:
        self._scores = np.zeros(number, np.int64)

    def scores(self, view: NodeView) -> IntVector:
        return self._scores[view.rows]


class LoadAware(Plugin):
    """Measured usage and what pods are expected to use."""

    name = "LoadAwareScheduling"
    helped_by = ROOM | {"NodeMetric"}
    reads = frozenset((NodeMetric,))
    looks_at = frozenset[str]()  # what evaluators know of nodes is asked of the state, which follows
    by_template = True
    heeds_promised = False
    arguments = LoadAwareArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._state: LoadState | None = None
        # Who is nominated in this call and counted on nodes, by identity: a dry run takes them off, and
        # undoing that brings the very same pods back without telling anybody.
        self._nominated: dict[int, Pod] = {}
        self._came: tuple[int, ...] = ()
        self._measured = workspace.snapshot.has(NodeMetric)

    @property
    def state(self) -> LoadState:
        """The load of every node now."""
        journal = self.workspace.journal
        if self._state is None:
            # Who came and left since the snapshot is in the journal.
            self._state = load_state(
                self.workspace.snapshot, self.args or LoadAwareArgs(), clock(self.workspace)
            )
            self._state.skip(self.workspace.stands)
        self._state.read(journal, self._nominated)
        return self._state

    def follow(self, changes: ClusterChanges) -> bool:
        workspace = self.workspace
        metrics = changes.records.get(NodeMetric, ())
        if self._measured != workspace.snapshot.has(NodeMetric):
            return False
        if self._state is None:
            self._came = ()
            self._nominated.clear()
            return True
        row_of, came, self._came = workspace.layout.row_of, self._came, ()
        new = {after.name: after for _, after in metrics if isinstance(after, NodeMetric)}
        names = [*new, *(before.name for before, after in metrics if after is None and before is not None)]
        offering = () if OFFERS.isdisjoint(changes.said) else changes.nodes
        rows = sorted({*came, *offering, *(row_of[name] for name in names if name in row_of)})
        self._state.read(workspace.journal, self._nominated)
        self._nominated.clear()
        turned = self._state.go_to(clock(workspace))
        if turned is None:
            self._state, turned = None, np.arange(len(row_of))
        elif rows:
            renew(self._state, workspace.snapshot, rows, new)
        workspace.touched.extend([*rows, *turned.tolist()])
        return True

    def moved(self, moves: NodeMoves) -> bool:
        self._came = moves.came
        if self._state is not None:
            # Whoever was on nodes that left has gone with what was counted there.
            self._state.read(self.workspace.journal, self._nominated, moves.noted)
            self._state.skip(len(self.workspace.journal))
            self._state.move(moves.edits)
        return True

    def promised(self, pod: Pod, row: int) -> None:
        """A nominated pod is no load before it is there: upstream keeps estimates apart from nodes."""
        self._nominated[id(pod)] = pod

    def withdrawn(self, pod: Pod, row: int) -> None:
        """Who was no load has not become one."""

    def request_of(self, pod: Pod) -> Hashable:
        return self.state.request_key(pod) if self._measured else ()

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        if not self._measured:
            return UnmeasuredEvaluator(len(self.workspace.layout.names))
        return LoadEvaluator(self, pod)
