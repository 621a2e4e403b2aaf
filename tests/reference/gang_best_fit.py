"""The reference system's rule for placing a gang of equal members: best fit, then largest first.

Re-implemented from its description to be compared with: candidates are the domains of the deepest layer that
hold the gang, the tightest first; inside one the largest children are filled first. It works on plain slots.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from koordcore.topology.network import NetworkTopology

__all__ = ["best_fit"]


def best_fit(
    tree: NetworkTopology, slots: NDArray[np.int64], size: int, must_depth: int = 0
) -> dict[int, int]:
    """Give node positions with member counts; empty when the rule finds no place."""
    offers = tree.sum_up(np.minimum(slots, size))
    level = list(tree.domains_at(must_depth))
    candidates: list[int] = []
    while level:
        able = [domain for domain in level if offers[domain] >= size]
        if not able:
            break
        candidates = able
        level = [child for domain in able for child in tree.children(domain)]
    if not candidates:
        return {}

    def small_first(domain: int) -> tuple[list[int], str]:
        chain = []
        above = domain
        while above >= 0:
            chain.append(int(offers[above]))
            above = int(tree.parent[above])
        return chain, tree.names[domain]

    found: dict[int, int] = {}

    def fill(domain: int, wanted: int) -> int:
        if domain >= tree.first_node:
            taken = min(int(offers[domain]), wanted)
            if taken:
                found[domain - tree.first_node] = taken
            return taken
        given = 0
        for child in sorted(tree.children(domain), key=lambda d: (-offers[d], tree.names[d])):
            if given == wanted:
                break
            given += fill(child, wanted - given)
        return given

    fill(min(candidates, key=small_first), size)
    return found
