"""Small devices for the tests of the expression language."""

from __future__ import annotations

from koordcore.allocators.claims.cel import (
    DeviceVariable,
    SelectorError,
    compile_selector,
    device_variable,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeScalar,
    AttributeValue,
    DeviceCapacity,
    SliceDevice,
)
from koordcore.model.quantity import NANO

__all__ = ["DRIVER", "answer", "attribute", "device", "variable"]

DRIVER = "d.example.com"


def attribute(kind: str, *values: AttributeScalar, listed: bool = False) -> AttributeValue:
    return AttributeValue(AttributeKind(kind), values, listed)


def device(**attributes: AttributeValue) -> SliceDevice:
    named = {
        "i": attribute("int", 7),
        "s": attribute("string", "NVIDIA H100 80GB HBM3"),
        "b": attribute("bool", True),
        "v": attribute("version", "12.4.1"),
        "is": attribute("int", 1, 2, 3, listed=True),
        "vs": attribute("version", "1.0.0", listed=True),
        "o.example.com/x": attribute("int", 1),
        **attributes,
    }
    capacity = {"mem": DeviceCapacity(80 * 2**30 * NANO, binary=True), "frac": DeviceCapacity(1_500_000_000)}
    return SliceDevice(name="d", attributes=named, capacity=capacity)


def variable(**attributes: AttributeValue) -> DeviceVariable:
    return device_variable(DRIVER, device(**attributes))


def answer(expression: str, on: DeviceVariable | None = None) -> bool | str:
    """True, false, or ``compile`` or ``run`` for an error of that kind."""
    selector = compile_selector(expression)
    if isinstance(selector, SelectorError):
        return str(selector.kind)
    value = selector.evaluate(variable() if on is None else on)
    return str(value.kind) if isinstance(value, SelectorError) else value
