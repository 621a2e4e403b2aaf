"""Adapter of ``dra.cel``: one expression on one device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.allocators.claims.cel import (
    SelectorError,
    SelectorErrorKind,
    SelectorFeatures,
    compile_derived,
    compile_selector,
    device_variable,
)
from koordcore.manifests._reading import Reading
from koordcore.manifests.resource_slices import read_resource_slice
from koordcore.model.device_slices import (
    AttributeValue,
    SliceDevice,
)
from tests.conformance import Case, Verdict, subject


def device_of(raw: Mapping[str, Any]) -> SliceDevice:
    """The device, read as part of a slice."""
    spec = {"driver": "d", "pool": {"name": "p"}, "devices": [raw]}
    reading = Reading()
    record = read_resource_slice(reading, {"metadata": {"name": "s"}, "spec": spec})
    reading.finish()
    return record.devices[0]


def attribute_json(value: AttributeValue) -> dict[str, Any]:
    """A derived attribute as the vectors write it."""
    return {f"{value.kind}s": list(value.values)} if value.listed else {str(value.kind): value.values[0]}


def judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Values are equal, errors of the same kind: texts are for people."""
    expected = {key: value for key, value in case.raw["expect"].items() if key not in {"text", "cost"}}
    equal = expected == {key: value for key, value in answer.items() if key != "text"}
    if equal and "no such key: " in case.raw["expect"].get("text", ""):
        equal = case.raw["expect"]["text"].split(".")[0] in answer.get("text", "")
    return (Verdict.EQUAL, "") if equal else (Verdict.WRONG, f"expected {expected}, got {answer}")


@subject("dra.cel", judge=judge)
def cel(case: Case) -> Any:
    given = case.input
    features = SelectorFeatures(given["listAttributes"], given["consumableCapacity"])
    expression = (compile_derived if given.get("derived") else compile_selector)(
        given["expression"], features
    )
    if isinstance(expression, SelectorError):
        return {"compileError": True}
    value = expression.evaluate(device_variable(given["driver"], device_of(given["device"])))
    match value:
        case bool():
            return {"match": value}
        case AttributeValue():
            return {"attribute": attribute_json(value)}
        case SelectorError():
            assert value.kind is SelectorErrorKind.RUN
            named = "no such key: " in value.message  # other texts are for people
            return {"runtimeError": True} | ({"text": value.message} if named else {})
