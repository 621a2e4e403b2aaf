"""Many decaying histograms of one shape, updated together.

Row by row the numbers are those of :class:`~koordcore.colocation.histogram.Histogram`. A bank is a value: an
update gives another bank and leaves the old one as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final, TypeAlias

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.colocation.histogram import YEAR_ONE, Buckets, Histogram, bucket_edges, shift_of
from koordcore.errors import ModelError
from koordcore.model.durations import SECOND

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_MAX_DECAY_EXPONENT: Final = 100
_ONE_SHAPE: Final = "the histograms of a bank have one shape and one half-life"
_START: Final = YEAR_ONE // SECOND


@record(eq=False, kw_only=True)
class HistogramBank:
    """Histograms by row.

    Parameters
    ----------
    buckets, half_life
        Of all of them; a half-life in nanoseconds, whole seconds.
    weights
        Shape (M, B).
    total
        Shape (M,).
    lowest, highest
        Range of buckets that weigh at least epsilon, shape (M,).
    reference
        Moment at which a sample has its own weight, seconds since 1970 (the year 1 in nanoseconds is beyond
        int64), shape (M,).
    """

    buckets: Buckets
    half_life: int
    weights: Floats
    total: Floats
    lowest: Ints
    highest: Ints
    reference: Ints

    def __len__(self) -> int:
        return len(self.total)

    def add(self, rows: Ints, values: Floats, time: int, *, weight: float = 1.0) -> HistogramBank:
        """Count one sample in each of some rows.

        Parameters
        ----------
        rows
            Distinct rows, shape (K,).
        values
            A sample for each, shape (K,).
        time
            Moment of all samples, nanoseconds since 1970.
        weight
            Weight of each before decay.

        Raises
        ------
        ModelError
            When a value or the weight is not finite, the weight is negative, or a row is named twice.
        """
        if not (math.isfinite(weight) and weight >= 0 and bool(np.isfinite(values).all())):
            raise ModelError("samples and their weight must be finite, the weight not negative")
        if len(np.unique(rows)) != len(rows):
            raise ModelError("a row is named twice")
        bank = self._shifted(rows, time)
        bucket = np.searchsorted(np.array(bucket_edges(self.buckets)), values, side="right")
        amount = weight * _factors(bank, rows, time)
        heavier = bank.weights[rows, bucket] + amount
        bank.weights[rows, bucket] = heavier
        bank.total[rows] += amount
        counts = heavier >= self.buckets.epsilon
        lowest, highest = bank.lowest[rows], bank.highest[rows]
        bank.lowest[rows] = np.where(counts, np.minimum(lowest, bucket), lowest)
        bank.highest[rows] = np.where(counts, np.maximum(highest, bucket), highest)
        return _frozen(bank)

    def percentile(self, share: float) -> Floats:
        """Upper end of the bucket in which each histogram reaches a share of its weight; 0 when empty.

        Returns
        -------
        ndarray
            Shape (M,).
        """
        count = self.weights.shape[1]
        columns = np.arange(count)
        inside = (columns >= self.lowest[:, None]) & (columns < self.highest[:, None])
        # Outside the range nothing is added, so the sum runs in the order of the scalar form.
        reached = np.cumsum(np.where(inside, self.weights, 0.0), axis=1)
        stops = inside & (reached >= (share * self.total)[:, None])
        bucket = np.where(stops.any(axis=1), stops.argmax(axis=1), np.maximum(self.highest, self.lowest))
        starts = np.array([self.buckets.start(bucket) for bucket in range(count)])
        ends = starts[np.minimum(bucket + 1, count - 1)]
        empty = self.weights[np.arange(len(self)), self.lowest] < self.buckets.epsilon
        return np.where(empty, 0.0, ends)

    def row(self, index: int) -> Histogram:
        """Give one histogram."""
        return Histogram(
            buckets=self.buckets,
            half_life=self.half_life,
            reference=int(self.reference[index]) * SECOND,
            weights=tuple(self.weights[index].tolist()),
            total=float(self.total[index]),
            lowest=int(self.lowest[index]),
            highest=int(self.highest[index]),
        )

    def joined(self, other: HistogramBank) -> HistogramBank:
        """Append the histograms of another bank.

        Raises
        ------
        ModelError
            When they have another shape.
        """
        if (other.buckets, other.half_life) != (self.buckets, self.half_life):
            raise ModelError(_ONE_SHAPE)
        bank = attrs.evolve(
            self,
            weights=np.concatenate([self.weights, other.weights]),
            total=np.concatenate([self.total, other.total]),
            lowest=np.concatenate([self.lowest, other.lowest]),
            highest=np.concatenate([self.highest, other.highest]),
            reference=np.concatenate([self.reference, other.reference]),
        )
        return _frozen(bank)

    def take(self, rows: Ints) -> HistogramBank:
        """Give the histograms of some rows, in that order."""
        bank = attrs.evolve(
            self,
            weights=self.weights[rows],
            total=self.total[rows],
            lowest=self.lowest[rows],
            highest=self.highest[rows],
            reference=self.reference[rows],
        )
        return _frozen(bank)

    def equals(self, other: HistogramBank) -> bool:
        """Tell whether two banks are the same to the last bit."""
        return (other.buckets, other.half_life) == (self.buckets, self.half_life) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("weights", "total", "lowest", "highest", "reference")
        )

    def _shifted(self, rows: Ints, time: int) -> HistogramBank:
        """Copy the bank, with the references moved of those rows that would grow too heavy."""
        copy = attrs.evolve(
            self,
            weights=self.weights.copy(),
            total=self.total.copy(),
            lowest=self.lowest.copy(),
            highest=self.highest.copy(),
            reference=self.reference.copy(),
        )
        bound = time - self.half_life * _MAX_DECAY_EXPONENT
        late = rows[self.reference[rows] < -(-bound // SECOND)]
        for old in np.unique(self.reference[late]):
            _rescale(copy, late[self.reference[late] == old], time)
        return copy


def _rescale(bank: HistogramBank, rows: Ints, time: int) -> None:
    """Move the one reference of some rows of a bank that nobody else has seen yet."""
    reference, factor = shift_of(int(bank.reference[rows[0]]) * SECOND, time, bank.half_life)
    columns = np.arange(bank.weights.shape[1])
    lowest, highest = bank.lowest[rows, None], bank.highest[rows, None]
    weights = bank.weights[rows]
    weights = np.where((columns >= lowest) & (columns <= highest), weights * factor, weights)
    heavy = weights >= bank.buckets.epsilon
    last = len(columns) - 1
    from_low, to_high = heavy & (columns >= lowest), heavy & (columns <= highest)
    bank.weights[rows] = weights
    bank.total[rows] *= factor
    bank.lowest[rows] = np.where(from_low.any(axis=1), from_low.argmax(axis=1), last)
    bank.highest[rows] = np.where(to_high.any(axis=1), last - to_high[:, ::-1].argmax(axis=1), 0)
    bank.reference[rows] = reference // SECOND


def _factors(bank: HistogramBank, rows: Ints, time: int) -> Floats:
    """How much heavier a sample of now is than one of each row's reference; few references differ."""
    references, which = np.unique(bank.reference[rows], return_inverse=True)
    factors = [math.exp2((time - int(one) * SECOND) / bank.half_life) for one in references]
    return np.array(factors, dtype=np.float64)[which]


def empty_bank(buckets: Buckets, half_life: int, count: int) -> HistogramBank:
    """Make a bank of histograms without samples.

    Raises
    ------
    ModelError
        When the half-life is not positive or no whole number of seconds.
    """
    if half_life <= 0 or half_life % SECOND:
        raise ModelError("the half-life of a bank must be positive whole seconds")
    shape = buckets.count
    bank = HistogramBank(
        buckets=buckets,
        half_life=half_life,
        weights=np.zeros((count, shape)),
        total=np.zeros(count),
        lowest=np.full(count, shape - 1, dtype=np.int64),
        highest=np.zeros(count, dtype=np.int64),
        reference=np.full(count, _START, dtype=np.int64),
    )
    return _frozen(bank)


def bank_of(buckets: Buckets, half_life: int, histograms: Iterable[Histogram]) -> HistogramBank:
    """Make a bank of histograms of one shape.

    Raises
    ------
    ModelError
        When one has other buckets, another half-life, or a reference within a second.
    """
    given = tuple(histograms)
    if any(one.buckets != buckets or one.half_life != half_life for one in given):
        raise ModelError(_ONE_SHAPE)
    if any(one.reference % SECOND for one in given):
        raise ModelError("the references of a bank are whole seconds")
    bank = empty_bank(buckets, half_life, len(given))
    if not given:
        return bank
    filled = attrs.evolve(
        bank,
        weights=np.array([one.weights for one in given]),
        total=np.array([one.total for one in given]),
        lowest=np.array([one.lowest for one in given], dtype=np.int64),
        highest=np.array([one.highest for one in given], dtype=np.int64),
        reference=np.array([one.reference // SECOND for one in given], dtype=np.int64),
    )
    return _frozen(filled)


def _frozen(bank: HistogramBank) -> HistogramBank:
    for part in (bank.weights, bank.total, bank.lowest, bank.highest, bank.reference):
        part.flags.writeable = False
    return bank
