"""Nodes that are alike: equal in what they have and in what is taken of it.

A large cluster has few kinds of nodes and a stream of pods has few shapes, so most nodes are in a state that
some other node is in as well. What depends on amounts alone is then worked out once per state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from koordcore._arrays import IntVector
from koordcore._workspace import Workspace

__all__ = ["AmountStates"]

WARM_UP: Final = 256
"""Changes before nodes are numbered; a short call is over sooner than that pays."""
LARGEST_SHARE: Final = 8
"""With more states than an eighth of the nodes the bookkeeping costs more than it saves; it ends for good."""


class AmountStates:
    """Numbers for the states that nodes have been in, by the bytes of their columns."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._table: dict[bytes, int] | None = {}
        self._numbers = np.empty(0, np.int64)
        self._read = 0

    @property
    def count(self) -> int:
        """States so far; numbers are below it."""
        return len(self._table or ())

    def numbers(self) -> IntVector | None:
        """Give the number of each node's state, ``(N,)``; ``None`` where nodes are too different."""
        table, touched, amounts = self._table, self._workspace.touched, self._workspace.amounts
        end = len(touched)
        if table is None or end < WARM_UP:
            return None
        number = amounts.shape[2]
        rows: Iterable[int] = touched[self._read :]
        if len(self._numbers) != number:
            self._numbers, rows = np.zeros(number, np.int64), range(number)
        self._read = end
        for row in rows:
            self._numbers[row] = table.setdefault(amounts[:, :, row].tobytes(), len(table))
            if len(table) * LARGEST_SHARE > number:
                self._table = None
                return None
        return self._numbers
