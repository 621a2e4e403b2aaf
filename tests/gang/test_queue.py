"""Several gangs planned together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape
from koordcore.allocators.gang.queue import QueuedGang, plan_in_order, plan_queue, queue_objective
from koordcore.errors import ModelError
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.topology.network import NetworkTopology
from tests.property.gang_strategies import tree_of

pytestmark = pytest.mark.solver


def blocks(*sizes: int) -> NetworkTopology:
    """One spine with blocks of so many nodes."""
    return tree_of(
        tuple(
            ("s", f"b{block}", f"n{block}-{node}") for block, size in enumerate(sizes) for node in range(size)
        )
    )


def gang(tree: NetworkTopology, name: str, size: int, *, priority: int = 0, slots: int = 1) -> QueuedGang:
    members = tuple(Member(f"d/{name}-{number}", 0, number) for number in range(size))
    demand = GangDemand(
        roles=(Role(name=name, members=members, min_available=size),),
        shapes=(Shape(slots=np.full(len(tree.nodes), slots), request=np.array([1])),),
        free=np.full((1, len(tree.nodes)), slots),
        spec=NetworkTopologySpec((GatherRule("BlockLayer", "MustGather"),)),
    )
    return QueuedGang(name=name, demand=demand, priority=priority)


def test_together_all_four_start_where_one_by_one_three_do() -> None:
    tree = blocks(5, 5)
    queue = [gang(tree, name, size) for name, size in zip("abcd", (2, 2, 3, 3), strict=True)]
    assert plan_in_order(tree, queue).waiting == ("d",)
    plan = plan_queue(tree, queue)
    assert plan.waiting == ()
    assert plan.certificate.objective == (-4, -10, 4, 4)
    assert plan.certificate.status is CertificateStatus.PROVEN


def test_a_higher_priority_comes_before_numbers() -> None:
    tree = blocks(4)
    queue = [gang(tree, "a", 2), gang(tree, "b", 2), gang(tree, "c", 4, priority=9)]
    assert plan_queue(tree, queue).waiting == ("a", "b")


def test_of_equal_gangs_the_earlier_one_starts() -> None:
    tree = blocks(3)
    assert plan_queue(tree, [gang(tree, name, 2) for name in "xyz"]).waiting == ("y", "z")


def test_gangs_must_share_what_is_free() -> None:
    tree = blocks(3)
    with pytest.raises(ModelError, match="does not share"):
        plan_queue(tree, [gang(tree, "a", 1), gang(tree, "b", 1, slots=2)])
    with pytest.raises(ModelError, match="twice"):
        plan_queue(tree, [gang(tree, "a", 1), gang(tree, "a", 1)])


def test_an_empty_queue_is_planned() -> None:
    assert plan_queue(blocks(1), []).placements == {}


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(st.integers(1, 4), min_size=1, max_size=5)
)
def test_never_worse_than_one_by_one(sizes: list[int], gangs: list[int]) -> None:
    tree = blocks(*sizes)
    queue = [gang(tree, f"g{number}", size) for number, size in enumerate(gangs)]
    before, after = plan_in_order(tree, queue), plan_queue(tree, queue, limits=Limits(2.0))
    assert after.certificate.objective <= before.certificate.objective
    assert after.certificate.objective == queue_objective(tree, queue, after.placements)
    assert plan_queue(tree, queue, limits=Limits(2.0)) == after
