"""Claims, slices and nodes that change on a line: it decides as if made anew, and looks at what changed."""

from __future__ import annotations

import sys
from types import FrameType

import attrs
import pytest
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
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    PodBound,
    PodEnded,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)
from koordcore.snapshot.changes import record_key

DRIVER = "d.example.com"
NODES = ("a", "b", "c")
JOINING = ("aa", "d")
SETS = ("xy", "yx", "x", "xyz")
ROOM = {"cpu": 4000, "pods": 20}
ONE = ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="k"),)),))
NAMED = tuple(PodResourceClaim("e", claim=f"c{number}") for number in range(3))
TEMPLATED = PodResourceClaim("e", template="t")
PODS = tuple(f"p{number}" for number in range(4))


def published(node: str, names: str = "xy") -> ResourceSlice:
    """Two devices of a node, or others."""
    devices = tuple(SliceDevice(name=name) for name in names)
    return ResourceSlice(name=node, driver=DRIVER, pool=node, node_name=node, devices=devices)


SHARED = ResourceSlice(
    name="net",
    driver=DRIVER,
    pool="net",
    all_nodes=True,
    devices=(SliceDevice(name="n1"), SliceDevice(name="n2")),
)


def allocated(node: str, device: str) -> ClaimAllocation:
    """A device of a node."""
    return ClaimAllocation(results=(DeviceResult(request="r", driver=DRIVER, pool=node, device=device),))


def cluster(*more: ResourceSlice) -> ClusterSnapshot:
    """Three nodes with two devices each, and whatever else is published."""
    records: list[ClusterRecord] = [DeviceClass(name="k"), ResourceClaimTemplate(name="t", spec=ONE), *more]
    return ClusterSnapshot(
        nodes=[Node(name=name, allocatable=ROOM) for name in NODES],
        records=[*records, *map(published, NODES)],
    )


@st.composite
def claims(draw: st.DrawFn) -> ResourceClaim:
    """One of a few claims: with or without devices, of whom it likes, reserved for whomever."""
    number = draw(st.integers(0, 2))
    own = st.builds(allocated, st.sampled_from(NODES), st.sampled_from("xy"))
    devices = st.one_of(own, st.builds(allocated, st.just("net"), st.sampled_from(("n1", "n2"))))
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
    nodes = [one.name for one in snapshot.nodes]
    kinds = ("claim", "claim", "claim", "goes", "ends", "binds", "told", "slice", "joins", "leaves")
    match draw(st.sampled_from(kinds)):
        case "slice":  # devices come, go, change their places
            one = published(draw(st.sampled_from((*NODES, *JOINING))), draw(st.sampled_from(SETS)))
            known = snapshot.find(ResourceSlice, one.name)
            if known is not None and draw(st.integers(0, 3)) == 0:
                return [RecordRemoved(known)]
            return [RecordReplaced(one) if known is not None else RecordAdded(one)]
        case "joins":
            names = [name for name in (*NODES, *JOINING) if name not in nodes]
            return [NodeAdded(Node(name=draw(st.sampled_from(names)), allocatable=ROOM))] if names else []
        case "leaves":
            name = draw(st.sampled_from(nodes))
            return [NodeRemoved(name)] if len(nodes) > 1 else []
        case "ends":
            return [PodEnded(draw(st.sampled_from(sorted(running))))] if running else []
        case "binds":
            name = draw(st.sampled_from(PODS))
            pod = draw(pods(name)).at(draw(st.sampled_from(nodes)))
            return [] if snapshot.pod(pod.key) is not None else [PodBound(pod)]
        case "told":  # a watch event says of a pod decided here what its object says
            holders = sorted(key for key, one in running.items() if one.held_claims)
            if not holders:
                return []
            key = draw(st.sampled_from(holders))
            return [PodEnded(key), PodBound(attrs.evolve(running[key], held_claims=()))]
        case "goes":
            found = snapshot.of(ResourceClaim)
            return [RecordRemoved(draw(st.sampled_from(found)))] if found else []
        case _:
            claim = draw(claims())
            keys = {record_key(other) for other in snapshot.records}
            return [RecordReplaced(claim) if record_key(claim) in keys else RecordAdded(claim)]


@given(st.data())
@settings(max_examples=80)
def test_a_line_of_claims_decides_as_a_cluster_made_anew(data: st.DataObject) -> None:
    line = cluster(*data.draw(st.sampled_from(((), (SHARED,)))))
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


@pytest.mark.parametrize("more", [(), (SHARED,)])
def test_a_node_that_comes_and_goes_between_calls_frees_no_device(more: tuple[ResourceSlice, ...]) -> None:
    line, found = cluster(*more), list[str]()
    for step in range(6 + 2 * len(more)):
        line, device = taken(line, f"p{step}")
        found.append(device)
        line = line.apply(NodeAdded(Node(name="d", allocatable=ROOM))).apply(NodeRemoved("d"))
    assert len({*found}) == len(found)
    assert "" not in found
    assert not taken(line, "last")[1]


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


def change(kind: str, step: int) -> Change:
    """What happens before a call."""
    match kind:
        case "slice":
            return RecordReplaced(published("n0003", "xyz"[: 2 + step % 2]))
        case "node":
            return NodeAdded(Node(name=f"m{step}", allocatable=ROOM))
        case _:
            return RecordAdded(ResourceClaim(name=f"other-{step}", spec=ONE))


def calls(number: int, kind: str) -> int:
    """Count the calls of a decision after a claim came, beside as many claims as there are nodes."""
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
            Node(name=f"n{row:04}", allocatable=ROOM),
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
        line = line.apply(RecordAdded(ResourceClaim(name=f"new-{step}", spec=ONE)), change(kind, step))
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


@pytest.mark.parametrize("kind", ["claim", "slice", "node"])
def test_what_changes_costs_as_much_beside_four_times_as_many_claims(kind: str) -> None:
    few, many = calls(60, kind), calls(240, kind)
    assert many < 1.5 * few, (few, many)
