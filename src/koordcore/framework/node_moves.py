"""Nodes that join and leave between two calls, and resources that come in: whose rows are which then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import ClusterLayout, IntCube, IntVector
from koordcore._line import Delta
from koordcore._moved_rows import moved_row, moved_rows, shifted_rows
from koordcore._vector import Splice
from koordcore.model.nodes import Node, NodeState
from koordcore.snapshot.following import ClusterChanges, changes_of, moves_of, net_states

T = TypeVar("T", bound=np.generic)

_NOTHING: Final = NodeState(Node(name="-"))
"""A node of which nothing is known."""


class NodeMoves(NamedTuple):
    """Where nodes left, and where others joined; which resources are counted that were not.

    Parameters
    ----------
    edits
        Rows that were taken out and put in, one after another.
    came
        The rows of those that joined, as rows are afterwards.
    noted
        How long the journal was when the pods of nodes that left were not yet taken off.
    resources
        Names that nobody had named before; with them each resource stands in another row of the amounts.
    """

    edits: tuple[Splice, ...]
    came: tuple[int, ...]
    noted: int
    resources: frozenset[str] = frozenset()

    def by_row(self, array: NDArray[T]) -> NDArray[T]:
        """Give an array by row, its last axis, as rows are afterwards; zeros for those that joined."""
        return moved_rows(array, self.edits)

    def within(self, block: IntCube, number: int) -> tuple[IntCube, int]:
        """Give a block whose first ``number`` rows, of its last axis, are those of nodes; and how many are.

        It is the same one, written over, where it has room for all.
        """
        return shifted_rows(block, number, self.edits)

    def row(self, row: int) -> int:
        """Give the row that a node has afterwards by the one that it had; -1 where it left."""
        return moved_row(row, self.edits)

    def rows(self, rows: IntVector) -> IntVector:
        """Give the rows that nodes have afterwards by those that they had; -1 for those that left."""
        found = rows.copy()
        for at, gone, come in self.edits if len(rows) else ():
            left = (found >= at) & (found < at + gone)
            found[found >= at + gone] += come - gone
            found[left] = -1
        return found


class Departures(NamedTuple):
    """What lies between two snapshots of a line where nodes joined or left.

    Parameters
    ----------
    moves
        How rows changed.
    left
        By the row that it had, each node that is gone.
    changes
        All else, by the rows of the second snapshot: a node that joined was one before of which nothing is
        known, not even its name, without pods.
    """

    moves: NodeMoves
    left: Mapping[int, NodeState]
    changes: ClusterChanges


def departures_between(
    deltas: Sequence[Delta], before: ClusterLayout, after: ClusterLayout, noted: int
) -> Departures:
    """Add steps up.

    Parameters
    ----------
    deltas
        The steps.
    before, after
        The layouts of the two snapshots.
    noted
        How long the journal is.
    """
    old_row, new_row = before.row_of, after.row_of
    left: dict[int, NodeState] = {}
    states: dict[int, tuple[NodeState, NodeState]] = {}
    came: list[int] = []
    pairs = net_states(deltas)
    for old, new in pairs:
        if new is None:
            assert old is not None  # who was there neither before nor after has not changed
            left[old_row[old.name]] = old
            continue
        row = new_row[new.name]
        states[row] = (old or _NOTHING, new)
        if old is None:
            came.append(row)
    edits = tuple(moves_of(pairs, old_row, new_row))
    resources = frozenset(name for name in after.resources if name not in before.index)
    moves = NodeMoves(edits, tuple(sorted(came)), noted, resources)
    return Departures(moves, left, changes_of(states, deltas))
