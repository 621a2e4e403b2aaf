"""Whom a reservation is for, as JSON says it: in ``spec.owners``, and in an annotation of operating pods."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from koordcore.model.reservations import ControllerReference, ObjectReference, ReservationOwner
from koordcore.protocol.fields import Json, as_bool, as_mapping, as_str, optional
from koordcore.protocol.selectors import as_label_selector

_SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


def as_object_reference(value: Json) -> ObjectReference:
    """Read a reference to a pod."""
    raw = as_mapping(value)
    return ObjectReference(
        namespace=optional(raw, "namespace", as_str, ""),
        name=optional(raw, "name", as_str, ""),
        uid=optional(raw, "uid", as_str, ""),
        api_version=optional(raw, "apiVersion", as_str, ""),
        kind=optional(raw, "kind", as_str, ""),
    )


def _controller(value: Json) -> ControllerReference:
    raw = as_mapping(value)
    return ControllerReference(
        namespace=optional(raw, "namespace", as_str, ""),
        kind=optional(raw, "kind", as_str, ""),
        name=optional(raw, "name", as_str, ""),
        uid=optional(raw, "uid", as_str, ""),
        api_version=optional(raw, "apiVersion", as_str, ""),
        controller=optional(raw, "controller", as_bool, None),
    )


def as_owner(value: Json) -> ReservationOwner:
    """Read one term of the owners."""
    raw = as_mapping(value)
    return ReservationOwner(
        object=optional(raw, "object", as_object_reference, None),
        controller=optional(raw, "controller", _controller, None),
        selector=optional(raw, "labelSelector", as_label_selector, None),
    )


def owners_error(listed: Iterable[Json]) -> str:
    """Word what is wrong with the first label selector that is none, which spoils them all; else empty."""
    for index, value in enumerate(listed):
        selector = value.get("labelSelector") if isinstance(value, Mapping) else None
        wrong = _selector_error(selector) if isinstance(selector, Mapping) else ""
        if wrong:
            shown = json.dumps(selector, separators=(",", ":"), ensure_ascii=False)
            return f"owners[{index}]: Invalid value: {shown}: {wrong}"
    return ""


def _selector_error(selector: Mapping[str, Json]) -> str:
    """Word what is wrong with a label selector as its conversion upstream does; empty for nothing."""
    expressions = selector.get("matchExpressions")
    for one in expressions if isinstance(expressions, list) else ():
        if not isinstance(one, Mapping):
            return ""
        operator, values = one.get("operator", ""), one.get("values") or []
        if not isinstance(values, list):
            return ""  # said where it is read
        if operator not in _SELECTOR_OPERATORS:
            return f"{json.dumps(operator)} is not a valid label selector operator"
        shown = "[" + ",".join(json.dumps(text) for text in values) + "]"
        if operator in ("In", "NotIn") and not values:
            return f"values: Invalid value: {shown}: for 'in', 'notin' operators, values set can't be empty"
        if operator in ("Exists", "DoesNotExist") and values:
            return f"values: Invalid value: {shown}: values set must be empty for exists and does not exist"
    return ""
