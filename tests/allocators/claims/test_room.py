"""What is left of a node's devices in corners: counters in the red, shares, the limit of a claim."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.allocators.claims import AllocationMode
from tests.property.claim_answers import (
    answers,
    asked_of,
    counter_set,
    draws,
    held,
    node_case,
    request,
    told,
    where,
)

STEPPED = {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
HUGE = str(10**19)


def one(**more: Any) -> dict[str, Any]:
    return {"requests": [request("r", **more)]}


def drawing(name: str, counters: str, **amounts: int) -> dict[str, Any]:
    return {"name": name, "attributes": {"i": {"int": 1}}, "consumesCounters": [draws(counters, **amounts)]}


# --- counters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lowered", "expected"), [(2, [["d1"]]), (1, [["d2"]])])
def test_a_counter_in_the_red_bars_all_devices_of_its_pool_that_draw_on_any(
    lowered: int, expected: list[list[str]]
) -> None:
    """A device in use draws two of ``s``; ``t`` and the other counter of ``s`` have all that is asked."""
    in_use = {"name": "d0", "attributes": {"i": {"int": 0}}, "consumesCounters": [draws("s", a=2)]}
    plain = {"name": "d2", "attributes": {"i": {"int": 1}}}
    for beside in (drawing("d1", "t", a=1), drawing("d1", "s", b=1)):
        counters = [counter_set("s", a=lowered, b=9), counter_set("t", a=9)]
        case = node_case([in_use, beside, plain], counters, [one(**where("i == 1"))], **held("d0"))
        assert answers(case) == [expected] * 2


# --- shares -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", [1, 2, 3, 4])
def test_a_shared_device_serves_as_many_equal_requests_as_its_capacity_allows(shares: int) -> None:
    device = {"name": "d0", "allowMultipleAllocations": True, "capacity": {"m": {"value": "3"}}}
    wish = request("r", capacity={"requests": {"m": "1"}})
    apart = [{"requests": [wish]} for _ in range(shares)]
    together = {"requests": [{**wish, "name": f"r{n}"} for n in range(shares)]}
    assert answers(node_case([device], [], apart)) == [[["d0"]] * shares if shares <= 3 else None] * 2
    assert answers(node_case([device], [], [together])) == [[["d0"] * shares] if shares <= 3 else None] * 2


def test_one_request_has_no_two_shares_of_a_device() -> None:
    devices = [
        {"name": name, "allowMultipleAllocations": True, "capacity": {"m": {"value": "3"}}}
        for name in ("d0", "d1")
    ]
    for count, expected in ((2, [["d0", "d1"]]), (3, None)):
        assert answers(node_case(devices, [], [one(count=count)])) == [expected] * 2


# --- amounts that cannot be counted -------------------------------------------------------------------


def test_an_amount_that_cannot_be_counted_is_no_error_on_a_device_that_is_not_meant() -> None:
    countless = {"name": "d0", "attributes": {"i": {"int": 0}}, "capacity": {"m": STEPPED}}
    ample = {"name": "d1", "attributes": {"i": {"int": 1}}, "capacity": {"m": {"value": HUGE}}}
    amount = {"requests": {"m": HUGE}}
    assert (
        answers(node_case([countless, ample], [], [one(capacity=amount, **where("i == 1"))]))
        == [[["d1"]]] * 2
    )
    assert (
        answers(node_case([countless, ample], [], [one(capacity=amount, **where("i == 0"))]))
        == ["capacity"] * 2
    )


# --- how many devices a claim may have ----------------------------------------------------------------


@pytest.mark.parametrize("most", [30, 31])
def test_an_alternative_that_is_too_much_for_one_claim_gives_way_to_the_next(most: int) -> None:
    """A claim may have 32 devices."""
    devices = [{"name": f"d{n}", "attributes": {"i": {"int": int(n >= most)}}} for n in range(most + 4)]
    forms = [
        {"name": f"of-{count}", "deviceClassName": "all", "count": count, **where("i == 1")}
        for count in (4, 33 - most, 32 - most)
    ]
    every = request("every", allocationMode="All", **where("i == 0"))
    claim = {"requests": [every, {"name": "rest", "firstAvailable": forms}]}
    asked = asked_of(node_case(devices, [], [claim]))
    for mode in (AllocationMode.FIRST_FIT, AllocationMode.EXACT):
        assert told(asked.outcome(mode)) == [[f"d{n}" for n in range(32)]]
