"""Pods whose objects cannot be read: they are placed nowhere, and where they run nobody joins them.

What such a pod holds is known only in part, so a node with one may have less room than it seems to have. This
holds whatever a policy says: it is no preference, and no plugin of a policy can be asked to leave it out.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np

from koordcore._arrays import BoolVector
from koordcore.framework.evaluator import Evaluator, Refusal
from koordcore.framework.hints import CANNOT_BE_READ
from koordcore.framework.lacks import Lack
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, node_values, per_node

_NAMED: Final = 3


@per_node()
def unreadable_on(snapshot: ClusterSnapshot, state: NodeState) -> tuple[str, ...]:
    """Give the pods on a node that may hold more than can be read of them."""
    del snapshot
    if not state.pods:
        return ()
    return tuple(str(pod.key) for pod in state.pods if pod.conceals)


class ClosedEvaluator(Evaluator):
    """No node with a pod that cannot be read takes another one; evicting others never helps."""

    def __init__(self, holding: dict[int, tuple[str, ...]], number: int) -> None:
        self._holding = holding
        self._open = np.ones(number, np.bool_)
        self._open[list(holding)] = False

    def fits(self, view: NodeView) -> BoolVector:
        """Tell which nodes hold only what can be read."""
        return self._open[view.rows]

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        """Name the pods, of all nodes together."""
        named = [one for row in sorted(self._holding) for one in self._holding[row]]
        return [(_message(named), ~self._open[view.rows])]

    def unresolvable(self, view: NodeView) -> BoolVector:
        """Say that it helps nowhere to evict others."""
        return ~self._open[view.rows]

    def lacks(self, view: NodeView) -> Sequence[Lack]:
        """Name the pods of each node."""
        numbers = view.numbers.tolist()
        found = []
        for place, row in enumerate(numbers):
            if row in self._holding:
                where = np.zeros(len(numbers), np.bool_)
                where[place] = True
                found.append(Lack(where, _message(self._holding[row]), unresolvable=where))
        return found


def _message(pods: Sequence[str]) -> str:
    rest = len(pods) - _NAMED
    named = ", ".join(pods[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
    return f"node(s) held a pod that cannot be read: {named}"


class Readable(Plugin):
    """What cannot be read is not placed, nor joined; every profile has this filter, before all of its own."""

    name = "Readable"
    needs = frozenset(("unreadable",))
    by_template = True
    reads = frozenset[type]()
    looks_at = frozenset[str]()

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        held = node_values(workspace.snapshot, unreadable_on)
        self._holding = {row: pods for row, pods in enumerate(held) if pods}

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        """Refuse what cannot be read; others are concerned where it runs."""
        if pod.unreadable:
            return Refusal(f"{CANNOT_BE_READ}: {pod.unreadable}")
        return True if self._holding else None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        """Keep pods off the nodes where something unreadable runs."""
        return ClosedEvaluator(self._holding, len(self.workspace.layout.names))

    def moved(self, moves: NodeMoves) -> bool:
        """Take the nodes where they are now."""
        rows = moves.rows(np.array([*self._holding], np.int64)).tolist()
        there = zip(rows, self._holding.values(), strict=True)
        self._holding = {row: pods for row, pods in there if row >= 0}
        return True

    def follow(self, changes: ClusterChanges) -> bool:
        """Go on while nobody of these came or left."""
        return not any(pod.conceals for pod, _, _ in changes.pods)
