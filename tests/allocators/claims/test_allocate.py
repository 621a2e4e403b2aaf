"""What claims get on small nodes in the less common corners of the rules.

Every answer is also held to the reference read word by word, to trying everything, and to the checker.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.property.claim_answers import (
    answers,
    counter_set,
    draws,
    held,
    node_case,
    request,
    shared,
    where,
)
from tests.property.claim_worlds import DRIVER

CARD = [counter_set("s", a=9)]


def numbered(name: str, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"i": {"int": number}}, **more}


def one(**more: Any) -> dict[str, Any]:
    return {"requests": [request("r", **more)]}


def odd_class(*selectors: dict[str, Any]) -> dict[str, Any]:
    return {"classes": [{"metadata": {"name": "all"}, "spec": {"selectors": list(selectors)}}]}


def test_a_selector_of_no_known_kind_does_not_count_where_one_before_it_is_false() -> None:
    false: dict[str, Any] = {"cel": {"expression": "device.driver == 'other'"}}
    unknown: dict[str, Any] = {}
    devices = [numbered("d0"), numbered("d1")]
    assert answers(node_case(devices, [], [one()], **odd_class(false, unknown))) == [None, None]
    assert answers(node_case(devices, [], [one()], **odd_class(unknown, false))) == ["unsupported"] * 2


# --- faults of single devices -------------------------------------------------------------------------

STEPPED = {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
HUGE = str(10**19)


def test_an_amount_that_cannot_be_counted_ends_the_search_where_it_is_met() -> None:
    countless = numbered("d0", capacity={"m": STEPPED}, allowMultipleAllocations=True)
    ample = numbered("d1", capacity={"m": {"value": HUGE}}, allowMultipleAllocations=True)
    wish = one(capacity={"requests": {"m": HUGE}})
    assert answers(node_case([countless, ample], [], [wish])) == ["capacity"] * 2
    assert answers(node_case([ample, countless], [], [wish])) == [[["d1"]]] * 2


def test_the_exact_search_passes_over_devices_on_which_a_selector_fails() -> None:
    broken = {"name": "d0", "attributes": {"other": {"int": 1}}}
    assert answers(node_case([broken, numbered("d1", 1)], [], [one(**where("i == 1"))])) == [
        "cel-runtime",
        [["d1"]],
    ]


def test_a_set_of_all_is_without_the_devices_on_which_a_selector_fails() -> None:
    broken = {"name": "d1", "attributes": {}}
    every = {"allocationMode": "All", **where("i == 1")}
    either = [{"name": "one", "deviceClassName": "all"}, {"name": "two", "deviceClassName": "all", **every}]
    for alternatives, devices in ((either, ["d1"]), (either[::-1], ["d0"])):
        claim = {"requests": [{"name": "r", "firstAvailable": alternatives}]}
        assert answers(node_case([broken, numbered("d0", 1)], [], [claim])) == ["cel-runtime", [devices]]
    assert answers(node_case([broken, numbered("d0", 1)], [], [one(**every)])) == ["cel-runtime", [["d0"]]]
    # Where nothing fits without them the error is the answer, whatever else goes wrong on the way.
    assert answers(node_case([broken], [], [one(**every)])) == ["cel-runtime"] * 2
    assert answers(node_case([broken, numbered("d0", 2)], [], [one(**every)])) == ["cel-runtime"] * 2
    countless = numbered("d2", 2, capacity={"m": STEPPED})
    asks = [request("a", **every), request("b", capacity={"requests": {"m": HUGE}}, **where("i == 2"))]
    case = node_case([broken, countless], [], [{"requests": asks}], **held("d2"))
    assert answers(case) == ["cel-runtime"] * 2


def test_an_attribute_that_cannot_be_derived_ends_the_search_where_it_is_asked_for() -> None:
    divided = [{"name": f"{DRIVER}/x", "expression": f"6 / device.attributes['{DRIVER}'].i"}]
    claim = {**one(derivedAttributes=divided), "constraints": [{"matchAttribute": f"{DRIVER}/x"}]}
    assert answers(node_case([numbered("d0", 0), numbered("d1", 2)], [], [claim])) == ["derived"] * 2
    assert answers(node_case([numbered("d1", 2), numbered("d0", 0)], [], [claim])) == [[["d1"]]] * 2


def test_what_goes_wrong_on_a_device_that_is_not_come_to_is_no_answer() -> None:
    countless, small = numbered("d0", capacity={"m": STEPPED}), numbered("d1", capacity={"m": {"value": "1"}})
    wish = one(capacity={"requests": {"m": HUGE}})
    assert answers(node_case([countless, small], [], [wish])) == ["capacity"] * 2
    assert answers(node_case([countless, small], [], [wish], **held("d0"))) == [None] * 2

    divided = [{"name": f"{DRIVER}/x", "expression": f"6 / device.attributes['{DRIVER}'].i"}]
    derives = request("derives", derivedAttributes=divided)
    agree = [{"matchAttribute": f"{DRIVER}/x", "requests": ["derives"]}]
    nobody = request("nobody", **where("i == 9"))
    for requests, expected in (([derives, nobody], "derived"), ([nobody, derives], None)):
        asks = {"requests": requests, "constraints": agree}
        assert answers(node_case([numbered("d0", 0)], [], [asks])) == [expected] * 2


def test_a_selector_that_fails_is_the_answer_where_it_is_what_the_search_comes_to() -> None:
    countless = numbered("d0", 1, capacity={"m": STEPPED})
    wish = one(capacity={"requests": {"m": HUGE}}, **where("i == 1"))
    devices = [countless, {"name": "d1", "attributes": {}}]
    assert answers(node_case(devices, [], [wish])) == ["capacity"] * 2
    assert answers(node_case(devices, [], [wish], **held("d0"))) == ["cel-runtime"] * 2


# --- capacity -----------------------------------------------------------------------------------------


def test_a_device_without_enough_left_is_passed_over_and_no_other() -> None:
    devices = [
        numbered(name, capacity={"m": {"value": "4"}}, allowMultipleAllocations=True) for name in ("d0", "d1")
    ]
    wish = one(capacity={"requests": {"m": "2"}})
    assert answers(node_case(devices, [], [wish], **shared(d0={"m": "3"}))) == [[["d1"]]] * 2
    assert answers(node_case(devices, [], [wish], **shared(d0={"m": "2"}))) == [[["d0"]]] * 2
    assert answers(node_case(devices, [], [wish], **shared(d0={"m": "3"}, d1={"m": "3"}))) == [None] * 2


# --- binding conditions -------------------------------------------------------------------------------

CONDITIONAL: dict[str, Any] = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}


def sharing(name: str, capacity: str) -> dict[str, Any]:
    policy = {"default": "1", "validValues": ["1"]}
    return numbered(
        name, capacity={"m": {"value": capacity, "requestPolicy": policy}}, allowMultipleAllocations=True
    )


def test_no_device_with_binding_conditions_is_taken_that_can_be_done_without() -> None:
    both = {"requests": [request("a"), request("b")]}
    # Shares, and what draws on counters, are looked at before devices that stand for themselves.
    one_share = [numbered("d0", **CONDITIONAL), numbered("d1"), sharing("d2", "1")]
    assert answers(node_case(one_share, [], [both])) == [[["d0", "d1"]], [["d1", "d2"]]]
    drawing = [numbered(f"d{n}", consumesCounters=[draws("s", a=4)], **CONDITIONAL) for n in (0, 1)]
    assert answers(node_case([*drawing, numbered("d2"), numbered("d3")], CARD, [both])) == [
        [["d0", "d1"]],
        [["d2", "d3"]],
    ]
    # Where one is needed, it is one.
    three = {"requests": [request("a"), request("b"), request("c")]}
    least = [[["d0", "d2", "d3"]], [["d1", "d2", "d3"]]]
    found = answers(node_case([*drawing, numbered("d2"), sharing("d3", "1")], CARD, [three]))[1]
    assert [sorted(one) for one in found or ()] in least


def test_alternatives_come_before_binding_conditions() -> None:
    devices = [numbered("d0", 1, **CONDITIONAL), numbered("d1", 2)]
    either = [
        {"name": name, "deviceClassName": "all", **where(f"i == {number}")}
        for name, number in (("one", 1), ("two", 2))
    ]
    claim = {"requests": [{"name": "r", "firstAvailable": either}, request("s")]}
    assert answers(node_case(devices, [], [claim]))[1] == [["d0", "d1"]]


# --- compatibility groups -----------------------------------------------------------------------------


def grouped(name: str, number: int, *groups: str) -> dict[str, Any]:
    return numbered(name, number, consumesCounters=[draws("s", *groups, a=1)])


@pytest.mark.parametrize(
    ("groups", "fits"), [("g", True), ("h", False), ("k", False), ("gh", True), ("", False)]
)
def test_devices_in_use_leave_the_groups_that_they_have_in_common(groups: str, fits: bool) -> None:
    devices = [grouped("d0", 0, "g", "h"), grouped("d1", 0, "g", "k"), grouped("d2", 1, *groups)]
    expected = [["d2"]] if fits else None
    assert answers(node_case(devices, CARD, [one()], **held("d0", "d1"))) == [expected] * 2


def test_a_group_that_new_devices_share_must_be_one_of_those_in_use() -> None:
    devices = [grouped("d0", 0, "g", "k"), grouped("d1", 1, "g", "h"), grouped("d2", 1, "h", "k")]
    claims = [one(count=2, **where("i == 1"))]
    assert answers(node_case(devices, CARD, claims)) == [[["d1", "d2"]]] * 2
    assert answers(node_case(devices, CARD, claims, **held("d0"))) == [None] * 2


def test_groups_bind_devices_that_draw_on_no_counter() -> None:
    devices = [numbered(f"d{n}", n, consumesCounters=[draws("s", group)]) for n, group in enumerate("ghg")]
    assert answers(node_case(devices, CARD, [one(count=2)])) == [[["d0", "d2"]]] * 2
    assert answers(node_case(devices, CARD, [one(count=3)])) == [None] * 2


# --- which of several ---------------------------------------------------------------------------------


def test_what_nobody_asks_for_has_no_say_in_which_device_is_taken() -> None:
    devices = [grouped("d0", 0), numbered("d1", 1), grouped("d2", 1)]
    assert answers(node_case(devices, CARD, [one(**where("i == 1"))])) == [[["d1"]]] * 2
    assert answers(node_case(devices[1:], CARD, [one(**where("i == 1"))])) == [[["d1"]]] * 2
