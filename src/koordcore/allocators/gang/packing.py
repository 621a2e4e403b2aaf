"""Costs of placements, packed into integers, and tables of the best cost of every number of members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.allocators.gang.demand import IntVector
from koordcore.allocators.gang.objective import Terms

INFINITE: Final = 1 << 61
_BLOCK: Final = 1 << 15
"""Sums looked at in one go, so that they stay in the cache."""
_WORD: Final = 60
"""Bits of a word of packed costs; sums of two stay below the sign bit."""


@record(eq=False)
class Table:
    """Best cost of exactly k members, k = 0, 1, ...: words of a packed vector, the first weighing most.

    Only the first says that a number is impossible.
    """

    words: tuple[IntVector, ...]

    @property
    def main(self) -> IntVector:
        """The first word."""
        return self.words[0]

    def __len__(self) -> int:
        return len(self.words[0])


class Packing:
    """Packs per-domain costs, and what a member costs on its node, into as few words as hold them."""

    def __init__(self, terms: Terms, size: int) -> None:
        tree, starts = terms.tree, terms.tree.layer_start
        depths = range(1, len(tree.layers) + 1)
        most = {depth: min(size, starts[depth + 1] - starts[depth]) for depth in depths}
        slots_sum = {
            depth: int(np.sort(terms.slots[starts[depth] : starts[depth + 1]])[-most[depth] :].sum())
            if most[depth]
            else 0
            for depth in depths
        }
        bases = []
        for depth in terms.order:
            bases.append((("open", depth), most[depth] + 1))
            if depth in terms.even:
                there = int(terms.bound[starts[depth] : starts[depth + 1]].max(initial=0))
                bases.append((("even", depth), size * (size + 2 * there) + 1))
        last = [bases.pop()] if terms.snug else []
        if terms.has_near:
            bases += [(("near", depth), terms.nearest[depth] * most[depth] + 1) for depth in terms.upwards]
        bases += [(("tight", depth), slots_sum[depth] + 1) for depth in terms.upwards]
        bases += last
        self._penalties = terms.penalties
        if len(self._penalties):
            bases.append((("score", 0), int(self._penalties.max()) * size + 1))
        self._weights = _weights(bases)
        self.words = 1 + max((word for word, _ in self._weights.values()), default=0)
        self._terms = terms

    def cost(self, domain: int) -> list[int]:
        """Cost of using a domain at all, word by word."""
        terms, cost = self._terms, [0] * self.words
        depth = int(terms.tree.depth[domain])
        if depth == 0:
            return cost
        parts = [("open", int(terms.bound[domain] == 0)), ("tight", int(terms.slots[domain]))]
        if terms.has_near:
            parts.append(("near", int(terms.nearest[depth] - terms.near[domain])))
        for part, amount in parts:
            word, weight = self._weights[part, depth]
            cost[word] += weight * amount
        return cost

    def uneven(self, depth: int, counts: IntVector) -> tuple[int, IntVector] | None:
        """Give the word that counts how unevenly members lie, and what it costs; ``None`` where nobody asks.

        ``counts`` are sums of squares.
        """
        if ("even", depth) not in self._weights:
            return None
        word, weight = self._weights["even", depth]
        return word, counts * weight

    def member_costs(self, nodes: Sequence[int], each: int, most: int) -> tuple[int, IntVector] | None:
        """Give the word that counts scores, and what the first k members cost there, k = 0 .. most.

        ``each`` of them go to every node; ``None`` where scores do not count.
        """
        if not len(self._penalties):
            return None
        word, weight = self._weights["score", 0]
        per_member = np.repeat(self._penalties[np.asarray(nodes)] * weight, max(1, each))[:most]
        return word, np.concatenate(([0], np.cumsum(per_member)))


def _weights(bases: Sequence[tuple[tuple[str, int], int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """Mixed-radix weights, earlier keys weighing more: word and weight of each key."""
    groups: list[list[tuple[tuple[str, int], int]]] = [[]]
    size = 1
    for key, base in bases:
        if size * base >= 1 << _WORD and groups[-1]:
            groups.append([])
            size = 1
        size *= base
        groups[-1].append((key, base))
    weights: dict[tuple[str, int], tuple[int, int]] = {}
    for word, group in enumerate(groups):
        weight = 1
        for key, base in reversed(group):
            weights[key] = (word, weight)
            weight *= base
    return weights


def convolve(left: Table, right: Table, cap: int) -> Table:
    """Share the members out between two parts in the best way, for every number of members."""
    if len(left) > len(right):
        left, right = right, left
    size = min(cap + 1, len(left) + len(right) - 1)
    if len(left) == 1 and left.main[0] == 0:
        return right
    best = tuple(np.empty(size, dtype=np.int64) for _ in left.words)
    lines = max(1, _BLOCK // len(left))
    for start in range(0, size, lines):
        span = slice(start, min(size, start + lines))
        tied: NDArray[np.bool_] | None = None
        for word, one, other in zip(best, left.words, right.words, strict=True):
            sums = _windows(other, span, len(left)) + one[::-1]
            if tied is not None:
                sums = np.where(tied, sums, INFINITE)
            word[span] = np.minimum(sums.min(axis=1), INFINITE)
            equal = sums == word[span, None]
            tied = equal if tied is None else tied & equal
    return Table(best)


def _windows(values: IntVector, span: slice, width: int) -> IntVector:
    """Rows k of ``span`` hold ``values[k - width + 1 .. k]``, infinite outside."""
    first = span.start - width + 1
    padded = np.full(span.stop - first, INFINITE, dtype=np.int64)
    low, high = max(0, first), min(len(values), span.stop)
    padded[low - first : high - first] = values[low:high]
    stride = padded.itemsize
    return np.ndarray((span.stop - span.start, width), padded.dtype, padded, strides=(stride, stride))
