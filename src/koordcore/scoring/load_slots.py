"""Columns of nodes that join and leave: each node keeps its slot, whatever comes before it by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import IntVector
from koordcore._vector import Splice

T = TypeVar("T", bound=np.generic)

_SPARE: Final = 8
"""Where slots are needed, an eighth of what there is comes at once."""


class Slots(NamedTuple):
    """Who stands where in the columns.

    Parameters
    ----------
    at
        ``(N,)``: slot of each node, by row.
    free
        Slots that are nobody's.
    """

    at: IntVector
    free: tuple[int, ...]

    def moved(
        self,
        edits: Sequence[Splice],
        forget: Callable[[Sequence[int]], None],
        grow: Callable[[int], Sequence[int]],
    ) -> Slots:
        """Give the slots after nodes joined and left.

        Parameters
        ----------
        edits
            Rows that were taken out and put in, one after another.
        forget
            Told of slots whose nodes left.
        grow
            Makes so many more slots, and gives them.
        """
        at, free = self
        for row, gone, come in edits:
            left = at[row : row + gone].tolist()
            if left:
                forget(left)
                free += tuple(left)
            if come > len(free):
                free += tuple(grow(max(come, len(at) // _SPARE)))
            new, free = free[:come], free[come:]
            at = np.concatenate([at[:row], np.array(new, np.int64), at[row + gone :]])
        return Slots(at, free)


def grown(array: NDArray[T], blank: NDArray[T], number: int) -> NDArray[T]:
    """Give an array by slot, its last axis, with so many more at the end, all as in the blank one."""
    return np.concatenate([array, np.repeat(blank, number, axis=-1)], axis=-1)
