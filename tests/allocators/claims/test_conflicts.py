"""How many devices of a refused request could be had, and which requests stand in each other's way."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.allocators.claims import ClaimShortfall, ClaimsRefused
from tests.property.claim_answers import asked_of, counter_set, node_case, partition, request, where
from tests.property.claim_worlds import DRIVER


def shortfalls(case: dict[str, Any]) -> tuple[ClaimShortfall, ...]:
    outcome = asked_of(case).outcome()
    assert isinstance(outcome, ClaimsRefused)
    return outcome.shortfalls


def valued(*values: int) -> list[dict[str, Any]]:
    return [{"name": f"d{n}", "attributes": {"x": {"int": one}}} for n, one in enumerate(values)]


@pytest.mark.parametrize(
    ("values", "kind", "free"),
    [
        ((0, 1), "matchAttribute", 1),
        ((0, 0, 1), "matchAttribute", 2),
        ((0, 1, 2), "matchAttribute", 1),
        ((0, 0, 0), "distinctAttribute", 1),
        ((0, 1, 1), "distinctAttribute", 2),
    ],
)
def test_of_devices_that_must_agree_or_differ_only_so_many_can_be_had_at_once(
    values: tuple[int, ...], kind: str, free: int
) -> None:
    claim = {"requests": [request("r", count=4)], "constraints": [{kind: f"{DRIVER}/x"}]}
    (short,) = shortfalls(node_case(valued(*values), [], [claim]))
    assert (short.wanted, short.suitable, short.free) == (4, len(values), free)


@pytest.mark.parametrize("slices", [1, 2])
def test_of_partitions_of_one_card_only_so_many_can_be_had_at_once(slices: int) -> None:
    devices = [partition(f"d{n}", n) for n in range(3)]
    claim = {"requests": [request("r", count=4)]}
    (short,) = shortfalls(node_case(devices, [counter_set("s", a=slices)], [claim]))
    assert (short.wanted, short.suitable, short.free) == (4, 3, slices)


def alternatives(name: str, *forms: tuple[int, str]) -> dict[str, Any]:
    """So many devices of a kind, or else so many of another."""
    return {
        "name": name,
        "firstAvailable": [
            {"name": f"f{place}", "deviceClassName": "all", "count": count, **where(f"kind == '{kind}'")}
            for place, (count, kind) in enumerate(forms)
        ],
    }


def kinds(**counts: int) -> list[dict[str, Any]]:
    return [
        {"name": f"{kind}-{n}", "attributes": {"kind": {"string": kind}}}
        for kind, count in counts.items()
        for n in range(count)
    ]


def test_a_request_of_a_claim_with_room_is_no_part_of_what_another_claim_has_too_much_of() -> None:
    """With the rare device gone, the first claim would have forty, of which it may have 32."""
    devices = kinds(plain=60, rare=1)
    either = ((20, "plain"), (1, "rare"))
    crowded = {
        "requests": [
            alternatives("a", *either),
            alternatives("b", *either),
            request("rare", **where("kind == 'rare'")),
        ]
    }
    lone = {"requests": [alternatives("c", *either)]}
    (short,) = shortfalls(node_case(devices, [], [crowded, lone]))
    assert (short.claim, short.request) == ("c0", "a and b and rare")
    (other,) = shortfalls(node_case(devices, [], [lone, crowded]))
    assert (other.claim, other.request) == ("c1", "a and b and rare")
