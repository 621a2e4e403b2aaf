"""The judge of whole cycles excuses what is better or ruled, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from koordcore.explaining.cycle import explain_cycle
from koordcore.manifests import snapshot_from_objects
from koordcore.model.pods import PodKey
from tests.conformance.adapters.cycle import report, shipped_policy
from tests.conformance.core import Verdict
from tests.conformance.cycle_judge import judge_cycle, judge_step
from tests.conformance.cycles import DEVICES, STATUS, USED, Scene
from tests.scheduling.test_numa import GPU, node, pod

POLICY = shipped_policy(None)
NOW = datetime(2026, 11, 1, tzinfo=UTC)
OWNED = {"app": "a"}


def scene(*objects: dict[str, Any], name: str = "p") -> Scene:
    """Show a cluster in which a pod waits."""
    snapshot = snapshot_from_objects(objects).snapshot
    waiting = snapshot.pod(PodKey("default", name))
    assert waiting is not None
    return Scene(snapshot, waiting, POLICY, NOW, objects)


def running(made: dict[str, Any], on: str, **annotations: Any) -> dict[str, Any]:
    """Let a pod run."""
    made["spec"]["nodeName"] = on
    made["metadata"]["annotations"] = {
        key.replace("_", "-"): json.dumps(value) for key, value in annotations.items()
    }
    return made


def cards(*minors: int) -> dict[str, Any]:
    """Write whole cards as they stand on a pod."""
    amounts = {**GPU, "koordinator.sh/gpu-memory": "80Gi"}
    parts = [{"minor": minor, "resources": amounts, "id": f"GPU-{minor}"} for minor in minors]
    return {"annotations": {DEVICES: {"gpu": parts}}}


def reservation(cpu: int, **more: Any) -> dict[str, Any]:
    """A Restricted reservation on ``n1`` that may be used again and again."""
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u-r", "annotations": more},
        "spec": {
            "template": template,
            "owners": [{"labelSelector": {"matchLabels": OWNED}}],
            "ttl": "24h",
            "allocateOnce": False,
            "allocatePolicy": "Restricted" if more else "Aligned",
        },
        "status": {"phase": "Available", "nodeName": "n1", "allocatable": amounts},
    }


def test_only_better_cards_are_better() -> None:
    """Two cards of one NUMA node before two of different ones; the same over there is no better."""
    there = scene(*node("n1", cards=(0, 0, 1, 1)), pod("p", 1, gpus=2, bound=False))
    mine = {"node": "n1", "onlyOne": True, **cards(0, 1)}
    better = judge_step(there, mine, {"node": "n1", "onlyOne": True, **cards(0, 2)})
    assert better is not None
    assert better[0] is Verdict.BETTER
    assert judge_step(there, mine, {"node": "n1", "onlyOne": True, **cards(2, 3)}) is None
    assert judge_step(there, {"node": "n1", "onlyOne": True, **cards(0, 2)}, mine) is None


def test_what_another_pod_holds_is_wrong() -> None:
    taken = cards(0)["annotations"][DEVICES]
    holder = pod("w", 1, gpus=1, bound=False)
    holder["spec"]["nodeName"] = "n1"
    holder["metadata"]["annotations"] = {DEVICES: json.dumps(taken)}
    there = scene(*node("n1", cards=(0, 0)), holder, pod("p", 1, gpus=1, bound=False))
    found = judge_step(there, {"node": "n1", **cards(0)}, {"node": "n1", **cards(1)})
    assert found is not None
    assert found[0] is Verdict.WRONG
    found = judge_step(there, {"node": "n1", **cards(1)}, {"node": "n1", **cards(0)})
    assert found is not None
    assert found[0] is Verdict.RULED


def test_another_node_needs_a_reason() -> None:
    there = scene(*node("n1"), *node("n2"), pod("p", 1, bound=False))
    assert judge_step(there, {"node": "n1"}, {"node": "n2"}) is None
    assert judge_step(there, {"node": "n1"}, {"node": None}) is None
    assert judge_step(there, {"node": None}, {"node": "n1"}) is None


def test_a_node_that_serves_everything_together_is_a_reason() -> None:
    """Three CPUs on each of two NUMA nodes serve four, although the cards are all on one of them."""
    alone = running(pod("w", 1, bound=False), "n1")
    alone["metadata"]["annotations"] = {
        STATUS: json.dumps({"numaNodeResources": [{"node": 0, "resources": {"cpu": "1", "memory": "1Gi"}}]})
    }
    there = scene(*node("n1", policy="Restricted", cards=(0, 0)), alone, pod("p", 5, gpus=1, bound=False))
    mine = report(there.cycle)
    assert mine["node"] == "n1"
    refusal = {"code": "Unschedulable", "plugin": "NodeNUMAResource", "reasons": ["Unaligned NUMA Hint"]}
    theirs = {**mine, "filter": {"n1": refusal}, "node": None, "best": []}
    found = judge_cycle(there, mine, theirs)
    assert found is not None
    assert found[0] is Verdict.RULED
    plain = scene(*node("n1", cards=(0, 0)), pod("p", 5, gpus=1, bound=False))
    assert judge_cycle(plain, report(plain.cycle), {**report(plain.cycle), "filter": {"n1": refusal}}) is None


def test_room_that_users_overdraw_is_no_room() -> None:
    owner = running(pod("w", 6, bound=False), "n1")
    owner["metadata"]["annotations"] = {USED: json.dumps({"name": "r", "uid": "u-r"})}
    there = scene(*node("n1"), reservation(4), owner, pod("p", 3, bound=False))
    assert explain_cycle(there.snapshot, there.pod, policy=POLICY).decision is None
    found = judge_step(there, {"node": None}, {"node": "n1", "onlyOne": True})
    assert found is not None
    assert found[0] is Verdict.RULED
    room = scene(*node("n1"), reservation(4), pod("p", 3, bound=False))
    assert judge_step(room, {"node": None}, {"node": "n1", "onlyOne": True}) is None


def test_a_restricted_reservation_gives_what_it_holds() -> None:
    held = {"numaNodeResources": [{"node": 0, "resources": {"cpu": "2", "memory": "1Gi"}}]}
    elsewhere = {"numaNodeResources": [{"node": 1, "resources": {"cpu": "2", "memory": "1Gi"}}]}
    mine = pod("p", 2, bound=False)
    mine["metadata"]["labels"] = OWNED
    there = scene(*node("n1", policy="Restricted"), reservation(2, **{STATUS: json.dumps(held)}), mine)
    used = {USED: {"name": "r", "uid": "u-r"}}
    inside = {"node": "n1", "annotations": {**used, STATUS: held}}
    outside = {"node": "n1", "annotations": {**used, STATUS: elsewhere}}
    found = judge_step(there, inside, outside)
    assert found is not None
    assert found[0] is Verdict.RULED
    found = judge_step(there, outside, inside)
    assert found is not None
    assert found[0] is Verdict.WRONG
