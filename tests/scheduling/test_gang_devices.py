"""Gangs whose members would take each other's cards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore import ClusterSnapshot, Node, Pod, check_certificate, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.pods import SchedulingGroup
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.result import ScheduleResult

PREFIX = "scheduling.koordinator.sh/"
GANG = "gang.scheduling.koordinator.sh/"
CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory": "16Gi",
    "koordinator.sh/gpu-memory-ratio": "100",
}
TABLE = {
    "2": [
        {"minors": [0, 1], "allocationScore": 1},
        {"minors": [1, 2], "allocationScore": 5},
        {"minors": [2, 3], "allocationScore": 1},
    ]
}


def node(name: str) -> list[dict[str, Any]]:
    """Four cards in a line: the middle two are the best pair, and whoever takes them leaves no other pair."""
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"GPU-{minor}",
            "health": True,
            "resources": CARD,
            "topology": {"nodeID": 0, "pcieID": str(minor)},
        }
        for minor in range(4)
    ]
    amounts = {"cpu": "64", "memory": "1Ti", "pods": "99", "koordinator.sh/gpu": "400"}
    amounts |= {
        "koordinator.sh/gpu-core": "400",
        "koordinator.sh/gpu-memory-ratio": "400",
        "koordinator.sh/gpu-memory": "64Gi",
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"node.koordinator.sh/gpu-partition-policy": "Honor"}},
            "status": {"allocatable": amounts},
        },
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {
                "name": name,
                "annotations": {f"{PREFIX}gpu-partitions": json.dumps(TABLE)},
                "labels": {"node.koordinator.sh/gpu-partition-policy": "Honor"},
            },
            "spec": {"devices": devices},
        },
    ]


def placed(nodes: int, pods: int, gang: str = "koordinator", least: int = 0) -> ScheduleResult:
    """Pods of two cards each; as a gang of Koordinator's, as a group of Kubernetes' own, or neither."""
    objects = [part for number in range(nodes) for part in node(f"n{number}")]
    notes = {f"{GANG}name": "g", f"{GANG}min-available": str(pods)} if gang == "koordinator" else {}
    if gang == "kubernetes":
        policy = {"gang": {"minCount": least or pods}}
        objects.append(
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": "g"},
                "spec": {"schedulingPolicy": policy},
            }
        )
    for number in range(pods):
        spec: dict[str, Any] = {
            "containers": [{"name": "c", "resources": {"requests": {"koordinator.sh/gpu": "200"}}}]
        }
        if gang == "kubernetes":
            spec["schedulingGroup"] = {"podGroupName": "g"}
        meta = {"name": f"p{number}", "annotations": notes}
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


@pytest.mark.parametrize("gang", ["koordinator", "kubernetes"])
@pytest.mark.parametrize("nodes", [1, 3])
def test_members_leave_each_other_the_cards_that_they_need(nodes: int, gang: str) -> None:
    """One by one each node serves one pod; together two, on the outer pairs."""
    assert len(placed(nodes, 2 * nodes, gang="").bound) == nodes
    result = placed(nodes, 2 * nodes, gang)
    assert len(result.bound) == 2 * nodes


@pytest.mark.parametrize("gang", ["koordinator", "kubernetes"])
def test_that_all_members_of_a_plain_gang_start_is_proven(gang: str) -> None:
    """Each finds its place in its turn, and there is nobody else of whom more could start."""
    (plan,) = placed(2, 2, gang).jobs
    assert plan.certificate is not None
    assert plan.certificate.objective == (-2,)
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted


def test_of_a_group_that_leaves_plain_pods_out_nothing_is_claimed() -> None:
    """Members that take amounts only are not planned; what is left over is no proof."""
    group = SchedulingPodGroup(name="g", min_count=1)
    pods = [
        Pod(name=f"p{number}", requests={"cpu": 1000}, scheduling_group=SchedulingGroup("g"))
        for number in range(3)
    ]
    nodes = [Node(name="n", allocatable={"cpu": 2000, "pods": 9})]
    (plan,) = schedule(ClusterSnapshot(nodes=nodes, pending=pods, records=[group])).jobs
    assert (plan.placed, plan.certificate) == (2, None)


def test_a_group_takes_all_members_that_fit_together() -> None:
    """Two nodes serve its minimum however the cards are chosen, and all four members in one way."""
    assert len(placed(2, 4, "kubernetes", least=2).bound) == 4
    assert len(placed(2, 5, "kubernetes", least=2).bound) == 4


@pytest.mark.parametrize("gang", ["koordinator", "kubernetes"])
def test_that_no_choice_of_cards_serves_all_is_proven(gang: str) -> None:
    """Five pods need ten cards, and there are eight."""
    result = placed(2, 5, gang)
    assert not result.bound
    certificate = result.jobs[0].certificate
    assert certificate is not None
    assert certificate.proven
    assert result.jobs[0].detail == "the cluster has 4 of 5 slots; 1 more would do"
