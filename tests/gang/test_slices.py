"""Equal slices and a few free members: what is read as such, and the fewest nodes for them."""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np
import pytest

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, GangShortfall, Member, Role, Shape
from koordcore.allocators.gang.planner import place_gang
from koordcore.allocators.gang.slices import slices_of
from koordcore.model.certificates import CertificateStatus
from koordcore.model.gangs import GangFit, GatherRule, NetworkTopologySpec
from koordcore.topology.network import NODE_LAYER, NetworkTopology
from tests.property.gang_strategies import tree_of

PAIRS: Final = tree_of((("s", "b1", "a0"), ("s", "b1", "a1"), ("s", "b2", "c0"), ("s", "b2", "c1")))


def role(name: str, shape: int, count: int, layer: str = "", least: int | None = None) -> Role:
    members = tuple(Member(f"d/{name}-{number}", shape, number) for number in range(count))
    return Role(name=name, members=members, min_available=count if least is None else least, must_layer=layer)


def demand(slots: list[int], *roles: Role, shapes: int = 2) -> GangDemand:
    """Ask for members of one slot each, whatever their shape."""
    offered = np.array(slots)
    return GangDemand(
        roles=roles,
        shapes=tuple(Shape(slots=offered, request=np.array([1])) for _ in range(shapes)),
        free=offered[None, :],
    )


def placed(tree: NetworkTopology, asked: GangDemand) -> dict[str, str]:
    answer = place_gang(tree, asked)
    assert isinstance(answer, GangPlacement), answer
    assert placement_violations(tree, asked, answer.nodes) == ()
    assert answer.certificate.status is CertificateStatus.PROVEN
    return {key.removeprefix("d/"): node for key, node in answer.nodes.items()}


SLICES: Final = role("v", 0, 2, "BlockLayer"), role("w", 0, 2, "BlockLayer")


@pytest.mark.parametrize(
    ("roles", "free"),
    [
        (SLICES, 0),
        ((*SLICES, role("l", 1, 1)), 1),
        ((*SLICES, role("l", 0, 4)), 4),
        ((*SLICES, role("l", 1, 3), role("m", 1, 1)), 4),
        ((*SLICES, role("l", 1, 5)), None),
        ((*SLICES, role("l", 1, 1), role("m", 0, 1)), None),
        ((*SLICES, role("l", 1, 2, least=1)), None),
        ((*SLICES, role("l", 1, 0, least=2)), None),
        ((*SLICES, role("l", 1, 2, "BlockLayer")), None),
        ((SLICES[0], role("w", 1, 2, "BlockLayer")), None),
        ((attrs.evolve(SLICES[0], members=(*SLICES[0].members, Member("d/x", 1)), min_available=3),), None),
        ((role("l", 0, 2),), None),
    ],
)
def test_slices_are_equal_and_the_others_few_and_of_one_kind(
    roles: tuple[Role, ...], free: int | None
) -> None:
    """Up to four others, all of which have to come, and none with a wish of its own."""
    found = slices_of(PAIRS, demand([9] * 4, *roles))
    assert (None if found is None else len(found.free)) == free


@pytest.mark.solver
def test_a_role_that_lacks_members_keeps_the_slices_from_starting() -> None:
    """Members may have been refused before: what their role needs stays, and cannot be met."""
    answer = place_gang(PAIRS, demand([2, 2, 2, 2], *SLICES, role("l", 1, 0, least=2)))
    assert isinstance(answer, GangShortfall)
    assert answer.certificate.status is CertificateStatus.INFEASIBLE


def test_slices_of_two_shapes_are_placed_by_solving() -> None:
    """Three members with room for two and one more on each node of a block."""
    mixed = attrs.evolve(SLICES[0], members=(*SLICES[0].members, Member("d/x", 1)), min_available=3)
    nodes = placed(PAIRS, demand([1, 2, 1, 1], mixed))
    assert sorted(nodes.values()) == ["a0", "a1", "a1"]


@pytest.mark.solver
@pytest.mark.parametrize(
    ("workers", "free", "nodes"),
    [(2, 2, ["a0"] * 4), (1, 3, ["a0"] * 4), (3, 2, ["a0"] * 4 + ["a1"]), (2, 4, ["a0"] * 4 + ["a1"] * 2)],
)
def test_a_slice_and_free_members_take_as_few_nodes_as_hold_them(
    workers: int, free: int, nodes: list[str]
) -> None:
    asked = demand([4] * 4, role("w", 0, workers, "BlockLayer"), role("l", 1, free))
    assert sorted(placed(PAIRS, asked).values()) == nodes


@pytest.mark.solver
def test_of_equally_tight_nodes_the_fewest_are_taken_however_many_slots_they_offer() -> None:
    """Two nodes that take either of both members, or one that is as large as the two and takes both."""
    tree = tree_of((("s", "b1", "n0"), ("s", "b1", "n1"), ("s", "b2", "n2")))
    offered = np.array([1, 1, 2]) << 28
    asked = GangDemand(
        roles=(role("w", 0, 1, "BlockLayer"), role("l", 1, 1)),
        shapes=(Shape(slots=offered, request=np.array([1])),) * 2,
        free=offered[None, :],
        conflicts=((0, (1, 1)), (1, (1, 1))),
        fit=GangFit.TIGHTEST_FIT,
    )
    assert placed(tree, asked) == {"w-0": "n2", "l-0": "n2"}


# Rules per node


@pytest.mark.solver
def test_a_node_with_an_odd_number_of_running_members_is_made_even_where_pairs_are_asked_for() -> None:
    """One of the four stays out: one goes to the one that runs, two go elsewhere."""
    members = tuple(Member(f"d/m-{number}", number % 2, number) for number in range(4))
    asked = attrs.evolve(
        demand([1, 2, 2, 2], Role(name="g", members=members, min_available=1)),
        spec=NetworkTopologySpec((GatherRule(NODE_LAYER, "PreferGather", 2),)),
        bound=np.array([1, 0, 0, 0]),
    )
    assert sorted(placed(PAIRS, asked).values()) == ["a0", "a1", "a1"]


@pytest.mark.solver
def test_members_share_a_home_though_one_block_would_hold_them_in_two() -> None:
    """Nodes of one member each; the first is alone in its home, and the third is in none."""
    tree = tree_of((("s", "b1", "a0"), ("s", "b1", "a1"), ("s", "b1", "a2"), ("s", "b2", "c0")))
    gathered = attrs.evolve(role("g", 0, 2), home=np.array([0, 1, -1, 1]))
    asked = demand([1] * 4, gathered, role("n", 1, 1, NODE_LAYER))
    nodes = placed(tree, asked)
    assert {nodes["g-0"], nodes["g-1"]} == {"a1", "c0"}


def test_members_to_be_spread_evenly_keep_to_the_multiple_beside_many_that_run() -> None:
    """Six run on a node; it and its neighbour take three more each, by threes: neither four nor five."""
    rules = GatherRule("BlockLayer", "BalancedGather"), GatherRule(NODE_LAYER, "PreferGather", 3)
    for size, fits in ((4, False), (5, False), (6, True)):
        asked = attrs.evolve(
            demand([3, 3, 0, 0], role("g", 0, size, least=4), shapes=1),
            spec=NetworkTopologySpec(rules),
            bound=np.array([6, 0, 0, 0]),
        )
        answer = place_gang(PAIRS, asked)
        assert isinstance(answer, GangPlacement) == fits
