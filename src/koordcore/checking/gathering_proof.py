"""The best gathering of equal members, found once more: what every number of them costs in every domain."""

from __future__ import annotations

from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore.model.proofs import TreeProblem

Table: TypeAlias = NDArray[Any]
"""Least cost of exactly k members, shape (k + 1,): all parts in one number, which compares like them."""
_WORD = 128
"""Bits of a part: no sum of 64-bit amounts, each so often as there are members, reaches so far."""


def best_gathering(problem: TreeProblem) -> tuple[int, ...] | None:
    """Compute the lexicographically least objective; None where there is no legal placement."""
    tree = _Tree(problem)
    if problem.must_depth < 0:
        return None if problem.least > 0 else tree.parts(0, 0)
    table = tree.table(0)
    counts = [k for k in range(len(table)) if problem.least <= k <= problem.size and table[k] < tree.never]
    return tree.parts(max(counts), int(table[max(counts)])) if counts else None


class _Tree:
    """One question, with the sums over its domains and the weights of the parts of its objective."""

    def __init__(self, problem: TreeProblem) -> None:
        self._problem, self._depth = problem, problem.depth.tolist()
        leaf, above = len(problem.order), [0] * (len(problem.depth) - len(problem.slots))
        bound, near, slots = (above + one.tolist() for one in (problem.bound, problem.near, problem.slots))
        self._children: list[list[int]] = [[] for _ in self._depth]
        for domain in range(len(self._depth) - 1, -1, -1):
            multiple = problem.multiples[self._depth[domain]]
            slots[domain] = max(0, slots[domain] - (slots[domain] + bound[domain]) % multiple)
            parent = int(problem.parent[domain])
            if domain and not 0 <= parent < domain:
                raise ValueError("a domain stands before its parent")
            for sums in (bound, near, slots) if domain else ():
                sums[parent] += sums[domain]
            self._children[parent] += [domain] if domain else []
        self._bound: list[int] = bound
        self._slots: list[int] = slots
        self._use, self._each, self._square = [0] * len(slots), [0] * len(slots), [0] * (leaf + 1)
        by_depth = [[one for one, its in enumerate(self._depth) if its == at] for at in range(leaf + 1)]
        opened, depths, parts = [int(there == 0) for there in bound], range(leaf, 0, -1), []
        for depth in problem.order:
            parts += [("open", depth, opened), *([("even", depth, bound)] if depth in problem.even else [])]
        last = [parts.pop()] if problem.snug else []
        for depth in depths if near[0] else ():
            nearest = max((near[one] for one in by_depth[depth]), default=0)
            parts.append(("near", depth, [nearest - one for one in near]))
        parts += [("tight", depth, slots) for depth in depths] + last
        if problem.worth is not None:
            parts.append(("worth", leaf, above + problem.worth.tolist()))
        self._parts = len(parts)
        for place, (kind, depth, amounts) in enumerate(reversed(parts)):
            weight = 1 << _WORD * place
            self._square[depth] += weight * (kind == "even")
            for one in by_depth[depth]:
                self._use[one] += weight * amounts[one] * (kind not in ("even", "worth"))
                self._each[one] -= weight * amounts[one] * (kind == "worth")
        self.never = 1 << _WORD * (self._parts + 1)

    def parts(self, placed: int, cost: int) -> tuple[int, ...]:
        """Take the parts of the objective out of a cost."""
        found: list[int] = []
        for _ in range(self._parts):
            # The last part may be negative.
            found.append((cost + (1 << _WORD - 1)) % (1 << _WORD) - (1 << _WORD - 1))
            cost = (cost - found[-1]) >> _WORD
        return -placed, *reversed(found)

    def table(self, domain: int) -> Table:
        """What every number of members costs in a domain."""
        problem, depth, bound = self._problem, self._depth[domain], self._bound[domain]
        leaf = depth == len(problem.order)
        table = np.zeros(min(problem.size, self._slots[domain] * leaf) + 1, object)
        if not leaf:
            inside = [
                self.table(one) for one in self._children[domain] if self._slots[one] or self._bound[one]
            ]
            table = self._alone(inside) if depth < problem.must_depth else reduce(self._both, inside, table)
        counts = np.arange(len(table)).astype(object)
        # Nothing that is possible costs half as much as what is not.
        never = (table >= self.never // 2) | ((counts + bound) % problem.multiples[depth] != 0)
        if depth == problem.must_depth and self._bound[0] and not bound:
            never[1:] = True
        table[1:] += self._use[domain]
        table += counts * self._each[domain] + self._square[depth] * ((counts + bound) ** 2 - bound**2)
        return np.where(never, self.never, table)

    def _alone(self, tables: list[Table]) -> Table:
        """All members in one of them; the others stay as they are, if they may."""
        stay = sum(int(table[0]) for table in tables)
        best = np.full(max(map(len, tables), default=1), self.never, object)
        best[0] = stay
        for table in tables:
            np.minimum(best[: len(table)], table + (stay - table[0]), out=best[: len(table)])
        return best

    def _both(self, left: Table, right: Table) -> Table:
        """Share members out between two parts, for every number of them in the best way."""
        few, many = sorted((left, right), key=len)
        best = np.full(min(self._problem.size + 1, len(few) + len(many) - 1), self.never, object)
        for count, cost in enumerate(few):
            part = best[count : count + len(many)]
            np.minimum(part, many[: len(part)] + cost, out=part)
        return best
