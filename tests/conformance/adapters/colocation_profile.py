"""Subject ``profile.colocation``: profiles applied to pods at their creation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from koordcore.colocation.profile import Operation, PriorityClassSpec, mutate_pod
from koordcore.errors import ManifestError
from koordcore.model.quantity import parse_exact_quantity
from koordcore.protocol.profile import ANNOTATION_EXTENDED_RESOURCE_SPEC, parse_profile
from tests.conformance.core import Case, Verdict, difference, subject

AMOUNTS = ("requests", "limits", "overhead")


def by_value(value: Any) -> Any:
    """Leave empty objects out and read quantities, also those inside the record of batch resources."""
    if isinstance(value, list):
        return [by_value(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    shown: dict[str, Any] = {}
    for key, one in value.items():
        if key in AMOUNTS and isinstance(one, Mapping):
            shown[key] = {name: parse_exact_quantity(text) for name, text in one.items()}
        elif key == ANNOTATION_EXTENDED_RESOURCE_SPEC and isinstance(one, str):
            shown[key] = by_value(json.loads(one)) or "nothing"
        else:
            shown[key] = by_value(one)
    return {key: one for key, one in shown.items() if one != {} and one is not None}


def values_judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    reports = []
    for expected in case.expectations:
        if "error" in expected or "error" in answer:
            reports.append("" if "error" in expected and answer == {"error": True} else f"error: {answer}")
        else:
            reports.append(difference(by_value(expected), by_value(answer)))
    if "" in reports:
        return Verdict.EQUAL, ""
    return (Verdict.WRONG, min(reports, key=len)) if reports else (Verdict.RULED, "")


@subject("profile.colocation", judge=values_judge)
def profile(case: Case) -> Any:
    given = case.input
    try:
        mutation = mutate_pod(
            given["pod"],
            [parse_profile(raw) for raw in given.get("profiles") or []],
            namespaces={
                raw["metadata"]["name"]: raw["metadata"].get("labels") or {}
                for raw in given.get("namespaces") or []
            },
            priority_classes={
                raw["metadata"]["name"]: PriorityClassSpec(
                    raw.get("value", 0), raw.get("preemptionPolicy") or ""
                )
                for raw in given.get("priorityClasses") or []
            },
            draws=given.get("draws") or (),
            operation=Operation(given.get("operation") or "CREATE"),
            skip_resources=bool(given.get("skipGate")),
        )
    except ManifestError:
        return {"error": True}
    answer: dict[str, Any] = {"mutated": mutation.changed or bool(mutation.applied)}
    if mutation.changed:
        answer["pod"] = mutation.pod
    return answer | ({"drawsUsed": mutation.draws_used} if mutation.draws_used else {})
