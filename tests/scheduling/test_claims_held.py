"""Which allocated claims hold their devices: all of them, until their controller deallocates them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import pytest

from koordcore import Bound, NodeState, PreemptionRules, Unschedulable, Waiting, schedule, verify
from koordcore.checking.check import check_cluster
from koordcore.checking.violation import ViolationKind
from koordcore.explaining import explain
from koordcore.model.claims import AllocatedDeviceStatus, ClaimAllocation, ClaimConsumer, ResourceClaim
from koordcore.model.decisions import Nominated
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodBound, PodEnded
from tests.scheduling.test_claims import cluster, devices, gpus, legal, pod, taken


def on_a(name: str, device: str, *users: str) -> ResourceClaim:
    """Make a claim that has a device of node a, which only that node can use."""
    held = taken(name, device, *users)
    only = Requirement("metadata.name", SelectorOperator.IN, ("a",))
    assert held.allocation is not None
    allocation = ClaimAllocation(
        results=held.allocation.results, node_selector=NodeSelector((NodeSelectorTerm(fields=(only,)),))
    )
    return attrs.evolve(held, allocation=allocation)


@pytest.mark.parametrize("users", [(), ("gone",), ("gone", "too")], ids=["nobody", "one", "two"])
def test_an_allocated_claim_holds_its_devices_whoever_it_is_reserved_for(users: tuple[str, ...]) -> None:
    snapshot = cluster({"a": 2}, on_a("c", "gpu-0", *users), pending=[pod("p"), pod("q")])
    result = legal(snapshot)
    assert devices(result) == {"p": ["a/gpu-1"]}


@pytest.mark.parametrize("users", [(), ("gone",)], ids=["nobody", "one"])
def test_a_pod_that_uses_such_a_claim_goes_to_its_node(users: tuple[str, ...]) -> None:
    snapshot = cluster({"a": 1, "b": 8}, on_a("c", "gpu-0", *users), pending=[pod("p", claim="c")])
    (bound,) = legal(snapshot).bound
    assert bound.node == "a"
    assert not bound.claims[0].fresh
    closed = attrs.evolve(snapshot.node("a").node, unschedulable=True)
    (refused,) = legal(snapshot.with_nodes(closed)).decisions
    assert isinstance(refused, Unschedulable)
    assert "resourceclaim not available on the node" in refused.message


def test_a_plan_that_gives_its_devices_to_others_is_not_legal() -> None:
    free = cluster({"a": 1}, pending=[pod("p")])
    given = legal(free)
    for held in (on_a("c", "gpu-0", "gone"), on_a("c", "gpu-0")):
        before = free.with_records(held)
        forged = attrs.evolve(given, snapshot=given.snapshot.with_records(held))
        found = verify(before, forged)
        assert ViolationKind.CLAIM in {one.kind for one in found}


def test_evictions_free_it_only_where_all_it_is_reserved_for_leave() -> None:
    """Somebody who is not in the dump may use it still."""
    running = pod("runs", claim="c", priority=0).at("a")
    for users, helps in ((("runs",), True), (("runs", "gone"), False), ((), False)):
        start = cluster({"a": 1}, on_a("c", "gpu-0", *users)).assume(running)
        result = legal(start.with_pending(pod("high", priority=9)), PreemptionRules())
        (decision,) = result.decisions
        assert isinstance(decision, Nominated) is helps


def test_a_pod_taken_out_of_the_cluster_gives_its_claim_back_and_the_end_of_one_in_a_watch_does_not() -> None:
    running = pod("runs", claim="c").at("a")
    start = cluster({"a": 1}, on_a("c", "gpu-0", "runs")).assume(running).with_pending(pod("p"))
    gone = start.forget(running.key)
    claim = gone.find(ResourceClaim, "c", "default")
    assert claim is not None
    assert (claim.allocation, claim.reserved_for) == (None, ())
    assert devices(legal(gone)) == {"p": ["a/gpu-0"]}
    ended = start.apply(PodEnded(running.key))
    assert not legal(ended).bound
    shared = start.with_records(on_a("c", "gpu-0", "runs", "other")).forget(running.key)
    claim = shared.find(ResourceClaim, "c", "default")
    assert claim is not None
    assert claim.allocation is not None
    assert claim.reserved_for == (ClaimConsumer("other", "uid-other"),)


def test_a_call_that_goes_on_decides_as_one_that_begins_anew() -> None:
    """Who a claim is reserved for comes to a node, and ends, without a word about the claim."""
    held = on_a("c", "gpu-0", "runs")
    start = legal(cluster({"a": 1, "b": 1}, held, pending=[pod("first")])).snapshot
    high = pod("high", priority=9)
    steps = (PodBound(pod("runs", claim="c").at("a")), PodEnded(pod("runs").key))
    now = start
    for step in steps:
        now = now.apply(step)
        asked = now.with_pending(high)
        warm = schedule(asked, preempt=PreemptionRules())
        anew = ClusterSnapshot(nodes=asked.nodes, pending=asked.pending, records=asked.records)
        cold = schedule(anew, preempt=PreemptionRules())
        assert warm.decisions == cold.decisions
        assert not any(isinstance(one, Bound) for one in warm.decisions)
        victims = {one.pod.name for plan in warm.preemptions for one in plan.victims}
        assert victims <= {"first", "runs"}
        assert victims


THEN = datetime(2026, 1, 1, tzinfo=UTC)
REFUSED = "0/2 nodes are available: 2 resourceclaim not available on the node."


def conditional(**conditions: bool) -> ResourceClaim:
    """Make a claim whose device has to get ready, of which its driver says something."""
    held = on_a("c", "gpu-0", "p")
    assert held.allocation is not None
    (got,) = held.allocation.results
    got = attrs.evolve(got, binding_conditions=("ready",), binding_failure_conditions=("broken",))
    allocation = attrs.evolve(held.allocation, results=(got,), allocated=THEN)
    told = AllocatedDeviceStatus(got.driver, got.pool, got.device, conditions=conditions)
    return attrs.evolve(held, allocation=allocation, devices=(told,) if conditions else ())


def waiting(claim: ResourceClaim) -> ClusterSnapshot:
    return cluster({"a": 1, "b": 1}, claim, pending=[pod("p", claim="c")])


@pytest.mark.parametrize("ready", [False, True])
def test_nobody_is_bound_with_a_claim_whose_binding_failed(ready: bool) -> None:
    snapshot = waiting(conditional(broken=True, ready=ready))
    (refused,) = legal(snapshot).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.message == REFUSED
    assert "c: broken of " in str(explain(snapshot, "default/p"))
    fine = waiting(conditional(broken=False, ready=ready))
    bound = legal(fine)
    assert [one.node for one in bound.bound] == ["a"]
    forged = attrs.evolve(bound, snapshot=bound.snapshot.with_records(*snapshot.of(ResourceClaim)))
    assert any("broken of" in one.message for one in verify(snapshot, forged))


def test_nobody_is_bound_with_a_claim_whose_devices_did_not_get_ready_in_time() -> None:
    """Ten minutes, where a time is given; the same snapshot is asked about again as time goes on."""
    snapshot = waiting(conditional())
    for minutes, fine in ((10, True), (11, False), (5, True)):
        result = schedule(snapshot, now=THEN + timedelta(minutes=minutes))
        (decision,) = result.decisions
        assert isinstance(decision, Bound) is fine
        assert fine or (isinstance(decision, Unschedulable) and decision.message == REFUSED)
    assert legal(snapshot).bound
    ready = waiting(conditional(ready=True))
    assert schedule(ready, now=THEN + timedelta(days=1)).bound


def test_whoever_uses_an_allocated_claim_is_told_that_it_waits_for_its_devices() -> None:
    """Binding waits for conditions, whoever the claim was allocated for."""
    said = [one.notes for one in legal(waiting(conditional())).bound]
    assert said == [("c waits for ready of gpu.example.com/a/gpu-0",)]
    assert [one.notes for one in legal(waiting(conditional(ready=True))).bound] == [()]


def test_whoever_runs_with_a_device_that_failed_since_is_in_order() -> None:
    running = pod("p", claim="c").at("a")
    snapshot = cluster({"a": 1, "b": 1}, conditional(broken=True)).assume(running)
    assert check_cluster(snapshot, schedule(snapshot).policy) == ()
    gone = snapshot.forget(running.key).find(ResourceClaim, "c", "default")
    assert gone is not None
    assert (gone.allocation, gone.devices) == (None, ())


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def kept_on_a() -> ClusterSnapshot:
    """A member of a gang keeps its place on node a with claim c; the other one has no node yet."""
    notes = {
        f"gang.scheduling.koordinator.sh/{key}": text
        for key, text in (("name", "g"), ("min-available", "2"), ("mode", "NonStrict"))
    }
    mine = attrs.evolve(pod("mine", claim="c"), annotations=notes)
    other = attrs.evolve(pod("other", cpu=9000), resource_claims=(), annotations=notes)
    claim = attrs.evolve(taken("c", "gpu-0"), allocation=None)
    result = schedule(cluster({"a": 1, "z": 0}, claim, pending=[mine, other]), now=NOW)
    waits, _ = result.decisions
    assert isinstance(waits, Waiting)
    assert waits.held is not None
    assert waits.held.node == "a"
    return result.snapshot


def test_a_member_that_keeps_its_place_is_not_bound_with_a_claim_that_has_failed_meanwhile() -> None:
    """Deleted or about to be, of devices that others have or that are of no use, or given elsewhere."""
    kept = kept_on_a()
    claim = kept.find(ResourceClaim, "c", "default")
    assert claim is not None
    assert claim.allocation is not None
    (result,) = claim.allocation.results
    failing = attrs.evolve(result, binding_conditions=("ready",), binding_failure_conditions=("broken",))
    broken = AllocatedDeviceStatus(result.driver, result.pool, result.device, conditions={"broken": True})
    only = Requirement("metadata.name", SelectorOperator.IN, ("z",))
    at_z = ClaimAllocation(node_selector=NodeSelector((NodeSelectorTerm(fields=(only,)),)))
    free = attrs.evolve(claim, allocation=None, reserved_for=())
    nodes = [
        NodeState(attrs.evolve(one.node, allocatable={"cpu": 20000, "pods": 9}), one.pods)
        for one in kept.nodes
    ]
    others = [one for one in kept.records if one is not claim]
    for place, *there in (
        ("a", claim),
        ("", attrs.evolve(claim, deleting=True)),
        ("",),
        ("", free, on_a("d", "gpu-0")),
        ("", attrs.evolve(claim, allocation=ClaimAllocation(results=(failing,)), devices=(broken,))),
        ("z", attrs.evolve(claim, allocation=at_z)),
    ):
        snapshot = ClusterSnapshot(nodes=nodes, pending=kept.pending, records=[*others, *there])
        found = schedule(snapshot, now=NOW)
        assert verify(snapshot, found) == ()
        assert {one.pod.name: one.node for one in found.bound}.get("mine", "") == place


def test_the_device_of_a_member_that_keeps_its_place_is_not_kept_for_a_nominated_pod() -> None:
    """That gets the device of its victim; the room that the victim has still is nobody's."""
    kept = kept_on_a()
    more = attrs.evolve(gpus("more", 1), node_name="a")
    full = schedule(kept.with_records(more), [pod("low")], now=NOW).snapshot
    first = schedule(full.with_pending(pod("top", priority=9)), preempt=PreemptionRules(), now=NOW)
    assert [one.pod.name for plan in first.preemptions for one in plan.victims] == ["low"]
    result = schedule(first.snapshot, now=NOW)
    assert verify(first.snapshot, result) == ()
    assert [one.pod.name for one in result.decisions if isinstance(one, Waiting)] == ["mine"]
    assert not result.bound
