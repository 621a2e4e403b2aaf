"""What a later call goes on with: the cluster as it is by then, and nothing that was meant for one call."""

from __future__ import annotations

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.snapshot.changes import RecordRemoved
from tests.reservations.test_joint import JOINT, once
from tests.reservations.worlds import must, node as roomy, pod as asking
from tests.scheduling.test_gangs import MUST, NETWORK, cluster, members, node

ROOM = {"cpu": 4000, "pods": 10}
STRANGE = "example.com/strange"


def test_a_network_that_is_declared_between_two_calls_is_known_and_is_forgotten_with_its_object() -> None:
    snapshot = cluster([node("a1", 1000, "a"), node("a2", 1000, "a")], members("g", 2, 1000, 2, spec=MUST))
    assert not schedule(snapshot).bound
    declared = snapshot.with_records(NETWORK)
    assert len(schedule(declared).bound) == 2
    assert not schedule(declared.apply(RecordRemoved(NETWORK))).bound


def test_a_resource_that_a_node_gains_between_two_calls_is_found_by_the_second() -> None:
    first = schedule(
        ClusterSnapshot(nodes=[Node(name=name, allocatable=ROOM) for name in "ab"]), [Pod(name="p")]
    )
    gained = first.snapshot.with_nodes(Node(name="b", allocatable={**ROOM, STRANGE: 1}))
    result = schedule(gained, [Pod(name="q", requests={STRANGE: 1})])
    assert verify(gained, result) == ()
    assert [one.node for one in result.bound] == ["b"]


def test_a_pod_that_comes_with_a_resource_of_no_node_takes_its_room() -> None:
    """It was bound by somebody else, whatever it asked for."""
    first = schedule(ClusterSnapshot(nodes=[Node(name="n", allocatable=ROOM)]), [Pod(name="p")])
    strange = Pod(name="strange", requests={"cpu": 3000, STRANGE: 1}).at("n")
    fuller = first.snapshot.assume(strange)
    result = schedule(fuller, [Pod(name="q", requests={"cpu": 2000}), Pod(name="r", requests={"cpu": 1000})])
    assert verify(fuller, result) == ()
    assert [one.pod.name for one in result.bound] == ["r"]


def test_what_was_meant_for_pods_is_forgotten_where_going_without_is_as_good() -> None:
    """Matched together the larger pod would take the smaller reservation; both are placed either way."""
    others = [roomy(f"m{number}", 1) for number in range(6)]
    records = [once("r1", 4, "n1"), once("r2", 6, "n2")]
    snapshot = ClusterSnapshot(nodes=[roomy("n1", 4), roomy("n2", 6), *others], records=records)
    pods = [asking("p1", 3, "a", annotations=must()), asking("p2", 4, "a", annotations=must())]
    result = schedule(snapshot, pods, policy=JOINT)
    assert verify(snapshot, result) == ()
    assert {one.pod.name: one.reservation for one in result.bound} == {"p1": "r1", "p2": "r2"}
