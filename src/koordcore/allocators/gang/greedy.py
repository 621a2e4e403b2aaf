"""A quick legal placement of members of several shapes, as the solver's starting point.

Domains are tried from the deepest layer up, the tightest first. Inside one, a child that can take everything
left is taken, the tightest first; else the largest child is filled. Among nodes the one that holds most goes
first, big members first. It may miss placements that exist; the solver does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore.allocators.gang.demand import IntMatrix, IntVector, Member, Role, rank_order
from koordcore.allocators.gang.objective import Terms

FloatVector: TypeAlias = NDArray[np.float64]

_TRIES: Final = 32
"""Domains tried per layer."""


def greedy_places(terms: Terms) -> dict[str, int] | None:
    """Place all members, or as many whole roles as must be; None when the quick way finds nothing.

    Returns
    -------
    dict or None
        Node position per member key.
    """
    if terms.must_depth is None:
        return None
    return _Greedy(terms).run()


class _Greedy:
    """What the nodes have left while roles are placed one after the other."""

    def __init__(self, terms: Terms) -> None:
        demand = terms.demand
        self._terms = terms
        self._tree = terms.tree
        self._left = np.maximum(demand.free, 0).copy()
        self._requests = np.stack([shape.request for shape in demand.shapes])
        self._slots = np.stack([shape.slots for shape in demand.shapes]).copy()
        total = np.maximum(1, self._left.sum(axis=1))
        self._weight = np.maximum((self._requests / total).max(axis=1, initial=0.0), 1e-9)
        self._big_first = sorted(range(len(demand.shapes)), key=lambda shape: (-self._weight[shape], shape))
        self._alone = np.zeros((len(demand.shapes), len(self._tree)), dtype=np.int64)

    def run(self) -> dict[str, int] | None:
        """Place the roles; those that gather on their own one by one, the others together."""
        demand = self._terms.demand
        if demand.units or any(len(role.home) for role in demand.roles):
            return self._in_units()
        must = self._terms.must_depth or 0
        own = [role for role in demand.roles if role.must_layer]
        shared = [member for role in demand.roles if not role.must_layer for member in role.members]
        if not own:
            return self._gather(shared, must)
        placed: dict[str, int] = {}
        if must:
            return None
        for role in sorted(own, key=lambda role: (-len(role.members), role.name)):
            found = self._role(role)
            if found is not None:
                placed |= found
            elif demand.min_roles is None:
                return None
        rest = self._gather(shared, 0)
        return None if rest is None else placed | rest

    def _role(self, role: Role) -> dict[str, int] | None:
        depth = self._tree.depth_of(role.must_layer)
        return None if depth is None else self._gather(list(role.members), depth)

    # -- groups of groups ------------------------------------------------------------------------------

    def _in_units(self) -> dict[str, int] | None:
        """Place minimums part by part, each unit in the first of its domains where enough parts succeed."""
        demand = self._terms.demand
        if self._terms.must_depth:
            return None
        everywhere = np.ones(self._slots.shape[1], dtype=np.bool_)
        placed: dict[str, int] = {}
        inside: dict[int, NDArray[np.bool_]] = {}
        if demand.units:
            able = self._unit(0, everywhere, placed, inside)
        else:
            able = all(self._least(n, everywhere, placed, inside) for n in range(len(demand.roles)))
        if not able:
            return None
        for number, mask in sorted(inside.items()):
            rest = [m for m in demand.roles[number].members if m.key not in placed]
            self._some(rest, mask, placed)
        return placed if placed else None

    def _unit(
        self,
        unit: int,
        mask: NDArray[np.bool_],
        placed: dict[str, int],
        inside: dict[int, NDArray[np.bool_]],
    ) -> bool:
        """Let enough parts of a unit succeed; what was placed for one that fails is taken back."""
        demand, own = self._terms.demand, self._terms.demand.units[unit]
        for here in _domains(own.home, own.fixed, mask):
            left, slots, before, places = self._left.copy(), self._slots.copy(), dict(placed), dict(inside)
            done = sum(
                self._least(number, here, placed, inside)
                for number, role in enumerate(demand.roles)
                if role.unit == unit
            )
            done += sum(
                self._unit(number, here, placed, inside)
                for number, below in enumerate(demand.units)
                if below.parent == unit
            )
            if done >= own.least:
                return True
            self._left, self._slots = left, slots
            placed.clear()
            placed.update(before)
            inside.clear()
            inside.update(places)
        return False

    def _least(
        self,
        number: int,
        mask: NDArray[np.bool_],
        placed: dict[str, int],
        inside: dict[int, NDArray[np.bool_]],
    ) -> bool:
        """Place the minimum of a role in one of its domains."""
        role = self._terms.demand.roles[number]
        wanted = 0 if role.started else role.min_available
        for here in _domains(*self._home(role), mask):
            left, slots = self._left.copy(), self._slots.copy()
            found: dict[str, int] = {}
            # Big members come first, so that small ones can still fill what they leave.
            big = sorted(rank_order(role.members), key=lambda m: self._big_first.index(m.shape))
            self._some(big if wanted else (), here, found, wanted)
            if len(found) >= wanted:
                placed |= found
                inside[number] = here
                return True
            self._left, self._slots = left, slots
        return False

    def _home(self, role: Role) -> tuple[IntVector, int]:
        """Give the domains one of which a role needs, and that of its running members."""
        depth = self._tree.depth_of(role.must_layer) if role.must_layer else 0
        if depth is None:
            return np.full(self._slots.shape[1], -1, dtype=np.int64), -1
        if not depth:
            return role.home, role.fixed
        home = self._tree.ancestors[depth]
        held = home[np.flatnonzero(role.bound)]
        return home, int(held[0]) if len(held) else -1

    def _some(
        self,
        members: Iterable[Member],
        mask: NDArray[np.bool_],
        placed: dict[str, int],
        most: int | None = None,
    ) -> None:
        """Put members on nodes of a mask, up to so many, each node being filled before the next."""
        by_shape: dict[int, list[Member]] = {}
        for member in members:
            by_shape.setdefault(member.shape, []).append(member)
        for shape, ones in by_shape.items():
            request = self._requests[shape]
            waiting = ones if most is None else ones[: max(0, most - len(placed))]
            for node in np.flatnonzero(mask & (self._slots[shape] > 0)).tolist():
                if not waiting:
                    break
                room = int(self._slots[shape, node])
                for row in np.flatnonzero(request > 0):
                    room = min(room, int(self._left[row, node] // request[row]))
                for member in waiting[: max(0, room)]:
                    placed[member.key] = node
                taken = min(len(waiting), max(0, room))
                self._left[:, node] -= request * taken
                self._slots[shape, node] -= taken
                waiting = waiting[taken:]

    def _gather(self, members: list[Member], highest: int) -> dict[str, int] | None:
        """Find the deepest domain, not above depth ``highest``, that takes all members."""
        if not members:
            return {}
        wanted = np.zeros(len(self._slots), dtype=np.int64)
        for member in members:
            wanted[member.shape] += 1
        need = wanted @ self._requests
        tree, terms = self._tree, self._terms
        alone = np.stack(
            [tree.sum_up(np.minimum(row, n)) for row, n in zip(self._slots, wanted, strict=True)]
        )
        amounts = np.stack([tree.sum_up(row) for row in self._left]) if len(self._left) else None
        self._alone = alone
        able: NDArray[np.bool_] = np.all(alone >= wanted[:, None], axis=0)
        if amounts is not None:
            able = able & np.all(amounts >= need[:, None], axis=0)
        if highest and terms.bound[0] > 0 and highest == terms.must_depth:
            start, end = tree.layer_start[highest], tree.layer_start[highest + 1]
            able[start:end] &= terms.bound[start:end] > 0
        for depth in range(len(tree.layers), highest - 1, -1):
            tried = [domain for domain in tree.domains_at(depth) if able[domain]]
            tried.sort(key=lambda domain: (-terms.bound[domain], terms.slots[domain], domain))
            for domain in tried[:_TRIES]:
                found = self._pack(domain, wanted.tolist())
                if found is not None:
                    return self._commit(members, found)
        return None

    def _pack(self, domain: int, wanted: list[int]) -> list[tuple[int, int, int]] | None:
        """Fill the nodes of a domain; triples of node, shape and count, None when not all fit."""
        left = np.array(wanted, dtype=np.int64)
        found: list[tuple[int, int, int]] = []
        self._fill(domain, left, found)
        return None if left.any() else found

    def _fill(self, domain: int, wanted: IntVector, found: list[tuple[int, int, int]]) -> None:
        """Put as much as possible into a domain, few children at a time; ``wanted`` becomes what is left."""
        tree = self._tree
        depth = int(tree.depth[domain])
        if depth >= len(tree.layers) - 1:
            self._fill_nodes(domain, wanted, found)
            return
        children = self._terms.child_order(domain).tolist()
        while children and wanted.any():
            able = [child for child in reversed(children) if self._may_hold(child, wanted)]
            for child in able[:_TRIES]:
                trial, places = wanted.copy(), list[tuple[int, int, int]]()
                self._fill(child, trial, places)
                if not trial.any():
                    found += places
                    wanted[:] = 0
                    return
            self._fill(children.pop(0), wanted, found)

    def _may_hold(self, domain: int, wanted: IntVector) -> bool:
        return bool((self._alone[:, domain] >= wanted).all())

    def _fill_nodes(self, domain: int, wanted: IntVector, found: list[tuple[int, int, int]]) -> None:
        """Take the node that holds most of what is left, again and again."""
        first = self._tree.first_node
        inside = [domain] if domain >= first else self._terms.child_order(domain)
        nodes = np.asarray(inside, dtype=np.int64) - first
        free, slots = self._left[:, nodes].copy(), self._slots[:, nodes]
        used = np.zeros(len(nodes), dtype=np.bool_)
        while wanted.any() and not used.all():
            takes, weights = self._takes(free, slots, wanted)
            weights[used] = 0.0
            best = int(weights.argmax())
            if weights[best] == 0.0:
                return
            used[best] = True
            for shape in np.flatnonzero(takes[:, best]).tolist():
                found.append((int(nodes[best]), shape, int(takes[shape, best])))
            wanted -= takes[:, best]

    def _takes(self, free: IntMatrix, slots: IntMatrix, wanted: IntVector) -> tuple[IntMatrix, FloatVector]:
        """Count what each node would take now, big members first, and weigh it."""
        left = free.copy()
        takes = np.zeros(slots.shape, dtype=np.int64)
        weights = np.zeros(slots.shape[1])
        for shape in self._big_first:
            most = np.minimum(slots[shape], wanted[shape])
            request = self._requests[shape]
            for row in np.flatnonzero(request > 0):
                most = np.minimum(most, left[row] // request[row])
            takes[shape] = most
            left -= request[:, None] * most[None, :]
            weights += most * self._weight[shape]
        return takes, weights

    def _commit(self, members: list[Member], found: list[tuple[int, int, int]]) -> dict[str, int]:
        waiting: dict[int, list[str]] = {}
        for member in rank_order(members):
            waiting.setdefault(member.shape, []).append(member.key)
        placed: dict[str, int] = {}
        for node, shape, count in found:
            self._left[:, node] -= self._requests[shape] * count
            self._slots[shape, node] -= count
            for key in waiting[shape][:count]:
                placed[key] = node
            del waiting[shape][:count]
        return placed


def _domains(home: IntVector, fixed: int, mask: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """List the domains within a mask that may be chosen; the mask itself where there is no choice."""
    if not len(home):
        return [mask]
    numbers = [fixed] if fixed >= 0 else np.unique(home[mask & (home >= 0)]).tolist()
    return [mask & (home == number) for number in numbers]
