"""What a controller would send."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from koordcore.manifests.plan_patches import MERGE_PATCH, STRATEGIC_MERGE_PATCH, patches
from koordcore.model.decisions import (
    Bound,
    Nominated,
    PodDecision,
    Rejection,
    Unschedulable,
    Victim,
    Waiting,
)
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)


def result(*decisions: PodDecision) -> ScheduleResult:
    bound = Pod(name="a", uid="u1", node_name="n1")
    gated = Pod(name="g", gates=("wait",))
    snapshot = ClusterSnapshot(nodes=(NodeState(Node(name="n1"), (bound,)),), pending=(gated,))
    return ScheduleResult(decisions=decisions, snapshot=snapshot)


def sent(*decisions: PodDecision, now: datetime | None = None) -> list[dict[str, Any]]:
    return [call.to_json() for call in patches(result(*decisions), now=now)]


def test_a_bound_pod_is_written_on_and_then_bound() -> None:
    decision = Bound(
        pod=PodKey("default", "a"), node="n1", annotations={"z": "1", "b": "2"}, labels={"l": "3"}
    )
    assert sent(decision) == [
        {
            "verb": "patch",
            "path": "/api/v1/namespaces/default/pods/a",
            "contentType": MERGE_PATCH,
            "body": {"metadata": {"annotations": {"b": "2", "z": "1"}, "labels": {"l": "3"}}},
        },
        {
            "verb": "create",
            "path": "/api/v1/namespaces/default/pods/a/binding",
            "body": {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "a", "namespace": "default", "uid": "u1"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            },
        },
    ]


def test_a_pod_with_nothing_to_write_is_only_bound() -> None:
    assert [call["verb"] for call in sent(Bound(pod=PodKey("default", "a"), node="n1"))] == ["create"]


def test_an_unschedulable_pod_gets_the_text_of_its_event() -> None:
    decision = Unschedulable(
        pod=PodKey("default", "p"),
        nodes=3,
        rejections=(Rejection("NodeResourcesFit", "Insufficient cpu", 3),),
    )
    assert sent(decision, now=NOW) == [
        {
            "verb": "patch",
            "path": "/api/v1/namespaces/default/pods/p/status",
            "contentType": STRATEGIC_MERGE_PATCH,
            "body": {
                "status": {
                    "conditions": [
                        {
                            "type": "PodScheduled",
                            "status": "False",
                            "reason": "Unschedulable",
                            "message": "0/3 nodes are available: 3 Insufficient cpu.",
                            "lastTransitionTime": "2024-05-01T12:00:00Z",
                        }
                    ]
                }
            },
        }
    ]


def test_waiting_says_whether_a_gate_is_why() -> None:
    gated, member = sent(
        Waiting(pod=PodKey("default", "g"), reason="gates"),
        Waiting(pod=PodKey("default", "m"), reason="gang"),
    )
    assert gated["body"]["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert member["body"]["status"]["conditions"][0]["reason"] == "Unschedulable"


def test_victims_are_evicted_once_before_their_places_are_promised() -> None:
    victim = Victim(PodKey("default", "v"), "n1", 0, "default/v")
    calls = sent(
        Nominated(pod=PodKey("default", "p"), node="n1", victims=(victim,)),
        Nominated(pod=PodKey("default", "q"), node="n1", victims=(victim,)),
    )
    assert [(call["path"].rpartition("pods/")[2], call["verb"]) for call in calls] == [
        ("v/status", "patch"),
        ("v/eviction", "create"),
        ("p/status", "patch"),
        ("q/status", "patch"),
    ]
    assert calls[0]["body"] == {
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": "koordcore: preempting to accommodate default/p",
                }
            ]
        }
    }
    assert calls[1]["body"]["kind"] == "Eviction"
    assert calls[2]["body"] == {"status": {"nominatedNodeName": "n1"}}
