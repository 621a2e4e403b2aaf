"""Judge what is said about evictions after a refusal, where a row of deviations decides."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from koordcore.protocol.preemption import is_protected
from koordcore.topology.numa import NUMATopologyPolicy
from tests.conformance.choice_judge import placed_on, policy_on
from tests.conformance.core import difference
from tests.conformance.cycles import Scene

__all__ = ["evictions_differ", "reserved_amounts_differ"]

_ERROR: Final = re.compile(r'preemption: (expected at least one victim pod on node "|no corresponding pod )')
_LOAD: Final = re.compile(r"node\(s\) (cpu|memory) usage exceed threshold")


def evictions_differ(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say why another thing is said about evictions and nothing else differs; empty if unclear."""
    said, told = str(mine.get("postFilter", "")), str(theirs.get("postFilter", ""))
    if said == told or difference({**theirs, "postFilter": ""}, {**mine, "postFilter": ""}):
        return ""
    number = scene.cycle.nodes
    nobody = f"preemption: 0/{number} nodes are available: {number} Preemption is not helpful for scheduling."
    if _ERROR.search(told) and not scene.cycle.admission.passed:
        lines = [one for one in said.split("preemption: ") if one]
        hopeless = {f"preemption: {line.removesuffix(', ')}" for line in lines}
        return "PRE-21: whoever leaves, the refusal stands" if hopeless == {nobody} else ""
    if _LOAD.search(told) and not _LOAD.search(said) and (node := _serves_when_left(scene)):
        return f"PRE-22: {node} serves once the load of less important pods leaves with them"
    return ""


def _serves_when_left(scene: Scene) -> str:
    """Name a node that takes the pod legally once all pods that may be evicted for it have gone."""
    for state in scene.snapshot.nodes:
        gone = [
            one.key
            for one in state.pods
            if one.priority < scene.pod.priority and not is_protected(one.labels)
        ]
        left = Scene(
            scene.snapshot.forget(*gone) if gone else scene.snapshot,
            scene.pod,
            scene.policy,
            scene.now,
            scene.objects,
        )
        if gone and placed_on(left, state.name) is not None:
            return state.name
    return ""


def reserved_amounts_differ(scene: Scene, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """Say that under BestEffort what a reservation lacks is told by its NUMA nodes; empty for anything else.

    Upstream's filter does not look at them there, so the Reservation plugin says that amounts do not suffice.
    """
    refused = [node for node, one in scene.cycle.filters.items() if one.plugin == "NodeNUMAResource"]
    if not refused or any(policy_on(scene, node) is not NUMATopologyPolicy.BEST_EFFORT for node in refused):
        return ""
    plain = json.loads(
        json.dumps(mine).replace("Reservation(s) Insufficient NUMA ", "Reservation(s) Insufficient ")
    )
    return (
        "" if difference(theirs, plain) else "5, 23: amounts are looked at on NUMA nodes under BestEffort too"
    )
