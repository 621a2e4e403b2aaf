"""How many more slots would let a gang in whose members come in multiples per domain.

Below every domain, what one more whole portion costs never falls: portions that are there already cost
nothing, then the nearly full ones are topped up, then new ones are opened. So the cheapest portions of the
children are the cheapest of the parent, portion by portion.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore.allocators.gang.objective import Terms

IntVector: TypeAlias = NDArray[np.int64]


def slots_to_add(terms: Terms, roots: Sequence[int]) -> tuple[int, int] | None:
    """Give the domain that is mended by fewest further slots, and how many these are.

    Parameters
    ----------
    terms
        Of a gang without running members in a domain of a layer with a multiple.
    roots
        Domains one of which has to hold the members.

    Returns
    -------
    tuple or None
        ``None`` where no number of members between the minimum and all of them comes out even, or where
        running members make portions unequal.
    """
    demand, multiples = terms.demand, terms.multiples
    whole = lcm(*multiples)
    wanted = -(-demand.least // whole) * whole
    if wanted > demand.size or terms.bound[0] > 0 or not roots:
        return None
    return min(((root, _cost(terms, root, wanted)) for root in roots), key=lambda one: (one[1], one[0]))


def _cost(terms: Terms, root: int, wanted: int) -> int:
    portions, size = _portions(terms, root, wanted)
    return int(portions[: wanted // size].sum())


def _portions(terms: Terms, domain: int, wanted: int) -> tuple[IntVector, int]:
    """List what each further portion in a domain costs, cheapest first, and the members of a portion."""
    tree, leaf = terms.tree, len(terms.tree.layers)
    depth = int(tree.depth[domain])
    if depth == leaf:
        size = terms.multiples[leaf]
        left = int(terms.offered[domain]) - np.arange(-(-wanted // size), dtype=np.int64) * size
        return np.clip(size - left, 0, size), size
    if depth == leaf - 1 and terms.multiples[leaf] == 1:
        size = terms.multiples[depth]
        left = int(terms.offered[domain]) - np.arange(-(-wanted // size), dtype=np.int64) * size
        return np.clip(size - left, 0, size), size
    parts = [_portions(terms, child, wanted) for child in tree.children(domain)]
    if not parts:
        return np.zeros(0, dtype=np.int64), lcm(*terms.multiples[depth:])
    below = parts[0][1]
    size = lcm(below, terms.multiples[depth])
    cheapest = np.sort(np.concatenate([one for one, _ in parts]))[: -(-wanted // size) * (size // below)]
    return cheapest.reshape(-1, size // below).sum(axis=1), size
