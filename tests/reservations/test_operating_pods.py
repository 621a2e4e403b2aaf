"""Pods that run and act as reservations for their owners."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore.checking import verify
from koordcore.checking.violation import ViolationKind
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.plan_patches import patches
from koordcore.model.decisions import Unschedulable
from koordcore.model.pods import HostPort, Pod, PodPhase
from koordcore.model.preemption import PreemptionRules
from koordcore.model.reservations import AllocatePolicy
from koordcore.protocol.reservation import (
    CURRENT_OWNER,
    OPERATING_MODE,
    PREFIX,
    RESERVATION_OWNERS,
    allocated_reservation,
    operating_reservation,
)
from koordcore.reservations.state import operating_state
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.test_fine import ALLOCATED, OWNER, STATUS
from tests.reservations.worlds import IGNORES, POLICY, must, node, pod, reservation
from tests.scheduling.test_numa import node as fine_node, pod as fine_pod

OWNERS = json.dumps([{"labelSelector": {"matchLabels": {"app": "a"}}}])


def acting(name: str, cpu: int, on: str | None = "n1", *, owners: str = OWNERS, **fields: Any) -> Pod:
    """A pod that acts as a reservation for application ``a`` and is ready."""
    annotations = {RESERVATION_OWNERS: owners, **fields.pop("annotations", {})}
    running = {"phase": PodPhase.RUNNING, "ready": True} if on else {}
    labels = {OPERATING_MODE: "Reservation"}
    return pod(name, cpu, node_name=on, annotations=annotations, labels=labels, **{**running, **fields})


def place(snapshot: ClusterSnapshot, *pods: Pod) -> ScheduleResult:
    """Schedule and check."""
    result = schedule(snapshot, pods, policy=POLICY)
    assert verify(snapshot, result) == ()
    return result


def where(result: ScheduleResult) -> dict[str, tuple[str, str]]:
    """Node and reservation by pod."""
    return {one.pod.name: (one.node, one.reservation) for one in result.bound}


def test_its_owner_takes_its_place_and_strangers_do_not() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 6))
    result = place(snapshot, pod("stranger", 4), pod("owner", 5, "a"), pod("small", 2))
    assert where(result) == {"owner": ("n1", "op"), "small": ("n1", "")}
    owner = next(one for one in result.snapshot.bound_pods() if one.name == "owner")
    used = allocated_reservation(owner.annotations)
    assert used is not None
    assert (used.name, used.uid) == ("op", "uid-op")


def test_nothing_is_written_on_the_pod_itself() -> None:
    running = acting("op", 6)
    result = place(ClusterSnapshot(nodes=[node("n1")]).assume(running), pod("owner", 5, "a"))
    assert running in result.snapshot.bound_pods()
    assert {call.pod.name for call in patches(result)} == {"owner"}


def test_it_serves_one_owner_and_goes_on_holding_the_rest() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 6))
    one_call = place(snapshot, pod("p", 2, "a", annotations=must()), pod("q", 2, "a", annotations=must()))
    assert where(one_call) == {"p": ("n1", "op")}
    # The pod still runs with what its owner leaves: 2 CPUs are free beside it.
    assert where(place(one_call.snapshot, pod("r", 3), pod("s", 2))) == {"s": ("n1", "")}
    two = place(place(snapshot, pod("p", 2, "a")).snapshot, pod("q", 2, "a", annotations=must()))
    assert where(two) == {}


def test_an_owner_may_take_from_the_node_what_it_lacks() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 4))
    assert where(place(snapshot, pod("owner", 7, "a"))) == {"owner": ("n1", "op")}
    after = place(snapshot, pod("owner", 7, "a")).snapshot
    assert where(place(after, pod("p", 2))) == {}
    assert where(place(after, pod("p", 1))) == {"p": ("n1", "")}


@pytest.mark.parametrize(
    "change",
    [
        {"ready": False},
        {"phase": PodPhase.PENDING},
        {"annotations": {RESERVATION_OWNERS: "[{"}},
        {"annotations": {RESERVATION_OWNERS: ""}},
        {"annotations": {CURRENT_OWNER: '{"namespace":"default","name":"x","uid":"u"}'}},
        {"labels": {OPERATING_MODE: "Runnable"}},
    ],
)
def test_one_that_cannot_serve_is_a_pod_like_any_other(change: dict[str, Any]) -> None:
    running = acting("op", 6)
    if "annotations" in change:
        change = {**change, "annotations": {**running.annotations, **change["annotations"]}}
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(attrs.evolve(running, **change))
    assert where(place(snapshot, pod("owner", 3, "a"), pod("other", 2, "a"))) == {"other": ("n1", "")}


def test_one_that_is_being_deleted_takes_no_owner() -> None:
    view = operating_reservation(acting("op", 6))
    assert not view.admits_nobody
    assert (view.allocate_once, view.allocate_policy) == (True, AllocatePolicy.ALIGNED)


def test_the_owner_named_on_it_and_by_its_own_word_is_one() -> None:
    named = acting("op", 6, annotations={CURRENT_OWNER: '{"name":"p","uid":"uid-p","namespace":"default"}'})
    state = operating_state(named, [pod("p", 2, "a")])
    assert [one.uid for one in state.assigned] == ["uid-p"]
    assert dict(state.allocated) == {"cpu": 2000}


def test_options_narrow_what_it_keeps_account_of() -> None:
    options = {PREFIX + "reservation-restricted-options": '{"resources":["cpu"]}'}
    state = operating_state(acting("op", 6, amounts={"memory": 2**30}, annotations=options))
    assert state.names == ("cpu",)


def test_it_stays_a_pod_and_keeps_its_ports() -> None:
    port = HostPort(port=80)
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 6, host_ports=(port,)))
    assert where(place(snapshot, pod("owner", 5, "a", host_ports=(port,)))) == {}
    full = attrs.evolve(node("n1"), allocatable={"cpu": 8000, "pods": 1})
    assert where(place(ClusterSnapshot(nodes=[full]).assume(acting("op", 6)), pod("owner", 5, "a"))) == {}


def test_an_ignoring_pod_takes_its_room() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 6))
    assert where(place(snapshot, pod("p", 5, labels=IGNORES))) == {"p": ("n1", "")}


def test_a_pod_may_ask_for_it_by_name() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2")], records=[reservation("r", 6, "n2")])
    snapshot = snapshot.assume(acting("op", 6))
    result = place(snapshot, pod("p", 2, "a", annotations=must('{"name":"op"}')))
    assert where(result) == {"p": ("n1", "op")}


def test_it_is_not_placed_beside_reservations_of_the_default_policy() -> None:
    held = reservation("r", 2, "n1", policy=AllocatePolicy.DEFAULT)
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[held])
    decision = place(snapshot, acting("op", 2, None)).decisions[0]
    assert isinstance(decision, Unschedulable)
    assert "node(s) reservation allocate policy conflict" in decision.message
    beside = ClusterSnapshot(nodes=[node("n1"), node("n2")], records=[held])
    assert where(place(beside, acting("op", 2, None))) == {"op": ("n2", "")}
    waiting = reservation("s", 2, policy=AllocatePolicy.DEFAULT)
    other = ClusterSnapshot(nodes=[node("n1")], records=[waiting]).assume(acting("op", 2))
    assert isinstance(schedule(other, policy=POLICY).decisions[0], Unschedulable)


def test_what_a_stranger_lacks_is_explained() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 6))
    found = explain(snapshot, pod("stranger", 4), policy=POLICY)
    assert "fits only inside reservation op, which belongs to app=a" in str(found)


def test_a_victim_that_acts_takes_its_promise_along() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 6))
    taken = place(snapshot, pod("owner", 4, "a", priority=9)).snapshot
    rules = PreemptionRules()
    result = schedule(taken, [pod("high", 4, priority=5)], policy=POLICY, preempt=rules)
    assert verify(taken, result) == ()
    assert [str(one.pod) for plan in result.preemptions for one in plan.victims] == ["default/op"]
    small = schedule(taken, [pod("high", 5, priority=5)], policy=POLICY, preempt=rules)
    assert small.preemptions == ()


def test_an_owner_that_is_no_owner_is_found() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")]).assume(acting("op", 6))
    result = place(snapshot, pod("owner", 5, "a"))
    other = acting("op", 6, owners="[]")
    fewer = ClusterSnapshot(nodes=[node("n1")]).assume(other)
    bad = attrs.evolve(result, snapshot=result.snapshot.forget(other.key).assume(other))
    assert ViolationKind.RESERVATION in {one.kind for one in verify(fewer, bad)}


def test_its_cpus_and_cards_go_to_its_owner() -> None:
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    running = fine_pod("op", 2, gpus=1)
    running["metadata"]["labels"] |= {OPERATING_MODE: "Reservation"}
    running["metadata"]["annotations"] = {
        RESERVATION_OWNERS: json.dumps([{"labelSelector": {"matchLabels": OWNER}}]),
        ALLOCATED: json.dumps({"gpu": [{"minor": 1, "resources": amounts}]}),
        STATUS: json.dumps({"cpuset": "6-7"}),
    }
    running["spec"]["nodeName"] = "n1"
    running["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    owner = fine_pod("o", 2, gpus=1)
    owner["metadata"]["labels"] |= OWNER
    snapshot = snapshot_from_objects([*fine_node("n1", cards=(0, 1)), running, owner]).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    (one,) = result.bound
    assert one.reservation == "op"
    assert json.loads(one.annotations[STATUS])["cpuset"] == "6-7"
    assert [card["minor"] for card in json.loads(one.annotations[ALLOCATED])["gpu"]] == [1]
    more = snapshot_from_objects([fine_pod("s", 2, gpus=1), fine_pod("t", 2, gpus=1)]).snapshot.pending
    after = schedule(result.snapshot, more)
    assert verify(result.snapshot, after) == ()
    assert [
        card["minor"] for one in after.bound for card in json.loads(one.annotations[ALLOCATED])["gpu"]
    ] == [0]


def test_the_loader_warns_of_owners_that_cannot_be_read() -> None:
    raw = fine_pod("op", 2)
    raw["metadata"]["annotations"] = {RESERVATION_OWNERS: "[{"}
    loaded = snapshot_from_objects([raw])
    assert any(RESERVATION_OWNERS in str(one) for one in loaded.warnings)
