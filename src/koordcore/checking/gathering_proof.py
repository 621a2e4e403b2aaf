"""The best gathering of equal members, found once more: what every number of them costs in every domain."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore.model.proofs import TreeProblem

Table: TypeAlias = NDArray[np.int64]
"""Least cost of exactly k members, shape (words, k + 1): words are compared one after the other."""
_NEVER = 1 << 61
_WORD = 1 << 60


def best_gathering(problem: TreeProblem) -> tuple[int, ...] | None:
    """Compute the lexicographically least objective; None where there is no legal placement."""
    if problem.must_depth < 0:
        return None if problem.least > 0 else _nobody(problem)
    tree = _Tree(problem)
    table = tree.table(0)
    counts = [k for k in range(table.shape[1]) if problem.least <= k <= problem.size and table[0, k] < _NEVER]
    if not counts:
        return None
    return (-max(counts), *tree.parts(table[:, max(counts)], max(counts)))


def _nobody(problem: TreeProblem) -> tuple[int, ...]:
    parts = len(problem.order) * (3 if problem.near.any() else 2) + len(problem.even)
    return (0,) * (1 + parts + (problem.worth is not None))


class _Tree:
    """One question, with the sums over its domains."""

    def __init__(self, problem: TreeProblem) -> None:
        self._problem = problem
        self._size = problem.size
        self._depth: list[int] = problem.depth.tolist()
        domains, self._leaf = len(self._depth), len(problem.order)
        first = domains - len(problem.slots)
        bound, near, slots = (
            [0] * first + one.tolist() for one in (problem.bound, problem.near, problem.slots)
        )
        self._children: list[list[int]] = [[] for _ in range(domains)]
        if any(above >= domain for domain, above in enumerate(problem.parent.tolist())):
            raise ValueError("a domain stands before its parent")
        for domain in range(domains - 1, -1, -1):
            multiple = problem.multiples[self._depth[domain]]
            slots[domain] = max(0, slots[domain] - (slots[domain] + bound[domain]) % multiple)
            if domain:
                above = int(problem.parent[domain])
                for sums in (bound, near, slots):
                    sums[above] += sums[domain]
                self._children[above].append(domain)
        self._bound: list[int] = bound
        self._near: list[int] = near
        self._slots: list[int] = slots
        self._by_depth: list[list[int]] = [[] for _ in range(self._leaf + 1)]
        for domain, depth in enumerate(self._depth):
            self._by_depth[depth].append(domain)
        self._nearest: list[int] = [max((near[one] for one in ones), default=0) for ones in self._by_depth]
        offered = [slots[one] for one in self._by_depth[self._leaf]]
        worth = [] if problem.worth is None else problem.worth.tolist()
        self._top = max((value for value, room in zip(worth, offered, strict=bool(worth)) if room), default=0)
        # What a member loses against the leaf that is worth most.
        self._loss = {first + leaf: max(0, self._top - value) for leaf, value in enumerate(worth)}
        self._words = self._packed()

    def _packed(self) -> list[list[tuple[str, int, int]]]:
        """Share the parts of the objective out to words, each part with a size that no sum reaches."""
        depths, problem = range(self._leaf, 0, -1), self._problem
        parts: list[tuple[str, int]] = []
        for depth in problem.order:
            parts += [("open", depth), *([("even", depth)] if depth in problem.even else [])]
        last = [parts.pop()] if problem.snug else []
        parts += [("near", depth) for depth in depths if self._nearest[0]]
        parts += [("tight", depth) for depth in depths] + last
        parts += [("worth", self._leaf)] if problem.worth is not None else []
        words: list[list[tuple[str, int, int]]] = [[]]
        top = 1
        for kind, depth in parts:
            if kind == "even":
                there = max((self._bound[one] for one in self._by_depth[depth]), default=0)
                size = self._size * (self._size + 2 * there) + 1
            elif kind == "worth":
                size = self._size * max(self._loss.values(), default=0) + 1
            else:
                costs = sorted((self._part(kind, one) for one in self._by_depth[depth]), reverse=True)
                size = sum(costs[: self._size]) + 1
            if size >= _WORD:
                raise OverflowError("a part of the objective is beyond what is counted here")
            if top * size >= _WORD and words[-1]:
                words.append([])
                top = 1
            words[-1].append((kind, depth, size))
            top *= size
        return words

    def _part(self, kind: str, domain: int) -> int:
        """What using a domain adds to one part."""
        if kind == "open":
            return int(self._bound[domain] == 0)
        if kind == "near":
            return self._nearest[self._depth[domain]] - self._near[domain]
        return self._slots[domain] if kind == "tight" else 0

    def _cost(self, domain: int) -> Table:
        """What using a domain adds to every word, shape (words,)."""
        depth = self._depth[domain]
        cost = []
        for word in self._words:
            total = 0
            for kind, at, size in word:
                total = total * size + (self._part(kind, domain) if at == depth else 0)
            cost.append(total)
        return np.array(cost, np.int64)

    def _add(self, table: Table, kind: str, depth: int, amounts: Table) -> None:
        """Add to one part of the objective what every number of members costs, shape (k + 1,)."""
        for number, word in enumerate(self._words):
            weight = 1
            for one, at, size in reversed(word):
                if (one, at) == (kind, depth):
                    table[number] += weight * amounts
                weight *= size

    def parts(self, words: Table, placed: int) -> tuple[int, ...]:
        """Take the parts of the objective out of the words."""
        found: list[int] = []
        for word, total in zip(self._words, words.tolist(), strict=True):
            digits, left = [], total
            for _, _, size in reversed(word):
                left, digit = divmod(left, size)
                digits.append(digit)
            found += reversed(digits)
        if self._problem.worth is not None:
            found[-1] -= self._top * placed
        return tuple(found)

    def table(self, domain: int) -> Table:
        """What every number of members costs in a domain."""
        problem, depth = self._problem, self._depth[domain]
        if depth == self._leaf:
            return self._closed(domain, np.zeros((len(self._words), self._room(domain) + 1), np.int64))
        alone = depth < problem.must_depth
        tables = list(self._tables(domain, alone=alone))
        inside = np.zeros((len(self._words), 1), np.int64)
        if not alone:
            for table in tables:
                inside = self._both(inside, table)
            return self._closed(domain, inside)
        # All members in one of them; the others stay as they are, if they may.
        broken = [number for number, table in enumerate(tables) if table[0, 0] >= _NEVER]
        inside[0, 0] = _NEVER if broken else 0
        for number, table in enumerate(tables):
            if broken in ([], [number]):
                size = max(inside.shape[1], table.shape[1])
                inside = _least(_stretched(inside, size), _stretched(table, size))
        return self._closed(domain, inside)

    def _room(self, domain: int) -> int:
        return min(self._size, self._slots[domain])

    def _tables(self, domain: int, *, alone: bool) -> Iterator[Table]:
        """Tables of the children; equal leaves are counted together, the fewest of them used."""
        multiple = self._problem.multiples[self._leaf]
        ones = [one for one in self._children[domain] if self._slots[one] or self._bound[one]]
        if alone or self._depth[domain] != self._leaf - 1 or multiple > 1:
            yield from map(self.table, ones)
            return
        even = self._leaf in self._problem.even
        if even:
            # Of leaves that are open already more than the fewest may be used, to lie evenly.
            yield from map(self.table, (one for one in ones if self._bound[one]))
            ones = [one for one in ones if not self._bound[one]]

        def kind(one: int) -> tuple[int, int, bool]:
            return self._slots[one], self._near[one], self._bound[one] > 0

        for (slots, _, _), same in groupby(sorted(ones, key=kind), key=kind):
            alike = list(same)
            counts = np.arange(min(self._size, slots * len(alike)) + 1)
            used = -(-counts // max(1, slots))
            table = self._cost(alike[0])[:, None] * used[None, :]
            if even:
                each, more = np.divmod(counts, np.maximum(1, used))
                self._add(table, "even", self._leaf, more * (each + 1) ** 2 + (used - more) * each**2)
            if self._loss:
                losses = np.repeat(sorted(self._loss[one] for one in alike), max(1, slots))
                lost = np.concatenate(([0], np.cumsum(losses)))[: len(counts)]
                self._add(table, "worth", self._leaf, lost)
            yield table

    def _closed(self, domain: int, table: Table) -> Table:
        """Add what using the domain costs, and rule out what it may not hold."""
        problem, depth, bound = self._problem, self._depth[domain], self._bound
        table = table.copy()
        counts = np.arange(table.shape[1])
        if depth:
            table[:, 1:] += self._cost(domain)[:, None]
            if depth in problem.even:
                there = bound[domain]
                self._add(table, "even", depth, (counts + there) ** 2 - there**2)
        if domain in self._loss:
            self._add(table, "worth", depth, counts * self._loss[domain])
        if depth and depth == problem.must_depth and bound[0] and not bound[domain]:
            table[0, 1:] = _NEVER
        table[0, (counts + bound[domain]) % problem.multiples[depth] != 0] = _NEVER
        table[0] = np.minimum(table[0], _NEVER)
        return table

    def _both(self, left: Table, right: Table) -> Table:
        """Share members out between two parts, for every number of them in the best way."""
        if left.shape[1] > right.shape[1]:
            left, right = right, left
        size = min(self._size + 1, left.shape[1] + right.shape[1] - 1)
        best = np.full((len(left), size), _NEVER, np.int64)
        for count in range(left.shape[1]):
            width = min(right.shape[1], size - count)
            if left[0, count] < _NEVER and width > 0:
                span = slice(count, count + width)
                best[:, span] = _least(best[:, span], right[:, :width] + left[:, count : count + 1])
        best[0] = np.minimum(best[0], _NEVER)
        return best


def _stretched(table: Table, size: int) -> Table:
    """Append numbers of members that are never reached."""
    more = max(0, size - table.shape[1])
    return np.pad(table, ((0, 0), (0, more)), constant_values=_NEVER)


def _least(one: Table, other: Table) -> Table:
    """Take the lesser of two costs for every number of members, word by word."""
    less = np.zeros(one.shape[1], bool)
    same = np.ones(one.shape[1], bool)
    for mine, theirs in zip(one, other, strict=True):
        less |= same & (mine < theirs)
        same &= mine == theirs
    return np.where(less, one, other)
