"""Claims on random small nodes with every feature, against the reference read word by word."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.property.claim_answers import (
    asked_of,
    check_exact,
    check_first_fit,
    node_case,
    partition,
    request,
    where,
)
from tests.property.claim_worlds import DRIVER, random_case


@settings(max_examples=37)
@given(st.integers(0, 10**9))
def test_first_fit_takes_the_devices_of_the_reference(seed: int) -> None:
    check_first_fit(asked_of(random_case(Random(seed))))


@settings(max_examples=37)
@given(st.integers(0, 10**9))
def test_the_exact_answer_is_that_of_trying_everything(seed: int) -> None:
    check_exact(asked_of(random_case(Random(seed), 10)))


@pytest.mark.parametrize("check", [check_first_fit, check_exact])
def test_partitions_are_exchanged_within_their_compatibility_groups(check: Any) -> None:
    raw = node_case(
        [partition("d0", 0, "g"), partition("d1", 1), partition("d2", 2, "g"), partition("d3", 2, "g")],
        [{"name": "s", "counters": {"a": {"value": "9"}}}],
        [
            {"requests": [request("one", **where("i < 2"))]},
            {"requests": [request("two", count=2, **where("i == 2"))]},
        ],
    )
    check(asked_of(raw))


@pytest.mark.parametrize("check", [check_first_fit, check_exact])
def test_what_one_request_derives_says_nothing_of_another(check: Any) -> None:
    derived = [{"name": f"{DRIVER}/x", "expression": f"device.attributes['{DRIVER}'].i / 2"}]
    devices = [
        {"name": f"d{number}", "attributes": {"i": {"int": number}, "x": {"ints": many}}}
        for number, many in ((0, [0, 1]), (4, [2]), (6, [1, 3]))
    ]
    raw = node_case(
        devices,
        [{"name": "s", "counters": {"a": {"value": "1"}}}],
        [
            {
                "requests": [request("two", count=2), request("one", derivedAttributes=derived)],
                "constraints": [{"distinctAttribute": f"{DRIVER}/x"}],
            }
        ],
    )
    check(asked_of(raw))
