"""Devices of a cluster that are kept from call to call, while claims come that read more of them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import given, strategies as st

from koordcore import ClusterSnapshot, schedule, verify
from koordcore.allocators.claims.cluster import cluster_devices
from koordcore.model.claims import DeviceConstraint, ResourceClaim
from koordcore.model.device_slices import AttributeKind, AttributeValue, ResourceSlice, SliceDevice
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorOperator,
)
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)
from tests.scheduling.test_claims import DRIVER, GPU, TEMPLATES, TWO, devices, node, pod

NEAR = attrs.evolve(TWO, constraints=(DeviceConstraint((), match_attribute=f"{DRIVER}/side"),))
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
    less = again.with_records(ResourceClaim(name="any", spec=TWO))
    assert cluster_devices(less) is known
    wider = less.with_records(ResourceClaim(name="near", spec=NEAR))
    assert cluster_devices(wider) is not known


def told(snapshot: ClusterSnapshot) -> object:
    """What claims are told of the devices of each node."""
    devices = cluster_devices(snapshot)
    tables = [[str(one.id) for one in devices.table(shape).devices] for shape in range(devices.shapes)]
    seen = [[(one.driver, one.name, one.usable) for one in each.pools] for each in devices.pools]
    places = [devices.places(row) for row in range(len(devices.pools))]
    names = [each.node.name for each in devices.pools]
    pools = sorted({(one.driver, one.name) for each in devices.pools for one in each.pools})
    rows = [sorted(devices.rows_of(pool)) for pool in pools]
    return names, devices.shape, tables, seen, places, rows, devices.local


@st.composite
def changes(draw: st.DrawFn, names: Sequence[str], slices: Sequence[ResourceSlice]) -> Change:
    name = draw(st.sampled_from("abcd"))
    kind = draw(st.sampled_from(["label", "leaves", "slice", "slice", "gone", "shared"]))
    if kind == "label" or (kind == "leaves" and name not in names):
        labels = {"rack": draw(st.sampled_from(["r1", "r2"]))}
        one = attrs.evolve(node(name), labels=labels)
        return NodeReplaced(one) if name in names else NodeAdded(one)
    if kind == "leaves":
        return NodeRemoved(name)
    if kind == "gone" and slices:
        return RecordRemoved(draw(st.sampled_from(slices)))
    made = railed(name, *draw(st.lists(st.integers(0, 1), max_size=3)))
    made = attrs.evolve(made, generation=draw(st.integers(1, 2)), slice_count=draw(st.integers(1, 2)))
    if kind == "shared":
        rack = Requirement("rack", SelectorOperator.IN, ("r1",))
        reach = NodeSelector((NodeSelectorTerm((rack,)),))
        made = attrs.evolve(made, name="shared", pool=name, node_name="", node_selector=reach)
    elif draw(st.booleans()):
        made = attrs.evolve(made, pool="common", name=f"{name}-common")
    there = {one.name for one in slices}
    return RecordReplaced(made) if made.name in there else RecordAdded(made)


@given(data=st.data())
def test_devices_that_followed_nodes_and_slices_are_those_that_are_made_anew(data: st.DataObject) -> None:
    snapshot = cluster().with_records(ResourceClaim(name="alike", spec=ALIKE))
    cluster_devices(snapshot)
    for _ in range(data.draw(st.integers(1, 6))):
        names = [state.name for state in snapshot.nodes]
        snapshot = snapshot.apply(data.draw(changes(names, snapshot.of(ResourceSlice))))
        if data.draw(st.booleans()):
            cluster_devices(snapshot)
    fresh = ClusterSnapshot(nodes=snapshot.nodes, records=snapshot.records)
    assert told(snapshot) == told(fresh)


def test_a_label_that_no_slice_reads_leaves_the_devices_as_they_were() -> None:
    first = cluster()
    known = cluster_devices(first)
    told_else = first.apply(NodeReplaced(attrs.evolve(node("a"), labels={"seen": "true"})))
    assert cluster_devices(told_else) is known
