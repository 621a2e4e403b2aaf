"""Laws of preemption for one member: whatever dry runs refuse, the cheapest plan that holds is proven."""

from __future__ import annotations

import random

import attrs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.checking.certificates import check_certificate
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.preemption import Members, NotHelpful
from koordcore.preemption import node_victims
from koordcore.preemption.plan import DryRun, plan_preemption
from koordcore.preemption.problem import Conflict, PreemptionProblem
from tests.preemption.worlds import one_member, pooled, problem_of
from tests.reference.preemption_brute import Mask, best_by_enumeration

seeds = st.integers(0, 10**6)
few = settings(max_examples=33, deadline=None)


def refusing(problem: PreemptionProblem, *, elsewhere: bool = False) -> DryRun:
    """Look at all amounts, as the planner does that sees the whole problem."""

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        ((_, row),) = np.argwhere(counts).tolist()
        assert counts[0, row] == 1
        request = problem.shapes[0].request
        left = problem.freed(chosen)[:, row]
        short = ((request > 0) & (left < request)).any()
        return Conflict(row, counts[:, row], chosen, elsewhere) if short else None

    return run


def blind(problem: PreemptionProblem) -> PreemptionProblem:
    """Hide all amounts but the first from the planner."""
    shape = problem.shapes[0]
    request = shape.request.copy()
    request[1:] = 0
    return attrs.evolve(problem, shapes=(attrs.evolve(shape, request=request),))


@few
@given(seeds, st.booleans())
def test_what_dry_runs_refuse_is_cut_until_the_cheapest_plan_holds(seed: int, elsewhere: bool) -> None:
    problem = one_member(seed)
    best = best_by_enumeration(problem, Members.ALL)
    plan = plan_preemption(blind(problem), dry_run=refusing(problem, elsewhere=elsewhere))
    assert plan.certificate.proven
    assert best.damage == (None if isinstance(plan, NotHelpful) else plan.damage)


@few
@given(seeds)
def test_offers_and_the_present_spare_dry_runs_and_change_nothing(seed: int) -> None:
    problem = one_member(seed)
    asked = blind(problem)
    nobody, everybody = np.zeros(len(asked.candidates), bool), np.ones(len(asked.candidates), bool)

    def enough(gone: Mask) -> Mask:
        request = problem.shapes[0].request[:, None]
        return np.asarray(((request <= 0) | (problem.freed(gone) >= request)).all(axis=0))

    present = attrs.evolve(asked.shapes[0], now=enough(nobody))
    told = plan_preemption(
        attrs.evolve(asked, shapes=(present,)),
        dry_run=refusing(problem),
        offers=lambda rows: enough(everybody)[rows],
    )
    plain = plan_preemption(asked, dry_run=refusing(problem))
    assert told.certificate == plain.certificate
    if not isinstance(told, NotHelpful) and not isinstance(plain, NotHelpful):
        assert (told.victims, told.nominations) == (plain.victims, plain.nominations)


@few
@given(seeds)
def test_the_solver_takes_over_where_pods_are_too_different(seed: int) -> None:
    problem, rng = one_member(seed), random.Random(seed)
    asked = blind(problem)
    now = np.array([rng.random() < 0.5 for _ in problem.nodes], dtype=np.bool_)
    asked = attrs.evolve(asked, shapes=(attrs.evolve(asked.shapes[0], now=now),))
    plan = plan_preemption(asked, dry_run=refusing(problem))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_victims, "_MOST_STEPS", 1)
        solved = plan_preemption(asked, dry_run=refusing(problem))
    assert solved.certificate == plan.certificate


@few
@given(seeds)
def test_what_a_quota_lacks_comes_from_where_it_costs_least(seed: int) -> None:
    problem = pooled(one_member(seed), seed)
    (pool,) = problem.pools

    def fine(chosen: Mask) -> bool:
        asked = pool.uses[0]
        return bool((asked <= pool.room + pool.gives[:, chosen].sum(axis=1))[asked > 0].all())

    best = best_by_enumeration(problem, Members.ALL, fine)
    plan = plan_preemption(problem)
    assert plan.certificate.proven
    assert best.damage == (None if isinstance(plan, NotHelpful) else plan.damage)


@few
@given(seeds)
def test_what_a_dry_run_says_of_a_quota_is_heeded_on_every_node(seed: int) -> None:
    """The planner sees half of what is lacking; nobody at all is at fault on the node itself."""
    problem = pooled(one_member(seed), seed)
    (pool,) = problem.pools
    uses = pool.uses.copy()
    uses[:, 1] = 0
    asked = attrs.evolve(problem, pools=(attrs.evolve(pool, uses=uses),))

    def enough(chosen: Mask) -> bool:
        wanted = pool.uses[0]
        return bool((wanted <= pool.room + pool.gives[:, chosen].sum(axis=1))[wanted > 0].all())

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        if enough(chosen):
            return None
        giving = pool.gives.any(axis=0) & (pool.uses[0] > 0).any()
        return Conflict(-1, np.zeros(1, dtype=np.int64), chosen | ~giving)

    best = best_by_enumeration(problem, Members.ALL, enough)
    plan = plan_preemption(asked, dry_run=run)
    if isinstance(plan, NotHelpful):
        # Only who gives what the planner knows of, or is on the node, is looked at.
        return
    assert best.damage is not None
    assert plan.damage >= best.damage
    gone = {str(one.pod) for one in plan.victims}
    assert enough(np.array([key in gone for key in problem.candidates.keys], dtype=np.bool_))


def many_nodes(hopeless: int) -> PreemptionProblem:
    """One pod on each node; the second amount, of which the last node alone has enough, is for dry runs."""
    rng = random.Random(7)
    victims = [(row, (4, 2), rng.choice([0, 5]), "") for row in range(hopeless)]
    return problem_of([[0, 0]] * (hopeless + 1), [*victims, (hopeless, (4, 4), 9, "")], [(4, 4)])


def test_a_budget_that_ends_claims_nothing_that_it_has_not_seen() -> None:
    """Each refusal costs two dry runs; forty are more than the least budget has, and less than the usual."""
    problem = many_nodes(40)
    short = plan_preemption(blind(problem), dry_run=refusing(problem), limits=Limits(deterministic_time=0.1))
    assert isinstance(short, NotHelpful)
    assert short.certificate.status is CertificateStatus.HEURISTIC
    full = plan_preemption(blind(problem), dry_run=refusing(problem))
    assert not isinstance(full, NotHelpful)
    assert full.certificate.proven
    assert full.damage.highest == 9


def test_a_plan_that_is_known_to_hold_is_named_when_the_budget_ends() -> None:
    """On every node the dearer pod has to leave, as only a dry run tells; it is looked for on a few nodes."""
    nodes = 60
    victims = [
        (row, amounts, priority, "")
        for row in range(nodes)
        for amounts, priority in (((4, 0), 0), ((4, 4), 9))
    ]
    problem = problem_of([[0, 0]] * nodes, victims, [(4, 4)])
    plan = plan_preemption(blind(problem), dry_run=refusing(problem), limits=Limits(deterministic_time=0.5))
    assert not isinstance(plan, NotHelpful)
    assert plan.certificate.status is CertificateStatus.FEASIBLE
    assert (plan.damage.highest, plan.certificate.bound[1]) == (9, 0)
    proven = plan_preemption(blind(problem), dry_run=refusing(problem))
    assert not isinstance(proven, NotHelpful)
    assert proven.damage == plan.damage
    assert proven.certificate.proven


@few
@given(seeds, st.booleans())
def test_what_is_proven_with_evidence_can_be_proven_again(seed: int, refused: bool) -> None:
    """Where a dry run refused something cheaper there is no evidence; otherwise it is accepted."""
    problem = one_member(seed)
    asked = blind(problem) if refused else problem
    certificate = plan_preemption(asked, dry_run=refusing(problem)).certificate
    assert certificate.proven
    if certificate.problem is not None:
        assert check_certificate(certificate.problem, certificate).accepted
    else:
        assert not certificate.infeasible or refused


def test_no_evidence_is_claimed_where_a_dry_run_refused_fewer_victims_on_another_node() -> None:
    """By amounts a single pod on n1 would do; the second amount, which the dry run looks at, is on n2."""
    victims = [(0, (4, 1), 0, ""), (1, (2, 2), 0, ""), (1, (2, 2), 0, "")]
    problem = problem_of([[0, 0], [0, 0]], victims, [(4, 4)])
    plan = plan_preemption(blind(problem), dry_run=refusing(problem))
    assert not isinstance(plan, NotHelpful)
    assert plan.damage.pods == 2
    assert plan.certificate.proven
    assert plan.certificate.problem is None
