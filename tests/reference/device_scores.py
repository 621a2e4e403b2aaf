"""Scores of devices stretched over the candidates."""

from __future__ import annotations

from collections.abc import Sequence


def normalize_scores(scores: Sequence[int]) -> list[int]:
    """Stretch raw scores to 0..100 over the candidates by the best one; all 0 stays 0.

    Examples
    --------
    >>> normalize_scores([200, 10]), normalize_scores([0]), normalize_scores([10])
    ([100, 5], [0], [100])
    """
    best = max(scores, default=0)
    return [score * 100 // best if best > 0 else 0 for score in scores]
