"""What still fits, against the allocator itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.claims_data import whole_gpus
from koordcore import Pod, Reservation, schedule
from koordcore.allocators.claims.allocate import allocate_claims
from koordcore.allocators.claims.outcome import ClaimsAllocated
from koordcore.explaining.claimed_devices import class_views, node_room, pool_views, together
from koordcore.manifests import load
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceSubRequest,
    ResourceClaim,
)
from koordcore.model.pods import PodResourceClaim
from koordcore.model.reservations import ReservationOwner
from koordcore.model.selectors import LabelSelector
from tests.scheduling.test_claims_gangs import cluster

SNAPSHOT = load([Path(__file__).resolve().parents[2] / "examples" / "claims.yaml"]).snapshot
PROFILES = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


def fitting(node: str, class_name: str, *selectors: str) -> int:
    """The largest count that the allocator grants."""
    room = node_room(SNAPSHOT, SNAPSHOT.node(node))
    classes = {one.name: one for one in SNAPSHOT.of(DeviceClass)}
    for count in range(1, 20):
        form = DeviceSubRequest(class_name=class_name, selectors=selectors, count=count)
        claim = ResourceClaim(name="c", spec=ClaimSpec(requests=(ClaimRequest("r", (form,)),)))
        if not isinstance(allocate_claims(room, [claim], classes), ClaimsAllocated):
            return count - 1
    raise AssertionError("more than the node has")


@pytest.mark.parametrize("node", ["mig-1", "mig-2"])
@pytest.mark.parametrize("profile", PROFILES)
def test_what_fits_is_what_the_allocator_grants(node: str, profile: str) -> None:
    views = pool_views(SNAPSHOT, SNAPSHOT.node(node))
    shown = sum(dict(card.fits).get(profile, 0) for view in views for card in view.cards)
    assert shown == fitting(node, "mig", f"device.attributes['gpu.nvidia.com'].profile == '{profile}'")


def test_classes_count_what_can_be_had_without_tolerations() -> None:
    by_name = {one.name: one for one in class_views(SNAPSHOT)}
    assert (by_name["gpu"].devices, by_name["gpu"].held, by_name["gpu"].fits) == (4, 1, 2)
    assert by_name["gpu"].fits == fitting("gpu-1", "gpu")
    assert by_name["mig"].fits == fitting("mig-1", "mig") + fitting("mig-2", "mig")
    assert (by_name["rdma"].nodes, by_name["rdma"].most) == (1, fitting("gpu-1", "rdma"))


def test_slices_are_drawn_where_they_are() -> None:
    views = pool_views(SNAPSHOT, SNAPSHOT.node("mig-1"))
    free, used = None, 0
    first, second = views[0].cards
    assert first.strip == (free,) * 4 + (used,) * 4
    assert second.strip == (free, free, 0, free, 1, 1, free, free)
    assert [(one.name, one.left // 10**9, one.total // 10**9) for one in second.counters] == [
        ("memory-slice", 5, 8),
        ("multiprocessors", 78, 132),
    ]


def test_nothing_fits_twice() -> None:
    room = node_room(SNAPSHOT, SNAPSHOT.node("mig-2"))
    assert together(room, 0) == 0
    full = sum(1 << n for n, one in enumerate(room.table.devices) if "gpu-0" in one.id.device)
    assert together(room, full) == 0


def test_devices_of_reservations_and_of_claims_still_to_be_made_are_in_use() -> None:
    entry = PodResourceClaim("dev", template="gpu")
    held = Reservation(
        name="hold",
        uid="u-hold",
        ttl=0,
        template=Pod(name="hold", resource_claims=(entry,)),
        owners=(ReservationOwner(selector=LabelSelector(match_labels={"app": "mine"})),),
    )
    pod = Pod(name="p", uid="u", resource_claims=(entry,))
    snapshot = schedule(cluster([whole_gpus("a", 3)], [pod]).with_records(held)).snapshot
    (view,) = pool_views(snapshot, snapshot.node("a"))
    users = [user for one in view.plain for holder in one.holders for user in holder.pods]
    assert sorted(users) == ["default/p", "reservation/hold"]
    assert [one.held for one in class_views(snapshot) if one.name == "gpu"] == [2]
