"""Reservations placed over running pods, in the flow."""

from __future__ import annotations

import attrs
import pytest

from koordcore.checking import verify
from koordcore.checking.violation import ViolationKind
from koordcore.manifests.plan_patches import patches
from koordcore.model.decisions import Unschedulable
from koordcore.model.pods import PodKey
from koordcore.model.reservations import (
    AllocatePolicy,
    PreAllocationPolicy,
    Reservation,
)
from koordcore.protocol.reservation import PRE_ALLOCATION_REQUIRED, allocated_reservation
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import POLICY, node, pod, reservation


def over(cpu: int, *, several: bool = False, required: bool = False) -> Reservation:
    """A reservation that may be placed over pods of application ``a``."""
    return reservation(
        "r1",
        cpu,
        policy=AllocatePolicy.RESTRICTED,
        pre_allocation=True,
        pre_allocation_policy=PreAllocationPolicy(enable_multiple=several),
        labels={PRE_ALLOCATION_REQUIRED: "true"} if required else {},
    )


def owners(result: ScheduleResult) -> set[str]:
    """Names of the pods that use the reservation."""
    return {one.name for one in result.snapshot.bound_pods() if allocated_reservation(one.annotations)}


def placed(held: Reservation, *running: tuple[str, int, str], cpu: int = 8) -> ScheduleResult:
    """Place a reservation on one node with pods that run there."""
    pods = [pod(name, size, app, node_name="n1") for name, size, app in running]
    snapshot = ClusterSnapshot(nodes=[node("n1", cpu)], records=[held]).assume(*pods)
    result = schedule(snapshot, policy=POLICY)
    assert verify(snapshot, result) == ()
    return result


def test_a_full_node_takes_a_reservation_over_the_pod_that_fills_it_best() -> None:
    result = placed(over(4), ("small", 2, "a"), ("exact", 4, "a"), ("other", 2, "b"))
    assert [one.node for one in result.bound] == ["n1"]
    assert owners(result) == {"exact"}
    paths = [call.path for call in patches(result)]
    assert paths[-1] == "/api/v1/namespaces/default/pods/exact"


def test_several_pods_are_taken_in_where_it_may() -> None:
    running = (("x", 3, "a"), ("y", 3, "a"), ("z", 2, "b"))
    assert owners(placed(over(6, several=True), *running)) == {"x", "y"}
    alone = placed(over(6), *running).decisions[0]
    assert isinstance(alone, Unschedulable)


def test_afterwards_strangers_find_no_more_room_and_owners_do() -> None:
    after = placed(over(5), ("old", 3, "a"), ("other", 3, "b")).snapshot
    result = schedule(after, [pod("stranger", 1), pod("new", 2, "a")], policy=POLICY)
    assert verify(after, result) == ()
    assert [(one.pod.name, one.reservation) for one in result.bound] == [("new", "r1")]


def test_without_candidates_a_required_one_waits() -> None:
    decision = placed(over(2, required=True), ("other", 3, "b")).decisions[0]
    assert isinstance(decision, Unschedulable)
    assert "node(s) no pod match reservation with pre allocation required" in decision.message


def test_each_node_says_for_itself_why_its_pods_do_not_serve() -> None:
    """The pod on ``n1`` is larger than the reservation; on ``n2`` none of its owners runs, ``n3`` is full."""
    nodes = [node("n1"), node("n2"), node("n3", 1)]
    running = [pod("large", 4, "a", node_name="n1"), pod("other", 1, "b", node_name="n2")]
    snapshot = ClusterSnapshot(nodes=nodes, records=[over(2, required=True)]).assume(*running)
    (decision,) = schedule(snapshot, policy=POLICY).decisions
    assert isinstance(decision, Unschedulable)
    assert decision.message == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 Reservation(s) Insufficient cpu, "
        "1 node(s) no pod(s) to meet the pre-allocation requirements."
    )


@pytest.mark.parametrize("change", ["labels", "priority"])
def test_a_pod_that_changed_otherwise_is_found(change: str) -> None:
    running = pod("exact", 4, "a", node_name="n1")
    snapshot = ClusterSnapshot(nodes=[node("n1", 4)], records=[over(4)]).assume(running)
    result = schedule(snapshot, policy=POLICY)
    (one,) = result.snapshot.bound_pods()
    wrong = attrs.evolve(one, priority=5)
    if change == "labels":
        wrong = attrs.evolve(one, labels={"x": "y"})
    bad = attrs.evolve(result, snapshot=result.snapshot.forget(PodKey("default", "exact")).assume(wrong))
    assert ViolationKind.SNAPSHOT in {found.kind for found in verify(snapshot, bad)}
