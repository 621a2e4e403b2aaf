"""A quick legal placement of members of several shapes, as the solver's starting point.

Domains are tried from the deepest layer up, the tightest first; inside one the nodes are filled in leaf
order, big members first. It may miss placements that exist; the solver does not.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordcore.allocators.gang.demand import Member, Role, rank_order
from koordcore.allocators.gang.objective import Terms

__all__ = ["greedy_places"]

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
        weight = (self._requests / total).max(axis=1, initial=0.0)
        self._big_first = sorted(range(len(demand.shapes)), key=lambda shape: (-weight[shape], shape))

    def run(self) -> dict[str, int] | None:
        """Place the roles; those that gather on their own one by one, the others together."""
        demand = self._terms.demand
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
        """Fill the nodes of a domain in leaf order; triples of node, shape and count."""
        found: list[tuple[int, int, int]] = []
        first, stack = self._tree.first_node, [domain]
        missing = sum(wanted)
        while stack and missing:
            top = stack.pop()
            if top < first:
                stack.extend(reversed(self._terms.child_order(top).tolist()))
                continue
            left = self._left[:, top - first].tolist()
            for shape in self._big_first:
                request = self._requests[shape].tolist()
                most = min(wanted[shape], int(self._slots[shape, top - first]))
                for have, ask in zip(left, request, strict=True):
                    if ask > 0:
                        most = min(most, have // ask)
                if most > 0:
                    left = [have - most * ask for have, ask in zip(left, request, strict=True)]
                    wanted[shape] -= most
                    missing -= most
                    found.append((top - first, shape, most))
        return None if missing else found

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
