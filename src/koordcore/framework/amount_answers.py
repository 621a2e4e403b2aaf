"""What the amounts of one node are worth to one class of pods, remembered by the amounts.

A class that is asked again and again looks at the one node that its last pod went to. The kernels take as
long for one node as for ten, so they are asked as well about that node with more pods of the class on it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from koordcore._arrays import IntCube, IntMatrix
from koordcore.framework.node_view import NodeView
from koordcore.framework.state_scores import AmountParts
from koordcore.framework.workspace import Workspace

_AHEAD: Final = 8
_FARTHEST: Final = 64
"""So many states of a node are looked at in one go, one pod more in each; twice as many where it is the same
node again."""
_MOST: Final = 2**12
"""States of which it is remembered what they are worth; then all of them are forgotten."""


class AmountAnswers:
    """What parts that look at amounts alone say of single nodes.

    Parameters
    ----------
    workspace
        Where the nodes are.
    parts
        Who is asked.
    change
        What each pod of the class adds to a node's amounts, ``(4, R)``; ``None`` where they differ.
    """

    def __init__(self, workspace: Workspace, parts: AmountParts, change: IntMatrix | None) -> None:
        self._workspace = workspace
        self._parts = parts
        self._change, self._row, self._number = change, -1, 1
        self._known: dict[bytes, tuple[bool, int]] = {}

    def of(self, row: int) -> tuple[bool, int]:
        """Tell whether amounts suffice on a node that is seen as it is, and its weighted score."""
        here = self._workspace.amounts[:, :, row].tobytes()
        found = self._known.get(here)
        return self._learn(row, here) if found is None else found

    def _learn(self, row: int, here: bytes) -> tuple[bool, int]:
        amounts: IntCube = self._workspace.amounts[:, :, row, None]
        if self._change is not None:
            self._number = min(2 * self._number, _FARTHEST) if row == self._row else _AHEAD
            self._row = row
            amounts = amounts + self._change[:, :, None] * np.arange(self._number)
        view = NodeView.supposed(self._workspace, np.full(self._number, row), amounts)
        score, enough = self._parts.answers(view)
        scores = [0] * self._number if score is None else score.tolist()
        fits = [True] * self._number if enough is None else enough.tolist()
        if len(self._known) >= _MOST:
            self._known.clear()
        known = self._known
        for place, answer in enumerate(zip(fits, scores, strict=True)):
            known[amounts[:, :, place].tobytes()] = answer
        return known[here]
