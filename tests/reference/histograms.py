"""Two decaying histograms brought to one reference time, and added."""

from __future__ import annotations

import attrs

from koordcore.colocation.histogram import (
    Histogram,
)
from koordcore.errors import ModelError


def align(left: Histogram, right: Histogram) -> tuple[Histogram, Histogram]:
    """Move the older of two references to the newer one.

    Raises
    ------
    ModelError
        When buckets or half-lives differ.
    """
    if left.half_life != right.half_life:
        raise ModelError("cannot merge histograms with different half-lives")
    if left.buckets != right.buckets:
        raise ModelError("cannot merge histograms with different buckets")
    if left.half_life is not None and left.reference < right.reference:
        left = left.shifted(right.reference)
    elif left.half_life is not None and right.reference < left.reference:
        right = right.shifted(left.reference)
    return left, right


def merge(left: Histogram, right: Histogram) -> Histogram:
    """Add up two histograms.

    Raises
    ------
    ModelError
        When buckets or half-lives differ.
    """
    left, right = align(left, right)
    inside = range(right.lowest, right.highest + 1)
    weights = tuple(
        weight + right.weights[bucket] if bucket in inside else weight
        for bucket, weight in enumerate(left.weights)
    )
    return attrs.evolve(
        left,
        weights=weights,
        total=left.total + right.total,
        lowest=min(left.lowest, right.lowest),
        highest=max(left.highest, right.highest),
    )
