"""The best placement of a gang of interchangeable members, by dynamic programming over the tree.

For every domain a table says what it costs at best to put exactly k members into it. A domain's table is
folded from its children's (a knapsack over the number of members); nodes of one parent with equal slots are
one closed form. Costs are lexicographic vectors packed into integers, so the result is exact: the best one,
or the proof that there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from koordcore._record import record
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, GangShortfall, deal
from koordcore.allocators.gang.lacking import too_few
from koordcore.allocators.gang.objective import Terms, domains_used, gathering_problem, terms_of
from koordcore.allocators.gang.packing import INFINITE, Packing, Table, convolve
from koordcore.allocators.gang.shortfall import explain_shortfall
from koordcore.model.certificates import Certificate
from koordcore.model.gangs import GangFit
from koordcore.model.proofs import TreeProblem
from koordcore.topology.network import NetworkTopology


def place_uniform(
    tree: NetworkTopology, demand: GangDemand, *, fit_error: str = ""
) -> GangPlacement | GangShortfall:
    """Place interchangeable members as well as possible; see :mod:`koordcore.allocators.gang.objective`.

    ``demand`` must be uniform; ``fit_error`` is what the filters said, for the message of a failure. The
    answer is proven in either case.
    """
    shape = next((member.shape for role in demand.roles for member in role.members), 0)
    most = np.iinfo(np.int64).max if demand.fit is GangFit.TIGHTEST_FIT else demand.size
    offered = (
        np.minimum(np.maximum(demand.shapes[shape].slots, 0), most)
        if demand.shapes
        else np.zeros(len(tree.nodes), dtype=np.int64)
    )
    for node, counts in demand.conflicts:
        # Members of other shapes do not come, so that only conflicts of this one alone matter.
        if not any(count for other, count in enumerate(counts) if other != shape):
            offered[node] = min(offered[node], counts[shape] - 1)
    terms = terms_of(tree, demand, offered)
    problem = gathering_problem(terms, offered)
    if terms.must_depth is None:
        nowhere = Certificate.make_infeasible(problem)
        return explain_shortfall(terms, fit_error=fit_error, placeable=0, certificate=nowhere)
    lacking = too_few(demand)
    if lacking:
        never = Certificate.make_infeasible()
        return explain_shortfall(terms, fit_error=fit_error, placeable=0, certificate=never, lacking=lacking)
    alone = _one_node(terms)
    if alone is not None:
        return _placement(terms, [(alone, demand.size)], problem)
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
    return _placement(terms, solver.places(total), problem)


def _one_node(terms: Terms) -> int | None:
    """Give the best of the nodes that hold all members; ``None`` where there is none, or rules have a say.

    One node opens one domain of every layer, as few as can be: the tightest from the nodes up is best, then
    the one of the best score, then the first.
    """
    tree, size = terms.tree, terms.demand.size
    if not size or terms.bound[0] or terms.has_near or terms.snug:
        return None
    if any(multiple > 1 for multiple in terms.multiples):
        return None
    able = np.flatnonzero(terms.slots[tree.first_node :] >= size)
    if not len(able):
        return None
    worse = [terms.penalties[able]] if len(terms.penalties) else []
    # Keys weigh more the later they come.
    layers = [terms.slots[tree.ancestors[depth, able]] for depth in range(1, len(tree.layers) + 1)]
    return int(able[np.lexsort((able, *worse, *layers))[0]])


def _placement(terms: Terms, places: Sequence[tuple[int, int]], problem: TreeProblem) -> GangPlacement:
    """Write down how many members each node gets."""
    tree, demand = terms.tree, terms.demand
    counts = np.zeros(len(tree.nodes), dtype=np.int64)
    for node, count in places:
        counts[node] += count
    nodes, left_out = deal(tree, demand, places, total=int(counts.sum()))
    totals = tree.sum_up(counts)
    objective = (*terms.evaluate(counts, totals), *terms.scored(counts))
    return GangPlacement(
        nodes=nodes,
        left_out=left_out,
        certificate=Certificate.make_proven(objective, problem),
        objective_layers=tuple(tree.layers[depth - 1] for depth in terms.order),
        domains=domains_used(tree, counts, totals),
    )


@record(eq=False)
class _Group:
    """Nodes of one parent that are alike: ``nodes`` in leaf order, ``slots`` each."""

    nodes: tuple[int, ...]
    slots: int


@record(eq=False)
class _Fold:
    """How a domain's table came about: parts in leaf order, and the tables of every tail of them."""

    parts: tuple[int | _Group, ...]
    tables: tuple[Table, ...]
    tails: tuple[Table, ...]


class _TreeProgram:
    """The tables of one placement."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._tree = terms.tree
        self._cap = terms.demand.size
        self._packing = Packing(terms, self._cap)
        self._folds: dict[int, _Fold] = {}
        self._tables: dict[int, Table] = {}
        self._leaf_depth = len(self._tree.layers)
        for depth in range(self._leaf_depth - 1, -1, -1):
            for domain in self._tree.domains_at(depth):
                if domain == 0 or terms.slots[domain] > 0 or terms.bound[domain] > 0:
                    self._tables[domain] = self._domain_table(domain)

    def reachable(self) -> list[int]:
        """Every number of members that can be placed under the constraints."""
        if 0 not in self._tables:
            return [0]
        return [int(count) for count in np.flatnonzero(self._tables[0].main < INFINITE)]

    def places(self, total: int) -> list[tuple[int, int]]:
        """Node positions with member counts, in leaf order."""
        found: list[tuple[int, int]] = []
        if total == 0:
            return found
        self._split(0, total, found)
        return found

    def _domain_table(self, domain: int) -> Table:
        parts = self._parts(domain)
        tables = tuple(self._part_table(part) for part in parts)
        exclusive = int(self._tree.depth[domain]) < (self._terms.must_depth or 0)
        tails = [self._nothing()]
        for table in reversed(tables):
            tails.append(
                self._either(table, tails[-1]) if exclusive else convolve(table, tails[-1], self._cap)
            )
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
        evenly = self._leaf_depth in terms.even
        groups: dict[tuple[int, int, int, int], list[int]] = {}
        for node, kind in zip((children - first).tolist(), alike, strict=True):
            # Nodes that are open already cost nothing to open, so that the fewest need not be the most even.
            apart = node if evenly and kind[0] else -1
            groups.setdefault((apart, *kind), []).append(node)
        return tuple(_Group(self._best_first(nodes), slots) for (*_, slots), nodes in groups.items())

    def _best_first(self, nodes: list[int]) -> tuple[int, ...]:
        """Order alike nodes by their scores; of equals the first in leaf order stays first."""
        penalties = self._terms.penalties
        return tuple(sorted(nodes, key=penalties.__getitem__) if len(penalties) else nodes)

    def _single_nodes(self, children: list[int]) -> tuple[_Group, ...]:
        """Nodes each of which would have to hold all members."""
        terms, first = self._terms, self._tree.first_node
        return tuple(
            _Group((node - first,), int(terms.slots[node]))
            for node in children
            if terms.bound[0] == 0 or terms.bound[node] > 0
        )

    def _part_table(self, part: int | _Group) -> Table:
        return self._group_table(part) if isinstance(part, _Group) else self._tables[part]

    def _nothing(self) -> Table:
        return Table(tuple(np.zeros(1, dtype=np.int64) for _ in range(self._packing.words)))

    def _group_table(self, group: _Group) -> Table:
        """Fewest nodes first: k members take the first ceil(k / slots) nodes of the group."""
        packing, node = self._packing, self._tree.first_node + group.nodes[0]
        most = min(self._cap, group.slots * len(group.nodes))
        used = -(-np.arange(most + 1, dtype=np.int64) // max(1, group.slots))
        words = [used * cost for cost in packing.cost(node)]
        # Evenly over the fewest nodes, the first ones having one more.
        least, more = np.divmod(np.arange(most + 1, dtype=np.int64), np.maximum(1, used))
        there = int(self._terms.bound[node])
        fuller, others = (least + 1 + there) ** 2 - there**2, (least + there) ** 2 - there**2
        squares = more * fuller + (used - more) * others
        uneven = packing.uneven(self._leaf_depth, squares)
        if uneven is not None:
            words[uneven[0]] = words[uneven[0]] + uneven[1]
        scored = packing.member_costs(group.nodes, group.slots, most)
        if scored is not None:
            words[scored[0]] = words[scored[0]] + scored[1]
        return self._close_multiples(self._leaf_depth, int(self._terms.bound[node]), Table(tuple(words)))

    def _close(self, domain: int, table: Table) -> Table:
        """Add the cost of using the domain itself, and forbid what its constraints forbid."""
        terms, depth = self._terms, int(self._tree.depth[domain])
        words = []
        for word, cost in zip(table.words, self._packing.cost(domain), strict=True):
            dearer = word.copy()
            dearer[1:] = np.minimum(dearer[1:] + cost, INFINITE)
            words.append(dearer)
        there = int(terms.bound[domain])
        uneven = self._packing.uneven(depth, (np.arange(len(table), dtype=np.int64) + there) ** 2 - there**2)
        if uneven is not None:
            words[uneven[0]] = np.minimum(words[uneven[0]] + uneven[1], INFINITE)
        if depth and depth == terms.must_depth and terms.bound[0] > 0 and terms.bound[domain] == 0:
            words[0][1:] = INFINITE
        return self._close_multiples(depth, int(terms.bound[domain]), Table(tuple(words)))

    def _close_multiples(self, depth: int, bound: int, table: Table) -> Table:
        multiple = self._terms.multiples[depth]
        if multiple == 1:
            return table
        main = table.main.copy()
        main[(np.arange(len(main)) + bound) % multiple != 0] = INFINITE
        return Table((main, *table.words[1:]))

    def _either(self, left: Table, right: Table) -> Table:
        """Give all members to one of two parts, the other staying as it is."""
        size = max(len(left), len(right))
        first = _stretch(left, size, right)
        second = _stretch(right, size, left)
        better = np.zeros(size, dtype=np.bool_)
        tied = np.ones(size, dtype=np.bool_)
        for one, other in zip(first.words, second.words, strict=True):
            better |= tied & (one < other)
            tied &= one == other
        better |= tied
        pairs = zip(first.words, second.words, strict=True)
        return Table(tuple(np.where(better, one, other) for one, other in pairs))

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

    def _choices(self, table: Table, left: int, *, exclusive: bool) -> tuple[int, ...] | range:
        if exclusive:
            return (left, 0) if left < len(table) else (0,)
        return range(min(left, len(table) - 1), -1, -1)

    def _take(self, part: int | _Group, count: int, found: list[tuple[int, int]]) -> None:
        if count == 0:
            return
        if not isinstance(part, _Group):
            self._split(part, count, found)
            return
        evenly = -(-count // part.slots) if self._leaf_depth in self._terms.even else 0
        for position, node in enumerate(part.nodes):
            taken = min(part.slots, count)
            if position < evenly:
                taken = -(-count // (evenly - position))
            if taken == 0:
                return
            found.append((node, taken))
            count -= taken


def _stretch(table: Table, size: int, other: Table) -> Table:
    """Lengthen a table to ``size`` with impossible entries; none is possible if the other must have some."""
    main = np.full(size, INFINITE, dtype=np.int64)
    main[: len(table)] = np.minimum(table.main + other.main[0], INFINITE)
    rest = []
    for word in table.words[1:]:
        longer = np.full(size, INFINITE, dtype=np.int64)
        longer[: len(table)] = word
        rest.append(longer)
    return Table((main, *rest))


def _meets(table: Table, count: int, whole: Table, tail: Table, left: int) -> bool:
    """Tell whether giving ``count`` to a part and the rest to the tail costs no more than the best."""
    beyond = left - count
    if beyond >= len(tail) or left >= len(whole):
        return False
    words = zip(table.words, tail.words, whole.words, strict=True)
    return all(one[count] + other[beyond] == best[left] for one, other, best in words)
