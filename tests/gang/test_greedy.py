"""The quick placement that the solver starts from: what it finds is legal and complete."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape
from koordcore.allocators.gang.greedy import greedy_places
from koordcore.allocators.gang.mixed import combined_slots
from koordcore.allocators.gang.objective import terms_of
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.topology.network import NetworkTopology
from tests.property.gang_strategies import tree_of

FAR = tree_of((("s1", "b1", "n1"), ("s2", "b2", "n2")))
"""Two nodes with nothing but the cluster above both."""


def found(tree: NetworkTopology, demand: GangDemand) -> dict[str, str] | None:
    """Give the node of each member by name."""
    places = greedy_places(terms_of(tree, demand, combined_slots(demand)))
    return None if places is None else {key: tree.nodes[node] for key, node in places.items()}


def role(name: str, shape: int, count: int, layer: str = "") -> Role:
    members = tuple(Member(f"d/{name}-{number}", shape, number) for number in range(count))
    return Role(name=name, members=members, min_available=count, must_layer=layer)


def demand(tree: NetworkTopology, free: list[int], sizes: list[int], *roles: Role) -> GangDemand:
    """Ask for members of these sizes; a node takes as many as its amount allows."""
    left = np.array(free)
    return GangDemand(
        roles=roles,
        shapes=tuple(Shape(slots=left // size, request=np.array([size])) for size in sizes),
        free=left[None, :],
    )


def test_members_that_no_spine_holds_are_put_on_several() -> None:
    asked = demand(FAR, [1, 1], [1], role("g", 0, 2))
    assert found(FAR, asked) == {"d/g-0": "n1", "d/g-1": "n2"}


def test_a_role_that_gathers_and_the_others_are_all_placed() -> None:
    """The role in one block first; who is free goes where it has left something."""
    asked = demand(FAR, [8, 8], [4, 3], role("train", 0, 2, "BlockLayer"), role("load", 1, 1))
    places = found(FAR, asked)
    assert places == {"d/train-0": "n1", "d/train-1": "n1", "d/load-0": "n2"}
    assert placement_violations(FAR, asked, places) == ()


@pytest.mark.parametrize(("slots", "free"), [(1, 8), (2, 3)])
def test_domains_that_cannot_hold_everybody_are_passed_over(slots: int, free: int) -> None:
    """Forty tighter blocks lack slots, or amounts, for both members; the one that has them is found."""
    tree = tree_of(tuple(("s", f"b{block:02}", f"n{block:02}") for block in range(41)))
    offered, left = np.full(41, slots), np.full(41, free)
    offered[40], left[40] = 3, 8
    asked = GangDemand(
        roles=(role("g", 0, 2),),
        shapes=(Shape(slots=offered, request=np.array([4])),),
        free=left[None, :],
        spec=NetworkTopologySpec((GatherRule("BlockLayer", "MustGather"),)),
    )
    assert found(tree, asked) == {"d/g-0": "n40", "d/g-1": "n40"}


@pytest.mark.parametrize(
    ("home", "fixed", "free", "places"),
    [
        ((0, 1, 1), -1, (1, 1, 1), {"g-0": "n1", "g-1": "n2"}),
        ((0, 1, 1), -1, (2, 1, 1), {"g-0": "n0", "g-1": "n0"}),
        ((1, 0, 0), 1, (2, 1, 1), {"g-0": "n0", "g-1": "n0"}),
        ((0, 1, 1), 0, (1, 1, 1), None),
        ((1, 0, 0), 0, (2, 1, 1), {"g-0": "n1", "g-1": "n2"}),
        ((-1, 0, 1), -1, (2, 1, 1), None),
    ],
)
def test_members_share_one_home_that_of_running_ones_where_there_are_any(
    home: tuple[int, ...], fixed: int, free: tuple[int, ...], places: dict[str, str] | None
) -> None:
    tree = tree_of((("b", "n0"), ("b", "n1"), ("b", "n2")))
    gathered = attrs.evolve(role("g", 0, 2), home=np.array(home), fixed=fixed)
    expected = None if places is None else {f"d/{name}": node for name, node in places.items()}
    assert found(tree, demand(tree, list(free), [1], gathered)) == expected


@pytest.mark.parametrize(("free", "whole"), [(2, True), (1, False)])
def test_roles_with_homes_are_placed_all_or_none(free: int, whole: bool) -> None:
    tree = tree_of((("b", "n0"), ("b", "n1")))
    roles = [attrs.evolve(role(name, 0, 2), home=np.array([0, 1])) for name in "gh"]
    places = found(tree, demand(tree, [2, free], [1], *roles))
    expected = {"d/g-0": "n0", "d/g-1": "n0", "d/h-0": "n1", "d/h-1": "n1"}
    assert places == (expected if whole else None)
