"""Which pods go with others, and who of them holds room on a node."""

from __future__ import annotations

import pytest
from immutabledict import immutabledict

from koordcore import ClusterSnapshot, Node, Pod
from koordcore.allocators.gang.group_table import group_table
from koordcore.allocators.gang.members import belongs, grouped_members
from koordcore.model.nodes import NodeState
from koordcore.model.pods import SchedulingGroup
from koordcore.model.scheduling_groups import SchedulingWorkload
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


def test_members_of_groups_that_hold_room_are_followed_from_snapshot_to_snapshot() -> None:
    """By node and key; pods of no group of Kubernetes are none, and who has ended is none any more."""
    pods = [Pod(name="alone"), Pod(name="in-gang", labels=GANG), Pod(name="in-group", scheduling_group=GROUP)]
    nodes = [NodeState(Node(name="n"), tuple(pod.at("n") for pod in pods)), NodeState(Node(name="m"))]
    late = [Pod(name="late", scheduling_group=GROUP), Pod(name="other")]
    snapshot = ClusterSnapshot(nodes=nodes, pending=late)
    assert [pod.name for pod in grouped_members(snapshot)] == ["in-group"]
    for pod in late:
        snapshot = snapshot.apply(PodBound(pod.at("m")))
    assert [pod.name for pod in grouped_members(snapshot)] == ["late", "in-group"]
    snapshot = snapshot.apply(PodEnded(pods[2].key))
    assert [pod.name for pod in grouped_members(snapshot)] == ["late"]


def test_the_groups_of_a_workload_have_pods_and_no_groups_below_them() -> None:
    """A workload of v1alpha1 has a group for every template and replica key that a pod names."""
    workload = SchedulingWorkload(name="w", pod_groups=immutabledict({"g": 2, "free": None}))
    named = Pod(name="p", scheduling_group=SchedulingGroup("g", workload="w", replica="x"))
    table = group_table(ClusterSnapshot(nodes=[], pending=[named], records=[workload]))
    groups = [f"workload:default/w{rest}" for rest in ("/g", "/free", "/g/x")]
    assert [table.leaves(group) for group in groups] == [(group,) for group in groups]
    assert [one.name for one in table.pending[groups[2]]] == ["p"]
