"""Bounds on what a placement may open, and on which nodes it may use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from koordcore.allocators.gang.bounds import fewest_domains, useful_nodes
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, Member, Role, Shape
from koordcore.allocators.gang.mixed import combined_slots, place_mixed
from koordcore.allocators.gang.objective import terms_of
from koordcore.model.certificates import DEFAULT_LIMITS, CertificateStatus, Limits
from koordcore.topology.network import NetworkTopology
from tests.property.gang_strategies import demand_of, mixed_instances, tree_of
from tests.reference.gang_placement import Instance


def two_blocks() -> NetworkTopology:
    """Four nodes in block a, two in block b, one in block c."""
    return tree_of(
        (("a", "a0"), ("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b0"), ("b", "b1"), ("c", "c0"))
    )


def mixed(tree: NetworkTopology, free: list[int], big: int, small: int) -> GangDemand:
    """Members of 4 and of 1 for what the nodes have left."""
    amounts = np.array(free, dtype=np.int64)
    shapes = tuple(Shape(slots=amounts // size, request=np.array([size], dtype=np.int64)) for size in (4, 1))
    members = [
        *(Member(f"d/b-{n}", 0, n) for n in range(big)),
        *(Member(f"d/s-{n}", 1) for n in range(small)),
    ]
    role = Role(name="g", members=tuple(members), min_available=len(members))
    return GangDemand(roles=(role,), shapes=shapes, free=amounts[None, :])


def test_the_fewest_domains_cover_every_need() -> None:
    tree = two_blocks()
    terms = terms_of(tree, demand := mixed(tree, [4, 4, 4, 4, 8, 8, 4], 4, 4), combined_slots(demand))
    assert [fewest_domains(terms, depth) for depth in (1, 2)] == [2, 3]


def test_nodes_that_few_domains_cannot_use_are_left_out() -> None:
    tree = two_blocks()
    demand = mixed(tree, [4, 4, 4, 4, 8, 8, 4], 3, 4)
    terms = terms_of(tree, demand, combined_slots(demand))
    assert useful_nodes(terms, {1: 1, 2: 4}).tolist() == [True] * 6 + [False]
    assert useful_nodes(terms, {1: 1, 2: 2}).tolist() == [False] * 4 + [True] * 2 + [False]
    assert not useful_nodes(terms, {1: 1, 2: 1}).any()
    assert useful_nodes(terms, {}).all()


@pytest.mark.solver
@settings(max_examples=33, deadline=None)
@given(mixed_instances())
def test_no_best_placement_is_cut_off(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    demand = demand_of(problem, tree)
    placed = place_mixed(tree, demand, limits=DEFAULT_LIMITS)
    if not isinstance(placed, GangPlacement) or placed.left_out:
        return
    assert placed.certificate.status is CertificateStatus.PROVEN
    terms = terms_of(tree, demand, combined_slots(demand))
    opened = placed.certificate.objective[1 : len(terms.order) + 1]
    assert all(fewest_domains(terms, d) <= n for d, n in zip(terms.order, opened, strict=True))
    useful = useful_nodes(terms, dict(zip(terms.order, opened, strict=True)))
    held = terms.bound[tree.first_node :] > 0
    assert all((useful | held)[tree.node_index[node]] for node in placed.nodes.values())


@pytest.mark.solver
@pytest.mark.parametrize(
    ("free", "sizes", "fewest"),
    [
        ((8, 8, 9, 7, 3, 7, 7, 4), (6, 3, 4, 6, 6, 4), 4),
        ((5, 6, 6, 9, 3, 8, 6, 8), (4, 6, 4, 6), 3),
        ((3, 4, 9, 3, 6, 7), (2, 2, 5, 5, 2), 2),
        ((6, 9, 4, 8, 8, 4, 3), (2, 3, 3, 3, 1, 2), 2),
    ],
)
def test_a_number_of_nodes_that_there_was_no_time_to_rule_out_is_not_ruled_out(
    free: tuple[int, ...], sizes: tuple[int, ...], fewest: int
) -> None:
    """As few as hold the sum of all members, which the quick placement misses."""
    tree = tree_of(tuple((f"n{node}",) for node in range(len(free))))
    kinds, amounts = sorted(set(sizes)), np.array(free)
    members = tuple(Member(f"d/m-{rank}", kinds.index(size), rank) for rank, size in enumerate(sizes))
    demand = GangDemand(
        roles=(Role(name="g", members=members, min_available=len(members)),),
        shapes=tuple(Shape(slots=amounts // size, request=np.array([size])) for size in kinds),
        free=amounts[None, :],
    )
    hasty = place_mixed(tree, demand, limits=Limits(deterministic_time=1e-9))
    assert isinstance(hasty, GangPlacement)
    assert hasty.certificate.bound[1] <= fewest <= hasty.certificate.objective[1]
    assert place_mixed(tree, demand, limits=DEFAULT_LIMITS).certificate.objective[1] == fewest
