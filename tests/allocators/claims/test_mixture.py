"""Numbers of equal entities by option, against trying every choice."""

from __future__ import annotations

from itertools import product

import pytest

from koordcore.allocators.claims.exact.entities import Option
from koordcore.allocators.claims.exact.mixture import mix

pytestmark = pytest.mark.solver

Options = tuple[Option, ...]


def options(*vectors: tuple[int, int]) -> Options:
    return tuple(Option(vector, (), 0) for vector in vectors)


HALVES = options((2, 0), (1, 1), (0, 2))
"""Two devices, of either type."""
SECONDS = options((0, 3))
"""Three devices of the second type."""


def possible(entities: list[Options], plain: list[int], wanted: tuple[int, int]) -> bool:
    """Tell whether some option for each entity, and the plain devices, serve what is wanted."""
    both = (plain[0] & plain[1]).bit_count()
    alone = [(mask & ~other).bit_count() for mask, other in (plain, plain[::-1])]
    for chosen in product(*entities):
        lacks = [
            max(0, wanted[kind] - sum(one.vector[kind] for one in chosen) - alone[kind]) for kind in (0, 1)
        ]
        if sum(lacks) <= both:
            return True
    return False


@pytest.mark.parametrize(
    "entities",
    [[HALVES] * 2, [HALVES] + [SECONDS] * 2, [HALVES] * 2 + [SECONDS]],
    ids=["equal", "one and two", "two and one"],
)
def test_entities_are_mixed_exactly_where_some_choice_serves(entities: list[Options]) -> None:
    plain = [0b0011, 0b0110]
    for wanted in product(range(6), range(0, 12, 2)):
        found = mix(entities, plain, wanted)
        assert (found is not None) == possible(entities, plain, wanted)
        if found is None:
            continue
        chosen, given = found
        assert not set(given[0]) & set(given[1])
        for kind in (0, 1):
            taken = sum(mine[number].vector[kind] for mine, number in zip(entities, chosen, strict=True))
            assert taken + len(given[kind]) >= wanted[kind]
            assert all(plain[kind] >> device & 1 for device in given[kind])
