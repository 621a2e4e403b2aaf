"""The best placement of equal slices and a few free members, by dynamic programming over the tree.

Sixteen slices of eight workers, each in one rack, and a leader wherever it likes: a table per domain says
what it costs at best to have exactly so many workers and so many free members there. Workers of a domain of
the slices' layer come in whole slices, so that above that layer slices are counted. As in
:mod:`koordcore.allocators.gang.place` costs are lexicographic vectors packed into integers, and the answer is
the best one, or the proof that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, IntVector, Member, Role, rank_order
from koordcore.allocators.gang.objective import Terms, domains_used, terms_of
from koordcore.allocators.gang.packing import INFINITE, Packing, Table, convolve
from koordcore.errors import SolverError
from koordcore.model.certificates import Certificate
from koordcore.topology.network import NetworkTopology

_FREE: Final = 4
"""Free members up to which they are counted; each makes the tables once longer."""

Layered: TypeAlias = tuple[Table, ...]
"""A table of workers per number of free members."""


@record(eq=False, kw_only=True)
class Slices:
    """A demand that is nothing but equal slices and a few free members.

    Parameters
    ----------
    slices
        The roles that are slices, in their order.
    free
        The other members, in rank order, all of one shape.
    layer
        Depth of the layer of which each slice shares a domain.
    room
        Workers that each node takes beside 0, 1, ... free members, -1 for none of these, shape
        (free members + 1, nodes).
    """

    slices: tuple[Role, ...]
    free: tuple[Member, ...]
    layer: int
    room: IntVector

    @property
    def size(self) -> int:
        """Members of a slice."""
        return len(self.slices[0].members)


def slices_of(tree: NetworkTopology, demand: GangDemand) -> Slices | None:
    """Read a demand as slices and free members; ``None`` where it is more than that."""
    firsts = {demand.alike[number] for number, role in enumerate(demand.roles) if demand.apart[number]}
    if len(firsts) != 1 or demand.units or demand.quorums or demand.spec.multiples or demand.bound.any():
        return None
    (first,) = firsts
    slices = [role for role, own in zip(demand.roles, demand.alike, strict=True) if own == first]
    others = [role for role, own in zip(demand.roles, demand.alike, strict=True) if own != first]
    free = [member for role in others for member in role.members]
    shapes = {member.shape for role in slices for member in role.members}
    kinds = {member.shape for member in free}
    depth = tree.depth_of(slices[0].must_layer)
    # A role that needs more members than it has is none of a slice's: no table says that it cannot start.
    whole = all(role.min_available == len(role.members) for role in demand.roles)
    alone = not any(demand.apart[n] for n, own in enumerate(demand.alike) if own != first)
    if not (whole and alone and depth and slices[0].members and not demand.roles[first].multiples):
        return None
    if (
        len(shapes) != 1
        or len(kinds) > 1
        or len(free) > _FREE
        or demand.min_roles not in (None, len(demand.roles))
    ):
        return None
    (shape,) = shapes
    return Slices(
        slices=tuple(slices),
        free=tuple(rank_order(free)),
        layer=depth,
        room=_room(demand, shape, next(iter(kinds), shape), len(free)),
    )


def _room(demand: GangDemand, shape: int, kind: int, most: int) -> IntVector:
    """Count the workers that every node takes beside so many free members."""
    slots, request = demand.shapes[shape].slots, demand.shapes[shape].request
    other = demand.shapes[kind].request
    room = np.full((most + 1, len(slots)), -1, dtype=np.int64)
    for free in range(most + 1):
        left = np.maximum(demand.free, 0) - free * other[: len(demand.free), None]
        takes = np.maximum(slots - free, 0) if kind == shape else slots
        for row in np.flatnonzero(request[: len(demand.free)] > 0):
            takes = np.minimum(takes, left[row] // request[row])
        able = (left >= 0).all(axis=0) & (demand.shapes[kind].slots >= free)
        room[free] = np.where(able, np.maximum(takes, 0), -1)
    for node, counts in demand.conflicts:
        strange = any(count for number, count in enumerate(counts) if number not in (shape, kind))
        for free in range(most + 1 if strange else 0, most + 1):
            if kind == shape:
                room[free, node] = max(-1, min(int(room[free, node]), counts[shape] - 1 - free))
            elif free >= counts[kind]:
                room[free, node] = max(-1, min(int(room[free, node]), counts[shape] - 1))
    return room


def best_slices(
    tree: NetworkTopology, demand: GangDemand, slices: Slices, slots: IntVector
) -> GangPlacement | int:
    """Place everybody as well as possible; or say how many could be placed.

    Parameters
    ----------
    slots
        Offer slots of every node, all shapes together, shape (nodes,).

    Raises
    ------
    SolverError
        When the answer breaks a rule: a defect.
    """
    terms = terms_of(tree, demand, slots)
    program = _SliceProgram(terms, slices)
    places = program.places()
    if isinstance(places, int):
        return places
    nodes: dict[str, str] = {}
    counts = np.zeros(len(tree.nodes), dtype=np.int64)
    workers = (member for role in slices.slices for member in rank_order(role.members))
    free = iter(slices.free)
    for node, others, count in places:
        counts[node] += others + count
        nodes |= {next(free).key: tree.nodes[node] for _ in range(others)}
        nodes |= {next(workers).key: tree.nodes[node] for _ in range(count)}
    broken = placement_violations(tree, demand, nodes)
    if broken:
        raise SolverError("the planned placement is not legal: " + "; ".join(broken))
    return GangPlacement(
        nodes=immutabledict((member.key, nodes[member.key]) for member in demand.members),
        certificate=Certificate.make_proven(terms.evaluate(counts)),
        objective_layers=tuple(tree.layers[depth - 1] for depth in terms.order),
        domains=domains_used(tree, counts),
    )


@record(eq=False)
class _Alike:
    """Nodes of one parent that are alike: ``nodes`` in leaf order, with their room."""

    nodes: tuple[int, ...]
    room: tuple[int, ...]


@record(eq=False)
class _Fold:
    """How a domain's tables came about: parts in leaf order, and the tables of every tail of them."""

    parts: tuple[int | _Alike, ...]
    tables: tuple[Layered, ...]
    tails: tuple[Layered, ...]


class _SliceProgram:
    """The tables of one placement: above the slices' layer their index counts slices, below it workers."""

    def __init__(self, terms: Terms, slices: Slices) -> None:
        self._terms, self._tree, self._slices = terms, terms.tree, slices
        self._free, self._size = len(slices.free), slices.size
        self._leaf = len(self._tree.layers)
        self._packing = Packing(terms, terms.demand.size)
        self._folds: dict[int, _Fold] = {}
        self._tables: dict[int, Layered] = {}
        for depth in range(self._leaf - 1, -1, -1):
            for domain in self._tree.domains_at(depth):
                if domain == 0 or terms.slots[domain] > 0:
                    self._tables[domain] = self._domain(domain)

    def places(self) -> list[tuple[int, int, int]] | int:
        """Give nodes with free members and workers, in leaf order; or how many members could be placed."""
        root, total = self._tables[0], len(self._slices.slices)
        if len(root[self._free]) <= total or root[self._free].main[total] >= INFINITE:
            return max(
                free + self._size * int(number)
                for free, table in enumerate(root)
                for number in (*np.flatnonzero(table.main < INFINITE), 0)
                if number or free == 0
            )
        found: list[tuple[int, int, int]] = []
        self._split(0, self._free, total, found)
        return found

    def _cap(self, depth: int) -> int:
        """Most that a table of a depth counts, while its parts are joined."""
        whole = len(self._slices.slices)
        return whole if depth < self._slices.layer else whole * self._size

    def _domain(self, domain: int) -> Layered:
        depth = int(self._tree.depth[domain])
        parts = self._parts(domain, depth)
        tables = tuple(self._alike(one) if isinstance(one, _Alike) else self._tables[one] for one in parts)
        exclusive = depth < (self._terms.must_depth or 0)
        tails: list[Layered] = [self._nothing()]
        for table in reversed(tables):
            join = self._either if exclusive else self._both
            tails.append(join(table, tails[-1], self._cap(depth)))
        tails.reverse()
        self._folds[domain] = _Fold(parts, tables, tuple(tails))
        costs = self._packing.cost(domain)
        closed = []
        for free, joined in enumerate(tails[0]):
            words = [word + cost for word, cost in zip(joined.words, costs, strict=True)]
            if free == 0:
                for word, plain in zip(words, joined.words, strict=True):
                    word[0] = plain[0]
            words[0] = np.minimum(words[0], INFINITE)
            step = self._size if depth == self._slices.layer else 1
            closed.append(Table(tuple(word[::step] for word in words)))
        return tuple(closed)

    def _parts(self, domain: int, depth: int) -> tuple[int | _Alike, ...]:
        terms, children = self._terms, self._terms.child_order(domain)
        if depth < self._leaf - 1:
            return tuple(children.tolist())
        rows = children - self._tree.first_node
        near, slots = terms.near[children].tolist(), terms.slots[children].tolist()
        groups: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
        single = terms.must_depth == self._leaf
        scores = [shape.scores for shape in terms.demand.shapes if len(shape.scores)]
        worth = np.sum(scores, axis=0) if scores else np.zeros(len(self._tree.nodes), dtype=np.int64)
        for position, row in enumerate(rows.tolist()):
            room = self._slices.room[:, row]
            if self._slices.layer == self._leaf:
                room = np.where(room < 0, room, room // self._size * self._size)
            kind = (near[position], -row - 1 if single else slots[position], tuple(room.tolist()))
            groups.setdefault(kind, []).append(row)
        return tuple(
            _Alike(tuple(sorted(nodes, key=lambda node: -int(worth[node]))), room)
            for (_, _, room), nodes in groups.items()
        )

    def _nothing(self) -> Layered:
        empty = np.zeros(1, dtype=np.int64)
        none = np.full(1, INFINITE, dtype=np.int64)
        rest = tuple(empty for _ in range(self._packing.words - 1))
        return (Table((empty, *rest)), *(Table((none, *rest)) for _ in range(self._free)))

    def _alike(self, group: _Alike) -> Layered:
        """Fewest nodes first, for every number of free members among them."""
        costs, cap = self._packing.cost(self._tree.first_node + group.nodes[0]), self._cap(self._leaf)
        step = self._size if self._slices.layer == self._leaf else 1
        tables = []
        for free in range(self._free + 1):
            most = [self._most(group, shares) for shares in _shares(free, len(group.nodes))]
            size = min(cap, max((one for one in most if one >= 0), default=0)) // step + 1
            used = np.full(size, INFINITE, dtype=np.int64)
            for shares in _shares(free, len(group.nodes)):
                known = self._used(group, shares, size, step)
                used[: len(known)] = np.minimum(used[: len(known)], known)
            open_ones = used < INFINITE
            words = [np.where(open_ones, used * cost, 0) for cost in costs]
            words[0] = np.where(open_ones, words[0], INFINITE)
            tables.append(Table(tuple(words)))
        return tuple(tables)

    def _most(self, group: _Alike, shares: tuple[int, ...]) -> int:
        if any(group.room[share] < 0 for share in shares):
            return -1
        others = (len(group.nodes) - len(shares)) * max(0, group.room[0])
        return sum(group.room[share] for share in shares) + others

    def _used(self, group: _Alike, shares: tuple[int, ...], size: int, step: int) -> IntVector:
        """Nodes that so many workers take where free members are shared out so."""
        most = self._most(group, shares)
        if most < 0:
            return np.zeros(0, dtype=np.int64)
        count = np.arange(min(size, most // step + 1), dtype=np.int64) * step
        beyond = np.maximum(0, count - sum(group.room[share] for share in shares))
        used: IntVector = len(shares) - (-beyond // max(1, group.room[0]))
        return used

    def _both(self, left: Layered, right: Layered, cap: int) -> Layered:
        found = []
        for free in range(self._free + 1):
            ways = [convolve(left[one], right[free - one], cap) for one in range(free + 1)]
            found.append(_best(ways))
        return tuple(found)

    def _either(self, left: Layered, right: Layered, cap: int) -> Layered:
        nothing = self._nothing()
        found = []
        for free in range(self._free + 1):
            ways = [convolve(left[free], nothing[0], cap), convolve(nothing[0], right[free], cap)]
            found.append(_best(ways))
        return tuple(found)

    # -- back down -------------------------------------------------------------------------------------

    def _split(self, domain: int, free: int, total: int, found: list[tuple[int, int, int]]) -> None:
        depth = int(self._tree.depth[domain])
        fold = self._folds[domain]
        exclusive = depth < (self._terms.must_depth or 0)
        left = total * self._size if depth == self._slices.layer else total
        for part, table, (whole, tail) in zip(fold.parts, fold.tables, pairwise(fold.tails), strict=True):
            if not left and not free:
                return
            own, count = next(
                (own, count)
                for own, count in _choices(table, free, left, exclusive=exclusive)
                if _meets(table[own], count, whole[free], tail[free - own], left)
            )
            if own or count:
                if isinstance(part, _Alike):
                    self._fill(part, own, count, found)
                else:
                    self._split(part, own, count, found)
            free, left = free - own, left - count

    def _fill(self, group: _Alike, free: int, count: int, found: list[tuple[int, int, int]]) -> None:
        step = self._size if self._slices.layer == self._leaf else 1
        ways = [
            shares for shares in _shares(free, len(group.nodes)) if self._most(group, shares) >= count * step
        ]
        best = min(ways, key=lambda shares: int(self._used(group, shares, count + 1, step)[count]))
        left = count * step
        for position, node in enumerate(group.nodes):
            own = best[position] if position < len(best) else 0
            taken = min(left, max(0, group.room[own]))
            if own or taken:
                found.append((node, own, taken))
            left -= taken


def _shares(free: int, nodes: int) -> Iterator[tuple[int, ...]]:
    """Give the ways to share free members out among alike nodes, larger shares first."""

    def parts(left: int, most: int) -> Iterator[tuple[int, ...]]:
        if left == 0:
            yield ()
        for first in range(min(left, most), 0, -1):
            for rest in parts(left - first, first):
                yield (first, *rest)

    return (one for one in parts(free, free) if len(one) <= nodes)


def _best(ways: Sequence[Table]) -> Table:
    """Take the cheapest of several tables, entry by entry."""
    size = max(len(one) for one in ways)
    best = [np.full(size, INFINITE, dtype=np.int64), *(np.zeros(size, np.int64) for _ in ways[0].words[1:])]
    for table in ways:
        here = slice(0, len(table))
        better = np.zeros(len(table), dtype=np.bool_)
        tied = np.ones(len(table), dtype=np.bool_)
        for word, known in zip(table.words, best, strict=True):
            better |= tied & (word < known[here])
            tied &= word == known[here]
        for word, known in zip(table.words, best, strict=True):
            known[here] = np.where(better, word, known[here])
    return Table(tuple(best))


def _choices(table: Layered, free: int, left: int, *, exclusive: bool) -> Iterator[tuple[int, int]]:
    """Give shares of a part, most first."""
    if exclusive:
        yield from (one for one in ((free, left), (0, 0)) if one[1] < len(table[one[0]]))
        return
    for own in range(free, -1, -1):
        for count in range(min(left, len(table[own]) - 1), -1, -1):
            yield own, count


def _meets(table: Table, count: int, whole: Table, tail: Table, left: int) -> bool:
    """Tell whether giving ``count`` to a part and the rest to the tail costs no more than the best."""
    beyond = left - count
    if beyond >= len(tail) or left >= len(whole) or table.main[count] >= INFINITE:
        return False
    words = zip(table.words, tail.words, whole.words, strict=True)
    return all(one[count] + other[beyond] == best[left] for one, other, best in words)
