"""Gangs of several parts: roles with rules of their own, slices, and what a refusal says of them."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from immutabledict import immutabledict

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, GangShortfall, Member, Role, Shape
from koordcore.allocators.gang.planner import place_gang
from koordcore.model.certificates import CertificateStatus
from koordcore.topology.network import NetworkTopology
from tests.property.gang_strategies import tree_of

PAIRS = tree_of((("s", "b1", "a0"), ("s", "b1", "a1"), ("s", "b2", "c0"), ("s", "b2", "c1")))


def role(name: str, shape: int, count: int, layer: str = "") -> Role:
    members = tuple(Member(f"d/{name}-{number}", shape, number) for number in range(count))
    return Role(name=name, members=members, min_available=count, must_layer=layer)


def placed(tree: NetworkTopology, demand: GangDemand) -> dict[str, str]:
    answer = place_gang(tree, demand)
    assert isinstance(answer, GangPlacement), answer
    assert placement_violations(tree, demand, answer.nodes) == ()
    assert answer.certificate.status is CertificateStatus.PROVEN
    return dict(answer.nodes)


def test_a_gang_of_which_nobody_waits_is_placed_as_it_is() -> None:
    nobody = Role(name="g", members=(), min_available=0)
    assert placed(PAIRS, GangDemand(roles=(nobody,), shapes=(Shape(slots=np.ones(4, dtype=np.int64)),))) == {}


@pytest.mark.solver
@pytest.mark.parametrize(
    ("running", "fits"), [((0, 0), True), ((1, 0), False), ((1, 1), True), ((2, 0), True)]
)
def test_running_members_of_a_role_have_to_come_to_its_multiple(running: tuple[int, int], fits: bool) -> None:
    """Nobody can join them in their block: two may stay as they are, one can never be made two."""
    workers = attrs.evolve(
        role("w", 0, 2), multiples=immutabledict({"BlockLayer": 2}), bound=np.array([*running, 0, 0])
    )
    asked = GangDemand(
        roles=(workers, role("l", 1, 1)),
        shapes=tuple(Shape(slots=np.array([0, 0, 2, 2]), request=np.array([1])) for _ in range(2)),
        free=np.array([[0, 0, 2, 2]]),
    )
    answer = place_gang(PAIRS, asked)
    assert isinstance(answer, GangPlacement) == fits


@pytest.mark.solver
@pytest.mark.parametrize(
    ("conflicts", "nodes"),
    [
        ((), {"w-0": "a0", "w-1": "a0", "l-0": "a0"}),
        (((0, (2, 0, 0)),), {"w-0": "a1", "w-1": "a1", "l-0": "a1"}),
        (((0, (1, 1, 0)), (1, (1, 1, 0))), {"w-0": "a1", "w-1": "a1", "l-0": "a0"}),
        (((0, (2, 1, 1)),), {"w-0": "a0", "w-1": "a0", "l-0": "a0"}),
    ],
)
def test_slices_and_free_members_keep_to_what_nodes_do_not_take(
    conflicts: tuple[tuple[int, tuple[int, ...]], ...], nodes: dict[str, str]
) -> None:
    """Two workers, or one beside a loader, are barred from a node; a shape that nobody has bars nothing."""
    shape = Shape(slots=np.array([3, 3, 0, 0]), request=np.array([1]))
    asked = GangDemand(
        roles=(role("w", 0, 2, "BlockLayer"), role("l", 1, 1)),
        shapes=(shape, shape, shape),
        free=np.array([[3, 3, 0, 0]]),
        conflicts=conflicts,
    )
    assert placed(PAIRS, asked) == {f"d/{name}": node for name, node in nodes.items()}


@pytest.mark.solver
def test_slices_alone_keep_to_what_nodes_do_not_take() -> None:
    """No node takes two workers, so that each slice is spread over its block."""
    asked = GangDemand(
        roles=(role("v", 0, 2, "BlockLayer"), role("w", 0, 2, "BlockLayer")),
        shapes=(Shape(slots=np.full(4, 2), request=np.array([1])),),
        free=np.full((1, 4), 2),
        conflicts=tuple((node, (2,)) for node in range(4)),
    )
    assert sorted(placed(PAIRS, asked).values()) == ["a0", "a1", "c0", "c1"]


@pytest.mark.solver
def test_a_gang_of_two_shapes_that_may_leave_some_out_is_told_how_many_slots_are_missing() -> None:
    """Two nodes with room for one member each, of four members at least three."""
    pair = tree_of((("b", "n1"), ("b", "n2")))
    members = tuple(Member(f"d/m-{number}", number % 2, number) for number in range(4))
    shape = Shape(slots=np.array([1, 1]), request=np.array([1]))
    asked = GangDemand(
        roles=(Role(name="g", members=members, min_available=3),),
        shapes=(shape, shape),
        free=np.array([[1, 1]]),
    )
    answer = place_gang(pair, asked)
    assert isinstance(answer, GangShortfall)
    assert answer.detail == "the cluster has 2 of 3 slots; 1 more needed"


@pytest.mark.parametrize(
    ("running", "nodes", "text"),
    [
        (-1, ("a0", "a1"), ""),
        (-1, ("a0", "c0"), "g: members lie in the domains [0, 1], running ones in -1"),
        (0, ("a0", "a1"), ""),
        (1, ("a0", "a1"), "g: members lie in the domains [0], running ones in 1"),
        (-1, ("c1", "c1"), "g: members lie in the domains [-1], running ones in -1"),
    ],
)
def test_members_in_several_homes_or_apart_from_running_ones_are_told(
    running: int, nodes: tuple[str, ...], text: str
) -> None:
    """The last node is in no home at all."""
    asked = GangDemand(
        roles=(attrs.evolve(role("g", 0, 2), home=np.array([0, 0, 1, -1]), fixed=running),),
        shapes=(Shape(slots=np.full(4, 2)),),
    )
    places = {f"d/g-{number}": node for number, node in enumerate(nodes)}
    assert placement_violations(PAIRS, asked, places) == ((text,) if text else ())


@pytest.mark.solver
@pytest.mark.parametrize(
    ("least", "detail"),
    [
        (4, "every kind of member has slots enough in the cluster, yet at most 3 of 4 members fit together"),
        (3, ""),
    ],
)
def test_members_in_each_others_way_are_told_how_many_fit_together(least: int, detail: str) -> None:
    """Two of 2 and two of 3 on nodes of 4, 4 and 2: beside a large one there is no room for a small one."""
    three = tree_of((("b", "n1"), ("b", "n2"), ("b", "n3")))
    members = tuple(Member(f"d/m-{number}", number // 2, number) for number in range(4))
    free = np.array([4, 4, 2])
    asked = GangDemand(
        roles=(Role(name="g", members=members, min_available=least),),
        shapes=tuple(Shape(slots=free // size, request=np.array([size])) for size in (2, 3)),
        free=free[None, :],
    )
    answer = place_gang(three, asked)
    assert (answer.detail if isinstance(answer, GangShortfall) else "") == detail
