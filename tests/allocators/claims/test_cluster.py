"""Devices of a cluster that are kept from call to call, while claims come that read more of them."""

from __future__ import annotations

import attrs

from koordcore import ClusterSnapshot, schedule, verify
from koordcore.allocators.claims.cluster import cluster_devices
from koordcore.model.claims import DeviceConstraint, ResourceClaim
from koordcore.model.device_slices import AttributeKind, AttributeValue, ResourceSlice, SliceDevice
from koordcore.model.records import ClusterRecord
from tests.scheduling.test_claims import DRIVER, GPU, TEMPLATES, TWO, devices, node, pod

ALIKE = attrs.evolve(TWO, constraints=(DeviceConstraint((), match_attribute=f"{DRIVER}/rail"),))


def railed(name: str, *rails: int) -> ResourceSlice:
    gpus = tuple(
        SliceDevice(name=f"gpu-{n}", attributes={"rail": AttributeValue(AttributeKind.INT, (rail,))})
        for n, rail in enumerate(rails)
    )
    return ResourceSlice(name=name, driver=DRIVER, pool=name, node_name=name, devices=gpus)


def cluster() -> ClusterSnapshot:
    """Two nodes that look the same to whoever does not ask for rails."""
    records: list[ClusterRecord] = [GPU, *TEMPLATES, railed("a", 0, 1), railed("b", 1, 1)]
    return ClusterSnapshot(nodes=[node("a"), node("b")], records=records)


def test_a_claim_that_comes_later_finds_the_node_that_differs_in_what_it_alone_reads() -> None:
    first = schedule(cluster().with_pending(pod("p"))).snapshot.forget(pod("p").key)
    assert cluster_devices(first).shapes == 1
    later = first.with_records(ResourceClaim(name="alike", spec=ALIKE)).with_pending(pod("q", claim="alike"))
    assert cluster_devices(later).shapes == 2
    result = schedule(later)
    assert verify(later, result) == ()
    assert devices(result) == {"q": ["b/gpu-0", "b/gpu-1"]}


def test_claims_that_ask_for_what_others_ask_for_leave_the_devices_as_they_were() -> None:
    first = cluster().with_records(ResourceClaim(name="alike", spec=ALIKE))
    known = cluster_devices(first)
    again = first.with_records(ResourceClaim(name="more", spec=ALIKE))
    assert cluster_devices(again) is known
    wider = again.with_records(ResourceClaim(name="any", spec=TWO))
    assert cluster_devices(wider) is not known
