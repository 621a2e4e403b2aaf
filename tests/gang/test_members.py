"""Which pods go with others, and who of them holds room on a node."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Node, Pod
from koordcore.allocators.gang.members import belongs, running_members
from koordcore.model.nodes import NodeState
from koordcore.model.pods import SchedulingGroup
from koordcore.snapshot import PodBound, PodEnded

GANG = {"pod-group.scheduling.sigs.k8s.io": "g"}
GROUP = SchedulingGroup("g")


@pytest.mark.parametrize(
    ("labels", "group", "together"),
    [({}, None, False), (GANG, None, True), ({}, GROUP, True), (GANG, GROUP, True)],
)
def test_a_label_or_a_group_of_kubernetes_puts_a_pod_together_with_others(
    labels: dict[str, str], group: SchedulingGroup | None, together: bool
) -> None:
    assert belongs(Pod(name="p", labels=labels, scheduling_group=group)) is together


def test_members_that_hold_room_are_followed_from_snapshot_to_snapshot() -> None:
    """Pods of neither kind of group are none, and who has ended is none any more."""
    pods = [Pod(name="alone"), Pod(name="in-gang", labels=GANG), Pod(name="in-group", scheduling_group=GROUP)]
    nodes = [NodeState(Node(name="n"), tuple(pod.at("n") for pod in pods)), NodeState(Node(name="m"))]
    late = [Pod(name="late", scheduling_group=GROUP), Pod(name="other")]
    snapshot = ClusterSnapshot(nodes=nodes, pending=late)
    assert [pod.name for pod in running_members(snapshot)] == ["in-gang", "in-group"]
    for pod in late:
        snapshot = snapshot.apply(PodBound(pod.at("m")))
    assert sorted(pod.name for pod in running_members(snapshot)) == ["in-gang", "in-group", "late"]
    snapshot = snapshot.apply(PodEnded(pods[2].key))
    assert sorted(pod.name for pod in running_members(snapshot)) == ["in-gang", "late"]
