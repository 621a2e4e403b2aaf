"""A volume that a pod will bring which only waits for its room is not there yet."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Node, Nominated, Pod, PreemptionRules, Unschedulable, schedule, verify
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import NodeState
from koordcore.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from koordcore.protocol.gang_names import LABEL_POD_GROUP
from koordcore.result import ScheduleResult


def decided(*, gang: bool) -> ScheduleResult:
    """Room is made for a pod with a claim to come; a less important one shares that with it."""
    labels = {LABEL_POD_GROUP: "g"} if gang else {}
    running = Pod(name="r", requests={"cpu": 1000}, claims=("old",), node_name="n")
    first = Pod(name="first", requests={"cpu": 1000}, priority=9, claims=("new",))
    second = Pod(name="second", requests={"cpu": 1000}, priority=5, claims=("new", "old"), labels=labels)
    cluster = ClusterSnapshot(
        nodes=[NodeState(Node(name="n", allocatable={"cpu": 4000, "pods": 9}), (running,))],
        pending=[first, second],
        records=[
            StorageClass(name="fast", provisioner="x", immediate=False),
            PersistentVolumeClaim(name="new", storage_class="fast"),
            PersistentVolumeClaim(name="old", storage_class="fast", volume="v"),
            PersistentVolume(name="v", driver="x", handle="h"),
            CSINode(name="n", limits={"x": 1}),
            PodGroup(namespace="default", name="g", min_member=1),
        ],
    )
    result = schedule(cluster, preempt=PreemptionRules())
    assert verify(cluster, result) == ()
    return result


@pytest.mark.parametrize("gang", [False, True])
def test_a_claim_shared_with_a_nominated_pod_takes_what_the_node_attaches(gang: bool) -> None:
    first, second = decided(gang=gang).decisions
    assert isinstance(first, Nominated)
    assert isinstance(second, Unschedulable)
    assert "node(s) exceed max volume count" in second.message + second.refusal
