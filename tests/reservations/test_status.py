"""What a result says about reservations that were used, and what becomes of them over time."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from koordcore.checking import verify
from koordcore.checking.violation import ViolationKind
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.records import result_from_record, result_record
from koordcore.model.pods import PodPhase
from koordcore.model.reservations import (
    AllocatePolicy,
    ObjectReference,
    PreAllocationPolicy,
    Reservation,
    ReservationPhase,
)
from koordcore.reservations.lifecycle import controlled, synced
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.simulate import Departure, PodArrival, replay_schedule
from koordcore.simulate.scheduled import ClusterEvent
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodBound, PodEnded, RecordAdded, RecordRemoved
from tests.reservations.worlds import POLICY, node, pod, reservation, uses

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def used(*records: Reservation, owners: int = 1, cpu: int = 2) -> ScheduleResult:
    """Let owners use reservations of one node."""
    pods = [pod(f"p{number}", cpu, "a") for number in range(owners)]
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=records, pending=pods)
    result = schedule(snapshot, policy=POLICY, now=NOW)
    assert verify(snapshot, result) == ()
    return result


def after(result: ScheduleResult, name: str = "r1") -> Reservation:
    """The reservation afterwards."""
    found = result.snapshot.find(Reservation, name)
    assert found is not None
    return found


def owner(name: str) -> ObjectReference:
    """A pod by reference."""
    return ObjectReference(namespace="default", name=name, uid=f"uid-{name}")


def test_a_reservation_that_is_used_names_its_owners_and_what_they_use() -> None:
    status = after(used(reservation("r1", 6, "n1"), owners=2)).status
    assert status.phase is ReservationPhase.AVAILABLE
    assert status.current_owners == (owner("p0"), owner("p1"))
    assert dict(status.allocated or {}) == {"cpu": 4000}


def test_one_for_a_single_use_has_succeeded() -> None:
    one = after(used(reservation("r1", 6, "n1", allocate_once=True)))
    assert one.succeeded
    ready = [condition for condition in one.status.conditions if condition.kind == "Ready"]
    assert [(condition.reason, condition.probed) for condition in ready] == [("Succeeded", NOW)]


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("on", ["n1", ""])
def test_the_controller_has_nothing_to_add(once: bool, on: str) -> None:
    result = used(attrs.evolve(reservation("r1", 6, on, allocate_once=once), created=NOW))
    one = after(result)
    assert one.status.current_owners == (owner("p0"),)
    assert synced(one, NOW, {"n1"}, result.snapshot.bound_pods()) is one


def test_owners_in_another_order_are_no_change() -> None:
    """Owners are a set: the order in which they were recorded is kept."""
    result = used(attrs.evolve(reservation("r1", 6, "n1"), created=NOW), owners=3)
    one = after(result)
    turned = attrs.evolve(
        one, status=attrs.evolve(one.status, current_owners=one.status.current_owners[::-1])
    )
    assert synced(turned, NOW, {"n1"}, result.snapshot.bound_pods()) is turned


def test_reservations_that_nobody_used_stay_as_they_were() -> None:
    other = reservation("r2", 1, "n1", app="b")
    assert after(used(reservation("r1", 4, "n1"), other), "r2") is other


def test_over_running_pods_the_first_owners_are_named_at_once() -> None:
    held = reservation(
        "r1",
        4,
        policy=AllocatePolicy.RESTRICTED,
        pre_allocation=True,
        pre_allocation_policy=PreAllocationPolicy(),
        allocate_once=True,
    )
    running = [pod("exact", 4, "a", node_name="n1"), pod("other", 4, "b", node_name="n1")]
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[held]).assume(*running)
    result = schedule(snapshot, policy=POLICY, now=NOW)
    assert verify(snapshot, result) == ()
    assert after(result).succeeded
    assert after(result).status.current_owners == (owner("exact"),)
    # What is sent makes it available; that it is used up is then for its controller to find.
    assert [call.body["status"]["phase"] for call in patches(result) if call.subresource] == ["Available"]


def test_a_plan_that_was_written_down_says_the_same() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1")],
        pending=[pod("p", 2, "a")],
        records=[reservation("r1", 3, "n1", allocate_once=True), reservation("r2", 1)],
    )
    result = schedule(snapshot, policy=POLICY)
    again = result_from_record(snapshot, result_record(result), policy=POLICY)
    assert again.snapshot == result.snapshot
    assert verify(snapshot, again) == ()


def test_a_written_plan_says_which_decisions_are_about_reservations() -> None:
    """The pod that stands for one is in no cluster, and nobody is to bind it."""
    snapshot = ClusterSnapshot(
        nodes=[node("n1")],
        pending=[pod("p", 2, "a")],
        records=[reservation("r1", 2, allocate_once=True), reservation("large", 64)],
    )
    result = schedule(snapshot, policy=POLICY)
    record = json.loads(json.dumps(result_record(result)))
    told = {one["pod"]: one.get("standsFor") for one in record["decisions"]}
    held = {str(one.pod_key): f"reservation/{one.name}" for one in snapshot.of(Reservation)}
    assert told == {**held, "default/p": None}
    again = result_from_record(snapshot, record, policy=POLICY)
    assert again.decisions == result.decisions
    assert verify(snapshot, again) == ()


@pytest.mark.parametrize("wrong", ["owners", "allocated", "phase", "nothing"])
def test_a_result_that_tells_it_wrong_is_found(wrong: str) -> None:
    before = reservation("r1", 6, "n1", allocate_once=True)
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[before], pending=[pod("p", 2, "a")])
    result = schedule(snapshot, policy=POLICY)
    one = after(result)
    status = {
        "owners": attrs.evolve(one.status, current_owners=()),
        "allocated": attrs.evolve(one.status, allocated={"cpu": 1000}),
        "phase": attrs.evolve(one.status, phase=ReservationPhase.AVAILABLE),
        "nothing": before.status,
    }[wrong]
    bad = attrs.evolve(result, snapshot=result.snapshot.with_records(attrs.evolve(one, status=status)))
    assert ViolationKind.RESERVATION in {found.kind for found in verify(snapshot, bad)}


def test_what_was_used_once_is_not_used_again() -> None:
    result = used(reservation("r1", 6, "n1", allocate_once=True))
    gone = result.snapshot.forget(result.bound[0].pod)
    (decision,) = schedule(gone, [pod("q", 6, "a")], policy=POLICY).bound
    assert (decision.node, decision.reservation) == ("n1", "")


def test_the_controllers_turn_fails_what_is_over_and_names_who_is_left() -> None:
    old = attrs.evolve(reservation("old", 2, "n1"), created=NOW - timedelta(days=2))
    lost = attrs.evolve(reservation("lost", 2, "n9"), created=NOW)
    kept = attrs.evolve(reservation("kept", 2, "n1"), created=NOW)
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[old, lost, kept])
    snapshot = snapshot.assume(pod("p", 1, "a", node_name="n1", annotations=uses("kept")))
    turned = controlled(snapshot, NOW)
    phases = {one.name: one.status.phase for one in turned.of(Reservation)}
    assert phases == {"old": "Failed", "lost": "Failed", "kept": "Available"}
    assert controlled(turned, NOW) is turned
    fresh = ClusterSnapshot(nodes=turned.nodes, records=turned.records)
    assert (fresh.columns.requested == turned.columns.requested).all()


def test_in_a_replay_reservations_are_used_released_and_run_out() -> None:
    held = attrs.evolve(reservation("r1", 6, "n1"), ttl=100 * 10**9)
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[held])
    events: list[ClusterEvent] = [
        PodArrival(0, pod("owner", 6, "a"), 10),
        PodArrival(20, pod("stranger", 6), 10),
        Departure(101, "owner"),
    ]
    run = replay_schedule(snapshot, events, policy=POLICY)
    assert [(one.task, one.time) for one in run.placements] == [
        ("default/owner", 0),
        ("default/stranger", 101),
    ]
    (one,) = run.snapshot.of(Reservation)
    assert one.expired
    assert one.status.current_owners == ()


def test_in_a_replay_the_end_of_a_reservation_is_a_reason_to_ask_those_who_wait() -> None:
    """Nothing else happens then; it holds its room to its last moment, and where nobody waits nobody asks."""
    held = attrs.evolve(reservation("r1", 6, "n1"), ttl=100 * 10**9)
    later = attrs.evolve(reservation("r2", 1, "n1"), ttl=10**18, expires=datetime.max.replace(tzinfo=UTC))
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[held, later])
    run = replay_schedule(snapshot, [PodArrival(20, pod("stranger", 6), 10)], policy=POLICY)
    assert [(one.task, one.time, one.waited) for one in run.placements] == [("default/stranger", 101, 81)]
    assert run.time.tolist() == [20, 101, 111]
    assert run.pending.tolist() == [1, 0, 0]
    (one, _) = run.snapshot.of(Reservation)
    assert one.expired
    idle = replay_schedule(snapshot, [PodArrival(20, pod("guest", 1), 10)], policy=POLICY)
    assert idle.time.tolist() == [20, 30]


def test_in_a_replay_a_reservation_that_waits_is_placed() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6)])
    run = replay_schedule(snapshot, [PodArrival(5, pod("large", 99))], policy=POLICY)
    assert run.placements == ()
    (one,) = run.snapshot.of(Reservation)
    assert one.status.node_name == "n1"


@pytest.mark.parametrize("once", [True, False])
def test_a_reservation_that_a_running_pod_uses_is_not_placed_again(once: bool) -> None:
    """Its status is behind: whoever uses it has found it placed."""
    user, torn = pod("user", 2, "a", annotations=uses("r1")), reservation("r1", 2, allocate_once=once)
    before = ClusterSnapshot(nodes=[node("n1")], records=[torn], pending=[pod("next", 2, "a")])
    stand_in = torn.pod_key
    assert {one.pod for one in schedule(before, policy=POLICY, now=NOW).bound} == {
        stand_in,
        before.pending[0].key,
    }
    elsewhere = pod("user", 2, "a", annotations=uses("other"))
    ended = attrs.evolve(user.at("gone"), phase=PodPhase.SUCCEEDED)
    for snapshot, again in (
        (before.apply(PodBound(user.at("n1"))), False),
        (before.apply(RecordAdded(ended)), False),
        (before.apply(PodBound(elsewhere.at("n1"))), True),
        (before.apply(PodBound(user.at("n1"))).apply(PodEnded(user.key)), True),
        (before.apply(RecordAdded(ended)).apply(RecordRemoved(ended)), True),
    ):
        anew = ClusterSnapshot(nodes=snapshot.nodes, records=snapshot.records, pending=snapshot.pending)
        for one in (snapshot, anew):
            result = schedule(one, policy=POLICY, now=NOW)
            assert verify(one, result) == ()
            assert (stand_in in {decision.pod for decision in result.decisions}) is again
            (decision,) = (decision for decision in result.bound if decision.pod == before.pending[0].key)
            assert decision.reservation == ("r1" if again else "")
