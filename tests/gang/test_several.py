"""Gangs of a queue with rules of their own, and what a plan says of itself."""

from __future__ import annotations

import numpy as np
import pytest

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape
from koordcore.allocators.gang.queue import QueuedGang, QueuePlan, plan_in_order, plan_queue
from koordcore.allocators.gang.rivals import after_members, count_members
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.topology.network import NODE_LAYER, NetworkTopology
from tests.property.gang_strategies import tree_of

pytestmark = pytest.mark.solver

PAIRS = tree_of((("s", "b1", "a0"), ("s", "b1", "a1"), ("s", "b2", "c0"), ("s", "b2", "c1")))


def gang(
    tree: NetworkTopology,
    name: str,
    slots: int,
    *sizes: int,
    own: str = "",
    rules: tuple[GatherRule, ...] = (),
) -> QueuedGang:
    """Roles of these sizes, each in one domain of a layer of its own, if any."""
    roles = tuple(
        Role(
            name=f"{name}{number}",
            members=tuple(Member(f"d/{name}{number}-{rank}", 0, rank) for rank in range(size)),
            min_available=size,
            must_layer=own,
        )
        for number, size in enumerate(sizes)
    )
    return QueuedGang(
        name=name,
        demand=GangDemand(
            roles=roles,
            shapes=(Shape(slots=np.full(len(tree.nodes), slots), request=np.array([1])),),
            free=np.full((1, len(tree.nodes)), slots),
            spec=NetworkTopologySpec(rules),
        ),
    )


def legal(tree: NetworkTopology, gangs: list[QueuedGang], plan: QueuePlan) -> bool:
    """Check every gang on what those before it leave."""
    used = np.zeros((1, len(tree.nodes)), dtype=np.int64)
    for one in gangs:
        nodes = dict(plan.placements.get(one.name, {}))
        if nodes and placement_violations(tree, after_members(one.demand, used), nodes):
            return False
        count_members(tree, one.demand, nodes, used)
    return True


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize(("slots", "starting"), [(3, 2), (2, 2), (1, 1)])
def test_a_gang_keeps_its_multiple_per_node_beside_one_that_has_none(
    names: str, slots: int, starting: int
) -> None:
    """Four in pairs and three as they come: seven of nine places, or of eight."""
    tree = PAIRS if slots < 3 else tree_of((("b", "n1"), ("b", "n2"), ("b", "n3")))
    pairs = GatherRule(NODE_LAYER, "PreferGather", 2)
    both = {"a": gang(tree, "a", slots, 4, rules=(pairs,)), "b": gang(tree, "b", slots, 3)}
    queue = [both[name] for name in names]
    plan = plan_queue(tree, queue)
    assert len(plan.placements) == starting
    assert plan.certificate.status is CertificateStatus.PROVEN
    assert legal(tree, queue, plan)


@pytest.mark.parametrize(("slots", "waiting"), [(1, ("y", "z")), (2, ("z",)), (4, ())])
def test_gangs_of_equal_slices_start_while_there_are_blocks_for_them(
    slots: int, waiting: tuple[str, ...]
) -> None:
    """Two slices, two and three of two members each, in blocks of two nodes."""
    kinds = {"x": (2, 2), "y": (2, 2), "z": (2, 2, 2)}
    queue = [gang(PAIRS, name, slots, *sizes, own="BlockLayer") for name, sizes in kinds.items()]
    plan = plan_queue(PAIRS, queue)
    assert plan.waiting == waiting
    assert legal(PAIRS, queue, plan)
    assert plan.certificate.status is CertificateStatus.PROVEN


def test_who_starts_is_settled_by_a_proof_and_not_by_a_plan_one_by_one() -> None:
    queue = [gang(PAIRS, name, 1, 2) for name in "abc"]
    assert plan_queue(PAIRS, queue).settles_who_starts(1)
    assert not plan_in_order(PAIRS, queue).settles_who_starts(1)


@pytest.mark.parametrize("blocks", [(4, 4), (4, 4, 4, 2), (2, 4)])
def test_a_plan_that_there_is_no_time_to_better_is_as_good_as_one_by_one_and_bounded(
    blocks: tuple[int, ...],
) -> None:
    """Three equal gangs and a larger one, each of one block."""
    tree = _blocks(*blocks)
    rule = (GatherRule("BlockLayer", "MustGather"),)
    sizes = {"a": 2, "b": 2, "c": 2, "d": 4}
    queue = [gang(tree, name, 1, size, rules=rule) for name, size in sizes.items()]
    plan = plan_queue(tree, queue, limits=Limits(deterministic_time=1e-9))
    assert plan.certificate.objective <= plan_in_order(tree, queue).certificate.objective
    assert plan.certificate.status is not CertificateStatus.HEURISTIC
    assert plan.certificate.bound <= plan_queue(tree, queue).certificate.objective


def test_gangs_are_moved_together_though_there_is_no_time_to_prove_it() -> None:
    """One by one the first two leave one node of a block and two of the other, and the third needs three."""
    tree = _blocks(3, 4)
    queue = [gang(tree, name, 1, size) for name, size in {"a": 2, "b": 2, "c": 3}.items()]
    assert plan_in_order(tree, queue).certificate.objective == (-3, -7, 3, 4)
    assert plan_queue(tree, queue, gathering=1e-9).certificate.objective == (-3, -7, 3, 3)


def _blocks(*sizes: int) -> NetworkTopology:
    """One spine with blocks of so many nodes."""
    return tree_of(
        tuple(("s", f"b{block}", f"n{block}-{n}") for block, size in enumerate(sizes) for n in range(size))
    )
