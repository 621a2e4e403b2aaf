"""Selectors that are asked once for devices that look alike to them, against asking for each."""

from __future__ import annotations

from itertools import permutations

import pytest

from koordcore.allocators.claims import CelCompiler, DeviceView, SelectorFault
from koordcore.allocators.claims.cel import SelectorError, compile_selector, device_variable
from koordcore.model.device_slices import AttributeKind, AttributeValue, SliceDevice

DRIVER = "d.example.com"


def device(name: str, x: int, **more: AttributeValue) -> SliceDevice:
    return SliceDevice(name=name, attributes={"x": AttributeValue(AttributeKind.INT, (x,)), **more})


DEVICES = (
    device("plain", 1),
    device("nothing-set", 1, odd=AttributeValue(AttributeKind.NONE)),
    device("empty-list", 1, odd=AttributeValue(AttributeKind.INT, listed=True)),
    device("no-version", 1, odd=AttributeValue(AttributeKind.VERSION, ("one",))),
    device("version", 1, odd=AttributeValue(AttributeKind.VERSION, ("1.0.0",))),
    device("other", 2),
)
"""Alike to who looks at ``x`` alone; those with an attribute that cannot be read have no answer though."""


def plainly(expression: str, one: SliceDevice) -> bool | str:
    selector = compile_selector(expression)
    assert not isinstance(selector, SelectorError)
    answer = selector.evaluate(device_variable(DRIVER, one))
    return str(answer) if isinstance(answer, SelectorError) else answer


@pytest.mark.parametrize(
    "expression", [f"device.attributes['{DRIVER}'].x == 1", f"device.driver == '{DRIVER}'"]
)
def test_a_device_with_an_attribute_that_cannot_be_read_gets_no_answer_of_another(expression: str) -> None:
    assert [isinstance(plainly(expression, one), str) for one in DEVICES] == [
        one.name in ("nothing-set", "empty-list", "no-version") for one in DEVICES
    ]
    for pair in permutations(DEVICES, 2):
        selector = CelCompiler().selector(expression)
        assert not isinstance(selector, SelectorFault)
        for one in pair:
            answer = selector(DeviceView(DRIVER, one))
            told = answer.text if isinstance(answer, SelectorFault) else answer
            assert told == plainly(expression, one)
