"""Laws of job preemption: cheapest by enumeration, irreducible, deterministic, monotone in priority."""

from __future__ import annotations

import attrs
import numpy as np
from hypothesis import given, settings, strategies as st

from koordcore import Bound, Nominated, schedule, verify
from koordcore._arrays import IntMatrix, IntVector
from koordcore.model.preemption import Gather, Members, NotHelpful, PreemptionPlan
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import ANYWHERE, Conflict, PreemptionProblem
from tests.preemption.test_flow import RULES, after, random_cluster
from tests.preemption.worlds import gang_problem, random_problem, with_refuges
from tests.reference.preemption_brute import Mask, best_by_enumeration, best_with_moves, holds, is_legal

seeds = st.integers(0, 10**6)
few = settings(max_examples=17, deadline=None)


def mask_of(problem: PreemptionProblem, plan: PreemptionPlan) -> Mask:
    gone = {str(victim.pod) for victim in plan.victims}
    return np.array([key in gone for key in problem.candidates.keys], dtype=np.bool_)


def cheapest(problem: PreemptionProblem, members: Members) -> PreemptionPlan | NotHelpful:
    return plan_preemption(problem, members=members, gather=Gather.IF_FREE)


@few
@given(seeds, st.sampled_from(Members))
def test_no_set_of_victims_is_cheaper(seed: int, members: Members) -> None:
    problem = random_problem(seed, most=6)
    best = best_by_enumeration(problem, members)
    plan = cheapest(problem, members)
    assert plan.certificate.proven
    if isinstance(plan, NotHelpful):
        assert best.damage is None
    else:
        assert plan.damage == best.damage
        assert is_legal(problem, mask_of(problem, plan))


@few
@given(seeds, st.sampled_from(Members))
def test_no_set_of_victims_and_moves_is_cheaper(seed: int, members: Members) -> None:
    problem = with_refuges(random_problem(seed, most=5), seed)
    best = best_with_moves(problem, members)
    plan = cheapest(problem, members)
    assert plan.certificate.proven
    assert best.damage == (None if isinstance(plan, NotHelpful) else plan.damage)


@few
@given(seeds, st.booleans())
def test_gangs_break_and_spare_as_it_costs_least(seed: int, moving: bool) -> None:
    problem = gang_problem(seed)
    if moving:
        problem = with_refuges(problem, seed)
    best = best_with_moves(problem, Members.ALL) if moving else best_by_enumeration(problem, Members.ALL)
    plan = cheapest(problem, Members.ALL)
    assert plan.certificate.proven
    assert best.damage == (None if isinstance(plan, NotHelpful) else plan.damage)


@few
@given(seeds, st.sampled_from(Members))
def test_nobody_can_stay(seed: int, members: Members) -> None:
    """Whoever is put back alone, without breaking a gang anew, makes the plan fail or is no gain."""
    problem = random_problem(seed)
    plan = cheapest(problem, members)
    if isinstance(plan, NotHelpful):
        return
    chosen = mask_of(problem, plan)
    for one in np.flatnonzero(chosen).tolist():
        fewer = chosen.copy()
        fewer[one] = False
        assert not (is_legal(problem, fewer) and holds(problem, fewer, members))


@few
@given(seeds)
def test_what_dry_runs_refuse_is_planned_again_until_it_holds(seed: int) -> None:
    """The planner of a job of several sees one amount, the dry run all of them."""
    problem = attrs.evolve(random_problem(seed, most=6), tree=None, spec=ANYWHERE)
    shapes = [
        attrs.evolve(one, request=np.where(np.arange(len(one.request)) > 0, 0, one.request))
        for one in problem.shapes
    ]
    asked = attrs.evolve(problem, shapes=tuple(shapes))

    def run(counts: IntMatrix, chosen: Mask, moves: IntVector) -> Conflict | None:
        used = counts.T @ np.array([problem.shapes[shape].request for _, shape in problem.classes])
        short = ((used > 0) & (used > problem.freed(chosen).T)).any(axis=1)
        rows = np.flatnonzero(short).tolist()
        return Conflict(rows[0], counts[:, rows[0]], chosen) if rows else None

    plan = plan_preemption(asked, members=Members.ALL, dry_run=run, rounds=200)
    best = best_by_enumeration(problem, Members.ALL)
    if isinstance(plan, NotHelpful):
        assert best.damage is None or not plan.certificate.proven
        return
    assert holds(problem, mask_of(problem, plan), Members.ALL)
    assert best.damage is not None
    assert plan.damage == best.damage or not plan.certificate.proven


@few
@given(seeds)
def test_the_same_input_gives_the_same_plan(seed: int) -> None:
    assert cheapest(random_problem(seed), Members.ALL) == cheapest(random_problem(seed), Members.ALL)


@few
@given(seeds, st.integers(0, 7))
def test_raising_a_priority_never_makes_a_lone_victim_likelier(seed: int, number: int) -> None:
    problem = random_problem(seed)
    plan = cheapest(problem, Members.ALL)
    table = problem.candidates
    if isinstance(plan, NotHelpful) or number >= len(table) or mask_of(problem, plan)[number]:
        return
    raised = table.priority.copy()
    raised[number] += 100
    dearer = attrs.evolve(problem, candidates=attrs.evolve(table, priority=raised))
    again = cheapest(dearer, Members.ALL)
    assert isinstance(again, PreemptionPlan)
    assert again.damage == plan.damage
    assert not mask_of(dearer, again)[number]


@few
@given(seeds)
def test_asking_for_fewer_members_is_never_dearer(seed: int) -> None:
    problem = random_problem(seed)
    everybody, least = cheapest(problem, Members.ALL), cheapest(problem, Members.MINIMUM)
    if isinstance(everybody, PreemptionPlan) and not problem.spec.multiples:
        assert isinstance(least, PreemptionPlan)
        assert least.damage <= everybody.damage


@few
@given(seeds)
def test_the_job_is_bound_once_its_victims_have_gone(seed: int) -> None:
    """The plan is legal by the checker, and ``schedule`` then binds exactly those who were nominated."""
    snapshot = random_cluster(seed)
    result = schedule(snapshot, preempt=RULES)
    assert verify(snapshot, result) == ()
    nominated = {one.pod for one in result.decisions if isinstance(one, Nominated)}
    assert {one.pod for one in after(result).decisions if isinstance(one, Bound)} == nominated
