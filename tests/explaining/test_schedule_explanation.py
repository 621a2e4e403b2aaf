"""ScheduleExplanation objects: placed, not placed, and placed once others left."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from koordcore import ClusterSnapshot, Node, NodeState, Pod
from koordcore.explaining.schedule_explanation import schedule_explanation
from koordcore.model.gangs import PodGroup

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROOM = {"cpu": 4_000, "memory": 8 << 30, "pods": 110}
GANG = {"pod-group.scheduling.sigs.k8s.io": "g"}


def cluster(*pending: Pod, running: tuple[Pod, ...] = ()) -> ClusterSnapshot:
    nodes = [
        NodeState(Node(name="a", allocatable=ROOM), running),
        NodeState(Node(name="b", allocatable=ROOM)),
    ]
    return ClusterSnapshot(
        nodes=nodes, pending=pending, records=[PodGroup(name="g", namespace="default", min_member=2)]
    )


def test_a_pod_that_fits() -> None:
    pod = Pod(name="p", uid="u", requests={"cpu": 1_000})
    assert schedule_explanation(cluster(), pod, now=NOW) == {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ScheduleExplanation",
        "metadata": {"name": "default-p", "namespace": "default"},
        "spec": {"questionObjectKey": "default/p", "ttl": "24h0m0s"},
        "status": {
            "schedulable": True,
            "lastUpdateTime": "2026-03-01T12:00:00Z",
            "detailedExplanation": [
                {
                    "schedulable": True,
                    "scheduleExplanation": {
                        "schedulable": True,
                        "feasibleSchedulingResult": [
                            {"namespace": "default", "name": "p", "uid": "u", "nodeName": "a"}
                        ],
                    },
                }
            ],
        },
    }


def test_a_pod_that_fits_nowhere() -> None:
    """The refusals by reason; nobody could leave, so nothing is said of preemption."""
    pod = Pod(name="p", requests={"cpu": 9_000})
    status = schedule_explanation(cluster(pod), pod, now=NOW)["status"]
    text = "0/2 nodes are available: 2 Insufficient cpu."
    assert status == {
        "failedMessage": text,
        "lastUpdateTime": "2026-03-01T12:00:00Z",
        "detailedExplanation": [
            {
                "failedMessage": text,
                "scheduleExplanation": {
                    "failedMessage": text,
                    "nodeFailedDetails": [
                        {
                            "failedPlugin": "NodeResourcesFit",
                            "reason": "Insufficient cpu",
                            "failedNodes": ["a", "b"],
                        }
                    ],
                },
            }
        ],
    }


def test_a_job_that_fits_once_others_left() -> None:
    """Two members need a node each; a less important pod sits on one of them."""
    members = [Pod(name=f"w{n}", labels=GANG, requests={"cpu": 3_000}, priority=9) for n in range(2)]
    small = Pod(name="low", uid="x", requests={"cpu": 2_000}, node_name="a", priority=1)
    snapshot = cluster(*members, running=(small,))
    answer = schedule_explanation(snapshot, members[1], now=NOW)
    assert answer["spec"]["questionObjectKey"] == "default/g"
    status = answer["status"]
    assert "schedulable" not in status
    assert status["schedulableAfterPreemption"] is True
    (detail,) = status["detailedExplanation"]
    victim = {"namespace": "default", "name": "low", "uid": "x"}
    assert detail["nodePossibleVictims"] == [{"nodeName": "a", "possibleVictims": [victim]}]
    after = detail["preemptExplanation"]
    assert after["schedulable"] is True
    assert {one["nodeName"] for one in after["feasibleSchedulingResult"]} == {"a", "b"}
    assert json.loads(json.dumps(answer)) == answer
