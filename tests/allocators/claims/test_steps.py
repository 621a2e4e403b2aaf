"""First fit where its search would take too many steps: the exact one says at each device what completes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from koordcore.allocators.claims import AllocationMode, ClaimsRefused, allocate
from tests.property.claim_answers import asked_of, check_first_fit, node_case, request, told, where
from tests.property.claim_worlds import DRIVER, random_case
from tests.reference import claims_first_fit as literal


@pytest.fixture(autouse=True)
def no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave nothing to the search itself."""
    monkeypatch.setattr(allocate, "_STEPS", 0)


@pytest.mark.parametrize("seed", range(60))
def test_first_fit_takes_the_devices_of_the_reference_however_few_steps_it_has(seed: int) -> None:
    asked = asked_of(random_case(Random(seed)))
    outcome = asked.outcome(AllocationMode.FIRST_FIT)
    if isinstance(outcome, ClaimsRefused):
        # That nothing fits is known before it is known which constraint the search would have ended on.
        assert literal.first_fit(asked.literal, asked.claims) in (None, "all-constraint")
    else:
        check_first_fit(asked)


def device(name: str, number: int | None, kind: int = 0) -> dict[str, Any]:
    known = {} if number is None else {"i": {"int": number}}
    return {"name": name, "attributes": {**known, "k": {"int": kind}}}


def first_fit(devices: list[dict[str, Any]], claim: dict[str, Any]) -> list[list[str]] | str | None:
    return told(asked_of(node_case(devices, [], [claim])).outcome(AllocationMode.FIRST_FIT))


def test_a_constraint_that_the_first_choice_breaks_with_a_whole_set_is_the_error_still() -> None:
    requests = [request("one", **where("k == 0")), request("every", allocationMode="All", **where("k == 1"))]
    devices = [device("d0", 0), device("d1", 1), device("d2", 1, kind=1)]
    assert first_fit(devices, {"requests": requests}) == [["d0", "d2"]]
    agree = {"requests": requests, "constraints": [{"matchAttribute": f"{DRIVER}/i"}]}
    assert first_fit(devices, agree) == "all-constraint"
    assert first_fit(devices[1:], agree) == [["d1", "d2"]]


def test_a_selector_that_fails_is_the_error_where_the_search_meets_it() -> None:
    two = {"requests": [request("two", count=2, **where("i == 1"))]}
    one, other, broken = device("d0", 1), device("d1", 1), device("d2", None)
    assert first_fit([one, other, broken], two) == [["d0", "d1"]]
    assert first_fit([one, broken, other], two) == "cel-runtime"
