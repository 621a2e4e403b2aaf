"""What a node holds of several shapes at once."""

from __future__ import annotations

from itertools import product

import numpy as np

from koordcore.allocators.gang.patterns import node_patterns


def test_more_shapes_than_an_array_has_dimensions() -> None:
    """Forty shapes, of which a node takes one member each of the first two and the last, not all three."""
    slots = np.zeros((40, 1), np.int64)
    slots[[0, 1, 39]] = 1
    found = node_patterns(np.array([[2]]), np.ones((40, 1), np.int64), slots)
    assert found is not None
    (kind,) = found.kind.tolist()
    filled = found.maximal(kind)
    assert filled is not None
    assert {(one[0], one[1], one[39]) for one in filled} == {(1, 1, 0), (1, 0, 1), (0, 1, 1)}


def test_every_combination_is_looked_at_once() -> None:
    """As the product of the ranges has them, the last changing fastest."""
    slots = np.array([[1], [3], [0], [2]])
    found = node_patterns(np.array([[100]]), np.ones((4, 1), np.int64), slots)
    assert found is not None
    assert found.grid.tolist() == [list(one) for one in product(range(2), range(4), range(1))]
