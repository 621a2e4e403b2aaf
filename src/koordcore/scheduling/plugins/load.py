"""LoadAwareScheduling: nodes that are busy in fact, whatever is requested on them."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Sequence
from typing import Any, Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.hints import ROOM
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Evaluator, Plugin, Scope
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.protocol.times import moment_of
from koordcore.scoring.load import LoadState
from koordcore.snapshot import ClusterSnapshot

__all__ = ["LoadAware"]


_FEW: Final = 4
"""Where more than a quarter of the nodes changed, compiling anew is no slower."""


def clock(workspace: Workspace) -> int:
    """Give the moment of the call in nanoseconds; without one, that of the newest metric."""
    return _newest(workspace.snapshot) if workspace.now is None else moment_of(workspace.now)


def _newest(snapshot: ClusterSnapshot) -> int:
    metrics = snapshot.of(NodeMetric)
    return max((one.update_time for one in metrics if one.update_time is not None), default=0)


@attrs.frozen
class _Compiled:
    """What the load of a snapshot is compiled by; equal arguments find what was compiled before."""

    args: LoadAwareArgs

    def __call__(self, snapshot: ClusterSnapshot) -> LoadState:
        return LoadState.of_snapshot(snapshot, self.args, _newest(snapshot))

    def again(
        self,
        nodes: tuple[NodeState, ...],
        records: tuple[ClusterRecord, ...],
        value: LoadState,
        snapshot: ClusterSnapshot,
    ) -> LoadState:
        """Follow the pods that came and left since; other metrics are another state."""
        if records is not snapshot.records:
            before = [one for one in records if isinstance(one, NodeMetric)]
            after = snapshot.of(NodeMetric)
            if len(before) != len(after) or any(map(operator.is_not, before, after)):
                return self(snapshot)
        changed = snapshot.changed_rows(nodes)
        if len(changed) * _FEW > len(nodes):
            return self(snapshot)
        state = value.fork() if changed else value
        for row in changed:
            state.replace(nodes[row].pods, snapshot.nodes[row].pods, row)
        return state


def load_state(snapshot: ClusterSnapshot, args: LoadAwareArgs, now: int) -> LoadState:
    """Give the load of a snapshot at a moment, to be changed at will.

    It is compiled once; later calls, for snapshots that come of this one as well, look at what changed.
    """
    compiled = _Compiled(args)
    state = snapshot.derived(compiled, compiled.again).at(now)
    return LoadState.of_snapshot(snapshot, args, now) if state is None else state


class LoadEvaluator(Evaluator):
    """Filter and score of one kind of pods."""

    scope = Scope.NODE

    def __init__(self, plugin: LoadAware, pod: Pod) -> None:
        self._plugin = plugin
        self._request = plugin.state.request_of(pod)

    def fits(self, view: NodeView) -> BoolVector | None:
        state = self._plugin.state
        return state.allows(self._request, view.rows) if state.filters(self._request) else None

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        state = self._plugin.state
        codes = state.fit(self._request, view.rows)
        return [(state.reasons[code], codes == code) for code in np.unique(codes).tolist() if code]

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        row = view.row
        state = self._plugin.state
        return state.shortfalls(self._request, row)

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
    arguments = LoadAwareArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._state: LoadState | None = None
        self._nominated: set[int] = set()
        self._measured = bool(workspace.snapshot.of(NodeMetric))

    @property
    def state(self) -> LoadState:
        """The load of every node now."""
        if self._state is None:
            args = self.args or LoadAwareArgs()
            self._state = load_state(self.workspace.start, args, clock(self.workspace))
        self._state.read(self.workspace.journal, self._nominated)
        return self._state

    def follow(self, moved: Sequence[tuple[Pod, int, int]]) -> bool:
        if self._state is None:
            return True
        self._state.read(self.workspace.journal, self._nominated)
        return self._state.go_to(clock(self.workspace))

    def promised(self, pod: Pod, row: int) -> None:
        """A nominated pod is no load before it is there: upstream keeps estimates apart from nodes."""
        self._nominated.add(len(self.workspace.journal) - 1)

    def withdrawn(self, pod: Pod, row: int) -> None:
        self._nominated.add(len(self.workspace.journal) - 1)

    def request_of(self, pod: Pod) -> Hashable:
        return self.state.request_key(pod) if self._measured else ()

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        if not self._measured:
            return UnmeasuredEvaluator(len(self.workspace.layout.names))
        return LoadEvaluator(self, pod)
