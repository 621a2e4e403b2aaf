"""What a node can hold of several shapes at once: patterns, the same for all nodes that are alike.

A pattern counts members per shape. Only maximal ones are kept, since a node may hold fewer; where a
pod-count multiple binds on the nodes, every allowed pattern is kept and must be met exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from koordcore._record import record
from koordcore.allocators.gang.demand import IntMatrix, IntVector

Pattern: TypeAlias = tuple[int, ...]

_MOST_CELLS: Final = 20_000_000
"""Entries of the table of all nodes by all partial patterns; beyond, nodes are modelled one by one."""
_MOST_PATTERNS: Final = 400
"""Patterns of one kind of node; beyond, likewise."""


@record(eq=False)
class NodePatterns:
    """Kinds of nodes by what they can hold.

    Parameters
    ----------
    kind
        Kind of every node, shape (nodes,); -1 for a node that holds nothing.
    holds
        Per kind: the greatest count of the last shape for every combination of the others, -1 where the
        combination itself does not fit, shape (kinds, combinations).
    grid
        The combinations, shape (combinations, shapes - 1): all of them, the last column changing fastest.
    """

    kind: IntVector
    holds: IntMatrix
    grid: IntMatrix

    def _within(self, kind: int, conflicts: Sequence[Pattern]) -> IntVector:
        """Give the greatest count of the last shape that contains no conflict, -1 for none."""
        most: IntVector = self.holds[kind].copy()
        for pattern in conflicts:
            over = (self.grid >= np.array(pattern[:-1], dtype=np.int64)).all(axis=1)
            most[over] = np.minimum(most[over], pattern[-1] - 1)
        return most

    def maximal(self, kind: int, conflicts: Sequence[Pattern] = ()) -> tuple[Pattern, ...] | None:
        """Give the patterns that no other contains; None when there are too many."""
        most = self._within(kind, conflicts)
        # Whatever is held within more members is held too: a pattern that another contains is contained in
        # one that has one member more of a single shape.
        largest = most >= 0
        stride = len(self.grid)
        for counts in self.grid.T:
            stride //= int(counts.max()) + 1
            inner = np.flatnonzero(counts < counts.max())
            largest[inner] &= most[inner + stride] < most[inner]
        if np.count_nonzero(largest) > _MOST_PATTERNS:
            return None
        kept = np.column_stack((self.grid[largest], most[largest]))
        return tuple(sorted((tuple(row) for row in kept.tolist() if any(row)), reverse=True))

    def exact(
        self, kind: int, *, multiple: int, bound: int, conflicts: Sequence[Pattern] = ()
    ) -> tuple[Pattern, ...] | None:
        """Give every pattern whose size with bound members is a multiple; None when there are too many."""
        found: list[Pattern] = []
        for combination, most in zip(self.grid.tolist(), self._within(kind, conflicts).tolist(), strict=True):
            size = sum(combination) + bound
            found.extend((*combination, last) for last in range(most + 1) if (size + last) % multiple == 0)
            if len(found) > _MOST_PATTERNS:
                return None
        return tuple(sorted((pattern for pattern in found if any(pattern)), reverse=True))


def node_patterns(free: IntMatrix, requests: IntMatrix, slots: IntMatrix) -> NodePatterns | None:
    """Sort the nodes by what they can hold.

    Parameters
    ----------
    free
        What each node has left, shape (R, nodes).
    requests
        Amounts of one member per shape, shape (shapes, R).
    slots
        Members of each shape that each node takes alone, shape (shapes, nodes).

    Returns
    -------
    NodePatterns or None
        None when there are too many combinations to list.
    """
    nodes = slots.shape[1]
    ranges = [int(row.max(initial=0)) + 1 for row in slots[:-1]]
    if math.prod(ranges) * max(1, nodes) > _MOST_CELLS:
        return None
    table = _combinations(ranges)
    needs = table @ requests[:-1]
    most = np.broadcast_to(slots[-1], (len(table), nodes)).copy()
    fits = np.ones(most.shape, dtype=np.bool_)
    for shape in range(len(ranges)):
        fits &= table[:, shape, None] <= slots[shape]
    for row in range(free.shape[0]):
        left = free[row][None, :] - needs[:, row][:, None]
        fits &= (left >= 0) | (needs[:, row] == 0)[:, None]
        if requests[-1, row] > 0:
            np.minimum(most, np.maximum(left, 0) // requests[-1, row], out=most)
    most[~fits] = -1
    codes = np.ascontiguousarray(most.T.astype(np.int32))
    _, first, kind = np.unique(
        codes.view(np.dtype((np.void, codes.dtype.itemsize * codes.shape[1]))).ravel(),
        return_index=True,
        return_inverse=True,
    )
    holds = most.T[first]
    kind = np.where((slots > 0).any(axis=0), kind, -1)
    return NodePatterns(kind.astype(np.int64), holds, table)


def _combinations(ranges: Sequence[int]) -> IntMatrix:
    """Give every choice of one number below each range, one a row, the last changing fastest."""
    total, before = math.prod(ranges), 1
    table = np.empty((total, len(ranges)), np.int64)
    for column, size in enumerate(ranges):
        # Column by column: an array of so many dimensions as there are shapes is more than numpy has.
        table[:, column] = np.tile(np.repeat(np.arange(size), total // (before * size)), before)
        before *= size
    return table
