"""A plan that is known to be the cheapest comes with evidence: its moves, its roles, or nobody at all."""

from __future__ import annotations

import attrs

from koordcore.allocators.gang.demand import Unit
from koordcore.checking.certificates import check_certificate
from koordcore.model.certificates import DEFAULT_LIMITS
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.preemption.domains import depths_of, domains_at
from koordcore.preemption.exact import ExactAnswer, certify_plan, solve_exact
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.victim_program import Scope
from tests.preemption.test_moves import movable
from tests.preemption.test_shares import shared
from tests.preemption.worlds import problem_of

G = "default/g"


def certified(problem: PreemptionProblem) -> ExactAnswer:
    """Solve a problem, and certify the answer once more."""
    scope = Scope(domains=domains_at(problem, 0), usable=problem.usable)
    answer = solve_exact(problem, scope, limits=DEFAULT_LIMITS)
    assert isinstance(answer, ExactAnswer)
    bare = attrs.evolve(answer, certificate=attrs.evolve(answer.certificate, problem=None))
    certificate = certify_plan(problem, scope, bare, DEFAULT_LIMITS)
    assert certificate.proven
    assert certificate.objective == answer.certificate.objective
    assert certificate.problem is not None
    assert check_certificate(certificate.problem, certificate).accepted
    return answer


def test_moves_are_part_of_what_is_certified() -> None:
    """Of three kinds one is evicted; the others move to the first node and to the last one."""
    pods = [(1, (4,), 5, ""), (1, (2,), 0, ""), (1, (2,), 3, "")]
    problem = problem_of([[4], [0], [3]], pods, [(8,)], allowed=[[False, True, False]])
    answer = certified(movable(problem))
    assert answer.moves.tolist()[0] == 0
    assert answer.chosen.all()
    pods = [(1, (4,), 0, G), (1, (4,), 0, G)]
    problem = problem_of([[8], [0]], pods, [(8,)], minimums={G: 2}, allowed=[[False, True]])
    assert certified(movable(problem)).moves.tolist() == [0, 0]


def test_a_plan_without_victims_is_certified() -> None:
    answer = certified(problem_of([[4]], [], [(4,), (0,)]))
    assert not answer.chosen.any()


def test_roles_that_run_already_count_for_their_group() -> None:
    """Two parts of the group succeed: one that runs, and one that starts."""
    units = (Unit(name="all", least=2),)
    pods = [(0, (8,), 0, ""), (1, (8,), 3, "")]
    problem = shared(pods, [(1, 4, 0), (2, 4, 0)], chosen={1}, units=units)
    assert problem.shares is not None
    first, second = problem.shares.roles
    running = attrs.evolve(first, min_available=0, started=True)
    problem = attrs.evolve(problem, shares=attrs.evolve(problem.shares, roles=(running, second)))
    answer = certified(problem)
    assert answer.chosen.tolist() == [True, False]


def test_a_job_without_a_network_is_looked_at_in_the_whole_cluster() -> None:
    problem = problem_of([[4]], [], [(4,)])
    assert depths_of(problem) == (0,)
    wide = problem_of([[4]], [], [(4,)], blocks=["a"])
    assert depths_of(wide) == (2, 1, 0)
    assert depths_of(attrs.evolve(wide, spec=NetworkTopologySpec())) == (2, 1, 0)
