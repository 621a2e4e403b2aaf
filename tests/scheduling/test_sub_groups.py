"""Parts of gangs by annotation: slices beside a leader, some of several replicas, some gangs of a group."""

from __future__ import annotations

import json
from collections import Counter

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, PreemptionRules, Unschedulable, schedule, verify
from koordcore.model.gangs import PodGroup
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.pods import PodResourceClaim
from koordcore.result import ScheduleResult
from koordcore.topology.network import NODE_LAYER, LayerSpec

GANG = "pod-group.scheduling.sigs.k8s.io"
PREFIX = "gang.scheduling.koordinator.sh/"
MUST = [{"layer": "Rack", "strategy": "MustGather"}]
NETWORK = ClusterNetworkTopology(
    "default",
    (
        LayerSpec("Block", ("block",)),
        LayerSpec("Rack", ("rack",), "Block"),
        LayerSpec(NODE_LAYER, (), "Rack"),
    ),
)


def nodes(*racks: int) -> list[Node]:
    """One block; racks of so many nodes with eight cards each."""
    return [
        Node(
            name=f"r{rack}-{number}",
            labels={"block": "b", "rack": f"r{rack}"},
            allocatable={"cpu": 64000, "nvidia.com/gpu": 8, "pods": 20},
        )
        for rack, size in enumerate(racks)
        for number in range(size)
    ]


def pods(gang: str, part: str, count: int, cards: int = 8, **labels: str) -> list[Pod]:
    named = {GANG: gang, **({f"{PREFIX}sub-group": part} if part else {}), **labels}
    return [
        Pod(name=f"{gang}-{part}{number}", labels=named, requests={"nvidia.com/gpu": cards, "cpu": 1000})
        for number in range(count)
    ]


def group(name: str, least: int, parts: object, **more: str) -> PodGroup:
    notes = {f"{PREFIX}{key.replace('_', '-')}": text for key, text in more.items()}
    if parts is not None:
        notes[f"{PREFIX}sub-groups"] = parts if isinstance(parts, str) else json.dumps(parts)
    return PodGroup(namespace="default", name=name, min_member=least, annotations=notes)


def legal(snapshot: ClusterSnapshot, **how: object) -> ScheduleResult:
    result = schedule(snapshot, **how)  # type: ignore[arg-type]  # as given
    assert verify(snapshot, result) == ()
    return result


def racks_of(result: ScheduleResult, part: str) -> list[str]:
    found = {one.pod.name: one.node.split("-")[0] for one in result.bound if part in one.pod.name}
    return [found[name] for name in sorted(found)]


SLICES = {"subGroups": [{"name": "leader"}, {"name": "w", "size": 2, "gatherStrategy": MUST}]}


def test_a_leader_is_free_beside_slices_of_workers() -> None:
    """As one podCountMultiple the five are refused in this empty cluster; no rack takes leader and slice."""
    gang = [*pods("g", "leader", 1), *pods("g", "w", 4)]
    result = legal(
        ClusterSnapshot(nodes=nodes(2, 1, 2), pending=gang, records=[NETWORK, group("g", 5, SLICES)])
    )
    assert racks_of(result, "leader") == ["r1"]
    assert racks_of(result, "-w") == ["r0", "r0", "r2", "r2"]
    assert result.jobs[0].certificate is not None
    assert result.jobs[0].certificate.proven


def test_slices_follow_the_ranks_of_their_members() -> None:
    """Ranks count from the first worker on, whatever the names say."""
    ranked = [
        attrs.evolve(pod, annotations={f"{PREFIX}network-topology-index": str(rank)})
        for pod, rank in zip(pods("g", "w", 4), (4, 1, 3, 2), strict=True)
    ]
    parts = {"subGroups": [SLICES["subGroups"][1]]}
    result = legal(
        ClusterSnapshot(nodes=nodes(2, 2), pending=ranked, records=[NETWORK, group("g", 4, parts)])
    )
    found = racks_of(result, "-w")
    assert found[0] == found[2] != found[1] == found[3]


def test_a_label_parts_members_without_a_word_about_parts() -> None:
    """Every value of the label is a slice; who has no such label is free."""
    slices = [pod for value in "abc" for pod in pods("g", "", 2, shard=value)]
    named = [attrs.evolve(pod, name=f"g-{pod.labels['shard']}{k % 2}") for k, pod in enumerate(slices)]
    leader = Pod(name="lead", labels={GANG: "g"}, requests={"cpu": 1})
    parts = {"subGroups": [{"name": "s", "by": "shard", "gatherStrategy": MUST}]}
    snapshot = ClusterSnapshot(
        nodes=nodes(2, 2, 2), pending=[*named, leader], records=[NETWORK, group("g", 7, parts)]
    )
    result = legal(snapshot)
    assert len(result.bound) == 7
    assert all(racks_of(result, f"g-{value}") in (["r0"] * 2, ["r1"] * 2, ["r2"] * 2) for value in "abc")


@pytest.mark.parametrize(
    ("least", "racks", "placed"), [(2, (2, 1, 2), 4), (3, (2, 1, 2), 0), (0, (2, 1, 2), 0)]
)
def test_so_many_replicas_are_enough(least: int, racks: tuple[int, ...], placed: int) -> None:
    """Two racks hold a replica of two each, the third holds half of one."""
    entry = {"name": "w", "size": 2, "gatherStrategy": MUST, **({"minReplicas": least} if least else {})}
    record = group("g", 4, {"subGroups": [entry]})
    result = legal(ClusterSnapshot(nodes=nodes(*racks), pending=pods("g", "w", 6), records=[NETWORK, record]))
    assert len(result.bound) == placed
    assert set(Counter(racks_of(result, "-w")).values()) <= {2}


@pytest.mark.parametrize(("enough", "started"), [(2, {"a", "c"}), (3, set())])
def test_so_many_parts_are_enough(enough: int, started: set[str]) -> None:
    """Three nodes: of parts of two, two and one, two start without any network."""
    parts = {"minSubGroups": enough, "subGroups": [{"name": name} for name in "abc"]}
    gang = [*pods("g", "a", 2), *pods("g", "b", 2), *pods("g", "c", 1)]
    result = legal(ClusterSnapshot(nodes=nodes(3), pending=gang, records=[group("g", 3, parts)]))
    assert {one.pod.name[2] for one in result.bound} == started


def test_the_minimum_of_the_gang_holds_over_its_parts() -> None:
    """Two replicas would be enough, the gang needs five members."""
    entry = {"name": "w", "size": 2, "minReplicas": 2}
    for least, placed in ((4, 4), (5, 0)):
        record = group("g", least, {"subGroups": [entry]})
        result = legal(ClusterSnapshot(nodes=nodes(5), pending=pods("g", "w", 6)[:6], records=[record]))
        assert len(result.bound) == placed


@pytest.mark.parametrize(("members", "started"), [((2, 2, 2), "ab"), ((1, 2, 2), "bc"), ((1, 1, 2), "")])
def test_so_many_gangs_of_a_group_are_enough(members: tuple[int, ...], started: str) -> None:
    """A gang that lacks members holds the others up no more."""
    names = json.dumps([f"default/{name}" for name in "abc"])
    records = [group(name, 2, None, groups=names, min_groups="2") for name in "abc"]
    waiting = [pod for name, count in zip("abc", members, strict=True) for pod in pods(name, "", count)]
    result = legal(ClusterSnapshot(nodes=nodes(5), pending=waiting, records=records))
    assert {one.pod.name[0] for one in result.bound} == set(started)
    assert all(one.least == 4 for one in result.jobs)  # what two of them need


@pytest.mark.parametrize(("count", "placed"), [(2, 3), (3, 0)])
def test_a_gang_in_parts_keeps_its_own_multiple_beside_other_gangs(count: int, placed: int) -> None:
    """Three members make no pairs; the member of the other gang is none of them."""
    names = json.dumps(["default/a", "default/b"])
    pairs = json.dumps(
        {"gatherStrategy": [{"layer": "Rack", "strategy": "PreferGather", "podCountMultiple": 2}]}
    )
    records = [
        group("a", 1, None, groups=names),
        group("b", count, {"subGroups": [{"name": "w"}]}, groups=names, network_topology_spec=pairs),
    ]
    gangs = [*pods("a", "", 1), *pods("b", "w", count)]
    result = legal(ClusterSnapshot(nodes=nodes(3, 1), pending=gangs, records=[NETWORK, *records]))
    assert len(result.bound) == placed
    assert len(set(racks_of(result, "b-w"))) <= 1
    assert result.jobs[0].certificate is not None
    assert result.jobs[0].certificate.infeasible is (placed == 0)


def test_a_gang_in_parts_keeps_to_one_node_beside_other_gangs() -> None:
    """Its own rule tells the nodes of one rack apart, of which each has room for one of its members."""
    names = json.dumps(["default/a", "default/b"])
    alone = json.dumps({"gatherStrategy": [{"layer": NODE_LAYER, "strategy": "MustGather"}]})
    near = json.dumps({"gatherStrategy": MUST})
    records = [
        group("a", 1, None, groups=names, network_topology_spec=near),
        group("b", 2, {"subGroups": [{"name": "w"}]}, groups=names, network_topology_spec=alone),
    ]
    gangs = [*pods("a", "", 2, cards=5), *pods("b", "w", 2, cards=3)]
    result = legal(ClusterSnapshot(nodes=nodes(1, 2), pending=gangs, records=[NETWORK, *records]))
    assert racks_of(result, "a-") == ["r1", "r1"]
    assert racks_of(result, "b-") == ["r0", "r0"]


def test_a_part_to_which_nobody_belongs_is_named() -> None:
    record = group("g", 2, {"subGroups": [{"name": "w", "size": 2}]})
    result = legal(ClusterSnapshot(nodes=nodes(3), pending=pods("g", "", 2), records=[record]))
    assert not result.bound
    told = 'no pod of gang "default/g" belongs to its part "w" (label '
    assert all(told in one.message for one in result.decisions if isinstance(one, Unschedulable))
    assert told in result.jobs[0].message


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({"subGroups": [{"name": "w", "sise": 2}]}, "subGroups[0].sise: unknown field; known are name, "),
        ({"subGroups": [{"name": "w", "size": 2, "minMember": 3}]}, "subGroups[0].minMember: 3 of 2 members"),
        ({"subGroups": [{"name": "w"}, {"name": "w"}]}, 'subGroups[1].name: "w" stands there twice'),
        (
            {"subGroups": [{"name": "w", "gatherStrategy": [{"layer": "Rack", "strategy": "Must"}]}]},
            'strategy: "Must" is none of MustGather, PreferGather',
        ),
        ("{", "not JSON"),
    ],
)
def test_parts_that_cannot_be_read_hold_their_gang_back(parts: object, text: str) -> None:
    """The reason is the path and the right spelling, and other pods go on."""
    snapshot = ClusterSnapshot(
        nodes=nodes(3), pending=[*pods("g", "w", 2), Pod(name="alone")], records=[group("g", 2, parts)]
    )
    result = legal(snapshot)
    assert [one.pod.name for one in result.bound] == ["alone"]
    refused = next(one for one in result.decisions if isinstance(one, Unschedulable))
    assert text in refused.refusal


def test_a_replacement_joins_its_slice() -> None:
    """A node of a running gang died: the new member lies in the rack of its slice, wherever else is room."""
    workers = pods("g", "w", 4)
    record = group("g", 4, {"subGroups": [SLICES["subGroups"][1]]})
    snapshot = ClusterSnapshot(nodes=nodes(3, 3), pending=workers, records=[NETWORK, record])
    there = {"g-w0": "r0-0", "g-w1": "r0-1", "g-w2": "r1-0"}
    for pod in workers[:3]:
        snapshot = snapshot.assume(pod.at(there[pod.name]))
    result = legal(snapshot)
    assert racks_of(result, "g-w3") == ["r1"]
    full = snapshot.assume(
        *(Pod(name=f"x{one}", requests={"nvidia.com/gpu": 8}).at(f"r1-{one}") for one in (1, 2))
    )
    refused = legal(full)
    assert not refused.bound
    assert refused.jobs[0].detail.startswith("default/g:w/1: the best Rack, r1, has 0 of 8 nvidia.com/gpu;")


def test_room_is_made_for_slices_where_they_can_lie() -> None:
    """Evictions in one rack for each slice, and nobody elsewhere."""
    parts = {"subGroups": [{"name": "leader"}, {"name": "w", "size": 2, "gatherStrategy": MUST}]}
    cluster = nodes(2, 1)
    snapshot = ClusterSnapshot(
        nodes=cluster,
        pending=[attrs.evolve(p, priority=9) for p in (*pods("g", "leader", 1), *pods("g", "w", 2))],
        records=[NETWORK, group("g", 3, parts)],
    )
    for node in cluster:
        snapshot = snapshot.assume(Pod(name=f"old-{node.name}", requests={"nvidia.com/gpu": 8}).at(node.name))
    result = legal(snapshot, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert {name: node.split("-")[0] for name, node in plan.nominations.items()} == {
        "default/g-leader0": "r1",
        "default/g-w0": "r0",
        "default/g-w1": "r0",
    }


def full(racks: tuple[int, ...], waiting: list[Pod], *records: PodGroup, kept: int = 0) -> ClusterSnapshot:
    """Every node is full, and the last ones of those that may not be emptied."""
    cluster = nodes(*racks)
    snapshot = ClusterSnapshot(
        nodes=cluster,
        pending=[attrs.evolve(pod, priority=9) for pod in waiting],
        records=[NETWORK, *records],
    )
    for number, node in enumerate(cluster):
        important = 99 if number >= len(cluster) - kept else 0
        old = Pod(name=f"old-{node.name}", requests={"nvidia.com/gpu": 8}, priority=important)
        snapshot = snapshot.assume(old.at(node.name))
    return snapshot


def leaving(snapshot: ClusterSnapshot, members: str = "minimum") -> tuple[dict[str, str], set[str]]:
    """Give who is nominated where, and who leaves; once these have gone, those are bound there."""
    result = legal(snapshot, preempt=PreemptionRules(members=members))
    victims = {one.pod for plan in result.preemptions for one in plan.victims}
    nominated = {name: node for plan in result.preemptions for name, node in plan.nominations.items()}
    later = legal(result.snapshot.forget(*victims))
    assert {str(one.pod): one.node for one in later.bound} == nominated
    return nominated, {one.name for one in victims}


PAIRS = {"subGroups": [{"name": "w", "size": 2, "minMember": 1, "minReplicas": 1}]}


@pytest.mark.parametrize(("kept", "expected"), [(0, 3), (2, 0)])
def test_room_is_made_for_the_minimum_of_the_gang_beyond_that_of_its_parts(kept: int, expected: int) -> None:
    """One member of one part would do for the parts; where there is no room for three nobody leaves."""
    snapshot = full((4,), pods("g", "w", 4), group("g", 3, PAIRS), kept=kept)
    nominated, victims = leaving(snapshot)
    assert (len(nominated), len(victims)) == (expected, expected)


@pytest.mark.parametrize(("kept", "expected"), [(0, 4), (1, 0)])
def test_room_for_all_is_room_for_parts_that_need_not_start(kept: int, expected: int) -> None:
    nominated, _ = leaving(full((4,), pods("g", "w", 4), group("g", 1, PAIRS), kept=kept), "all")
    assert len(nominated) == expected


@pytest.mark.parametrize(("workers", "expected"), [(1, 0), (2, 3)])
def test_nobody_leaves_for_a_group_of_which_a_gang_lacks_members(workers: int, expected: int) -> None:
    """A pair without its second member does not start, and without it the other gang does not."""
    names = json.dumps(["default/a", "default/b"])
    pair = {"subGroups": [{"name": "w", "minMember": 2}]}
    records = [group("a", 1, None, groups=names), group("b", 1, pair, groups=names)]
    nominated, _ = leaving(full((3,), [*pods("a", "", 1), *pods("b", "w", workers)], *records))
    assert len(nominated) == expected


@pytest.mark.parametrize("parts", [None, {"subGroups": [{"name": "w"}]}])
@pytest.mark.parametrize(("count", "expected"), [(3, 0), (2, 3)])
def test_room_for_a_gang_is_made_in_its_own_multiples(count: int, expected: int, parts: object) -> None:
    """Three members make no pairs, and nobody leaves for them."""
    names = json.dumps(["default/a", "default/b"])
    rule = {"layer": "Rack", "strategy": "PreferGather", "podCountMultiple": 2}
    pairs = json.dumps({"gatherStrategy": [rule]})
    records = [
        group("a", 1, None, groups=names),
        group("b", count, parts, groups=names, network_topology_spec=pairs),
    ]
    nominated, _ = leaving(full((2, 1, 1), [*pods("a", "", 1), *pods("b", "w", count)], *records))
    assert len(nominated) == expected
    assert len({node[:2] for name, node in nominated.items() if "/b" in name}) == expected // 3


@pytest.mark.parametrize(("racks", "expected"), [((2, 1), {"r0"}), ((1, 1), set())])
def test_room_for_a_further_member_is_made_where_its_part_lies(
    racks: tuple[int, int], expected: set[str]
) -> None:
    """One of two runs in a rack; for the other somebody leaves there, or nobody."""
    parts = {"subGroups": [{"name": "w", "minMember": 1, "gatherStrategy": MUST}]}
    one, other = (attrs.evolve(pod, priority=9) for pod in pods("g", "w", 2))
    snapshot = full(racks, [other], group("g", 1, parts)).forget("default/old-r0-0")
    result = legal(snapshot.assume(one.at("r0-0")), preempt=PreemptionRules(members="each"))
    assert {node[:2] for plan in result.preemptions for node in plan.nominations.values()} == expected


def test_nobody_leaves_for_a_pair_of_which_one_is_refused_whatever_the_node() -> None:
    one, other = pods("g", "w", 2)
    other = attrs.evolve(other, resource_claims=(PodResourceClaim("c", "nowhere"),))
    parts = {"subGroups": [{"name": "w", "size": 2, "minReplicas": 1}]}
    assert leaving(full((2,), [one, other], group("g", 1, parts))) == ({}, set())


def test_free_members_make_up_the_minimum_before_those_that_lie_together() -> None:
    """A rack takes two of the three that share one; the free one has the last place in the other."""
    parts = {"subGroups": [{"name": "w", "minMember": 1, "gatherStrategy": MUST}]}
    gang = [*pods("g", "w", 3), *pods("g", "", 1)]
    nominated, _ = leaving(full((2, 1), gang, group("g", 3, parts)))
    assert sorted(node[:2] for node in nominated.values()) == ["r0", "r0", "r1"]


def test_slices_are_those_of_the_whole_gang_where_some_members_are_asked_about() -> None:
    """The second and the third member are no slice."""
    gang = pods("g", "w", 4)
    parts = {"subGroups": [{"name": "w", "size": 2, "minReplicas": 1, "gatherStrategy": MUST}]}
    snapshot = ClusterSnapshot(nodes=nodes(2, 2), pending=gang, records=[NETWORK, group("g", 2, parts)])
    for asked, started in ((gang[1:3], []), (gang[:2], ["g-w0", "g-w1"]), (gang[1:], ["g-w2", "g-w3"])):
        result = schedule(snapshot, asked)
        assert verify(snapshot, result) == ()
        assert [one.pod.name for one in result.bound] == started


@pytest.mark.parametrize("strategy", ["MustGather", "PreferGather"])
def test_no_gang_of_a_group_starts_without_the_network_that_one_of_them_needs(strategy: str) -> None:
    """One of the two would be enough, and the group is one plan."""
    names = json.dumps(["default/a", "default/b"])
    spec = json.dumps({"gatherStrategy": [{"layer": "Rack", "strategy": strategy}]})
    records = [
        group("a", 1, None, groups=names, min_groups="1"),
        group("b", 1, None, groups=names, min_groups="1", network_topology_spec=spec),
    ]
    gangs = [*pods("a", "", 1), *pods("b", "", 1)]
    bare = [Node(name=name, allocatable={"cpu": 64000, "nvidia.com/gpu": 8, "pods": 20}) for name in "xy"]
    refused = legal(ClusterSnapshot(nodes=bare, pending=gangs, records=records))
    assert not refused.bound
    assert "no cluster network topology" in refused.jobs[0].message
    known = legal(ClusterSnapshot(nodes=nodes(2), pending=gangs, records=[NETWORK, *records]))
    assert len(known.bound) == 2


def test_the_checker_finds_a_torn_slice() -> None:
    """One worker of a slice moved to another rack."""
    gang = [*pods("g", "leader", 1, 1), *pods("g", "w", 4)]
    snapshot = ClusterSnapshot(nodes=nodes(2, 2, 2), pending=gang, records=[NETWORK, group("g", 5, SLICES)])
    result = legal(snapshot)
    free = next(
        iter(
            {node.name for node in nodes(2, 2, 2)}
            - {one.node for one in result.bound if "-w" in one.pod.name}
        )
    )
    torn = tuple(
        attrs.evolve(one, node=free) if isinstance(one, Bound) and one.pod.name == "g-w3" else one
        for one in result.decisions
    )
    moved = snapshot.assume(*(snapshot.pod(one.pod).at(one.node) for one in torn))  # type: ignore[union-attr]
    found = verify(snapshot, attrs.evolve(result, decisions=torn, snapshot=moved))
    assert any("w/1: the members are spread over" in violation.message for violation in found)
