"""Nodes that are alike: equal in what they have and in what is taken of it.

A large cluster has few kinds of nodes and a stream of pods has few shapes, so most nodes are in a state that
some other node is in as well. What depends on amounts alone is then worked out once per state, and the best
node is the first one in the best state.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final

import numpy as np

from koordcore._arrays import IntVector
from koordcore.framework.workspace import Workspace

WARM_UP: Final = 256
"""Changes before nodes are grouped; a short call is over sooner than that pays."""
LARGEST_PART: Final = 0.25
"""With more states than this part of the nodes the bookkeeping costs more than it saves; it ends for good."""
MOST_TABLES: Final = 4
"""Ways of telling nodes apart that are followed at a time; each costs as much again at every change."""
FAR: Final = 2**62
"""Stands for the first node of a state that no node is in now; larger than any score in a rank."""


class AmountStates:
    """The states that nodes have been in, told apart by the bytes of their columns and by their kind.

    Parameters
    ----------
    workspace
        Where the nodes are.
    kinds
        A number for each node, eight bytes: nodes of different kinds are never alike.

    Attributes
    ----------
    first
        ``(S,)``: row of the first node in each state, ``FAR`` for none. Only the first ``size`` are in use.
    count
        ``(S,)``: how many nodes are in it.
    size
        States so far.
    new_states
        State by state as each came up that no node was in, again or for the first time; appended only.
    """

    def __init__(self, workspace: Workspace, kinds: bytes) -> None:
        self._workspace = workspace
        self._kinds = kinds
        self._kind: list[bytes] = []
        most = int(len(kinds) // 8 * LARGEST_PART)
        # Numbers are read and written one by one in plain arrays, a third of what it takes in numpy's; both
        # are the same memory.
        self._first, self._count = array("q", [FAR]) * (most + 1), array("q", [0]) * (most + 1)
        self.first: IntVector = np.frombuffer(self._first, np.int64)
        self.count: IntVector = np.frombuffer(self._count, np.int64)
        self.size = 0
        self.new_states: array[int] = array("q")
        self._most = most
        self._table: dict[bytes, int] | None = {}
        self._state = array("q")
        self._at: IntVector = np.empty(0, np.int64)
        # For each state a heap of the rows that came to it; a row that has left stays until it comes up.
        self._rows: list[list[int]] = []
        self._read = 0

    @property
    def over(self) -> bool:
        """Nodes were too different; it will never be ready again."""
        return self._table is None

    def ready(self) -> bool:
        """Bring the states up to date; tell whether they can be used, or nodes are too different."""
        table, touched, by_node = self._table, self._workspace.touched, self._workspace.by_node
        end = len(touched)
        if table is None or end < self._workspace.moved_at + WARM_UP:
            return False
        rows: Iterable[int] = touched[self._read : end]
        self._read = end
        if not self._state:
            kinds = self._kinds
            self._kind = [kinds[start : start + 8] for start in range(0, len(kinds), 8)]
            self._state, rows = array("q", [-1]) * len(self._kind), range(len(self._kind))
            self._at = np.frombuffer(self._state, np.int64)
        states, kind = self._state, self._kind
        for row in rows:
            state = table.setdefault(by_node[row].tobytes() + kind[row], len(table))
            if state == states[row]:
                continue
            if state > self._most:
                self._table = None
                return False
            self._move(row, state)
        return True

    def at(self, rows: IntVector) -> IntVector:
        """Give the states that some nodes are in, after :meth:`ready`."""
        states: IntVector = self._at[rows]
        return states

    def _move(self, row: int, state: int) -> None:
        old = self._state[row]
        self._state[row] = state
        if old >= 0:
            self._leave(row, old)
        if state == self.size:
            self.size += 1
            self._rows.append([])
        heappush(self._rows[state], row)
        if not self._count[state]:
            self.new_states.append(state)
        self._count[state] += 1
        self._first[state] = min(self._first[state], row)

    def _leave(self, row: int, old: int) -> None:
        self._count[old] -= 1
        if self._first[old] != row:
            return
        rows, states = self._rows[old], self._state
        while rows and states[rows[0]] != old:
            heappop(rows)
        self._first[old] = rows[0] if rows else FAR


class StateTables:
    """The tables of one workspace, one for each way in which static plugins tell nodes apart."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._tables: dict[bytes, AmountStates] = {}

    def keep(self, wanted: Iterable[AmountStates]) -> None:
        """Forget all tables but some, to have room for others."""
        if len(self._tables) < MOST_TABLES:
            return
        known = {*map(id, wanted)}
        self._tables = {kinds: one for kinds, one in self._tables.items() if id(one) in known}

    def of(self, kinds: bytes) -> AmountStates | None:
        """Give the table for these kinds of nodes; ``None`` where there are too many others already."""
        if kinds not in self._tables:
            if len(self._tables) >= MOST_TABLES:
                return None
            self._tables[kinds] = AmountStates(self._workspace, kinds)
        return self._tables[kinds]
