"""What nodes offer, by resource and row: a matrix that is not made before somebody looks at all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._moved_rows import moved_row, moved_rows, row_before
from koordcore._vector import Splice

_MOST: Final = 64
"""Times that nodes may join, leave or offer something else before the matrix is made in any case."""


_Step: TypeAlias = tuple[Sequence[Splice], Mapping[int, Sequence[int]]]


class Offers:
    """Amounts by resource that nodes allocate.

    Where few nodes join, leave or offer something else, the others offer what they did: only the few are
    written down. A value; what it remembers changes no answer, and threads may share it.

    Parameters
    ----------
    matrix
        ``(R, N)``: milli-CPU, bytes, counts; the caller drops it.
    """

    __slots__ = ("_alike", "_held")

    def __init__(self, matrix: NDArray[np.int64]) -> None:
        matrix.flags.writeable = False
        # A matrix, and what has happened since one after another: how rows changed, and which say otherwise.
        self._held: tuple[NDArray[np.int64], tuple[_Step, ...]] = matrix[...], ()
        self._alike: dict[int, int | None] = {}

    @property
    def matrix(self) -> NDArray[np.int64]:
        """All of it, ``(R, N)``, read-only."""
        matrix, steps = self._held
        if steps:
            columns: dict[int, Sequence[int]] = {}
            for edits, told in steps:
                columns = {moved_row(row, edits): column for row, column in columns.items()} | {**told}
            columns.pop(-1, None)
            every = [*chain.from_iterable(edits for edits, _ in steps)]
            matrix = moved_rows(matrix, every) if every else matrix.copy()
            for row, column in columns.items():
                matrix[:, row] = column
            matrix.flags.writeable = False
            self._held = matrix[...], ()
        return self._held[0]

    def at(self, row: int) -> Sequence[int] | NDArray[np.int64]:
        """Give what one node offers: ``(R,)``, to be read only."""
        matrix, steps = self._held
        for edits, told in reversed(steps):
            if row in told:
                return told[row]
            row = row_before(row, edits)
        return matrix[:, row]

    def alike(self, resource: int) -> int | None:
        """Give what all nodes offer of a resource, by its row; ``None`` where some offer more than others."""
        if resource not in self._alike:
            amounts = self.matrix[resource]
            same = len(amounts) and bool((amounts == amounts[0]).all())
            self._alike[resource] = int(amounts[0]) if same else None
        return self._alike[resource]

    def suffice(self, amounts: Mapping[int, int]) -> bool:
        """Tell whether any node offers some amounts, by the resource's row."""
        alike = {resource: self.alike(resource) for resource in amounts}
        differ = [resource for resource, offered in alike.items() if offered is None]
        if any(offered is not None and offered < amounts[one] for one, offered in alike.items()):
            return False
        if alike and not differ:
            return True
        enough = np.ones(self.matrix.shape[1], np.bool_)
        for resource in differ:
            enough &= self.matrix[resource] >= amounts[resource]
        return bool(enough.any())

    def moved(self, edits: Sequence[Splice], columns: Mapping[int, Sequence[int]]) -> Offers:
        """Give what nodes offer after some joined or left, or offer something else.

        Parameters
        ----------
        edits
            Rows that are taken out and put in, one after another.
        columns
            ``(R,)`` amounts of each node that joined or offers something else, by row as rows are afterwards.
        """
        made: Offers = object.__new__(Offers)
        matrix, steps = self._held
        made._held = matrix, (*steps, (edits, columns))
        made._alike = {
            resource: amount
            for resource, amount in [*self._alike.items()]
            if amount is not None and all(column[resource] == amount for column in columns.values())
        }
        if len(steps) == _MOST:
            made.matrix  # noqa: B018  # what it stands on is not to grow
        return made
