"""How much of a gang in parts has to start: every slice, every entry, and who belongs to none."""

from __future__ import annotations

import json

import attrs
import pytest

from koordcore import ClusterSnapshot, Node, NodeState, Pod
from tests.scheduling.test_sub_groups import GANG, MUST, NETWORK, group, legal, nodes, pods

SLICE = {"name": "w", "size": 2, "gatherStrategy": MUST}
OTHER = {"name": "x", "size": 2, "gatherStrategy": MUST}
LEADER = Pod(name="lead", labels={GANG: "g"}, requests={"cpu": 1})


def placed(racks: list[Node], gang: list[Pod], *entries: object) -> list[str]:
    record = group("g", 1, {"subGroups": list(entries)})
    result = legal(ClusterSnapshot(nodes=racks, pending=gang, records=[NETWORK, record]))
    return sorted(one.pod.name for one in result.bound)


@pytest.mark.parametrize(("racks", "starts"), [((2,), True), ((1, 1), False)])
def test_who_belongs_to_no_part_starts_with_the_slice_and_not_without(
    racks: tuple[int, ...], starts: bool
) -> None:
    gang = [*pods("g", "w", 2), LEADER]
    assert placed(nodes(*racks), gang, SLICE) == (["g-w0", "g-w1", "lead"] if starts else [])


@pytest.mark.parametrize(("racks", "starts"), [((2, 2), True), ((2, 1, 1), False)])
def test_without_a_number_every_slice_has_to_start(racks: tuple[int, ...], starts: bool) -> None:
    gang = pods("g", "w", 4)
    assert len(placed(nodes(*racks), gang, SLICE)) == (4 if starts else 0)


@pytest.mark.parametrize(("racks", "starts"), [((2, 2), True), ((2, 1, 1), False)])
def test_each_of_two_entries_needs_its_own_slice_and_no_more(racks: tuple[int, ...], starts: bool) -> None:
    gang = [*pods("g", "w", 2), *pods("g", "x", 2), LEADER]
    assert len(placed(nodes(*racks), gang, SLICE, OTHER)) == (5 if starts else 0)


def some(number: int, *entries: object) -> dict[str, object]:
    """Parts of which so many have to start."""
    return {"subGroups": list(entries), "minSubGroups": number}


def started(racks: list[Node], gang: list[Pod], parts: dict[str, object]) -> list[str]:
    snapshot = ClusterSnapshot(nodes=racks, pending=gang, records=[NETWORK, group("g", 1, parts)])
    return sorted(one.pod.name for one in legal(snapshot).bound)


def test_where_one_of_two_parts_is_enough_the_other_needs_no_pods() -> None:
    assert started(nodes(2), pods("g", "w", 2), some(1, SLICE, OTHER)) == ["g-w0", "g-w1"]
    assert started(nodes(2), pods("g", "w", 2), some(2, SLICE, OTHER)) == []


def test_the_part_that_starts_alone_has_all_its_slices() -> None:
    """There is room for one slice: of w two are needed, of x one."""
    gang = [*pods("g", "w", 4), *pods("g", "x", 2)]
    assert started(nodes(2), gang, some(1, SLICE, OTHER)) == ["g-x0", "g-x1"]
    assert len(started(nodes(2, 2), gang, some(1, SLICE, OTHER))) == 4
    assert len(started(nodes(2, 2, 2), gang, some(2, SLICE, OTHER))) == 6


@pytest.mark.parametrize("least", [1, 2])
def test_of_parts_without_slices_as_many_start_as_have_to(least: int) -> None:
    gang = [*pods("g", "a", 1), *pods("g", "b", 3)]
    parts = some(least, {"name": "a"}, {"name": "b", "minMember": 3})
    assert started(nodes(1), gang, parts) == (["g-a0"] if least == 1 else [])


@pytest.mark.parametrize("bound", [True, False])
def test_a_gang_in_slices_stays_in_the_block_that_it_asks_for_beside_a_gang_that_asks_for_none(
    bound: bool,
) -> None:
    """Two slices fit into racks of one block, one after another they would go to the first two racks."""
    racks = [
        attrs.evolve(one, labels={**one.labels, "block": block})
        for one, block in zip(nodes(2, 1, 2, 2), ("x", "x", "x", "y", "y", "y", "y"), strict=True)
    ]
    block = {"gatherStrategy": [{"layer": "Block", "strategy": "MustGather"}]}
    more = {"network_topology_spec": json.dumps(block)} if bound else {}
    both = json.dumps(["default/g", "default/h"])
    records = [group("g", 4, {"subGroups": [SLICE]}, groups=both, **more), group("h", 1, None, groups=both)]
    gang = [*pods("g", "w", 4), *pods("h", "", 1, cards=1)]
    result = legal(ClusterSnapshot(nodes=racks, pending=gang, records=[NETWORK, *records]))
    assert len(result.bound) == 5
    of = {one.name: one.labels for one in racks}
    slices = [
        {of[one.node]["rack"] for one in result.bound if one.pod.name in pair}
        for pair in (("g-w0", "g-w1"), ("g-w2", "g-w3"))
    ]
    assert [len(one) for one in slices] == [1, 1]
    if bound:
        assert {of[one.node]["block"] for one in result.bound if one.pod.name.startswith("g")} == {"y"}


FEWER = {**SLICE, "minReplicas": 1}


@pytest.mark.parametrize(("racks", "number"), [((2, 2), 5), ((2,), 3), ((1, 1), 0)])
def test_where_one_slice_is_enough_who_belongs_to_none_does_not_start_without_it(
    racks: tuple[int, ...], number: int
) -> None:
    assert len(placed(nodes(*racks), [*pods("g", "w", 4), LEADER], FEWER)) == number


@pytest.mark.parametrize(("racks", "number"), [((2, 2, 2, 2), 8), ((2, 2, 2), 6), ((2, 2), 0)])
def test_where_one_slice_of_an_entry_is_enough_all_of_another_have_to_start(
    racks: tuple[int, ...], number: int
) -> None:
    gang = [*pods("g", "w", 4), *pods("g", "x", 4)]
    assert len(placed(nodes(*racks), gang, FEWER, OTHER)) == number


FEW = {"minMember": 2, "gatherStrategy": MUST}


@pytest.mark.parametrize(
    "parts",
    [
        {"subGroups": [{**FEW, "name": "w"}]},
        {"subGroups": [{"name": "x", "gatherStrategy": MUST}, {**FEW, "name": "w"}]},
        {"subGroups": [{**FEW, "name": "x"}, {**FEW, "name": "w"}]},
        {"subGroups": [{**FEW, "name": "w", "by": "side"}, {"name": "x", "gatherStrategy": MUST}]},
        {"subGroups": [{**FEW, "name": "w"}, {"name": "x", "gatherStrategy": MUST}], "minSubGroups": 2},
    ],
)
def test_a_part_with_fewer_pods_than_it_needs_stops_its_gang_and_nobody_else(
    parts: dict[str, object],
) -> None:
    """Beside it there may be a part of as many pods for which they are enough."""
    gang = [*pods("g", "w", 1, side="a"), *pods("g", "x", 1), LEADER]
    waiting = [*gang, Pod(name="bystander", requests={"cpu": 1})]
    snapshot = ClusterSnapshot(nodes=nodes(2, 2), pending=waiting, records=[NETWORK, group("g", 2, parts)])
    result = legal(snapshot)
    assert [one.pod.name for one in result.bound] == ["bystander"]
    if "minSubGroups" not in parts and "by" not in str(parts):
        assert "needs 2 members and has 1" in result.jobs[0].detail


def test_where_one_part_is_enough_it_starts_beside_one_that_has_too_few_pods() -> None:
    gang = [*pods("g", "w", 1), *pods("g", "x", 1)]
    parts = some(1, {**FEW, "name": "w"}, {"name": "x", "gatherStrategy": MUST})
    assert started(nodes(2), gang, parts) == ["g-x0"]


def test_a_gang_in_parts_starts_where_room_was_made_for_it() -> None:
    """By itself it would take the first rack."""
    gang = pods("g", "w", 2)
    meant = [attrs.evolve(one, nominated_node=f"r1-{number}") for number, one in enumerate(gang)]
    for waits, rack in ((gang, "r0"), (meant, "r1"), ([meant[0], gang[1]], "r1")):
        snapshot = ClusterSnapshot(
            nodes=nodes(2, 2), pending=waits, records=[NETWORK, group("g", 1, {"subGroups": [SLICE]})]
        )
        assert {one.node[:2] for one in legal(snapshot).bound} == {rack}


@pytest.mark.parametrize(("room", "starts"), [(2, 0), (3, 3)])
def test_parts_start_together_though_another_gang_of_the_group_has_started(room: int, starts: int) -> None:
    both = '["default/a", "default/g"]'
    runs = Pod(name="a", labels={GANG: "a"}, requests={"cpu": 1}, node_name="n")
    there = NodeState(Node(name="n", allocatable={"cpu": 1 + room, "pods": 9}), (runs,))
    parts = {"subGroups": [{"name": "leader"}, {"name": "w", "size": 2}]}
    records = [group("a", 1, None, groups=both), group("g", 2, parts, groups=both)]
    asked = [*pods("g", "leader", 1), *pods("g", "w", 2)]
    gang = [attrs.evolve(one, requests={"cpu": 1}) for one in asked]
    assert len(legal(ClusterSnapshot(nodes=[there], pending=gang, records=records)).bound) == starts
