"""Gangs whose members take devices that several nodes reach, such as those attached to the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pytest

from koordcore import ClusterSnapshot, Node, Pod, verify
from koordcore.allocators.gang.demand import GangShortfall
from koordcore.checking.violation import ViolationKind
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.claims import (
    ALL_DEVICES,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceSubRequest,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import AttributeKind, AttributeValue, ResourceSlice, SliceDevice
from koordcore.model.pods import PodResourceClaim, SchedulingGroup
from koordcore.model.scheduling_groups import GroupClaim, SchedulingPodGroup
from koordcore.scheduling import shared_devices
from tests.scheduling.test_claims import DRIVER, legal
from tests.scheduling.test_claims_shared import gang

KINDS = (
    DeviceClass(name="any"),
    *(
        DeviceClass(name=kind, selectors=(f"device.attributes['{DRIVER}'].kind == '{kind}'",))
        for kind in ("a", "b")
    ),
)


def pool(name: str, kinds: str, node: str = "") -> ResourceSlice:
    """Devices of some kinds, by number; of all nodes where none is named."""
    devices = tuple(
        SliceDevice(name=f"d{number}", attributes={"kind": AttributeValue(AttributeKind.STRING, (kind,))})
        for number, kind in enumerate(kinds)
    )
    return ResourceSlice(
        name=name, driver=DRIVER, pool=name, node_name=node, all_nodes=not node, devices=devices
    )


def member(name: str, *kinds: str, node: str = "", cpu: int = 1000) -> tuple[Pod, ResourceClaimTemplate]:
    """A pod that asks for one device of each kind, on one node or anywhere."""
    requests = tuple(
        ClaimRequest(f"r{number}", (DeviceSubRequest(class_name=kind),)) for number, kind in enumerate(kinds)
    )
    pod = Pod(
        name=name,
        requests={"cpu": cpu},
        resource_claims=(PodResourceClaim("c", template=name),),
        node_selector={"name": node} if node else {},
    )
    return pod, ResourceClaimTemplate(name=name, spec=ClaimSpec(requests))


def cluster(
    cpus: Mapping[str, int],
    pools: Sequence[ResourceSlice],
    members: Sequence[tuple[Pod, ResourceClaimTemplate]],
) -> ClusterSnapshot:
    nodes = [
        Node(name=name, allocatable={"cpu": 1000 * cpu, "pods": 9}, labels={"name": name})
        for name, cpu in cpus.items()
    ]
    return ClusterSnapshot(
        nodes=nodes,
        pending=gang(*(pod for pod, _ in members)),
        records=[*KINDS, *pools, *(template for _, template in members)],
    )


@pytest.mark.parametrize("name", ["net", "anet", "zz"])
def test_a_member_leaves_a_device_of_all_nodes_to_one_that_has_no_other(name: str) -> None:
    pools = [pool("l0", "b", "n0"), pool(name, "b")]
    members = [member("w0", "any", node="n0"), member("w1", "any", node="n1")]
    result = legal(cluster({"n0": 8, "n1": 8}, pools, members))
    assert {one.pod.name: one.node for one in result.bound} == {"w0": "n0", "w1": "n1"}
    (job,) = result.jobs
    assert job.certificate is not None
    assert job.certificate.proven


@pytest.mark.parametrize("name", ["net", "anet"])
def test_which_of_several_devices_of_all_nodes_a_member_gets_is_chosen_with_the_others(name: str) -> None:
    """The one that asks for anything may have either device, the other only the one of its kind."""
    for kinds in ("ab", "ba"):
        members = [member("w0", "any", node="n0"), member("w1", "a", node="n1")]
        result = legal(cluster({"n0": 8, "n1": 8}, [pool(name, kinds)], members))
        assert len(result.bound) == 2


def test_a_member_goes_to_another_node_where_its_devices_are_lacking_to_others() -> None:
    """Whoever can go anywhere goes to the one node that has devices of its own."""
    pools = [pool("l0", "aa", "n0"), pool("l2", "b", "n2"), pool("zz", "a")]
    members = [member("w0", "a"), member("w1", "any", "a", node="n2")]
    result = legal(cluster({"n0": 3, "n1": 3, "n2": 1}, pools, members))
    assert {one.pod.name: one.node for one in result.bound} == {"w0": "n0", "w1": "n2"}

    pools = [pool("l0", "a", "n0"), pool("l1", "b", "n1"), pool("anet", "ba"), pool("zz", "a")]
    members = [member("w0", "any", "any"), member("w1", "a", "a", node="n1")]
    result = legal(cluster({"n0": 2, "n1": 1, "n2": 1}, pools, members))
    assert {one.pod.name: one.node for one in result.bound} == {"w0": "n0", "w1": "n1"}


def test_a_gang_that_finds_too_few_devices_of_all_nodes_is_proven_not_to_fit() -> None:
    members = [member("w0", "a", node="n0"), member("w1", "a", node="n1"), member("w2", "b")]
    snapshot = cluster({"n0": 8, "n1": 8}, [pool("net", "abb")], members)
    result = legal(snapshot)
    assert not result.bound
    (job,) = result.jobs
    assert job.certificate is not None
    assert job.certificate.proven
    assert job.detail == "no choice of nodes leaves devices for all members: nodes share some of them"
    # Two of them are enough for a gang that needs no more: the others start.
    two = [attrs.evolve(one, annotations={**one.annotations, **_least(2)}) for one in snapshot.pending]
    fewer = ClusterSnapshot(nodes=snapshot.nodes, pending=two, records=snapshot.records)
    assert len(legal(fewer).bound) == 2


def _least(number: int) -> dict[str, str]:
    return {"gang.scheduling.koordinator.sh/min-available": str(number)}


def test_nothing_is_proven_of_places_for_which_the_budget_of_the_planner_ran_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All choices of nodes were looked at, and of one of them it is not known whether it is a plan."""
    unknown = Certificate(CertificateStatus.HEURISTIC)
    out = GangShortfall(message="", detail="", desired=2, placeable=-1, certificate=unknown)
    asked: list[object] = []

    def gives_up(*question: object, **_: object) -> GangShortfall:
        asked.append(question)
        return out

    monkeypatch.setattr(shared_devices, "place_gang", gives_up)
    pools = [pool("l0", "aa", "n0"), pool("l2", "b", "n2"), pool("zz", "a")]
    members = [member("w0", "a"), member("w1", "any", "a", node="n2")]
    result = legal(cluster({"n0": 3, "n1": 3, "n2": 1}, pools, members))
    assert asked
    (job,) = result.jobs
    assert job.certificate is None or not job.certificate.infeasible


def sharing(
    pods: Mapping[str, int], pools: Sequence[ResourceSlice], least: int, *own: bool, for_all: bool = False
) -> ClusterSnapshot:
    """A group whose members share its claim, some of which want a device of their own, too."""
    common = PodResourceClaim("x", template="common")
    one = DeviceSubRequest(class_name="any")
    form = attrs.evolve(one, mode=ALL_DEVICES) if for_all else one
    members = [
        Pod(
            name=f"p{number}",
            resource_claims=(common, PodResourceClaim("y", template="own")) if more else (common,),
            scheduling_group=SchedulingGroup(pod_group="g"),
        )
        for number, more in enumerate(own)
    ]
    return ClusterSnapshot(
        nodes=[Node(name=name, allocatable={"cpu": 8000, "pods": number}) for name, number in pods.items()],
        pending=members,
        records=[
            *KINDS,
            *pools,
            ResourceClaimTemplate(name="common", spec=ClaimSpec((ClaimRequest("r", (form,)),))),
            ResourceClaimTemplate(name="own", spec=ClaimSpec((ClaimRequest("r", (one,)),))),
            SchedulingPodGroup(name="g", min_count=least, claims=(GroupClaim(name="x", template="common"),)),
        ],
    )


@pytest.mark.parametrize("net", ["net", "anet"])
def test_members_on_several_nodes_share_a_claim_whose_devices_reach_all_of_them(net: str) -> None:
    """The one that wants two devices finds them on ``n1`` alone, which has room for nobody else."""
    result = legal(
        sharing({"n0": 3, "n1": 1}, [pool("l1", "a", "n1"), pool(net, "b")], 2, True, False, False)
    )
    assert {one.pod.name: one.node for one in result.bound} == {"p0": "n1", "p1": "n0", "p2": "n0"}
    assert {one.claims[0].allocation.results[0].pool for one in result.bound} == {net}


def test_members_are_proven_to_have_no_nodes_that_a_shared_claim_reaches() -> None:
    """Each node has room for one, and the devices that reach both are none, or stay with the first."""
    bound = pool("net", "b")
    bound = attrs.evolve(bound, devices=tuple(attrs.evolve(one, binds_to_node=True) for one in bound.devices))
    local = [pool("l0", "ab", "n0"), pool("l1", "ab", "n1")]
    for pools in (local, [*local, bound]):
        result = legal(sharing({"n0": 1, "n1": 1}, pools, 2, False, False))
        (job,) = result.jobs
        assert not result.bound
        assert job.certificate is not None
        assert job.certificate.proven
    assert len(legal(sharing({"n0": 1, "n1": 1}, [*local, pool("net", "b")], 2, False, False)).bound) == 2


def test_what_are_all_devices_of_one_node_is_shared_with_a_node_that_has_others_beside() -> None:
    """On ``n0`` all devices are three, one of which the second member needs for itself; on ``n1`` two."""
    snapshot = sharing(
        {"n0": 2, "n1": 1}, [pool("l0", "a", "n0"), pool("net", "bb")], 2, False, True, for_all=True
    )
    result = legal(snapshot)
    assert {one.pod.name: one.node for one in result.bound} == {"p0": "n1", "p1": "n0"}
    fresh = {one.pod.name: [held.fresh for held in one.claims] for one in result.bound}
    assert fresh == {"p0": [True], "p1": [False, True]}
    # Who follows is told first, or last.
    turned = attrs.evolve(result, decisions=result.decisions[::-1])
    assert [one.kind for one in verify(snapshot, turned) if one.kind is ViolationKind.CLAIM] == []


@pytest.mark.parametrize("kinds", ["b", "ab"])
def test_a_member_that_wants_all_devices_of_its_node_is_left_those_that_reach_it(kinds: str) -> None:
    """The other one has its device of ``n2`` alone, whatever scores better."""
    pools = [
        pool("l0", "bb", "n0"),
        pool("l1", "bb", "n1"),
        pool("l2", kinds + "a", "n2"),
        pool("anet", "ab"),
    ]
    snapshot = sharing({"n0": 2, "n1": 1, "n2": 2}, pools, 2, False, False, for_all=True)
    one, other = snapshot.pending
    wanting, template = member(one.name, "a")
    wanting = attrs.evolve(wanting, scheduling_group=one.scheduling_group)
    result = legal(snapshot.with_records(template).with_pending(wanting, other))
    assert len(result.bound) == 2
    assert [one.claims[0].allocation.results[0].pool for one in result.bound if one.pod.name == "p0"] == [
        "l2"
    ]
