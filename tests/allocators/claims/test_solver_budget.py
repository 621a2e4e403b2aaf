"""Which questions are counted, and what is said where the solver's budget ends, which the others need."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import claims_data
from koordcore.allocators.claims import (
    AllocationMode,
    ClaimError,
    ClaimErrorKind,
    ClaimsAllocated,
    ClaimsRefused,
    allocate,
    allocate_claims,
)
from koordcore.allocators.claims.exact import fill
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from tests.property.claim_answers import asked_of, counter_set, draws, node_case, request, told

pytestmark = pytest.mark.solver

NO_TIME = Limits(deterministic_time=1e-9)


def chained(cards: int, wanted: int) -> dict[str, Any]:
    """Cards in a row; two devices on each two neighbours, one of group g and one of group h."""
    devices = [
        {"name": f"{group}{n}", "consumesCounters": [draws(f"s{n}", group), draws(f"s{n + 1}", group)]}
        for n in range(cards - 1)
        for group in "gh"
    ]
    sets = [counter_set(f"s{n}", a=9) for n in range(cards)]
    return node_case(devices, sets, [{"requests": [request("r", count=wanted)]}])


def answer(raw: dict[str, Any], limits: Limits) -> Any:
    asked = asked_of(raw)
    return told(allocate_claims(asked.room, asked.claims, asked.world.classes, limits=limits))


@pytest.mark.parametrize("cards", [5, 7])
def test_groups_agree_along_a_row_of_cards(cards: int) -> None:
    (found,) = answer(chained(cards, cards - 1), DEFAULT_LIMITS)
    assert len({name[0] for name in found}) == 1
    assert answer(chained(cards, cards), DEFAULT_LIMITS) is None


def test_sixty_four_ways_to_agree_are_counted_without_the_solver() -> None:
    assert answer(chained(6, 5), NO_TIME) == answer(chained(6, 5), DEFAULT_LIMITS)
    assert answer(chained(6, 6), NO_TIME) is None


@pytest.mark.parametrize("mode", AllocationMode)
@pytest.mark.parametrize("wanted", [6, 7])
def test_no_time_for_more_ways_is_a_time_out_of_this_node(
    wanted: int, mode: AllocationMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocate, "_STEPS", 0)
    asked = asked_of(chained(7, wanted))
    outcome = allocate_claims(asked.room, asked.claims, asked.world.classes, mode=mode, limits=NO_TIME)
    assert isinstance(outcome, ClaimError)
    assert (outcome.kind, outcome.on_node) == (ClaimErrorKind.TIMEOUT, True)


@pytest.mark.parametrize(
    ("cards", "counts", "expected"),
    [
        (16, {"1g.10gb": 12, "2g.20gb": 8, "3g.40gb": 12, "4g.40gb": 4, "7g.80gb": 2}, ClaimsAllocated),
        (12, {"1g.10gb": 24, "2g.20gb": 10, "3g.40gb": 9, "4g.40gb": 3, "7g.80gb": 2}, ClaimsRefused),
    ],
)
def test_nodes_full_of_partitions_are_counted_without_the_solver(
    cards: int, counts: dict[str, int], expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> None:
        raise AssertionError("the solver is asked")

    monkeypatch.setattr(fill, "mix", asked)
    claims = [
        claims_data.claim(profile, [claims_data.request("r", "mig", count, profile)])
        for profile, count in counts.items()
    ]
    room = claims_data.empty_room(claims_data.mig_cards("n1", cards))
    outcome = allocate_claims(room, claims, claims_data.CLASSES, limits=NO_TIME)
    assert isinstance(outcome, expected)
