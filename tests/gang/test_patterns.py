"""What a node holds of several shapes at once."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, strategies as st

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


@given(
    free=st.lists(st.integers(-1, 9), min_size=2, max_size=2),
    requests=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=4),
    most=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    conflicts=st.lists(st.tuples(*[st.integers(0, 2)] * 4).filter(any), max_size=2),
)
def test_the_largest_patterns_are_those_that_no_other_contains(
    free: list[int], requests: list[tuple[int, int]], most: list[int], conflicts: list[tuple[int, ...]]
) -> None:
    """Of all combinations that fit and contain no conflict; only nothing at all is no pattern."""
    shapes = len(requests)
    alone = [
        min(count, *(max(room, 0) // need if need else count for room, need in zip(free, one, strict=True)))
        for count, one in zip(most, requests, strict=False)
    ]
    refused = [one[:shapes] for one in conflicts if any(one[:shapes])]

    def fits(counts: tuple[int, ...]) -> bool:
        used = [sum(n * one[r] for n, one in zip(counts, requests, strict=True)) for r in range(2)]
        held = all(need == 0 or need <= room for need, room in zip(used, free, strict=True))
        return held and not any(all(map(int.__ge__, counts, one)) for one in refused)

    every = [one for one in product(*(range(count + 1) for count in alone)) if fits(one)]
    largest = [
        one for one in every if not any(other != one and all(map(int.__le__, one, other)) for other in every)
    ]
    found = node_patterns(np.array([free]).T, np.array(requests), np.array([alone]).T)
    assert found is not None
    (kind,) = found.kind.tolist()
    if kind >= 0:
        assert found.maximal(kind, refused) == tuple(sorted(filter(any, largest), reverse=True))


def test_many_combinations_are_not_compared_with_each_other() -> None:
    """Of a quarter of a million that fit, 10^11 pairs, the one that holds all shapes is the largest."""
    slots = np.full((7, 1), 7)
    found = node_patterns(np.array([[49]]), np.ones((7, 1), np.int64), slots)
    assert found is not None
    assert found.maximal(0) == ((7,) * 7,)
    full = node_patterns(np.array([[20]]), np.ones((7, 1), np.int64), slots)
    assert full is not None
    assert full.maximal(0) is None, "more than are worth listing"
