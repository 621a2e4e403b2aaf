"""Claims that come and change on a line: it decides as a cluster made anew, and looks at what changed."""

from __future__ import annotations

import sys
from types import FrameType

import attrs
from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, NodeState, Pod, schedule, verify
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimConsumer,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceResult,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import ResourceSlice, SliceDevice
from koordcore.model.pods import PodKey, PodResourceClaim
from koordcore.model.records import ClusterRecord
from koordcore.snapshot import Change, PodBound, PodEnded, RecordAdded, RecordRemoved, RecordReplaced
from koordcore.snapshot.changes import record_key

DRIVER = "d.example.com"
NODES = ("a", "b", "c")
ONE = ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="k"),)),))
NAMED = tuple(PodResourceClaim("e", claim=f"c{number}") for number in range(3))
TEMPLATED = PodResourceClaim("e", template="t")
PODS = tuple(f"p{number}" for number in range(4))


def published(node: str) -> ResourceSlice:
    """Two devices of a node."""
    devices = (SliceDevice(name="x"), SliceDevice(name="y"))
    return ResourceSlice(name=node, driver=DRIVER, pool=node, node_name=node, devices=devices)


def allocated(node: str, device: str) -> ClaimAllocation:
    """A device of a node."""
    return ClaimAllocation(results=(DeviceResult(request="r", driver=DRIVER, pool=node, device=device),))


def cluster() -> ClusterSnapshot:
    """Three nodes with two devices each."""
    room = {"cpu": 4000, "pods": 20}
    records: list[ClusterRecord] = [DeviceClass(name="k"), ResourceClaimTemplate(name="t", spec=ONE)]
    return ClusterSnapshot(
        nodes=[Node(name=name, allocatable=room) for name in NODES],
        records=[*records, *map(published, NODES)],
    )


@st.composite
def claims(draw: st.DrawFn) -> ResourceClaim:
    """One of a few claims: with or without devices, of whom it likes, reserved for whomever."""
    number = draw(st.integers(0, 2))
    devices = st.builds(allocated, st.sampled_from(NODES), st.sampled_from("xy"))
    users = draw(st.lists(st.sampled_from((*PODS, "nobody")), unique=True, max_size=2))
    owner = draw(st.sampled_from(("", "", *PODS)))
    return ResourceClaim(
        name=f"c{number}",
        spec=ONE,
        allocation=draw(st.one_of(st.none(), devices)),
        reserved_for=tuple(ClaimConsumer(name) for name in users),
        owner=owner,
        pod_claim_name="e" if owner else "",
        deleting=draw(st.sampled_from((False, False, False, True))),
    )


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    """A pod with a claim by name or by template, or without any."""
    entry = draw(st.sampled_from((*NAMED, TEMPLATED, None)))
    return Pod(name=name, requests={"cpu": 100}, resource_claims=() if entry is None else (entry,))


@st.composite
def changes(draw: st.DrawFn, snapshot: ClusterSnapshot) -> list[Change]:
    """One thing that happens; nothing, where it cannot."""
    running = {one.key: one for one in snapshot.bound_pods()}
    match draw(st.sampled_from(("claim", "claim", "claim", "goes", "ends", "binds", "told"))):
        case "ends":
            return [PodEnded(draw(st.sampled_from(sorted(running))))] if running else []
        case "binds":
            name = draw(st.sampled_from(PODS))
            pod = draw(pods(name)).at(draw(st.sampled_from(NODES)))
            return [] if snapshot.pod(pod.key) is not None else [PodBound(pod)]
        case "told":  # a watch event says of a pod decided here what its object says
            holders = sorted(key for key, one in running.items() if one.held_claims)
            if not holders:
                return []
            key = draw(st.sampled_from(holders))
            return [PodEnded(key), PodBound(attrs.evolve(running[key], held_claims=()))]
        case "goes":
            there = snapshot.of(ResourceClaim)
            return [RecordRemoved(draw(st.sampled_from(there)))] if there else []
        case _:
            one = draw(claims())
            known = {record_key(other) for other in snapshot.records}
            return [RecordReplaced(one) if record_key(one) in known else RecordAdded(one)]


@given(st.data())
@settings(max_examples=80)
def test_a_line_of_claims_decides_as_a_cluster_made_anew(data: st.DataObject) -> None:
    line = cluster()
    for step in range(data.draw(st.integers(2, 8))):
        for _ in range(data.draw(st.integers(0, 2))):
            line = line.apply(*data.draw(changes(line)))
        names = [name for name in PODS if line.pod(PodKey("default", name)) is None]
        asked = [data.draw(pods(name)) for name in (*names[: data.draw(st.integers(0, 2))], f"q{step}")]
        asked.append(Pod(name=f"r{step}", requests={"cpu": 100}, resource_claims=(TEMPLATED,)))
        states = [NodeState(one.node, one.pods) for one in line.nodes]
        fresh = ClusterSnapshot(nodes=states, pending=line.pending, records=line.records)
        result, anew = schedule(line, asked), schedule(fresh, asked)
        assert result.decisions == anew.decisions
        if data.draw(st.booleans()):
            line = result.snapshot


def taken(line: ClusterSnapshot, name: str) -> tuple[ClusterSnapshot, str]:
    """Ask for one device on a line; gives what the line is then, and the device, empty for none."""
    result = schedule(line, [Pod(name=name, requests={"cpu": 100}, resource_claims=(TEMPLATED,))])
    bound = result.bound
    got = [str(one.id) for held in bound[0].claims for one in held.allocation.results] if bound else []
    return result.snapshot, "".join(got)


def test_a_claim_of_two_pods_that_gets_another_device_holds_that_alone() -> None:
    users = (ClaimConsumer("p0"), ClaimConsumer("p1"))
    before, after = (
        ResourceClaim(name="c0", spec=ONE, allocation=allocated("a", device), reserved_for=users)
        for device in "xy"
    )
    line = cluster().apply(RecordAdded(before))
    for user in users:
        pod = Pod(name=user.name, requests={"cpu": 100}, resource_claims=NAMED[:1])
        line = line.apply(PodBound(pod.at("a")))
    assert taken(line, "first")[1] == f"{DRIVER}/a/y"
    assert taken(line.apply(RecordReplaced(after)), "next")[1] == f"{DRIVER}/a/x"


def calls(number: int) -> int:
    """Count the calls of a decision after a claim came, beside as many claims as there are nodes."""
    room = {"cpu": 4000, "pods": 20}
    held = [
        ResourceClaim(
            name=f"h{row}",
            spec=ONE,
            allocation=allocated(f"n{row:04}", "x"),
            reserved_for=(ClaimConsumer(f"h{row}"),),
        )
        for row in range(number)
    ]
    states = [
        NodeState(
            Node(name=f"n{row:04}", allocatable=room),
            (
                Pod(
                    name=f"h{row}",
                    node_name=f"n{row:04}",
                    resource_claims=(PodResourceClaim("e", claim=f"h{row}"),),
                ),
            ),
        )
        for row in range(number)
    ]
    slices = [published(one.name) for one in states]
    line = ClusterSnapshot(nodes=states, records=[DeviceClass(name="k"), *slices, *held])
    counted = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for step in range(4):
        entry = PodResourceClaim("e", claim=f"new-{step}")
        asked = Pod(name=f"new-{step}", requests={"cpu": 100}, resource_claims=(entry,))
        line = line.apply(RecordAdded(ResourceClaim(name=f"new-{step}", spec=ONE)))
        counted = 0
        sys.setprofile(note)
        try:
            result = schedule(line, [asked])
        finally:
            sys.setprofile(None)
        assert len(result.bound) == 1
        assert verify(line, result) == ()
        line = result.snapshot
    return counted


def test_a_claim_that_comes_costs_as_much_beside_four_times_as_many() -> None:
    few, many = calls(60), calls(240)
    assert many < 1.5 * few, (few, many)
