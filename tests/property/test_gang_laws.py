"""Laws of gang placement.

The planner's objective is the best one over all legal placements (tried one by one); what it returns is
legal; no feasible gang is rejected; more room never makes the answer worse; names carry no weight beyond
ties; the same question gets the same answer.
"""

from __future__ import annotations

import re
from itertools import combinations_with_replacement

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangPlacement, GangShortfall
from koordcore.allocators.gang.mixed import place_mixed
from koordcore.allocators.gang.planner import place_gang
from koordcore.model.certificates import DEFAULT_LIMITS, CertificateStatus
from tests.property.gang_strategies import (
    OPEN_NODES,
    demand_of,
    even_instances,
    mixed_instances,
    scored_instances,
    sliced_instances,
    snug_instances,
    tree_of,
    uniform_instances,
)
from tests.reference.gang_placement import Instance, best_objective


def agrees(problem: Instance, placed: GangPlacement | GangShortfall) -> None:
    """Compare with trying everything."""
    tree = tree_of(problem.paths)
    demand = demand_of(problem, tree)
    best = best_objective(problem)
    if isinstance(placed, GangShortfall):
        assert best is None, f"{best} was missed"
        assert placed.certificate.status is CertificateStatus.INFEASIBLE
        return
    assert placement_violations(tree, demand, placed.nodes) == ()
    assert placed.certificate.status is CertificateStatus.PROVEN
    assert placed.certificate.objective == best
    assert {*placed.nodes, *placed.left_out} == {member.key for member in demand.members}


@settings(max_examples=20, deadline=None)
@given(uniform_instances())
def test_equal_members_are_placed_best(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    agrees(problem, place_gang(tree, demand_of(problem, tree)))


@settings(max_examples=17, deadline=None)
@given(even_instances())
@example(OPEN_NODES)
def test_members_lie_as_evenly_as_can_be(problem: Instance) -> None:
    """Fewest domains first, then the least sum of squares, whatever the nodes would have liked."""
    tree = tree_of(problem.paths)
    placed = place_gang(tree, demand_of(problem, tree))
    best = best_objective(problem)
    assert isinstance(placed, GangShortfall) == (best is None)
    if isinstance(placed, GangPlacement):
        assert placement_violations(tree, demand_of(problem, tree), placed.nodes) == ()
        assert placed.certificate.objective == best


@settings(max_examples=27, deadline=None)
@given(snug_instances())
def test_the_tightest_domains_come_before_few_nodes(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    placed = place_gang(tree, demand_of(problem, tree))
    best = best_objective(problem)
    assert isinstance(placed, GangShortfall) == (best is None)
    if isinstance(placed, GangPlacement) and best is not None:
        assert placement_violations(tree, demand_of(problem, tree), placed.nodes) == ()
        assert placed.certificate.proven
        # Where scores tell no nodes apart they are no part of the objective.
        assert placed.certificate.objective == best[: len(placed.certificate.objective)]


@settings(max_examples=40, deadline=None)
@given(scored_instances())
def test_what_is_equal_is_settled_by_scores(problem: Instance) -> None:
    """The best sum of scores among the placements that are best otherwise."""
    tree = tree_of(problem.paths)
    placed = place_gang(tree, demand_of(problem, tree))
    best = best_objective(problem)
    if not isinstance(placed, GangPlacement):
        assert best is None
        return
    score_of = {path[-1]: score for path, score in zip(problem.paths, problem.scores, strict=True)}
    worth = sum(score_of[node] for node in placed.nodes.values())
    without = best_objective(attrs.evolve(problem, scores=()))
    assert without is not None
    assert placed.certificate.objective[: len(without)] == without
    assert (*without, -worth) == best


@settings(max_examples=23, deadline=None)
@given(uniform_instances())
def test_the_slots_that_a_refusal_names_are_the_fewest_that_mend_it(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    told = place_gang(tree, demand_of(problem, tree))
    named = re.search(r"; (\d+) more would do", told.detail) if isinstance(told, GangShortfall) else None
    if named is None or int(named[1]) > 3 or any(problem.bound):
        return

    def mended(number: int) -> bool:
        for extra in combinations_with_replacement(range(len(problem.paths)), number):
            slots = [slots + extra.count(node) for node, slots in enumerate(problem.slots[0])]
            again = place_gang(tree, demand_of(attrs.evolve(problem, slots=(tuple(slots),)), tree))
            if isinstance(again, GangPlacement):
                return True
        return False

    assert mended(int(named[1]))
    assert not mended(int(named[1]) - 1)


@pytest.mark.solver
@settings(max_examples=10, deadline=None)
@given(mixed_instances())
def test_mixed_members_are_placed_best(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    demand = demand_of(problem, tree)
    agrees(problem, place_mixed(tree, demand, limits=DEFAULT_LIMITS))


@pytest.mark.solver
@settings(max_examples=10, deadline=None)
@given(sliced_instances())
def test_slices_and_free_members_are_placed_best(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    agrees(problem, place_gang(tree, demand_of(problem, tree)))


@pytest.mark.solver
@settings(max_examples=10, deadline=None)
@given(uniform_instances())
def test_tree_program_and_solver_agree(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    demand = demand_of(problem, tree)
    exact = place_gang(tree, demand)
    counted = place_mixed(tree, demand, limits=DEFAULT_LIMITS)
    assert type(exact) is type(counted)
    assert exact.certificate == counted.certificate


@settings(max_examples=23, deadline=None)
@given(uniform_instances())
def test_another_node_never_makes_it_worse(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    before = place_gang(tree, demand_of(problem, tree))
    fresh = (*(f"fresh{level}" for level in range(len(problem.paths[0]) - 1)), "zz")
    larger = attrs.evolve(
        problem,
        paths=(*problem.paths, fresh),
        slots=tuple((*row, 2) for row in problem.slots),
        bound=(*problem.bound, 0),
        near=(*problem.near, 0),
    )
    more = tree_of(larger.paths)
    after = place_gang(more, demand_of(larger, more))
    if isinstance(before, GangPlacement):
        assert isinstance(after, GangPlacement)
        assert after.certificate.objective <= before.certificate.objective


@settings(max_examples=23, deadline=None)
@given(uniform_instances())
def test_renaming_changes_names_only(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    before = place_gang(tree, demand_of(problem, tree))
    renamed = attrs.evolve(
        problem, paths=tuple(tuple(f"x-{name}" for name in path) for path in problem.paths)
    )
    other = tree_of(renamed.paths)
    after = place_gang(other, demand_of(renamed, other))
    assert type(before) is type(after)
    assert before.certificate == after.certificate
    if isinstance(before, GangPlacement) and isinstance(after, GangPlacement):
        assert {key: f"x-{node}" for key, node in before.nodes.items()} == dict(after.nodes)


@settings(max_examples=17, deadline=None)
@given(uniform_instances())
def test_input_is_untouched_and_the_answer_repeats(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    demand = demand_of(problem, tree)
    slots = demand.shapes[0].slots.copy()
    first = place_gang(tree, demand)
    assert np.array_equal(slots, demand.shapes[0].slots)
    assert repr(first) == repr(place_gang(tree, demand_of(problem, tree)))
