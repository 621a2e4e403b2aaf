"""What is said of claims that do not fit on a node."""

from __future__ import annotations

from typing import Any

from koordcore.allocators.claims import ClaimsRefused
from tests.property.claim_answers import (
    asked_of,
    counter_set,
    draws,
    held,
    node_case,
    partition,
    request,
    where,
)


def reasons(case: dict[str, Any]) -> list[str]:
    outcome = asked_of(case).outcome()
    assert isinstance(outcome, ClaimsRefused)
    return [one.reason for one in outcome.shortfalls]


def test_devices_of_other_compatibility_groups_are_not_said_to_be_short_of_counters() -> None:
    devices = [partition("d0", 0, "g"), partition("d1", 1, "h"), partition("d2", 1, "h")]
    claims = [{"requests": [request("r", **where("i == 1"))]}]
    assert reasons(node_case(devices, [counter_set("s", a=9)], claims, **held("d0"))) == [
        "0 of 1 devices can be had (2 suit: 2 shut out by their compatibility groups)"
    ]
    assert reasons(node_case(devices, [counter_set("s", a=1)], claims, **held("d0"))) == [
        "0 of 1 devices can be had (2 suit: 2 short of counters); counters of s allow nothing more"
    ]


def profile(name: str, kind: str, slices: int) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"profile": {"string": kind}},
        "consumesCounters": [draws("gpu-0", slices=slices)],
    }


def test_a_card_is_not_said_to_allow_a_partition_that_is_held() -> None:
    card = counter_set("gpu-0", slices=4)
    devices = [profile("small-0", "small", 1), profile("small-1", "small", 1), profile("large-0", "large", 4)]
    claims = [{"requests": [request("r", **where("profile == 'large'"))]}]
    short = "0 of 1 devices can be had (1 suit: 1 short of counters); counters of gpu-0 allow "
    assert reasons(node_case(devices, [card], claims, **held("small-0"))) == [f"{short}small only"]
    assert reasons(node_case(devices, [card], claims, **held("small-0", "small-1"))) == [
        f"{short}nothing more"
    ]
