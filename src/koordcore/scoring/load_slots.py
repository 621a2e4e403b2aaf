"""Columns of nodes that join and leave: each node keeps its slot, whatever comes before it by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import IntVector
from koordcore._moved_rows import shifted_rows
from koordcore._vector import Splice

T = TypeVar("T", bound=np.generic)

_SPARE: Final = 8
"""Where slots are needed, an eighth of what there is comes at once."""


class Slots(NamedTuple):
    """Who stands where in the columns.

    Parameters
    ----------
    block
        Slot of each node, by row; longer than there are rows.
    number
        How many rows there are.
    free
        Slots that are nobody's.
    """

    block: IntVector
    number: int
    free: tuple[int, ...]

    @property
    def at(self) -> IntVector:
        """Slot of each node, by row: ``(N,)``."""
        return self.block[: self.number]

    def moved(
        self,
        edits: Sequence[Splice],
        forget: Callable[[Sequence[int]], None],
        grow: Callable[[int], Sequence[int]],
    ) -> Slots:
        """Give the slots after nodes joined and left; the block is written over where it has room for all.

        Parameters
        ----------
        edits
            Rows that were taken out and put in, one after another.
        forget
            Told of slots whose nodes left.
        grow
            Makes so many more slots, and gives them.
        """
        block, number, free = self
        for edit in edits:
            row, gone, come = edit
            left = block[row : row + gone].tolist()
            if left:
                forget(left)
                free += tuple(left)
            if come > len(free):
                free += tuple(grow(max(come, number // _SPARE)))
            new, free = free[:come], free[come:]
            block, number = shifted_rows(block, number, (edit,))
            block[row : row + come] = new
        return Slots(block, number, free)


def grown(array: NDArray[T], blank: NDArray[T], number: int) -> NDArray[T]:
    """Give an array by slot, its last axis, with so many more at the end, all as in the blank one."""
    return np.concatenate([array, np.repeat(blank, number, axis=-1)], axis=-1)
