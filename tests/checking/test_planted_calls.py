"""Plans that get claims, places or policies of a whole call wrong."""

from __future__ import annotations

from typing import Any

import attrs

from koordcore import Bound, ClusterSnapshot, Node, NodeState, Nominated, Pod, Policy, ScheduleResult, verify
from koordcore.checking.check import check_result
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    HeldClaim,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import DeviceTaint, DeviceTaintRule, ResourceSlice, SliceDevice
from koordcore.model.plugin_args import FitArgs
from koordcore.model.pods import PodResourceClaim
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.reservations import Reservation, ReservationOwner, ReservationPhase, ReservationStatus
from koordcore.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorOperator,
)
from koordcore.snapshot.cluster import bind

QUOTA = "quota.scheduling.koordinator.sh/name"
TIED = NodeSelector((NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("n",)),)),))
ONE = ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="gpu"),)),))
SLICE = ResourceSlice(
    name="s", driver="d", pool="p", node_name="n", devices=tuple(SliceDevice(name=name) for name in "abc")
)
RECORDS = (DeviceClass(name="gpu"), ResourceClaimTemplate(name="one", spec=ONE), SLICE)


def pod(name: str, *entries: str, **fields: Any) -> Pod:
    wishes = tuple(PodResourceClaim(entry, template="one") for entry in entries)
    return Pod(
        name=name, uid=f"uid-{name}", **{"requests": {"cpu": 100}, "resource_claims": wishes, **fields}
    )


def cluster(*pods: Pod, records: tuple[Any, ...] = RECORDS, running: tuple[Pod, ...] = ()) -> ClusterSnapshot:
    room = {"cpu": 9000, "pods": 20}
    there = NodeState(Node(name="n", allocatable=room), tuple(one.at("n") for one in running))
    return ClusterSnapshot(nodes=[there, Node(name="m", allocatable=room)], pending=pods, records=records)


def holds(entry: str, device: str, name: str) -> HeldClaim:
    result = DeviceResult(request="r", driver="d", pool="p", device=device)
    return HeldClaim(
        name=name,
        entry=entry,
        allocation=ClaimAllocation(results=(result,), node_selector=TIED),
        planned=True,
    )


def told(snapshot: ClusterSnapshot, *bound: Bound, policy: Policy | None = None, only: str = "") -> list[str]:
    pods = {one.key: one for one in snapshot.pending}
    after = snapshot.assume(*(bind(pods[one.pod], one) for one in bound))
    result = ScheduleResult(decisions=bound, snapshot=after, policy=policy or Policy())
    found = verify(snapshot, result)
    assert found == check_result(snapshot, result)
    return [f"{one.subject} {one.message}" for one in found if only in one.message]


def on(one: Pod, *claims: HeldClaim, **fields: Any) -> Bound:
    return Bound(pod=one.key, node="n", claims=claims, **fields)


def test_each_claim_of_a_pod_is_allocated_and_legal() -> None:
    p = pod("p", "x", "y")
    right = (holds("x", "a", "p-x"), holds("y", "b", "p-y"))
    assert told(cluster(p), on(p, *right)) == []
    assert told(cluster(p), on(p)) == [
        "default/p claim x is not allocated",
        "default/p claim y is not allocated",
    ]
    found = told(cluster(p), on(p, holds("y", "z", "p-y")))
    assert "default/p claim x is not allocated" in found
    assert "default/p claim p-y: d/p/z: no such device is published" in found


def test_pods_of_one_call_take_devices_one_after_the_other() -> None:
    p, q = pod("p", "x"), pod("q", "x")
    assert told(cluster(p, q), on(p, holds("x", "a", "p-x")), on(q, holds("x", "b", "q-x"))) == []
    assert told(cluster(p, q), on(p, holds("x", "a", "p-x")), on(q, holds("x", "a", "q-x"))) == [
        "default/q d/p/a is held by another claim"
    ]
    old = attrs.evolve(p, held_claims=(holds("x", "a", "p-x"),))
    assert told(cluster(q, running=(old,)), on(q, holds("x", "a", "q-x"))) == [
        "default/q d/p/a is held by another claim"
    ]


def reserved(*devices: str, once: bool = False) -> Reservation:
    return Reservation(
        name="r",
        uid="uid-r",
        template=Pod(name="t", requests={"cpu": 100}),
        owners=(ReservationOwner(selector=LabelSelector({"app": "mine"})),),
        ttl=0,
        allocate_once=once,
        claims=tuple(holds(f"e{name}", name, f"r-{name}") for name in devices),
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="n", allocatable={"cpu": 100}),
    )


def test_what_a_reservation_holds_of_devices_is_for_its_owners() -> None:
    q = pod("q", "x")
    snapshot = cluster(q, records=(*RECORDS, reserved("a")))
    assert told(snapshot, on(q, holds("x", "b", "q-x"))) == []
    assert told(snapshot, on(q, holds("x", "a", "q-x"))) == ["default/q d/p/a is held by another claim"]
    regardless = pod("q", "x", labels={"scheduling.koordinator.sh/reservation-ignored": "true"})
    assert (
        told(cluster(regardless, records=(*RECORDS, reserved("a"))), on(regardless, holds("x", "a", "q-x")))
        == []
    )


def test_a_reservation_for_many_keeps_what_its_first_user_left() -> None:
    mine = pod("p", "x", labels={"app": "mine"})
    other = pod("q", "x")
    plan = on(mine, holds("x", "a", "p-x"), reservation="r"), on(other, holds("x", "b", "q-x"))
    lasting = cluster(mine, other, records=(*RECORDS, reserved("a", "b")))
    assert told(lasting, *plan, only="held by another") == ["default/q d/p/b is held by another claim"]
    once = cluster(mine, other, records=(*RECORDS, reserved("a", "b", once=True)))
    assert told(once, *plan, only="held by another") == []


def test_taints_of_rules_are_on_the_devices_that_they_name() -> None:
    p = pod("p", "x")
    taint = DeviceTaint("sick", effect="NoSchedule")
    for fields, devices in (
        ({"device": "a"}, "a"),
        ({"pool": "p"}, "abc"),
        ({"driver": "e"}, ""),
        ({"selects": False}, ""),
    ):
        rule = DeviceTaintRule(name="t", taint=taint, **fields)
        for device in "abc":
            found = told(cluster(p, records=(*RECORDS, rule)), on(p, holds("x", device, "p-x")), only="sick")
            assert bool(found) == (device in devices)


def test_extended_resources_that_a_class_serves_need_a_claim() -> None:
    served = DeviceClass(name="gpu", extended_resource_name="example.com/gpu")
    asking = pod("p", requests={"cpu": 100, "example.com/gpu": 1})
    found = told(cluster(asking, records=(served, SLICE)), on(asking))
    assert "default/p the claim for example.com/gpu is not allocated" in found


def test_the_claim_that_was_made_for_extended_resources_of_a_pod_is_the_one_that_is_allocated() -> None:
    served = DeviceClass(name="gpu", extended_resource_name="example.com/gpu")
    asking = pod("p", requests={"cpu": 100, "example.com/gpu": 1})
    for owner, fine in (("uid-p", True), ("p", False)):
        made = ResourceClaim(name="made", spec=ONE, extended=True, owner=owner)
        snapshot = cluster(asking, records=(served, SLICE, made))
        found = told(
            snapshot, on(asking, attrs.evolve(holds("", "a", "made"), planned=False)), only="request"
        )
        assert (found == []) is fine


def test_devices_of_claims_count_in_quotas_even_where_a_plan_leaves_them_out() -> None:
    none = ElasticQuota(name="team", max={"gpu.deviceclass.resource.k8s.io/devices": 0})
    p = pod("p", "x", labels={QUOTA: "team"})
    assert told(cluster(p, records=(*RECORDS, none)), on(p)) == [
        "default/p claim x is not allocated",
        "team gpu.deviceclass.resource.k8s.io/devices: 1 used, max is 0",
    ]


def test_a_claim_that_was_allocated_is_not_allocated_other_devices() -> None:
    made = ResourceClaim(name="c", spec=ONE, allocation=holds("x", "a", "c").allocation)
    p = Pod(name="p", uid="uid-p", requests={"cpu": 100}, resource_claims=(PodResourceClaim("x", claim="c"),))
    moved = attrs.evolve(holds("x", "b", "c"), planned=False)
    found = told(cluster(p, records=(*RECORDS, made)), on(p, moved), only="already")
    assert found == ["default/p claim c is allocated other devices already"]


# -- policies -----------------------------------------


def test_without_reservations_their_room_is_free() -> None:
    large = pod("p", requests={"cpu": 9000})
    snapshot = cluster(large, records=(reserved(),))
    assert len(told(snapshot, on(large))) == 1
    assert told(snapshot, on(large), policy=Policy().without_plugin("Reservation")) == []


def test_resources_that_the_policy_ignores_may_be_exceeded() -> None:
    p = pod("p", requests={"cpu": 100, "example.com/x": 1, "other.com/y": 1})
    both = ["n example.com/x: 1 requested, 0 allocatable", "n other.com/y: 1 requested, 0 allocatable"]
    setting = Policy().plugin("NodeResourcesFit")
    assert setting is not None
    for args, wrong in (
        (FitArgs(), both),
        (FitArgs(ignored=("example.com/x",)), both[1:]),
        (FitArgs(ignored_groups=("other.com",)), both[:1]),
        (FitArgs(ignored=("cpu",)), both),
    ):
        policy = Policy().with_plugin(attrs.evolve(setting, args=args))
        assert told(cluster(p), on(p), policy=policy) == wrong


def test_quotas_above_bind_where_the_policy_says_so() -> None:
    records = (
        ElasticQuota(name="low", parent="top", max={"cpu": 900}),
        ElasticQuota(name="top", max={"cpu": 50}, is_parent=True),
    )
    p = pod("p", labels={QUOTA: "low"})
    setting = Policy().plugin("ElasticQuota")
    assert setting is not None
    for asked, wrong in ((False, []), (True, ["top cpu: 100 used, max is 50"])):
        args = QuotaPolicy(enable_check_parent_quota=asked)
        policy = Policy().with_plugin(attrs.evolve(setting, args=args))
        assert told(cluster(p, records=records), on(p), policy=policy) == wrong


def test_a_node_selector_binds_where_the_plugin_does() -> None:
    p = pod("p", node_selector={"disk": "ssd"})
    assert told(cluster(p), on(p)) == ["default/p wants disk=ssd, n has None"]
    assert told(cluster(p), on(p), policy=Policy().without_plugin("NodeAffinity")) == []


def test_progress_counts_the_rule_books_one_by_one() -> None:
    p = pod("p")
    snapshot = cluster(p)
    after = snapshot.assume(p.at("n"))
    result = ScheduleResult(decisions=(on(p),), snapshot=after, policy=Policy())
    seen: list[tuple[int, int]] = []
    assert verify(snapshot, result, progress=lambda done, of: seen.append((done, of))) == ()
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert {of for _, of in seen} == {len(seen)}


# -- decisions that change nothing where they point -----------------------------------------


def test_whoever_is_nominated_must_fit_where_nothing_changes() -> None:
    p = pod("p", requests={"cpu": 1000}, priority=5)
    old = pod("old", requests={"cpu": 9000}, priority=9)
    snapshot = cluster(p, running=(old,))
    result = ScheduleResult(decisions=(Nominated(pod=p.key, node="n"),), snapshot=snapshot, policy=Policy())
    found = verify(snapshot, result)
    assert found == check_result(snapshot, result)
    assert [one.message for one in found] == ["cpu: 10000 once the victims have gone, 9000 allocatable"]


def test_a_decision_about_a_pod_that_runs_elsewhere_is_named() -> None:
    old = pod("old")
    snapshot = cluster(running=(old,))
    result = ScheduleResult(decisions=(Bound(pod=old.key, node="m"),), snapshot=snapshot, policy=Policy())
    found = verify(snapshot, result)
    assert found == check_result(snapshot, result)
    assert "was bound before" in [one.message for one in found]


def test_nobody_is_put_beside_a_pod_that_conceals_what_it_holds() -> None:
    p = pod("p")
    hidden = pod("old", unreadable="spec.containers")
    for node, wrong in (("n", hidden.conceals), ("m", False)):
        result = cluster(p, running=(hidden,))
        found = told(result, Bound(pod=p.key, node=node), only="beside")
        assert bool(found) == bool(wrong)
