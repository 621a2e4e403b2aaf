"""Mutable columns of amounts by resource and node, and which of them changed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from koordcore._arrays import AMOUNT_LIMIT, PODS_ROW, ClusterLayout, FloatCube, IntCube, IntMatrix, Rows
from koordcore.framework.node_moves import NodeMoves
from koordcore.model.resources import PODS
from koordcore.snapshot import ClusterSnapshot

REQUESTED: Final = 0
SCORED: Final = 1
FREE: Final = 2
SPARE: Final = 3
_DIVIDED: Final = slice(REQUESTED, SPARE + 1, SPARE - REQUESTED)
"""What is requested and what is spare: what kernels divide."""
_FACTORS: Final[FloatCube] = np.array([1.0, 100.0])[:, None, None]

Shape: TypeAlias = tuple[tuple[str, int], ...]
"""Items of some amounts by resource."""


_MOVES_KEPT: Final = 16
"""How many times nodes may join or leave before what nobody has asked for since is forgotten."""


class Amounts:
    """What is requested and free on each node now.

    Attributes
    ----------
    layout
        The static columns, shared with the snapshot.
    amounts
        ``(4, R, N)``: the four matrices below in one block, because whoever looks at some nodes gathers all.
    requested, scored
        ``(R, N)`` working copies of the dynamic columns, views of ``amounts``.
    free
        ``(R, N)``: allocatable less requested; negative where a node is overcommitted.
    spare
        ``(R, N)``: allocatable less scored.
    touched
        Row of each change, appended only: a reader remembers how far it has read and refreshes those rows.
        Where nodes joined or left rows are others from then on, see :meth:`moved_since`.
    era
        How many times nodes joined or left.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.layout: ClusterLayout = snapshot.layout
        taken, scored = snapshot.columns.requested, snapshot.columns.scored
        whole = snapshot.layout.allocatable
        self.amounts: IntCube = np.stack([taken, scored, whole - taken, whole - scored])
        self.requested, self.scored, self.free, self.spare = self.amounts
        self.touched: array[int] = array("q")
        # Where nodes joined or left: how long `touched` was, and how rows changed. The last ones are kept.
        self._moves: list[tuple[int, NodeMoves]] = []
        self.era = 0
        self._real: FloatCube | None = None
        self._real_at = 0
        self._gathered_for: Rows | None = None
        self._gathered_at = 0
        self._gathered: IntCube = self.amounts

    def at(self, rows: Rows) -> IntCube:
        """Give the amounts of some nodes, ``(4, R, n)``, to be read only.

        ``REQUESTED``, ``SCORED``, ``FREE`` and ``SPARE`` tell them apart. Several evaluators look at the same
        few nodes one after another: what was gathered for the last selection is kept until anything changes.
        """
        if isinstance(rows, slice):
            return self.amounts[:, :, rows]
        if self._gathered_for is not rows or self._gathered_at != len(self.touched):
            self._gathered_for, self._gathered_at = rows, len(self.touched)
            self._gathered = self.amounts.take(rows, axis=2)
        return self._gathered

    @property
    def real(self) -> FloatCube:
        """What is requested, and a hundred times what is spare, as float64: ``(2, R, N)``, to be read only.

        For kernels that divide on all nodes, where converting would take as long as dividing.
        """
        touched = self.touched
        if self._real is None:
            self._real = self.amounts[_DIVIDED] * _FACTORS
        else:
            for row in touched[self._real_at :]:
                np.multiply(self.amounts[_DIVIDED, :, row], _FACTORS[:, :, 0], out=self._real[:, :, row])
        self._real_at = len(touched)
        return self._real

    def change_of(self, requested: Shape, scored: Shape) -> IntMatrix:
        """Give what a pod adds to a node's amounts, ``(4, R)``; a pod is one pod, whatever it asks for.

        Parameters
        ----------
        requested, scored
            The items of its requests, and of those that scores read.
        """
        return self._change(requested, scored, pods=1)

    def _change(
        self, requested: Iterable[tuple[str, int]], scored: Iterable[tuple[str, int]], pods: int = 0
    ) -> IntMatrix:
        """What requests, and those that scores read, add to a node's amounts: ``(4, R)``."""
        index, number = self.layout.index, len(self.layout.resources)
        flat = [0] * (4 * number)
        for start, asked in ((0, requested), (number, scored)):
            for name, amount in asked:
                if name in index:
                    # More is on no node, so such a pod is never bound where amounts are looked at.
                    flat[start + index[name]] = min(amount, AMOUNT_LIMIT)
            flat[start + PODS_ROW] = pods
        flat[2 * number :] = [-amount for amount in flat[: 2 * number]]
        return np.array(flat, np.int64).reshape(4, number)

    def shift(self, row: int, requested: Mapping[str, int], scored: Mapping[str, int], sign: int) -> None:
        """Count amounts on a node that no pod stands for, or take them off; undoing it is the caller's.

        Parameters
        ----------
        row, sign
            The node; 1 to count them, -1 to take them off.
        requested, scored
            Amounts by resource, as filters and as scores count them; slots of pods as ``pods``.
        """
        slots = requested.get(PODS, 0)
        self.amounts[:, :, row] += sign * self._change(requested.items(), scored.items(), pods=slots)
        self.touched.append(row)

    def offer(self, rows: Iterable[int], layout: ClusterLayout) -> None:
        """Take in that nodes offer what a layout says now."""
        for row in rows:
            self.amounts[FREE, :, row] = layout.allocatable[:, row] - self.requested[:, row]
            self.amounts[SPARE, :, row] = layout.allocatable[:, row] - self.scored[:, row]
            self.touched.append(row)
        self.layout = layout

    def _move_amounts(self, moves: NodeMoves, layout: ClusterLayout) -> None:
        """Let nodes join, with nothing on them and nothing offered, and leave."""
        self._moves = [*self._moves[-_MOVES_KEPT + 1 :], (len(self.touched), moves)]
        self.era += 1
        self.layout = layout
        self.amounts = moves.by_row(self.amounts)
        self.requested, self.scored, self.free, self.spare = self.amounts
        self._real = self._gathered_for = None

    def moved_since(self, era: int) -> Sequence[tuple[int, NodeMoves]] | None:
        """Give how long ``touched`` was and how rows changed, each time since an era; ``None``: too often."""
        number = self.era - era
        return None if number > len(self._moves) else self._moves[len(self._moves) - number :]

    @property
    def moved_at(self) -> int:
        """How long ``touched`` was when nodes joined or left last; 0 where they never did."""
        return self._moves[-1][0] if self._moves else 0
