"""Equal states of nodes are asked once: a dense number for each distinct state.

In a large cluster most nodes are of few builds and few states of use. What is worked out for a number holds
for every node that has it, so that a question about all nodes becomes a look-up by number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import numpy as np

from koordcore._arrays import IntVector

S = TypeVar("S")


class StateTable(Generic[S]):
    """The states of many nodes, each distinct one kept once; private to one call.

    Parameters
    ----------
    rows
        State of each node.
    key
        What makes two states equal.

    Attributes
    ----------
    rows
        State of each node now; nodes in equal states keep their own, with their own holders.
    ids
        ``(N,)``: number of each node's state, an index into ``states``.
    states
        Distinct states in the order in which they were met; one that no node has any more stays.

    Examples
    --------
    >>> table = StateTable(["busy", "idle", "busy"], key=str)
    >>> table.ids.tolist(), table.states
    ([0, 1, 0], ['busy', 'idle'])
    """

    def __init__(self, rows: Iterable[S], key: Callable[[S], Hashable]) -> None:
        self._key = key
        self._numbers: dict[Hashable, int] = {}
        self.states: list[S] = []
        self.rows = list(rows)
        self.ids: IntVector = np.fromiter(map(self.number, self.rows), np.int64, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def number(self, state: S) -> int:
        """Give the number of a state; one that is new gets the next."""
        found = self._numbers.setdefault(self._key(state), len(self.states))
        if found == len(self.states):
            self.states.append(state)
        return found

    def put(self, row: int, state: S) -> None:
        """Replace the state of one node."""
        self.rows[row] = state
        self.ids[row] = self.number(state)
