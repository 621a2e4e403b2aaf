"""Which partition is taken: the one that costs its card least, against counting what can be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest

from benchmarks.claims_data import CLASSES, GPU, claim, request, table_of
from koordcore.allocators.claims import (
    ClaimsAllocated,
    ClaimsRefused,
    DevicesInUse,
    DeviceTable,
    allocate_claims,
    room_of,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    CounterConsumption,
    CounterSet,
    DeviceId,
    ResourceSlice,
    SliceDevice,
)

SIZES = {1: (0, 1, 2, 3), 2: (0, 2), 3: (0,), 4: (0,)}
"""Partitions of a card of four slices: how many each takes, and where it may start."""
Spot = tuple[int, int, int]
"""A card, a size and a start."""


def named(spot: Spot) -> str:
    return "card-{}-of-{}-at-{}".format(*spot)


def spots(cards: int) -> list[Spot]:
    return [
        (card, size, start) for card in range(cards) for size, starts in SIZES.items() for start in starts
    ]


def slices(spot: Spot) -> set[tuple[int, int]]:
    card, size, start = spot
    return {(card, place) for place in range(start, start + size)}


def cards(count: int) -> DeviceTable:
    """Every slice has an engine of its own, so that the engines never run out before the slices."""
    whole = {"engines": 4} | {f"slice-{place}": 1 for place in range(4)}
    sets = tuple(CounterSet(f"card-{n}", whole) for n in range(count))
    devices = tuple(
        SliceDevice(
            name=named(spot),
            attributes={
                "type": AttributeValue(AttributeKind.STRING, ("mig",)),
                "profile": AttributeValue(AttributeKind.STRING, (str(spot[1]),)),
            },
            consumes_counters=(
                CounterConsumption(
                    f"card-{spot[0]}",
                    {"engines": spot[1]} | {f"slice-{place}": 1 for _, place in slices(spot)},
                ),
            ),
        )
        for spot in spots(count)
    )
    common = {"driver": GPU, "pool": "n1", "node_name": "n1", "slice_count": 2}
    return table_of(
        [
            ResourceSlice(name="counters", shared_counters=sets, **common),  # type: ignore[arg-type]
            ResourceSlice(name="devices", devices=devices, **common),  # type: ignore[arg-type]
        ]
    )


def apart(chosen: Sequence[Spot]) -> bool:
    return sum(one[1] for one in chosen) == len(set[tuple[int, int]]().union(*map(slices, chosen)))


def held_sets(count: int, most: int) -> Iterator[tuple[Spot, ...]]:
    for size in range(most + 1):
        yield from filter(apart, combinations(spots(count), size))


def still_offered(count: int, taken: Sequence[Spot]) -> int:
    """Weigh by its size what can be had beside what is taken."""
    gone = set[tuple[int, int]]().union(*map(slices, taken))
    return sum(spot[1] for spot in spots(count) if not slices(spot) & gone)


def given(table: DeviceTable, count: int, held: Sequence[Spot], sizes: Sequence[int]) -> list[Spot] | None:
    """What a claim with one request for each size is given, in the order of the requests."""
    in_use = DevicesInUse(frozenset(DeviceId(GPU, "n1", named(spot)) for spot in held))
    wanted = claim("c", [request(f"r{n}", "mig", 1, str(size)) for n, size in enumerate(sizes)])
    outcome = allocate_claims(room_of(table, in_use), [wanted], CLASSES)
    if isinstance(outcome, ClaimsRefused):
        return None
    assert isinstance(outcome, ClaimsAllocated)
    by_name = {named(spot): spot for spot in spots(count)}
    return [by_name[one.device] for one in outcome.allocations[0].results]


@pytest.mark.parametrize("size", SIZES)
def test_of_one_size_the_partition_is_taken_after_which_most_can_be_had(size: int) -> None:
    table = cards(2)
    for held in held_sets(2, 2):
        free = [spot for spot in spots(2) if spot[1] == size and apart([*held, spot])]
        found = given(table, 2, held, [size])
        if not free:
            assert found is None
            continue
        assert found is not None
        assert found[0] in free
        assert still_offered(2, [*held, *found]) == max(still_offered(2, [*held, spot]) for spot in free)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (2, 1), (1, 1, 2)])
def test_the_last_of_several_partitions_could_lie_nowhere_better_beside_the_others(
    sizes: tuple[int, ...],
) -> None:
    table = cards(2)
    for held in held_sets(2, 1):
        found = given(table, 2, held, sizes)
        assert found is not None
        assert [spot[1] for spot in found] == list(sizes)
        assert apart([*held, *found])
        others = [*held, *found[:-1]]
        free = [spot for spot in spots(2) if spot[1] == sizes[-1] and apart([*others, spot])]
        assert still_offered(2, [*held, *found]) == max(still_offered(2, [*others, spot]) for spot in free)
