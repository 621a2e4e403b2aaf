"""Groups of groups: as many start as can, proven, against trying everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, Member, Role, Shape, Unit
from koordcore.allocators.gang.planner import place_gang
from koordcore.model.certificates import CertificateStatus
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree
from tests.reference.group_units import Composite, Group, Home, Leaf, best, leaves


def tree_over(homes: list[Home], nodes: int) -> NetworkTopology:
    """One domain per way in which nodes differ by their homes."""
    labels = {f"n{n}": {"cell": "-".join(str(home[n]) for home in homes) or "all"} for n in range(nodes)}
    return build_tree([LayerSpec("Cell", ("cell",)), LayerSpec(NODE_LAYER, (), "Cell")], labels)


def homes_of(group: Group) -> list[Home]:
    parts = [] if isinstance(group, Leaf) else [home for part in group.parts for home in homes_of(part)]
    return [group.home, *parts] if group.home else parts


def demand_of(root: Group, room: list[int], tree: NetworkTopology) -> GangDemand:
    order = [int(name[1:]) for name in tree.nodes]
    free = np.array([[room[n] for n in order]], dtype=np.int64)
    sizes = sorted({size for leaf in leaves(root) for size in leaf.sizes})
    units: list[Unit] = []
    roles: list[Role] = []

    def home(group: Group) -> np.ndarray:
        return np.array([group.home[n] for n in order] if group.home else [], dtype=np.int64)

    def add(group: Group, parent: int) -> None:
        if isinstance(group, Composite):
            own = len(units)
            units.append(
                Unit(name=f"u{own}", least=group.least, parent=parent, home=home(group), fixed=group.fixed)
            )
            for part in group.parts:
                add(part, own)
            return
        members = tuple(
            Member(f"d/r{len(roles)}-{n}", sizes.index(size)) for n, size in enumerate(group.sizes)
        )
        roles.append(
            Role(
                name=f"r{len(roles)}",
                members=members,
                min_available=0 if group.started else group.least,
                unit=parent,
                started=group.started,
                home=home(group),
                fixed=group.fixed,
            )
        )

    add(root, -1)
    shapes = tuple(Shape(slots=free[0] // size, request=np.array([size])) for size in sizes)
    return GangDemand(roles=tuple(roles), shapes=shapes, free=free, units=tuple(units))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Group, list[int]]:
    """Draw a small tree of groups over a few nodes with labels."""
    nodes = draw(st.integers(1, 3))
    room = [draw(st.integers(0, 4)) for _ in range(nodes)]
    left = draw(st.integers(1, 6))

    def home() -> tuple[Home, int]:
        if draw(st.integers(0, 2)):
            return (), -1
        domains = tuple(draw(st.integers(-1, 1)) for _ in range(nodes))
        return domains, draw(st.sampled_from((-1, -1, -1, 0)))

    def leaf() -> Leaf:
        nonlocal left
        count = draw(st.integers(0, min(3, left)))
        left -= count
        domain, fixed = home()
        sizes = tuple(draw(st.integers(1, 2)) for _ in range(count))
        started = draw(st.integers(0, 4)) == 0
        return Leaf(sizes=sizes, least=draw(st.integers(1, 2)), home=domain, fixed=fixed, started=started)

    def group(level: int) -> Group:
        if level == 2 or draw(st.booleans()):
            return leaf()
        domain, fixed = home()
        parts = tuple(group(level + 1) for _ in range(draw(st.integers(1, 3))))
        return Composite(parts=parts, least=draw(st.integers(1, 2)), home=domain, fixed=fixed)

    parts = tuple(group(1) for _ in range(draw(st.integers(1, 3))))
    return Composite(parts=parts, least=draw(st.integers(1, 2))), room


@pytest.mark.solver
@settings(max_examples=17, deadline=None)
@given(worlds().filter(lambda world: any(leaf.sizes for leaf in leaves(world[0]))))
def test_most_groups_start_and_then_most_members(world: tuple[Group, list[int]]) -> None:
    root, room = world
    tree = tree_over(homes_of(root), len(room))
    demand = demand_of(root, room, tree)
    expected = best(root, room)
    answer = place_gang(tree, demand)
    if not isinstance(answer, GangPlacement):
        assert expected is None
        assert answer.certificate.status is CertificateStatus.INFEASIBLE
        return
    assert placement_violations(tree, demand, answer.nodes) == ()
    assert answer.certificate.proven
    assert expected is not None
    assert answer.certificate.objective[:2] == (-expected[0], -expected[1])
