"""Cheapest assignment of rows to columns, exact in integers, with the prices that prove it."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._record import record

IntMatrix: TypeAlias = NDArray[np.int64]
IntVector: TypeAlias = NDArray[np.int64]
_FAR: Final = np.iinfo(np.int64).max // 4


@record(eq=False)
class RowAssignment:
    """An assignment and its proof.

    Parameters
    ----------
    columns
        ``(N,)``: column of each row.
    cost
        Sum of the costs taken.
    bound
        Sum of the prices of rows and columns: no assignment is cheaper, and it equals ``cost``.
    row_price, column_price
        ``(N,)`` and ``(M,)``: no cost is below the price of its row and that of its column together; prices
        of columns are not positive.
    """

    columns: IntVector
    cost: int
    bound: int
    row_price: IntVector
    column_price: IntVector


def _nearest(distance: IntVector, owner: IntVector) -> int:
    """Give the nearest column; of equally near ones the first free one, because there the search ends."""
    nearest = distance == distance.min()
    free = nearest & (owner < 0)
    return int((free if free.any() else nearest).argmax())


def assign_rows(costs: IntMatrix) -> RowAssignment:
    """Give every row a column of its own so that the sum of costs is least.

    Shortest augmenting paths with prices (Kuhn, Munkres, Jonker and Volgenant). Ties are broken by place, so
    that the answer is always the same.

    Parameters
    ----------
    costs
        ``(N, M)`` with ``N <= M``; their sizes times ``N`` must stay below ``2**60``.
    """
    rows, columns = costs.shape
    row_price = np.zeros(rows, np.int64)
    column_price = np.zeros(columns, np.int64)
    owner = np.full(columns, -1, np.int64)
    for start in range(rows):
        distance = np.full(columns, _FAR, np.int64)
        before = np.full(columns, -1, np.int64)
        done = np.zeros(columns, bool)
        row, column, reached = start, -1, 0
        while True:
            along = reached + costs[row] - row_price[row] - column_price
            shorter = ~done & (along < distance)
            distance[shorter] = along[shorter]
            before[shorter] = column
            column = _nearest(np.where(done, _FAR, distance), owner)
            reached = int(distance[column])
            done[column] = True
            if owner[column] < 0:
                break
            row = int(owner[column])
        seen = np.flatnonzero(done & (owner >= 0))
        row_price[start] += reached
        row_price[owner[seen]] += reached - distance[seen]
        column_price[done] += distance[done] - reached
        while column >= 0:
            previous = int(before[column])
            owner[column] = start if previous < 0 else owner[previous]
            column = previous
    found = np.full(rows, -1, np.int64)
    taken = np.flatnonzero(owner >= 0)
    found[owner[taken]] = taken
    cost = int(costs[np.arange(rows), found].sum()) if rows else 0
    bound = int(row_price.sum() + column_price.sum())
    return RowAssignment(found, cost, bound, row_price, column_price)
