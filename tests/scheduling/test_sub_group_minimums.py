"""How much of a gang in parts has to start: every slice, every entry, and who belongs to none."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Node, Pod
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
