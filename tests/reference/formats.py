"""Annotations as they would be written that the library only reads."""

from __future__ import annotations

from koordcore.model.gangs import (
    NetworkTopologySpec,
)
from koordcore.protocol.fields import Json
from koordcore.protocol.hints import (
    SchedulingHint,
)


def format_scheduling_hint(hint: SchedulingHint) -> dict[str, Json]:
    """Write a hint in the shape of its JSON; what is empty is left out."""
    written: dict[str, Json] = {}
    if hint.node_names:
        written["nodeNames"] = list(hint.node_names)
    if hint.preferred_node_names:
        written["preferredNodeNames"] = list(hint.preferred_node_names)
    if hint.extensions:
        written["extensions"] = dict(hint.extensions)
    return written


def format_topology_spec(spec: NetworkTopologySpec) -> dict[str, Json]:
    """Write a spec in the shape of its JSON; what is empty is left out."""
    rules = []
    for rule in spec.gather_strategy:
        entry: dict[str, Json] = {"layer": rule.layer, "strategy": str(rule.strategy)}
        if rule.pod_count_multiple:
            entry["podCountMultiple"] = rule.pod_count_multiple
        rules.append(entry)
    return {"gatherStrategy": rules} if rules else {}
