"""Gangs of a plan are moved so that they lie closer together, and never apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape
from koordcore.allocators.gang.regather import gather_again
from koordcore.allocators.gang.rivals import QueuedGang, after_members, count_members, queue_objective
from koordcore.topology.network import NetworkTopology
from tests.property.gang_strategies import tree_of


def blocks(*sizes: int) -> NetworkTopology:
    """One spine with blocks of so many nodes."""
    return tree_of(
        tuple(
            ("s", f"b{block}", f"n{block}-{node}") for block, size in enumerate(sizes) for node in range(size)
        )
    )


def gang(tree: NetworkTopology, name: str, size: int) -> QueuedGang:
    """Members that take a node each, wherever it is."""
    members = tuple(Member(f"d/{name}-{number}", 0, number) for number in range(size))
    nodes = len(tree.nodes)
    return QueuedGang(
        name=name,
        demand=GangDemand(
            roles=(Role(name=name, members=members, min_available=size),),
            shapes=(Shape(slots=np.ones(nodes, dtype=np.int64), request=np.array([1])),),
            free=np.ones((1, nodes), dtype=np.int64),
        ),
    )


def test_gangs_that_lie_in_each_others_way_change_places() -> None:
    """Each has a node of both blocks, which are full: neither can gather while the other stays."""
    tree = blocks(2, 2)
    gangs = [gang(tree, name, 2) for name in "ab"]
    crossed = {"a": {"d/a-0": "n0-0", "d/a-1": "n1-0"}, "b": {"d/b-0": "n0-1", "d/b-1": "n1-1"}}
    better = gather_again(tree, gangs, crossed, gangs)
    assert {name: {node[:2] for node in nodes.values()} for name, nodes in better.items()} == {
        "a": {"n0"},
        "b": {"n1"},
    }


@settings(max_examples=17, deadline=None)
@given(st.data())
def test_gathering_again_leaves_nobody_out_and_opens_no_more_domains(data: st.DataObject) -> None:
    """Whatever the plan was."""
    tree = blocks(*data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    spots = data.draw(st.permutations(tree.nodes))
    gangs, before = [], {}
    for number, size in enumerate(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))):
        one = gang(tree, f"g{number}", size)
        gangs.append(one)
        if len(spots) >= size:
            before[one.name] = dict(zip((m.key for m in one.demand.members), spots, strict=False))
            spots = spots[size:]
    after = gather_again(tree, gangs, before, gangs)
    assert {name: set(nodes) for name, nodes in after.items()} == {
        name: set(nodes) for name, nodes in before.items()
    }
    assert queue_objective(tree, gangs, after) <= queue_objective(tree, gangs, before)
    used = np.zeros((1, len(tree.nodes)), dtype=np.int64)
    for one in gangs:
        nodes = after.get(one.name, {})
        if nodes:
            assert placement_violations(tree, after_members(one.demand, used), nodes) == ()
            count_members(tree, one.demand, nodes, used)
