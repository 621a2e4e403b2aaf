"""The load-aware score of nodes from what a pod would leave of them."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import IntMatrix, IntVector
from koordcore.model.load import LoadAwareArgs


class LoadScore:
    """The weights of the resources, and of the one of which the least is left."""

    def __init__(self, args: LoadAwareArgs) -> None:
        weights = [args.resource_weights.get(name, 0) for name in args.columns]
        self._dominant = args.dominant_resource_weight
        self._sum = sum(weights) + self._dominant
        self._columns = [column for column, weight in enumerate(weights) if weight or self._dominant]
        self._all = len(self._columns) == len(weights)
        self._weights: IntMatrix = np.array([weights[column] for column in self._columns], np.int64)[:, None]
        self._even = len({weights[column] for column in self._columns}) == 1

    def of(self, left: IntMatrix, divisor: IntMatrix) -> IntVector:
        """Score 0..100 for each node: the more is left after the pod, the higher, ``(n,)``.

        Parameters
        ----------
        left
            ``(C, n)``: what is left of the capacity; it is written over. Negative scores 0, as does a
            resource that the node lacks, of which nothing is left.
        divisor
            ``(C, n)``: the capacity, at least 1.
        """
        if self._sum <= 0:
            return np.zeros(left.shape[1:], np.int64)
        np.maximum(left, 0, out=left)
        left *= 100
        left //= divisor
        scores = left if self._all else left[self._columns]
        if self._even and not self._dominant:
            mean: IntVector = np.add.reduce(scores) // len(scores)
            return mean
        total = np.add.reduce(scores * self._weights)
        if self._dominant:
            total += np.minimum(np.minimum.reduce(scores), 100) * self._dominant
        score: IntVector = total // self._sum
        return score
