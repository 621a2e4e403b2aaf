"""The best placement of a gang of interchangeable members, by dynamic programming over the tree.

For every domain a table says what it costs at best to put exactly k members into it. A domain's table is
folded from its children's (a knapsack over the number of members); nodes of one parent with equal slots are
one closed form. Costs are lexicographic vectors packed into integers, so the result is exact: the best one,
or the proof that there is none.
"""

from __future__ import annotations

from itertools import pairwise

import attrs
import numpy as np

from koordcore.allocators.gang.demand import GangDemand, GangPlacement, GangShortfall, IntVector, deal
from koordcore.allocators.gang.objective import Terms, domains_used, gathering_problem, terms_of
from koordcore.allocators.gang.shortfall import explain_shortfall
from koordcore.model.certificates import Certificate
from koordcore.topology.network import NetworkTopology

__all__ = ["place_uniform"]

_INFINITE = 1 << 61
_BLOCK = 1 << 15
"""Sums looked at in one go, so that they stay in the cache."""
_WORD = 60
"""Bits of a packed cost; sums of two stay below the sign bit."""


def place_uniform(
    tree: NetworkTopology, demand: GangDemand, *, fit_error: str = ""
) -> GangPlacement | GangShortfall:
    """Place interchangeable members as well as possible; see :mod:`koordcore.allocators.gang.objective`.

    ``demand`` must be uniform; ``fit_error`` is what the filters said, for the message of a failure. The
    answer is proven in either case.
    """
    shape = next((member.shape for role in demand.roles for member in role.members), 0)
    offered = (
        np.clip(demand.shapes[shape].slots, 0, demand.size)
        if demand.shapes
        else np.zeros(len(tree.nodes), dtype=np.int64)
    )
    terms = terms_of(tree, demand, offered)
    problem = gathering_problem(terms, offered)
    if terms.must_depth is None:
        nowhere = Certificate.make_infeasible(problem)
        return explain_shortfall(terms, fit_error=fit_error, placeable=0, certificate=nowhere)
    solver = _TreeProgram(terms)
    reachable = solver.reachable()
    total = max((count for count in reachable if count >= demand.least), default=None)
    if total is None:
        return explain_shortfall(
            terms,
            fit_error=fit_error,
            placeable=max(reachable, default=0),
            certificate=Certificate.make_infeasible(problem),
        )
    places = solver.places(total)
    counts = np.zeros(len(tree.nodes), dtype=np.int64)
    for node, count in places:
        counts[node] += count
    nodes, left_out = deal(tree, demand, places, total=total)
    return GangPlacement(
        nodes=nodes,
        left_out=left_out,
        certificate=Certificate.make_proven(terms.evaluate(counts), problem),
        objective_layers=tuple(tree.layers[depth - 1] for depth in terms.order),
        domains=domains_used(tree, counts),
    )


@attrs.frozen(eq=False)
class _Table:
    """Best cost of exactly k members, k = 0, 1, ...: a main and a secondary word, the latter maybe unused."""

    main: IntVector
    rest: IntVector | None

    def __len__(self) -> int:
        return len(self.main)


@attrs.frozen(eq=False)
class _Group:
    """Nodes of one parent that are alike: ``nodes`` in leaf order, ``slots`` each."""

    nodes: tuple[int, ...]
    slots: int


@attrs.frozen(eq=False)
class _Fold:
    """How a domain's table came about: parts in leaf order, and the tables of every tail of them."""

    parts: tuple[int | _Group, ...]
    tables: tuple[_Table, ...]
    tails: tuple[_Table, ...]


class _Packing:
    """Packs per-domain costs into one word, or two when one is too small."""

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
        main = [(("open", depth), most[depth] + 1) for depth in terms.order]
        upwards = tuple(reversed(depths))
        rest = [(("tight", depth), slots_sum[depth] + 1) for depth in upwards]
        if terms.has_near:
            rest = [(("near", depth), terms.nearest[depth] * most[depth] + 1) for depth in upwards] + rest
        self.main_weights, main_top = _weights(main)
        self.rest_weights, rest_top = _weights(rest)
        self.single = main_top * rest_top < 1 << _WORD
        if self.single:
            self.main_weights = {key: weight * rest_top for key, weight in self.main_weights.items()}
            self.main_weights |= self.rest_weights
        self.main_dtype = np.int64 if main_top < 1 << _WORD else object
        self.rest_dtype = np.int64 if rest_top < 1 << _WORD else object
        self._terms = terms

    def cost(self, domain: int) -> tuple[int, int]:
        """Cost of using a domain at all: main and secondary word."""
        terms = self._terms
        depth = int(terms.tree.depth[domain])
        if depth == 0:
            return 0, 0
        rest_of = self.main_weights if self.single else self.rest_weights
        opened = self.main_weights["open", depth] if terms.bound[domain] == 0 else 0
        rest = rest_of["tight", depth] * int(terms.slots[domain])
        if terms.has_near:
            rest += rest_of["near", depth] * int(terms.nearest[depth] - terms.near[domain])
        return (opened + rest, 0) if self.single else (opened, rest)


def _weights(bases: list[tuple[tuple[str, int], int]]) -> tuple[dict[tuple[str, int], int], int]:
    """Mixed-radix weights, the first key weighing most, and the size of the whole range."""
    weight = 1
    weights: dict[tuple[str, int], int] = {}
    for key, base in reversed(bases):
        weights[key] = weight
        weight *= base
    return weights, weight


class _TreeProgram:
    """The tables of one placement."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._tree = terms.tree
        self._cap = terms.demand.size
        self._packing = _Packing(terms, self._cap)
        self._folds: dict[int, _Fold] = {}
        self._tables: dict[int, _Table] = {}
        self._leaf_depth = len(self._tree.layers)
        for depth in range(self._leaf_depth - 1, -1, -1):
            for domain in self._tree.domains_at(depth):
                if domain == 0 or terms.slots[domain] > 0 or terms.bound[domain] > 0:
                    self._tables[domain] = self._domain_table(domain)

    def reachable(self) -> list[int]:
        """Every number of members that can be placed under the constraints."""
        if 0 not in self._tables:
            return [0]
        return [int(count) for count in np.flatnonzero(self._tables[0].main < _INFINITE)]

    def places(self, total: int) -> list[tuple[int, int]]:
        """Node positions with member counts, in leaf order."""
        found: list[tuple[int, int]] = []
        if total == 0:
            return found
        self._split(0, total, found)
        return found

    def _domain_table(self, domain: int) -> _Table:
        parts = self._parts(domain)
        tables = tuple(self._part_table(part) for part in parts)
        exclusive = int(self._tree.depth[domain]) < (self._terms.must_depth or 0)
        tails = [self._nothing()]
        for table in reversed(tables):
            tails.append(self._either(table, tails[-1]) if exclusive else self._both(table, tails[-1]))
        tails.reverse()
        self._folds[domain] = _Fold(parts, tables, tuple(tails))
        return self._close(domain, tails[0])

    def _parts(self, domain: int) -> tuple[int | _Group, ...]:
        """Children in leaf order; alike nodes are grouped."""
        terms, children = self._terms, self._terms.child_order(domain)
        held = [
            child
            for child in (self._tree.children(domain) if terms.bound[domain] else ())
            if terms.slots[child] == 0 and terms.bound[child] > 0
        ]
        if int(self._tree.depth[domain]) != self._leaf_depth - 1:
            return (*children.tolist(), *held)
        if terms.must_depth == self._leaf_depth:
            return self._single_nodes([*children.tolist(), *held])
        first, multiple = self._tree.first_node, terms.multiples[-1]
        if multiple > 1 and terms.bound[domain] > 0:
            return tuple(_Group((node - first,), int(terms.slots[node])) for node in [*children, *held])
        alike = zip(
            terms.bound[children].tolist(),
            terms.near[children].tolist(),
            terms.slots[children].tolist(),
            strict=True,
        )
        groups: dict[tuple[int, int, int], list[int]] = {}
        for node, kind in zip((children - first).tolist(), alike, strict=True):
            groups.setdefault(kind, []).append(node)
        return tuple(_Group(tuple(nodes), slots) for (_, _, slots), nodes in groups.items())

    def _single_nodes(self, children: list[int]) -> tuple[_Group, ...]:
        """Nodes each of which would have to hold all members."""
        terms, first = self._terms, self._tree.first_node
        return tuple(
            _Group((node - first,), int(terms.slots[node]))
            for node in children
            if terms.bound[0] == 0 or terms.bound[node] > 0
        )

    def _part_table(self, part: int | _Group) -> _Table:
        return self._group_table(part) if isinstance(part, _Group) else self._tables[part]

    def _nothing(self) -> _Table:
        rest = None if self._packing.single else np.zeros(1, dtype=self._packing.rest_dtype)
        return _Table(np.zeros(1, dtype=self._packing.main_dtype), rest)

    def _group_table(self, group: _Group) -> _Table:
        """Fewest nodes first: k members take the first ceil(k / slots) nodes of the group."""
        packing, node = self._packing, self._tree.first_node + group.nodes[0]
        most = min(self._cap, group.slots * len(group.nodes))
        used = -(-np.arange(most + 1, dtype=np.int64) // max(1, group.slots))
        open_main, open_rest = packing.cost(node)
        main = used.astype(packing.main_dtype) * open_main
        rest = None if packing.single else used.astype(packing.rest_dtype) * open_rest
        return self._close_multiples(self._leaf_depth, int(self._terms.bound[node]), _Table(main, rest))

    def _close(self, domain: int, table: _Table) -> _Table:
        """Add the cost of using the domain itself, and forbid what its constraints forbid."""
        terms, depth = self._terms, int(self._tree.depth[domain])
        open_main, open_rest = self._packing.cost(domain)
        main = table.main.copy()
        main[1:] = np.minimum(main[1:] + open_main, _INFINITE)
        rest = table.rest
        if rest is not None:
            rest = rest.copy()
            rest[1:] = np.minimum(rest[1:] + open_rest, _INFINITE)
        if depth and depth == terms.must_depth and terms.bound[0] > 0 and terms.bound[domain] == 0:
            main[1:] = _INFINITE
        return self._close_multiples(depth, int(terms.bound[domain]), _Table(main, rest))

    def _close_multiples(self, depth: int, bound: int, table: _Table) -> _Table:
        multiple = self._terms.multiples[depth]
        if multiple == 1:
            return table
        main = table.main.copy()
        main[(np.arange(len(main)) + bound) % multiple != 0] = _INFINITE
        return _Table(main, table.rest)

    def _both(self, left: _Table, right: _Table) -> _Table:
        """Share the members out between two parts in the best way, for every number of members."""
        if len(left) > len(right):
            left, right = right, left
        size = min(self._cap + 1, len(left) + len(right) - 1)
        if len(left) == 1 and left.main[0] == 0:
            return right
        best = np.empty(size, dtype=right.main.dtype)
        rest = None if right.rest is None else np.empty(size, dtype=right.rest.dtype)
        lines = max(1, _BLOCK // len(left))
        for start in range(0, size, lines):
            span = slice(start, min(size, start + lines))
            sums = _windows(right.main, span, len(left)) + left.main[::-1]
            best[span] = np.minimum(sums.min(axis=1), _INFINITE)
            if rest is not None and right.rest is not None and left.rest is not None:
                others = _windows(right.rest, span, len(left)) + left.rest[::-1]
                tied = np.where(sums == best[span, None], others, _INFINITE)
                rest[span] = np.minimum(tied.min(axis=1), _INFINITE)
        return _Table(best, rest)

    def _either(self, left: _Table, right: _Table) -> _Table:
        """Give all members to one of two parts, the other staying as it is."""
        size = max(len(left), len(right))
        first = _stretch(left, size, right)
        second = _stretch(right, size, left)
        if first.rest is None or second.rest is None:
            return _Table(np.minimum(first.main, second.main), None)
        better = (first.main < second.main) | ((first.main == second.main) & (first.rest <= second.rest))
        return _Table(np.where(better, first.main, second.main), np.where(better, first.rest, second.rest))

    def _split(self, domain: int, total: int, found: list[tuple[int, int]]) -> None:
        """Follow the tables down: each part in turn takes as many as the best cost allows."""
        fold = self._folds[domain]
        exclusive = int(self._tree.depth[domain]) < (self._terms.must_depth or 0)
        left = total
        for part, table, (whole, tail) in zip(fold.parts, fold.tables, pairwise(fold.tails), strict=True):
            if left == 0:
                return
            for count in self._choices(table, left, exclusive=exclusive):
                if _meets(table, count, whole, tail, left):
                    self._take(part, count, found)
                    left -= count
                    break

    def _choices(self, table: _Table, left: int, *, exclusive: bool) -> tuple[int, ...] | range:
        if exclusive:
            return (left, 0) if left < len(table) else (0,)
        return range(min(left, len(table) - 1), -1, -1)

    def _take(self, part: int | _Group, count: int, found: list[tuple[int, int]]) -> None:
        if count == 0:
            return
        if not isinstance(part, _Group):
            self._split(part, count, found)
            return
        for node in part.nodes:
            taken = min(part.slots, count)
            if taken == 0:
                return
            found.append((node, taken))
            count -= taken


def _windows(values: IntVector, span: slice, width: int) -> IntVector:
    """Rows k of ``span`` hold ``values[k - width + 1 .. k]``, infinite outside."""
    first = span.start - width + 1
    padded = np.full(span.stop - first, _INFINITE, dtype=values.dtype)
    low, high = max(0, first), min(len(values), span.stop)
    padded[low - first : high - first] = values[low:high]
    stride = padded.itemsize
    return np.ndarray((span.stop - span.start, width), padded.dtype, padded, strides=(stride, stride))


def _stretch(table: _Table, size: int, other: _Table) -> _Table:
    """Lengthen a table to ``size`` with impossible entries; none is possible if the other must have some."""
    main = np.full(size, _INFINITE, dtype=table.main.dtype)
    main[: len(table)] = np.minimum(table.main + other.main[0], _INFINITE)
    if table.rest is None:
        return _Table(main, None)
    rest = np.full(size, _INFINITE, dtype=table.rest.dtype)
    rest[: len(table)] = table.rest
    return _Table(main, rest)


def _meets(table: _Table, count: int, whole: _Table, tail: _Table, left: int) -> bool:
    """Tell whether giving ``count`` to a part and the rest to the tail costs no more than the best."""
    beyond = left - count
    if beyond >= len(tail) or left >= len(whole):
        return False
    if table.main[count] + tail.main[beyond] != whole.main[left]:
        return False
    if table.rest is None or tail.rest is None or whole.rest is None:
        return True
    return bool(table.rest[count] + tail.rest[beyond] == whole.rest[left])
