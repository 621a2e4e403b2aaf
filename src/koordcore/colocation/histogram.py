"""Decaying histograms with growing buckets: what a percentile of use is, with old samples fading.

Rules: upstream ``pkg/util/histogram`` (from Kubernetes' vertical pod autoscaler).
A histogram is a value: adding a sample gives another one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.durations import SECOND

YEAR_ONE: Final = -62_135_596_800 * SECOND
"""0001-01-01T00:00:00Z: where references start, and what they are rounded from."""

_MAX_DECAY_EXPONENT: Final = 100
_MAX_CHECKPOINT_WEIGHT: Final = 10_000
_MAX_DURATION: Final = (1 << 63) - 1
_SAME_WEIGHT: Final = 1e-15


@record
class ExponentialBuckets:
    """Buckets that grow by a ratio.

    Parameters
    ----------
    maximum
        A value that the last bucket still holds.
    first
        Width of the first bucket.
    ratio
        How much wider each next bucket is.
    epsilon
        Weights below it count as nothing.

    Raises
    ------
    ModelError
        When a size is not positive or the ratio not above 1.
    """

    maximum: float
    first: float
    ratio: float
    epsilon: float

    def __attrs_post_init__(self) -> None:
        if min(self.maximum, self.first, self.epsilon) <= 0 or self.ratio <= 1:
            raise ModelError("maxValue, firstBucketSize and epsilon must be > 0.0, ratio must be > 1.0")

    @property
    def count(self) -> int:
        """Number of buckets."""
        return math.ceil(self._position(self.maximum)) + 1

    def _position(self, value: float) -> float:
        return math.log(value * (self.ratio - 1) / self.first + 1) / math.log(self.ratio)

    def start(self, bucket: int) -> float:
        """Lower end of a bucket."""
        return self.first * (self.ratio**bucket - 1) / (self.ratio - 1) if bucket else 0.0

    def exact_bucket(self, value: float) -> int:
        """Bucket of a finite value by the formula; :func:`bucket_edges` tabulates it."""
        return 0 if value < self.first else min(int(self._position(value)), self.count - 1)


@record
class LinearBuckets:
    """Buckets of one width.

    Raises
    ------
    ModelError
        When a size is not positive.
    """

    maximum: float
    width: float
    epsilon: float

    def __attrs_post_init__(self) -> None:
        if min(self.maximum, self.width, self.epsilon) <= 0:
            raise ModelError("maxValue and bucketSize must both be positive")

    @property
    def count(self) -> int:
        """Number of buckets."""
        return math.ceil(self.maximum / self.width) + 1

    def start(self, bucket: int) -> float:
        """Lower end of a bucket."""
        return bucket * self.width

    def exact_bucket(self, value: float) -> int:
        """Bucket of a finite value by the formula; :func:`bucket_edges` tabulates it."""
        return 0 if value < 0 else min(int(value / self.width), self.count - 1)


Buckets: TypeAlias = ExponentialBuckets | LinearBuckets

CPU_BUCKETS: Final = ExponentialBuckets(1024.0, 0.025, 1.05, 0.0001)
"""For cores."""
MEMORY_BUCKETS: Final = ExponentialBuckets(float(1 << 41), float(5 * (1 << 20)), 1.05, 0.0001)
"""For bytes."""
CPU_HALF_LIFE: Final = 12 * 3600 * SECOND
MEMORY_HALF_LIFE: Final = 24 * 3600 * SECOND


@lru_cache(maxsize=64)
def bucket_edges(buckets: Buckets) -> tuple[float, ...]:
    """Tabulate the smallest value of every bucket but the first.

    A table makes the scalar and the array form agree to the last bit, whatever the machine's logarithm.
    """
    edges = []
    for bucket in range(1, buckets.count):
        low, high = 0.0, buckets.start(bucket) * 2 + buckets.start(1)
        while True:
            middle = (low + high) / 2
            if not low < middle < high:
                break
            if buckets.exact_bucket(middle) >= bucket:
                high = middle
            else:
                low = middle
        edges.append(high)
    return tuple(edges)


@record(kw_only=True)
class Checkpoint:
    """A histogram in few numbers.

    Parameters
    ----------
    weights
        Bucket to weight relative to the heaviest, which has 10,000; light buckets are left out.
    total
        Sum of the weights as they were.
    reference
        Moment at which a sample has its own weight; ``None`` without decay.
    """

    weights: Mapping[int, int]
    total: float
    reference: int | None = None


@record(kw_only=True)
class Histogram:
    """Weights per bucket.

    Parameters
    ----------
    buckets
        Their shape.
    half_life
        Nanoseconds after which a new sample weighs twice as much as an old one; ``None`` without decay.
    reference
        Moment at which a sample has its own weight, nanoseconds since 1970.
    weights
        One per bucket.
    total
        Sum of everything added, also of weights too light to count.
    lowest, highest
        Range of buckets that weigh at least epsilon; ``lowest`` is the last and ``highest`` the first bucket
        while there is none.
    """

    buckets: Buckets
    half_life: int | None
    reference: int
    weights: tuple[float, ...]
    total: float
    lowest: int
    highest: int

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing weighs enough to count."""
        return self.weights[self.lowest] < self.buckets.epsilon

    def add(self, value: float, weight: float = 1.0, time: int = 0) -> Histogram:
        """Count a sample; without decay its time plays no part.

        Raises
        ------
        ModelError
            When value or weight is not finite, or the weight is negative.
        """
        base, factor = self._decayed(time)
        bucket, amount = base.bucket_of(value), _weight(weight) * factor
        heavier = base.weights[bucket] + amount
        counts = heavier >= base.buckets.epsilon
        return attrs.evolve(
            base,
            weights=_replaced(base.weights, bucket, heavier),
            total=base.total + amount,
            lowest=min(base.lowest, bucket) if counts else base.lowest,
            highest=max(base.highest, bucket) if counts else base.highest,
        )

    def subtract(self, value: float, weight: float = 1.0, time: int = 0) -> Histogram:
        """Take a sample away; what falls below epsilon becomes zero."""
        base, factor = self._decayed(time)
        bucket, amount = base.bucket_of(value), _weight(weight) * factor
        epsilon = base.buckets.epsilon

        def lighter(old: float) -> float:
            left = old - amount
            return 0.0 if left < epsilon else left

        weights = _replaced(base.weights, bucket, lighter(base.weights[bucket]))
        return _tightened(attrs.evolve(base, weights=weights, total=lighter(base.total)))

    def percentile(self, share: float) -> float:
        """Give the upper end of the bucket in which a share of the weight is reached; 0 when empty.

        An upper end overestimates by up to one bucket, on purpose.
        """
        if self.is_empty:
            return 0.0
        threshold = share * self.total
        reached, bucket = 0.0, self.lowest
        while bucket < self.highest:
            reached += self.weights[bucket]
            if reached >= threshold:
                break
            bucket += 1
        last = len(self.weights) - 1
        return self.buckets.start(min(bucket + 1, last))

    def scaled(self, factor: float) -> Histogram:
        """Multiply every weight that counts, and the total."""
        weights = tuple(
            weight * factor if self.lowest <= bucket <= self.highest else weight
            for bucket, weight in enumerate(self.weights)
        )
        return _tightened(attrs.evolve(self, weights=weights, total=self.total * factor))

    def shifted(self, time: int) -> Histogram:
        """Move the reference to a moment, rounded half up to a multiple of the half-life since year 1."""
        if self.half_life is None:
            return self
        reference, factor = shift_of(self.reference, time, self.half_life)
        return attrs.evolve(self.scaled(factor), reference=reference)

    def save(self) -> Checkpoint:
        """Give the checkpoint of the weights that count."""
        shown = range(self.lowest, self.highest + 1)
        heaviest = max((self.weights[bucket] for bucket in shown), default=0.0)
        weights = {}
        if heaviest > 0:
            ratio = _MAX_CHECKPOINT_WEIGHT / heaviest
            rounded = ((bucket, math.floor(self.weights[bucket] * ratio + 0.5)) for bucket in shown)
            weights = {bucket: weight for bucket, weight in rounded if weight > 0}
        reference = None if self.half_life is None else self.reference
        return Checkpoint(weights=weights, total=self.total, reference=reference)

    def load(self, checkpoint: Checkpoint) -> Histogram:
        """Add a checkpoint's weights to what is here and take its reference.

        Raises
        ------
        ModelError
            When the total is negative or a bucket does not exist.
        """
        if checkpoint.total < 0:
            raise ModelError("cannot load checkpoint with negative total weight")
        for bucket in checkpoint.weights:
            if not 0 <= bucket < len(self.weights):
                raise ModelError(
                    f"checkpoint has bucket {bucket}, the histogram has {len(self.weights)} buckets"
                )
        reference = self.reference
        if self.half_life is not None and checkpoint.reference is not None:
            reference = checkpoint.reference
        parts = sum(checkpoint.weights.values())
        if not parts:
            return attrs.evolve(self, reference=reference)
        ratio = checkpoint.total / parts
        weights = list(self.weights)
        for bucket, weight in checkpoint.weights.items():
            weights[bucket] += weight * ratio
        return attrs.evolve(
            self,
            weights=tuple(weights),
            total=self.total + checkpoint.total,
            lowest=min(self.lowest, *checkpoint.weights),
            highest=max(self.highest, *checkpoint.weights),
            reference=reference,
        )

    def equals(self, other: Histogram) -> bool:
        """Tell whether two histograms have the same shape and, but for rounding, the same weights."""
        alike = (
            self.buckets == other.buckets
            and self.half_life == other.half_life
            and (self.half_life is None or self.reference == other.reference)
            and (self.lowest, self.highest) == (other.lowest, other.highest)
        )
        return alike and all(
            abs(self.weights[bucket] - other.weights[bucket]) <= _SAME_WEIGHT
            for bucket in range(self.lowest, self.highest + 1)
        )

    def bucket_of(self, value: float) -> int:
        """Bucket that counts a value.

        Raises
        ------
        ModelError
            When the value is not finite.
        """
        return bisect_right(bucket_edges(self.buckets), _finite(value))

    def _decayed(self, time: int) -> tuple[Histogram, float]:
        """Give the histogram fit to take a sample of that time, and how much heavier the sample is."""
        if self.half_life is None:
            return self, 1.0
        base = self
        if time > self.reference + self.half_life * _MAX_DECAY_EXPONENT:
            base = self.shifted(time)
        return base, math.exp2((time - base.reference) / self.half_life)


def _tightened(one: Histogram) -> Histogram:
    lowest, highest, epsilon = one.lowest, one.highest, one.buckets.epsilon
    while lowest < len(one.weights) - 1 and one.weights[lowest] < epsilon:
        lowest += 1
    while highest > 0 and one.weights[highest] < epsilon:
        highest -= 1
    return attrs.evolve(one, lowest=lowest, highest=highest)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ModelError(f"expected a finite number, got {value}")
    return value


def _weight(weight: float) -> float:
    if _finite(weight) < 0:
        raise ModelError("sample weight must be non-negative")
    return weight


def _replaced(weights: tuple[float, ...], bucket: int, weight: float) -> tuple[float, ...]:
    return (*weights[:bucket], weight, *weights[bucket + 1 :])


def shift_of(reference: int, time: int, half_life: int) -> tuple[int, float]:
    """Give the reference for a new moment and the factor by which every weight shrinks with it."""
    since = time - YEAR_ONE
    shifted = (2 * since + half_life) // (2 * half_life) * half_life + YEAR_ONE
    # Upstream's durations end at 292 years; beyond them the factor is 0 either way.
    elapsed = max(-_MAX_DURATION - 1, min(_MAX_DURATION, reference - shifted))
    return shifted, math.ldexp(1.0, math.floor(elapsed / half_life + 0.5))


def empty_histogram(buckets: Buckets, half_life: int | None = None) -> Histogram:
    """Make a histogram without samples.

    Raises
    ------
    ModelError
        When the half-life is not positive.

    Examples
    --------
    >>> histogram = empty_histogram(CPU_BUCKETS).add(1.0)
    >>> round(histogram.percentile(0.95), 4)
    1.0358
    """
    if half_life is not None and half_life <= 0:
        raise ModelError("a half-life must be positive")
    count = buckets.count
    return Histogram(
        buckets=buckets,
        half_life=half_life,
        reference=YEAR_ONE,
        weights=(0.0,) * count,
        total=0.0,
        lowest=count - 1,
        highest=0,
    )
