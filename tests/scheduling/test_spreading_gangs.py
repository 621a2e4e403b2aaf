"""Gangs whose members spread: whose turn comes first is found out, with evictions and without."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, Nominated, Pod, PreemptionRules, schedule, verify
from koordcore.model.affinity import TopologySpreadConstraint, UnsatisfiableAction
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import NodeState
from koordcore.model.selectors import LabelSelector
from koordcore.snapshot import PodEnded

GROUP = "pod-group.scheduling.sigs.k8s.io"
RUNNING = tuple[str, int, int, str]
"""Name, cores, priority and application of a pod that runs."""


def node(name: str, zone: str, cores: int, *pods: RUNNING) -> NodeState:
    """A node of a zone with pods."""
    room = {"cpu": 1000 * cores, "memory": 8 << 30, "pods": 20}
    running = (
        Pod(name=one, requests={"cpu": 1000 * cpu}, priority=priority, labels={"app": app}, node_name=name)
        for one, cpu, priority, app in pods
    )
    return NodeState(Node(name=name, labels={"zone": zone}, allocatable=room), tuple(running))


def cluster(nodes: Sequence[NodeState], cores: Sequence[int], skew: int = 1) -> ClusterSnapshot:
    """Nodes, and a gang that spreads over their zones, all of whom have to start together."""
    spread = TopologySpreadConstraint(
        max_skew=skew,
        topology_key="zone",
        when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
        selector=LabelSelector({"app": "g"}),
    )
    members = [
        Pod(
            name=f"g{number:02}",
            labels={"app": "g", GROUP: "gang"},
            requests={"cpu": 1000 * cpu},
            priority=1000,
            spread_constraints=(spread,),
        )
        for number, cpu in enumerate(cores)
    ]
    return ClusterSnapshot(
        nodes=nodes, pending=members, records=[PodGroup(name="gang", min_member=len(cores))]
    )


def test_a_member_has_its_turn_once_others_have_made_way_for_it() -> None:
    """The second fits only beside the third: until then its zone is ahead of the other."""
    nodes = [
        node("a", "z0", 8, ("one", 1, 10, "g"), ("two", 1, 10, "g")),
        node("b", "z1", 3),
    ]
    snapshot = cluster(nodes, (1, 3, 2), skew=1)
    result = schedule(snapshot)
    assert {one.pod.name: one.node for one in result.decisions if isinstance(one, Bound)} == {
        "g00": "b",
        "g01": "a",
        "g02": "b",
    }
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize(("nodes", "members", "zones"), [(6, 5, 2), (100, 16, 3)])
def test_evictions_make_room_for_a_gang_that_spreads_and_then_it_starts(
    nodes: int, members: int, zones: int
) -> None:
    """No node has room, and each zone takes as many as the others or one more."""
    full = [
        node(f"n{row:02}", f"z{row % zones}", 4, (f"p{row}", 2, 10, "x"), (f"q{row}", 2, 10, "x"))
        for row in range(nodes)
    ]
    snapshot = cluster(full, [2] * members)
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert all(isinstance(one, Nominated) for one in result.decisions)
    (plan,) = result.preemptions
    assert len(plan.victims) == members
    gone = result.snapshot.apply(*(PodEnded(victim.pod) for victim in plan.victims))
    assert len(schedule(gone).bound) == members


def test_members_for_whom_room_was_made_are_bound_in_whatever_order_they_fit() -> None:
    """By their names the second would come before its zone may take one more."""
    nodes = [
        node("a", "z0", 8, ("one", 1, 10, "g"), ("two", 1, 10, "g")),
        node("b", "z1", 3),
    ]
    snapshot = cluster(nodes, (1, 3, 2), skew=1)
    places = {"g00": "b", "g01": "a", "g02": "b"}
    waiting = [attrs.evolve(pod, nominated_node=places[pod.name]) for pod in snapshot.pending]
    result = schedule(attrs.evolve(snapshot, pending=waiting))
    assert {one.pod.name: one.node for one in result.decisions if isinstance(one, Bound)} == places


def test_nothing_is_proven_of_evictions_where_one_elsewhere_might_do() -> None:
    """Without ``far`` and ``off`` nobody of priority 50 had to go; they leave no room that is lacking."""
    nodes = [
        node("a", "z0", 3, ("here", 2, 50, "x"), ("low", 1, 10, "x")),
        node("b", "z1", 3),
        node("c", "z1", 3, ("far", 2, 10, "g"), ("off", 1, 5, "g")),
    ]
    snapshot = cluster(nodes, (1, 1, 1))
    result = schedule(snapshot, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert plan.damage.highest == 50
    assert not plan.certificate.proven
    assert verify(snapshot, result) == ()
