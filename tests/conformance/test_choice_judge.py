"""What decides between legal choices of a whole cycle is worked out anew, and decides one way only."""

from __future__ import annotations

import json
from typing import Any

from koordcore.explaining.cycle import FilterVerdict
from koordcore.model.decisions import Bound
from tests.conformance.choice_judge import better_cards, better_numa_nodes, no_devices, not_asked_for
from tests.conformance.cycles import DEVICES, STATUS, Scene
from tests.conformance.eviction_words import evictions_differ
from tests.conformance.test_cycle_judge import running, scene
from tests.scheduling.test_numa import node, pod

SCOPED = FilterVerdict("DeviceShare", ("Insufficient Topology Scoped GPU Devices",))


def share(minor: int, ratio: int) -> dict[str, Any]:
    memory = f"{80 * ratio // 100}Gi"
    amounts = {"koordinator.sh/gpu-core": str(ratio), "koordinator.sh/gpu-memory-ratio": str(ratio)}
    return {
        "minor": minor,
        "id": f"GPU-{minor}",
        "resources": {**amounts, "koordinator.sh/gpu-memory": memory},
    }


def sharing(name: str, ratio: int) -> dict[str, Any]:
    made = pod(name, 1, gpus=1, bound=False)
    for amounts in made["spec"]["containers"][0]["resources"].values():
        amounts |= {key: str(ratio) for key in amounts if "gpu" in key}
    return made


def test_of_shared_cards_the_one_with_more_left_is_better() -> None:
    """By the documented score, under LeastAllocated; the fuller one is never excused."""
    holder = running(sharing("w", 60), "n1")
    holder["metadata"]["annotations"] = {DEVICES: json.dumps({"gpu": [share(0, 60)]})}
    there = scene(*node("n1", cards=(0, 0)), holder, sharing("p", 20))
    case = there.devices_case("n1", {})
    emptier, fuller = {"gpu": [share(1, 20)]}, {"gpu": [share(0, 20)]}
    assert better_cards(there, case, emptier, fuller).startswith("DEV-9: the card scores 80")
    assert better_cards(there, case, fuller, emptier) == ""


def test_devices_are_missing_only_where_no_set_of_them_serves() -> None:
    def asks(gpus: int) -> Scene:
        made = pod("p", 1, gpus=gpus, bound=False)
        hint = {"gpu": {"requiredTopologyScope": "NUMANode"}}
        made["metadata"]["annotations"] = {"scheduling.koordinator.sh/device-allocate-hint": json.dumps(hint)}
        return scene(*node("n1", cards=(0, 0, 1, 1)), made)

    assert no_devices(asks(4), "n1", SCOPED)
    assert no_devices(asks(2), "n1", SCOPED) == ""
    amounts = FilterVerdict("NodeResourcesFit", ("Insufficient koordinator.sh/gpu-core",))
    assert no_devices(asks(4), "n1", amounts) == ""


def test_fewer_numa_nodes_are_better_then_those_with_more_left() -> None:
    busy = running(pod("w", 3, bound=False), "n1")
    held = {"numaNodeResources": [{"node": 0, "resources": {"cpu": "3", "memory": "1Gi"}}]}
    busy["metadata"]["annotations"] = {STATUS: json.dumps(held)}
    there = scene(*node("n1", policy="BestEffort"), busy, pod("p", 1, bound=False))

    def on(*numa_nodes: int) -> Bound:
        entries = [{"node": one, "resources": {"cpu": "1"}} for one in numa_nodes]
        status = json.dumps({"numaNodeResources": entries})
        return Bound(pod=there.pod.key, node="n1", annotations={STATUS: status})

    assert better_numa_nodes(there, on(1), on(0, 1)).startswith("5: ")
    assert better_numa_nodes(there, on(1), on(0)).startswith("RSV-16: ")
    assert better_numa_nodes(there, on(0), on(1)) == ""
    assert better_numa_nodes(there, on(0, 1), on(1)) == ""


def test_what_a_pod_does_not_ask_for_refuses_nobody() -> None:
    there = scene(*node("n1"), pod("p", 1, bound=False))
    refusal = {"code": "Unschedulable", "plugin": "Reservation"}
    batch = {**refusal, "reasons": ["Insufficient kubernetes.io/batch-cpu by node"]}
    assert not_asked_for(there, batch)
    assert not_asked_for(there, {**refusal, "reasons": ["Insufficient cpu by node"]}) == ""
    assert not_asked_for(there, {**batch, "plugin": "NodeResourcesFit"}) == ""


def test_only_the_error_of_a_refusal_before_nodes_may_become_another_text() -> None:
    """A pod that nodes refuse keeps what is said about evictions."""
    there = scene(*node("n1"), pod("p", 9, bound=False))
    theirs = {
        "node": None,
        "message": "m",
        "postFilter": 'preemption: expected at least one victim pod on node "n1"',
    }
    nobody = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    assert evictions_differ(there, {**theirs, "postFilter": nobody}, theirs) == ""
    assert evictions_differ(there, theirs, theirs) == ""
