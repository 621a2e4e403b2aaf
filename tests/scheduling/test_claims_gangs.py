"""Gangs whose members have devices by claims, where one after another they would find none left."""

from __future__ import annotations

import json
from collections.abc import Sequence

import attrs
import pytest

from benchmarks.claims_data import CLASSES, PROFILES, claim, mig_cards, pairs, request, whole_gpus
from koordcore import Bound, ClusterSnapshot, Node, Pod, ResourceSlice, ScheduleResult, schedule, verify
from koordcore.manifests.plan_patches import patches
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.device_slices import DeviceCapacity, SliceDevice
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import PodResourceClaim, SchedulingGroup
from koordcore.model.scheduling_groups import GroupClaim, SchedulingPodGroup

GANG = "gang.scheduling.koordinator.sh/"


def partition(profile: str, name: str = "r") -> ClaimRequest:
    return request(name, "mig", 1, profile)


def either(*forms: DeviceSubRequest) -> ClaimSpec:
    """A request with alternatives, the best first."""
    named = tuple(attrs.evolve(form, name=f"f{number}") for number, form in enumerate(forms))
    return ClaimSpec((ClaimRequest("r", named, prioritized=True),))


TEMPLATES = {
    "gpu": claim("c", [request("gpu", "gpu")]).spec,
    "two": claim("c", [request("gpu", "gpu", 2)]).spec,
    "eight": claim("c", [request("gpu", "gpu", 8)]).spec,
    "pair": pairs(1).spec,
    "card-or-1g": either(DeviceSubRequest(class_name="gpu"), *partition("1g.10gb").forms),
    **{profile.replace(".", "-"): claim("c", [partition(profile)]).spec for profile in PROFILES},
}


def member(name: str, template: str = "", *, named: str = "", least: int, gang: str = "g") -> Pod:
    entry = PodResourceClaim("c", claim=named, template=template)
    return Pod(
        name=name,
        uid=f"uid-{name}",
        requests={"cpu": 1000},
        resource_claims=(entry,),
        annotations={f"{GANG}name": gang, f"{GANG}min-available": str(least)},
    )


def gang(*templates: str) -> list[Pod]:
    return [member(f"m{n:02}", one, least=len(templates)) for n, one in enumerate(templates)]


def cluster(
    slices: Sequence[Sequence[ResourceSlice]], pending: Sequence[Pod], *claims: ResourceClaim
) -> ClusterSnapshot:
    nodes = [one[0].node_name for one in slices]
    return ClusterSnapshot(
        nodes=[Node(name=name, allocatable={"cpu": 64000, "pods": 110}) for name in nodes],
        pending=pending,
        records=[
            *CLASSES.values(),
            *(ResourceClaimTemplate(name=name, spec=spec) for name, spec in TEMPLATES.items()),
            *(part for one in slices for part in one),
            *claims,
        ],
    )


def legal(snapshot: ClusterSnapshot) -> ScheduleResult:
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


def forms(result: ScheduleResult) -> list[str]:
    return sorted(
        got.request for one in result.bound for held in one.claims for got in held.allocation.results
    )


def test_members_forgo_what_they_would_rather_have_so_that_all_fit() -> None:
    """Each would take a whole card; on two cards fourteen of them fit as partitions, and not fifteen."""
    nodes = [mig_cards("a", 1), mig_cards("b", 1)]
    alone = [attrs.evolve(one, annotations={}) for one in gang(*["card-or-1g"] * 14)]
    assert len(legal(cluster(nodes, alone)).bound) == 2
    result = legal(cluster(nodes, gang(*["card-or-1g"] * 14)))
    assert forms(result) == ["r/f1"] * 14
    # Where there is room for some to have the better form, they do.
    assert forms(legal(cluster(nodes, gang("card-or-1g", "card-or-1g")))) == ["r/f0", "r/f0"]
    short = legal(cluster(nodes, gang(*["card-or-1g"] * 15)))
    assert not short.bound
    certificate = short.jobs[0].certificate
    assert certificate is not None
    assert certificate.proven
    assert short.jobs[0].detail == "the cluster has 14 of 15 slots; 1 more would do"


def test_a_part_with_fewer_pods_than_it_needs_stops_its_gang_where_some_share_a_claim() -> None:
    shared = ResourceClaim(name="shared", spec=TEMPLATES["gpu"])
    label = {"pod-group.scheduling.sigs.k8s.io": "g", f"{GANG}sub-group": "w"}
    pods = [member(f"m{number}", named="shared", least=2) for number in range(2)]
    pods = [attrs.evolve(one, annotations={}, labels=label) for one in (*pods, member("m2", "gpu", least=2))]
    for least, starts in ((3, 3), (4, 0)):
        parts = json.dumps({"subGroups": [{"name": "w", "minMember": least}]})
        record = PodGroup(name="g", min_member=2, annotations={f"{GANG}sub-groups": parts})
        snapshot = cluster([whole_gpus("a", 2)], pods, shared).with_records(record)
        assert len(legal(snapshot).bound) == starts


def test_members_of_several_kinds_share_cards_in_the_one_way_that_there_is() -> None:
    """12 x 1g and 5 x 3g fill four cards; another 3g has no room."""
    nodes = [mig_cards("a", 2), mig_cards("b", 2)]
    kinds = ["1g-10gb"] * 12 + ["3g-40gb"] * 5
    assert len(legal(cluster(nodes, gang(*kinds))).bound) == 17
    short = legal(cluster(nodes, gang(*kinds, "3g-40gb")))
    assert not short.bound
    assert short.jobs[0].certificate is not None
    assert short.jobs[0].certificate.proven


def test_a_large_gang_fills_fifty_nodes_with_eight_cards_each() -> None:
    nodes = [whole_gpus(f"n{number:02}", 8, nics=(0, 2)) for number in range(50)]
    result = legal(cluster(nodes, gang(*["pair"] * 100, *["gpu"] * 300)))
    assert len(result.bound) == 400
    over = legal(cluster(nodes, gang(*["pair"] * 101, *["gpu"] * 299)))
    assert not over.bound
    assert over.jobs[0].certificate is not None
    assert over.jobs[0].certificate.proven


def test_a_claim_that_all_members_share_takes_them_to_one_node() -> None:
    """Two nodes have a card; only the second has room for all who share it."""
    shared = ResourceClaim(name="shared", spec=TEMPLATES["gpu"])
    members = [member(f"m{number}", named="shared", least=3) for number in range(3)]
    small = cluster([whole_gpus("a", 2), whole_gpus("b", 2)], members, shared)
    nodes = [
        attrs.evolve(state.node, allocatable={"cpu": 2000 if state.name == "a" else 3000, "pods": 110})
        for state in small.nodes
    ]
    result = legal(small.with_nodes(*nodes))
    assert {one.node for one in result.decisions if isinstance(one, Bound)} == {"b"}
    assert len(result.bound) == 3


@pytest.mark.parametrize("watching", [0, 1])
def test_whoever_watches_a_shared_device_is_bound_before_it_is_full(watching: int) -> None:
    """Admin access has to find enough left and takes nothing; decisions come in the order of the queue."""
    shared = SliceDevice(name="a", capacity={"mem": DeviceCapacity(10)}, allow_multiple_allocations=True)
    part = ResourceSlice(
        name="s", driver="gpu.example.com", pool="n", node_name="n", devices=(shared, SliceDevice(name="b"))
    )
    form = DeviceSubRequest(class_name="any")
    admin = DeviceSubRequest(class_name="any", admin_access=True, capacity={"mem": 1})
    members = [member(f"m{number}", "one", least=2) for number in range(2)]
    entries = (*members[watching].resource_claims, PodResourceClaim("w", claim="watch"))
    members[watching] = attrs.evolve(members[watching], resource_claims=entries)
    snapshot = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 64000, "pods": 110})],
        pending=members,
        records=[
            DeviceClass(name="any"),
            ResourceClaimTemplate(name="one", spec=ClaimSpec((ClaimRequest("r", (form,)),))),
            ResourceClaim(name="watch", spec=ClaimSpec((ClaimRequest("r", (admin,)),))),
            part,
        ],
    )
    assert len(legal(snapshot).bound) == 2


@pytest.mark.parametrize(
    ("room", "number"), [((2, 1), 3), ((1, 2), 3), ((1, 1), 0), ((2, 0), 0), ((3, 0), 3), ((2, 2), 4)]
)
def test_of_members_of_whom_two_share_a_claim_as_many_start_as_have_to(
    room: tuple[int, int], number: int
) -> None:
    """Three of four are needed; the two stay together, on whichever node has room for both."""
    shared = ResourceClaim(name="shared", spec=TEMPLATES["gpu"])
    pods = [member(f"m{place}", named="shared", least=3) for place in range(2)]
    pods += [attrs.evolve(member(f"m{place}", least=3), resource_claims=()) for place in (2, 3)]
    cards = [whole_gpus(name, 1) for name in "ab"]
    nodes = [
        Node(name=name, allocatable={"cpu": 1000 * size, "memory": 2**34, "pods": 9})
        for name, size in zip("ab", room, strict=True)
    ]
    snapshot = cluster(cards, pods).with_nodes(*nodes).with_records(shared)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert len(result.bound) == number


def test_that_no_node_has_room_for_all_who_share_a_claim_is_proven() -> None:
    """Three nodes have room for one member each; two of the three share a card."""
    shared = ResourceClaim(name="shared", spec=TEMPLATES["gpu"])
    members = [*(member(f"m{number}", named="shared", least=3) for number in range(2))]
    members.append(member("m2", "gpu", least=3))
    snapshot = cluster([whole_gpus(name, 2) for name in "abc"], members, shared)
    narrow = [attrs.evolve(state.node, allocatable={"cpu": 1000, "pods": 110}) for state in snapshot.nodes]
    result = legal(snapshot.with_nodes(*narrow))
    assert not result.bound
    (job,) = result.jobs
    assert job.certificate is not None
    assert job.certificate.proven
    assert job.detail.endswith("a, has 1 of 2 cpu; 1 more needed")


# -- claims of Kubernetes' own groups -----------------------------------------------------------------------


def grouped(entry: PodResourceClaim, count: int, *claims: ResourceClaim, cpus: int = 3) -> ClusterSnapshot:
    """A PodGroup with one claim, all of whose members are needed; node ``b`` has CPUs for so many of them."""
    group = SchedulingPodGroup(
        name="train",
        uid="uid-train",
        min_count=count,
        claims=(GroupClaim(name=entry.name, claim=entry.claim, template=entry.template),),
    )
    pods = [
        Pod(
            name=f"m{number}",
            uid=f"uid-{number}",
            requests={"cpu": 1000},
            resource_claims=(entry,),
            scheduling_group=SchedulingGroup("train"),
        )
        for number in range(count)
    ]
    snapshot = cluster([whole_gpus("a", 1), whole_gpus("b", 1)], pods, *claims)
    nodes = [
        attrs.evolve(state.node, allocatable={"cpu": 1000 * (2 if state.name == "a" else cpus), "pods": 9})
        for state in snapshot.nodes
    ]
    return snapshot.with_nodes(*nodes).with_records(group)


def test_a_template_of_a_group_gives_one_claim_for_all_members() -> None:
    result = legal(grouped(PodResourceClaim("c", template="gpu"), 3))
    assert {one.node for one in result.bound} == {"b"}
    (name,) = {held.name for one in result.bound for held in one.claims}
    assert name.startswith("train-c-")
    assert sorted(one.claims[0].fresh for one in result.bound) == [False, False, True]
    assert not legal(grouped(PodResourceClaim("c", template="gpu"), 3, cpus=2)).bound


def test_a_claim_of_a_group_is_reserved_for_the_group_once() -> None:
    claim = ResourceClaim(name="shared", uid="u", spec=TEMPLATES["gpu"])
    result = legal(grouped(PodResourceClaim("c", claim="shared"), 3, claim))
    written = result.snapshot.find(ResourceClaim, "shared", "default")
    assert written is not None
    assert [(one.name, one.resource, one.uid) for one in written.reserved_for] == [
        ("train", "podgroups", "uid-train")
    ]
    statuses = [call for call in patches(result) if call.claim and call.subresource == "status"]
    sent = [call.body["status"]["reservedFor"] for call in statuses]
    assert sent == [
        [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "uid-train"}]
    ] * len(sent)
    assert sent


def test_members_that_take_a_claim_each_where_the_group_has_one_are_not_legal() -> None:
    snapshot = grouped(PodResourceClaim("c", template="gpu"), 2)
    result = legal(snapshot)
    first, second = result.bound
    forged = attrs.evolve(second, claims=(attrs.evolve(second.claims[0], name="another"),))
    decisions = tuple(forged if one is second else one for one in result.decisions)
    assert first.pod != second.pod
    found = verify(snapshot, attrs.evolve(result, decisions=decisions))
    assert any("is one claim of group train" in one.message for one in found)
