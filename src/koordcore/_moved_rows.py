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
SPARE: Final = 32
"""Room is made for a thirty-second more rows at once."""


def moved_row(row: int, edits: Sequence[Splice]) -> int:
    """Give the row that something has after some edits by the one that it had; -1 where it was taken out."""
    for at, gone, come in edits:
        if row >= at:
            if row < at + gone:
                return -1
            row += come - gone
    return row


def row_before(row: int, edits: Sequence[Splice]) -> int:
    """Give the row that something had before some edits by the one that it has; -1 where it was put in."""
    for at, gone, come in reversed(edits):
        if row >= at:
            if row < at + come:
                return -1
            row += gone - come
    return row


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


def shifted_rows(block: NDArray[T], number: int, edits: Sequence[Splice]) -> tuple[NDArray[T], int]:
    """Do what :func:`moved_rows` does in place, where behind the rows there is room for those that come.

    Parameters
    ----------
    block
        Contiguous; its last axis is by row, and longer than there are rows.
    number
        How many rows there are.
    edits
        Rows that are taken out and put in, one after another.

    Returns
    -------
    NDArray, int
        The block, or another one with room for more, and how many rows there are now.
    """
    if len(edits) > _FEW or number + sum(edit.come for edit in edits) > block.shape[-1]:
        moved = moved_rows(block[..., :number], edits)
        spare = np.zeros((*block.shape[:-1], moved.shape[-1] // SPARE + _FEW), block.dtype)
        return np.ascontiguousarray(np.concatenate([moved, spare], axis=-1)), moved.shape[-1]
    if not edits:
        return block, number
    # A view of plain memory moves what overlaps twice as fast as an array does.
    memory, length = block.reshape(-1).data, block.shape[-1]
    for at, gone, come in edits:
        end = number + come - gone
        for start in range(0, len(memory), length):
            memory[start + at + come : start + end] = memory[start + at + gone : start + number]
        block[..., at : at + come] = 0
        number = end
    return block, number
