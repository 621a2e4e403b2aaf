"""Scheduling hints."""

from __future__ import annotations

from typing import Any

from koordcore.errors import ManifestError, ModelError
from koordcore.model.resources import fits, parse_resources, total
from koordcore.protocol.hints import parse_max_hint_nodes, parse_scheduling_hint
from tests.conformance.core import Case, subject
from tests.reference.formats import format_scheduling_hint
from tests.reference.scheduling_hints import apply_hint, preferred_nodes


@subject("hint.nodes")
def hint_nodes(case: Case) -> Any:
    given = case.input
    try:
        limit = parse_max_hint_nodes(given.get("args") or {})
    except ModelError as error:
        return {"argsError": str(error)}
    try:
        hint = parse_scheduling_hint(given["pod"]["metadata"].get("annotations") or {})
    except ManifestError:
        return {"hint": {"code": "Error"}}
    request = total(
        parse_resources(container.get("resources", {}).get("requests", {}))
        for container in given["pod"]["spec"]["containers"]
    )
    free = {
        node["metadata"]["name"]: parse_resources(node["status"]["allocatable"]) for node in given["nodes"]
    }
    other = given.get("otherPreFilterNodes")
    outcome = apply_hint(
        hint,
        {"OtherPlugin": other},
        known=free,
        fits=lambda name: fits(request, free[name]),
        limit=limit,
    )
    allowed = other
    if hint is not None and hint.node_names:
        allowed = [name for name in hint.node_names if other is None or name in other]
    prefer = preferred_nodes(hint, allowed, limit=limit)
    framework: dict[str, Any] = {"code": "UnschedulableAndUnresolvable", "message": outcome.message}
    if not outcome.message:
        candidates = "all" if outcome.nodes is None else list(outcome.nodes)
        framework = {"code": "Success", "candidates": candidates}
    shown: dict[str, Any] | None = None
    if hint is not None:
        shown = {"nodeNames": [], "preferredNodeNames": [], **format_scheduling_hint(hint)}
    return {
        "hint": shown,
        "preFilter": sorted(set(hint.node_names)) if hint is not None and hint.node_names else None,
        "prefer": list(prefer) or "Skip",
        "framework": framework,
    }
