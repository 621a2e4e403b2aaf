"""Arrays by row after nodes joined and left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from koordcore._vector import Splice

T = TypeVar("T", bound=np.generic)

_FEW: Final = 8
"""With more edits one look at every row is cheaper than a copy for each."""


def moved_rows(array: NDArray[T], edits: Sequence[Splice]) -> NDArray[T]:
    """Give an array by row, its last axis, after some rows were taken out and others, of zeros, put in.

    Parameters
    ----------
    edits
        Rows that are taken out and put in, one after another.
    """
    if len(edits) > _FEW:
        rows = np.arange(array.shape[-1])
        for at, gone, come in edits:
            rows = np.concatenate([rows[:at], np.full(come, -1, np.int64), rows[at + gone :]])
        if not array.shape[-1]:
            return np.zeros((*array.shape[:-1], len(rows)), array.dtype)  # nothing could be taken from it
        moved = array.take(rows, axis=-1)
        moved[..., rows < 0] = 0
        return moved
    # Parts that stay in order are copied whole, several times as fast as row by row.
    for at, gone, come in edits:
        fresh = np.zeros((*array.shape[:-1], come), array.dtype)
        array = np.concatenate([array[..., :at], fresh, array[..., at + gone :]], axis=-1)
    return array
