"""Reservations that hold devices by the claims of their templates, on up to fifty nodes with eight cards."""

from __future__ import annotations

import attrs
import pytest

from benchmarks.claims_data import mig_cards, whole_gpus
from koordcore import (
    Bound,
    ClusterSnapshot,
    Pod,
    Reservation,
    ScheduleResult,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.reservations import reservation_from_manifest
from koordcore.model.claims import ResourceClaim
from koordcore.model.pods import PodResourceClaim
from koordcore.model.reservations import AllocatePolicy, ReservationOwner
from koordcore.model.selectors import LabelSelector
from tests.scheduling.test_claims_gangs import TEMPLATES, cluster


def pod(name: str, template: str, app: str = "") -> Pod:
    entry = PodResourceClaim("c", template=template)
    labels = {"app": app} if app else {}
    return Pod(name=name, uid=f"uid-{name}", requests={"cpu": 1000}, labels=labels, resource_claims=(entry,))


def reservation(
    template: str, *, once: bool = True, policy: AllocatePolicy = AllocatePolicy.DEFAULT
) -> Reservation:
    return Reservation(
        name="hold",
        uid="uid-hold",
        template=attrs.evolve(pod("hold", template), uid="", requests={"cpu": 4000}),
        owners=(ReservationOwner(selector=LabelSelector(match_labels={"app": "mine"})),),
        ttl=0,
        allocate_once=once,
        allocate_policy=policy,
    )


def legal(snapshot: ClusterSnapshot) -> ScheduleResult:
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


def given(result: ScheduleResult, name: str) -> list[str]:
    bound = next(one for one in result.bound if one.pod.name == name)
    return [str(got.id) for held in bound.claims for got in held.allocation.results]


def test_what_is_reserved_is_for_the_owner_alone() -> None:
    """Fifty nodes; the last free node is reserved as a whole."""
    nodes = [whole_gpus(f"n{number:02}", 8) for number in range(50)]
    held = legal(cluster(nodes, []).with_records(reservation("eight")))
    devices = given(held, "uid-hold")
    (one,) = held.snapshot.of(Reservation)
    assert [str(got.id) for claim in one.claims for got in claim.allocation.results] == devices
    others = [pod(f"p{number:02}", "eight") for number in range(50)]
    full = legal(held.snapshot.with_pending(*others))
    assert len(full.bound) == 49
    assert sum(isinstance(one, Unschedulable) for one in full.decisions) == 1
    after = legal(full.snapshot.with_pending(pod("owner", "eight", "mine")))
    owner = after.decision(pod("owner", "eight").key)
    assert given(after, "owner") == devices
    assert owner is not None
    # It is over with its first owner, and free when that one has gone.
    gone = after.snapshot.forget(pod("owner", "eight").key)
    assert given(legal(gone.with_pending(pod("late", "eight"))), "late") == devices


def test_a_reservation_for_many_lends_its_devices_one_after_another_and_takes_them_back() -> None:
    held = legal(cluster([whole_gpus("a", 3)], []).with_records(reservation("two", once=False)))
    devices = given(held, "uid-hold")
    first = legal(held.snapshot.with_pending(pod("x", "gpu", "mine"), pod("y", "gpu", "mine")))
    assert sorted([*given(first, "x"), *given(first, "y")]) == sorted(devices)
    other = legal(first.snapshot.with_pending(pod("z", "gpu")))
    assert given(other, "z")[0] not in devices
    freed = other.snapshot.forget(pod("x", "gpu").key)
    assert not legal(freed.with_pending(pod("w", "gpu"))).bound
    assert given(legal(freed.with_pending(pod("v", "gpu", "mine"))), "v") == given(first, "x")


@pytest.mark.parametrize("free", [1, 2])
def test_restricted_gives_nothing_beside_what_is_reserved(free: int) -> None:
    """Also where the node itself would have enough, who has to draw from the reservation stays in it."""
    for policy, placed in ((AllocatePolicy.RESTRICTED, False), (AllocatePolicy.ALIGNED, True)):
        slices = whole_gpus("a", 1 + free)
        start = cluster([slices], []).with_records(reservation("gpu", once=False, policy=policy))
        held = legal(start).snapshot
        asking = attrs.evolve(
            pod("x", "two", "mine"),
            annotations={"scheduling.koordinator.sh/reservation-affinity": '{"name": "hold"}'},
        )
        asked = held.with_pending(asking)
        (decision,) = legal(asked).decisions
        assert isinstance(decision, Bound) is placed
        if isinstance(decision, Unschedulable):
            whose = "Reservation(s) " if free == 2 else ""
            assert decision.message == f"0/1 nodes are available: 1 {whose}cannot allocate all claims."
            (verdict,) = explain(asked, "default/x").verdicts
            assert verdict.plugin == "DynamicResources"
            assert f"{whose}cannot allocate all claims" in {one.reason for one in verdict.shortfalls}


def test_partitions_are_reserved_with_their_counters() -> None:
    held = legal(cluster([mig_cards("a", 1)], []).with_records(reservation("4g-40gb"))).snapshot
    assert not legal(held.with_pending(pod("x", "7g-80gb"))).bound
    assert legal(held.with_pending(pod("y", "3g-40gb"))).bound
    assert legal(held.with_pending(pod("z", "4g-40gb", "mine"))).bound


def test_what_is_held_is_written_on_the_reservation_and_read_back() -> None:
    held = legal(cluster([whole_gpus("a", 1)], []).with_records(reservation("gpu")))
    (sent,) = (
        call.body["metadata"]["annotations"]
        for call in patches(held)
        if call.reservation == "hold" and "metadata" in call.body
    )
    manifest = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "hold", "uid": "uid-hold", "annotations": sent},
        "spec": {"template": {"spec": {"containers": []}}, "owners": [{"labelSelector": {}}]},
        "status": {"phase": "Available", "nodeName": "a"},
    }
    (known,) = held.snapshot.of(Reservation)
    assert reservation_from_manifest(manifest).claims == known.claims


def test_a_claim_by_name_is_allocated_beside_a_reservation() -> None:
    """What is written on claims stays, whatever reservations write afterwards."""
    named = ResourceClaim(name="mine", uid="u", spec=TEMPLATES["two"])
    user = attrs.evolve(pod("user", "two"), resource_claims=(PodResourceClaim("c", claim="mine"),))
    snapshot = cluster([whole_gpus("a", 8)], [user]).with_records(reservation("two"), named)
    result = legal(snapshot)
    assert len(result.bound) == 2
    found = result.snapshot.find(ResourceClaim, "mine", "default")
    assert found is not None
    assert found.allocation is not None
    assert [one.name for one in found.reserved_for] == ["user"]
