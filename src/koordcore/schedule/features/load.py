"""LoadAwareScheduling: nodes that are busy in fact, whatever is requested on them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore._workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric
from koordcore.model.pods import Pod
from koordcore.protocol.times import moment_of
from koordcore.schedule.feature import Evaluator, Feature, Scope
from koordcore.scoring.load import LoadState
from koordcore.snapshot import ClusterSnapshot

__all__ = ["LoadAware"]


def clock(workspace: Workspace) -> int:
    """Give the moment of the call in nanoseconds; without one, that of the newest metric."""
    if workspace.now is not None:
        return moment_of(workspace.now)
    metrics = workspace.snapshot.of(NodeMetric)
    return max((one.update_time for one in metrics if one.update_time is not None), default=0)


def _latest(snapshot: ClusterSnapshot, args: LoadAwareArgs) -> list[LoadState]:
    """The place of the state that was compiled last; one only, since the clock moves on."""
    del snapshot, args
    return []


def load_state(snapshot: ClusterSnapshot, args: LoadAwareArgs, now: int) -> LoadState:
    """Give the load of a snapshot at a moment, to be changed at will; compiled once for equal questions."""
    latest = snapshot.once_for_nodes(_latest, args)
    state = latest[0] if latest else None
    if state is None or state.now != now:
        state = LoadState.of_snapshot(snapshot, args, now)
        latest[:] = [state]
    return state.fork()


class LoadEvaluator(Evaluator):
    """Filter and score of one kind of pods."""

    scope = Scope.NODE

    def __init__(self, feature: LoadAware, pod: Pod) -> None:
        self._feature = feature
        self._request = feature.state.request_of(pod)

    def fits(self, rows: Rows) -> BoolVector | None:
        state = self._feature.state
        return state.allows(self._request, rows) if state.filters(self._request) else None

    def reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        state = self._feature.state
        codes = state.fit(self._request, rows)
        return [(state.reasons[code], codes == code) for code in np.unique(codes).tolist() if code]

    def shortfalls(self, row: int) -> tuple[Shortfall, ...]:
        state = self._feature.state
        return state.shortfalls(self._request, row)

    def scores(self, rows: Rows) -> IntVector:
        return self._feature.state.score(self._request, rows)


class UnmeasuredEvaluator(Evaluator):
    """No node reports its load: all pass and none scores."""

    def __init__(self, number: int) -> None:
        self._scores = np.zeros(number, np.int64)

    def scores(self, rows: Rows) -> IntVector:
        return self._scores[rows]


class LoadAware(Feature):
    """Measured usage and what pods are expected to use."""

    name = "LoadAwareScheduling"

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self._state: LoadState | None = None
        self._measured = bool(workspace.snapshot.of(NodeMetric))

    @property
    def state(self) -> LoadState:
        """The load of every node now."""
        if self._state is None:
            args = self.args or LoadAwareArgs()
            self._state = load_state(self.workspace.snapshot, args, clock(self.workspace))
        self._state.read(self.workspace.journal)
        return self._state

    def request_of(self, pod: Pod) -> Hashable:
        return self.state.request_key(pod) if self._measured else ()

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        if not self._measured:
            return UnmeasuredEvaluator(len(self.workspace.layout.names))
        return LoadEvaluator(self, pod)
