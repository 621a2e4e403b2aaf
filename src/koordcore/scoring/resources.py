"""Resource kernels: what fits, and how good the rest of a node would look.

Shapes: matrices are ``(K, N)`` with one row per resource looked at and one column per node looked at. Amounts
are int64 within ``_arrays.AMOUNT_LIMIT``. Scores are int64 0..100. Formulas are those of the Kubernetes 1.35
scheduler libraries and of Koordinator's NodeResourcesFitPlus and ScarceResourceAvoidance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import BoolVector, FloatMatrix, IntMatrix, IntVector, Rows
from koordcore.model.plugin_args import ShapePoint

MAX_SCORE: Final = 100
FLOAT_EXACT: Final = 2**43
"""Up to this capacity ``floor((hundredfold + 1/2) * (1 / whole))`` in float64 is the integer quotient
``hundredfold // whole`` for ``hundredfold <= 100 * whole``: the true product stays away from the integers by
``1 / (2 * whole) >= 2**-44``, which is more than the error of the two roundings, ``101 * 2**-52``."""
FEW: Final = 512
"""From so many nodes on, looking for what is out of bounds takes half as long as bounding it, and it seldom
finds anything."""
HALF: Final = 0.5
"""What is added to whole numbers before they are multiplied by an inverse."""


class Capacity:
    """What some resources amount to on some nodes, made ready for division.

    Parameters
    ----------
    amounts
        ``(K, N)`` allocatable.

    Attributes
    ----------
    uniform
        All nodes have the same; then one column stands for all, ``(K, 1)``.
    divisor
        The amounts with 1 for 0, as float64 where :meth:`share` is exact.
    inverse
        One by the divisor; multiplying takes half the time of dividing.
    everywhere
        Every node has some of every resource.
    exact
        Shares can be worked out in float64.
    """

    __slots__ = ("_last", "_rows", "amounts", "divisor", "everywhere", "exact", "inverse", "uniform")

    def __init__(self, amounts: IntMatrix, *, part_of: Capacity | None = None) -> None:
        self.uniform = part_of is None and bool((amounts == amounts[:, :1]).all())
        self.amounts = amounts[:, :1] if self.uniform else amounts
        # What holds for all nodes need not be looked up again for some of them.
        self.everywhere: bool = (part_of is not None and part_of.everywhere) or bool(self.present.all())
        if part_of is None:
            self.exact: bool = not amounts.size or bool(amounts.max() <= FLOAT_EXACT)
        else:
            self.exact = part_of.exact
        divisor = self.amounts if self.everywhere else np.maximum(self.amounts, 1)
        self.divisor: IntMatrix | FloatMatrix = divisor.astype(np.float64) if self.exact else divisor
        self.inverse: FloatMatrix = np.divide(1.0, self.divisor, dtype=np.float64)
        self._rows: Rows | None = None
        self._last: Capacity | None = None

    def stands_for(self, amounts: Iterable[int | None]) -> bool:
        """Tell whether all nodes that it was made of have some amounts, ``(K,)``; not looked at where not."""
        return self.uniform and self.amounts.size > 0 and [*amounts] == self.amounts[:, 0].tolist()

    @property
    def present(self) -> NDArray[np.bool_]:
        """The node has some of the resource: of the shape of the amounts."""
        return self.amounts > 0

    def at(self, rows: Rows) -> Capacity:
        """Give the same for some of the nodes; the last selection is remembered, since many ask for it."""
        if self.uniform or (isinstance(rows, slice) and rows == slice(None)):
            return self
        if self._rows is not rows or self._last is None:
            self._rows, self._last = rows, self._part(rows)
        return self._last

    def _part(self, rows: Rows) -> Capacity:
        if isinstance(rows, slice) or not self.everywhere:
            return Capacity(self.amounts[:, rows], part_of=self)
        part = object.__new__(Capacity)
        part.amounts = self.amounts.take(rows, axis=1)
        part.divisor, part.inverse = self.divisor.take(rows, axis=1), self.inverse.take(rows, axis=1)
        part.uniform, part.everywhere, part.exact = False, True, self.exact
        part._rows = part._last = None
        return part

    def percent(self, part: IntMatrix) -> IntMatrix:
        """Compute ``100 * part // whole`` for parts up to the whole; negative parts give 0."""
        if self.exact:
            return self.share(np.multiply(part, 100.0, dtype=np.float64) + HALF).astype(np.int64)
        quotient: IntMatrix = np.floor_divide(part * MAX_SCORE, self.divisor, dtype=np.int64)
        return np.maximum(quotient, 0, out=quotient)

    def share(self, hundredfold: FloatMatrix) -> FloatMatrix:
        """Compute ``hundredfold // whole``, 0 where that is negative; only where the capacity is ``exact``.

        Parameters
        ----------
        hundredfold
            ``(K, N)`` or ``(C, K, N)``: whole numbers up to a hundred times the amounts, with :data:`HALF`
            added; overwritten by the result.
        """
        hundredfold *= self.inverse
        np.floor(hundredfold, out=hundredfold)
        if hundredfold.shape[-1] < FEW or np.minimum.reduce(hundredfold, axis=None, initial=0.0) < 0.0:
            np.maximum(hundredfold, 0.0, out=hundredfold)
        return hundredfold


def least_percent(used: IntMatrix, capacity: Capacity) -> IntMatrix:
    """Score what stays free: ``100 * (capacity - used) // capacity``; 0 where more is used than there is."""
    return capacity.percent(capacity.amounts - used)


def most_percent(used: IntMatrix, capacity: Capacity) -> IntMatrix:
    """Score what is used: ``100 * min(used, capacity) // capacity``; 0 where there is no capacity."""
    return capacity.percent(np.minimum(used, capacity.amounts))


def used_percent(used: IntMatrix, capacity: Capacity) -> IntMatrix:
    """Percent used, 100 where more is used than there is."""
    return np.where(used > capacity.amounts, MAX_SCORE, most_percent(used, capacity))


def weighted_mean(scores: IntMatrix, weights: IntMatrix) -> IntVector:
    """Average scores by weight, rounded down; 0 where no weight is left.

    Parameters
    ----------
    scores, weights
        ``(K, N)``, weights also ``(K, 1)``; a weight of 0 leaves the resource out on that node.
    """
    total = weights.sum(0)
    mean: IntVector = (scores * weights).sum(-2) // np.maximum(total, 1)
    return mean


def ratio_table(shape: Sequence[ShapePoint]) -> IntVector:
    """Tabulate a broken line: score 0..100 for each percent used 0..100.

    Between corners it is linear with integer division towards zero, outside them it is constant
    (``BuildBrokenLinearFunction``); scores of the corners are 0..10 and count tenfold.
    """
    corners = [(point.utilization, point.score * 10) for point in shape]
    table = np.zeros(101, np.int64)
    for used in range(101):
        after = next((i for i, corner in enumerate(corners) if used <= corner[0]), None)
        if after is None:
            table[used] = corners[-1][1]
        elif after == 0:
            table[used] = corners[0][1]
        else:
            (x0, y0), (x1, y1) = corners[after - 1], corners[after]
            rise, run = (y1 - y0) * (used - x0), x1 - x0
            table[used] = y0 + (rise // run if rise >= 0 else -(-rise // run))
    return table


def score_ratio(used: IntMatrix, capacity: Capacity, weights: IntMatrix, table: IntVector) -> IntVector:
    """Score by a broken line over the percent used; a resource that scores 0 is left out with its weight.

    Parameters
    ----------
    used, weights
        ``(K, N)``.
    table
        ``(101,)`` of :func:`ratio_table`.
    """
    scores = table[used_percent(used, capacity)]
    counted = np.where(scores > 0, weights, 0)
    total = counted.sum(0)
    weighted = (scores * counted).sum(0)
    # Round half away from zero; both are positive, so the integer form is exact.
    result: IntVector = (2 * weighted + total) // np.maximum(2 * total, 1)
    return result


def score_balanced(used: IntMatrix | FloatMatrix, capacity: Capacity) -> IntVector:
    """Score how even the used fractions are: ``trunc(100 * (1 - standard deviation))``.

    Floats, as upstream defines it; a resource with no capacity is left out.

    Parameters
    ----------
    used
        ``(K, N)``, or ``(C, K, N)`` for several pods; the pod included; whole numbers, fastest as float64,
        which are overwritten.
    """
    # In place: an array that is in the cache already is the fastest to write.
    fractions: FloatMatrix = np.true_divide(
        used, capacity.divisor, out=used if used.dtype == np.float64 else None
    )
    if fractions.shape[-1] < FEW or np.maximum.reduce(fractions, axis=None, initial=0.0) > 1.0:
        np.minimum(fractions, 1.0, out=fractions)
    if fractions.shape[-2] == 2 and capacity.everywhere:
        score: FloatMatrix = fractions[..., 0, :]
        score -= fractions[..., 1, :]
        np.abs(score, out=score)
        score *= -0.5
        score += 1.0
        score *= MAX_SCORE
        return score.astype(np.int64)
    present = capacity.present
    number = present.sum(0)
    rows = np.moveaxis(np.where(present, fractions, 0.0), -2, 0)
    total = np.zeros(rows.shape[1:])
    for row in rows:  # in the order of the resources, because float addition is not associative
        total = total + row
    mean = total / np.maximum(number, 1)
    squares = np.zeros(rows.shape[1:])
    for row, there in zip(rows, present, strict=True):
        squares = squares + np.where(there, (row - mean) * (row - mean), 0.0)
    deviation = np.sqrt(squares / np.maximum(number, 1))
    if (number == 2).any():
        # Two fractions: half their difference, which rounding makes differ from the root now and then.
        signed = np.zeros(rows.shape[1:])
        seen = np.zeros(rows.shape[1:], np.int64)
        for row, there in zip(rows, present, strict=True):
            signed = signed + np.where(there, np.where(seen == 0, row, -row), 0.0)
            seen = seen + there
        deviation = np.where(number == 2, np.abs(signed / 2), deviation)
    deviation = np.where(number < 2, 0.0, deviation)
    return ((1.0 - deviation) * MAX_SCORE).astype(np.int64)


def score_scarce(offered: NDArray[np.bool_], asked: BoolVector, scarce: BoolVector) -> IntVector:
    """Score how few scarce resources a pod would leave idle beside it (ScarceResourceAvoidance).

    Parameters
    ----------
    offered
        ``(R, N)``: the node has some of the resource; the row of ``pods`` is not among them.
    asked, scarce
        ``(R,)``: the pod asks for it; the policy calls it scarce.

    Returns
    -------
    IntVector
        ``(|D| - |I|) * 100 // |D|`` with D offered and not asked for, I the scarce ones of D; 100 where
        either is empty.
    """
    idle = offered & ~asked[:, None]
    number = idle.sum(0)
    bad = (idle & scarce[:, None]).sum(0)
    score: IntVector = (number - bad) * MAX_SCORE // np.maximum(number, 1)
    score[bad == 0] = MAX_SCORE
    return score


def default_normalise(raw: IntVector, feasible: BoolVector, *, reverse: bool = False) -> IntVector:
    """Scale raw scores, ``(N,)``: the largest feasible one becomes 100 (``DefaultNormalizeScore``)."""
    # To gather all of them takes longer than to see that it is all of them.
    top = int((raw if feasible.all() else raw[feasible]).max(initial=0))
    if top == 0:
        return np.full_like(raw, 100 if reverse else 0)
    scaled: IntVector = raw * 100 // top
    return 100 - scaled if reverse else scaled
