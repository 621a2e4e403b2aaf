"""Plans on problems small enough to be read."""

from __future__ import annotations

import numpy as np
import pytest

from koordcore.allocators.gang.demand import Member, Role
from koordcore.errors import ModelError
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.gangs import GatherRule
from koordcore.model.preemption import Gather, Members, NotHelpful, PreemptionPlan
from koordcore.preemption.alternative import rejected_alternative
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Conflict, PreemptionProblem
from tests.preemption.worlds import problem_of


def planned(problem: PreemptionProblem, members: Members = Members.MINIMUM) -> PreemptionPlan:
    plan = plan_preemption(problem, members=members)
    assert isinstance(plan, PreemptionPlan)
    assert plan.certificate.proven
    return plan


def victims(plan: PreemptionPlan) -> list[str]:
    return sorted(victim.pod.name for victim in plan.victims)


def test_nobody_leaves_where_there_is_room() -> None:
    plan = planned(problem_of([[4]], [(0, (2,), 0, "")], [(3,)]))
    assert plan.victims == ()
    assert dict(plan.nominations) == {"default/m0": "n1"}


def test_one_large_victim_beats_several_small_ones_of_equal_priority() -> None:
    """Keeping the more important names first would evict two."""
    sizes = (2, 4, 2, 2)
    plan = planned(problem_of([[0]], [(0, (size,), 0, "") for size in sizes], [(4,)]))
    assert victims(plan) == ["v1"]


def test_a_pod_that_is_kept_costs_nothing() -> None:
    first = [(0, (2,), 0, ""), (0, (1,), 1, ""), (0, (1,), 2, "")]
    plan = planned(problem_of([[12], [0]], [*first, (1, (16,), 1, "")], [(14,)]))
    assert victims(plan) == ["v0"]


def test_the_victims_of_one_job_are_taken_together() -> None:
    """Breaking one gang of two is less than breaking two."""
    pods = [(0, (8,), 0, "default/x"), (1, (8,), 0, "default/y"), (2, (8,), 0, "default/x")]
    minimums = {"default/x": 2, "default/y": 1}
    plan = planned(problem_of([[0], [0], [0]], pods, [(8,), (8,)], minimums=minimums))
    assert victims(plan) == ["v0", "v2"]
    assert plan.broken == ("default/x",)


def test_a_broken_gang_is_named_whole() -> None:
    pods = [(0, (4,), 0, "default/x"), (1, (4,), 0, "default/x")]
    plan = planned(problem_of([[0], [0]], pods, [(4,)], minimums={"default/x": 2}))
    assert victims(plan) == ["v0", "v1"]
    assert (plan.damage.jobs, plan.damage.pods) == (1, 2)


def test_a_gang_gives_what_it_can_spare_without_being_broken() -> None:
    pods = [(0, (4,), 0, "default/x"), (0, (4,), 0, "default/x"), (0, (4,), 0, "")]
    plan = planned(problem_of([[0]], pods, [(4,)], minimums={"default/x": 1}))
    assert plan.damage.jobs == 0
    assert len(plan.victims) == 1


def test_a_gang_with_a_protected_member_is_not_broken() -> None:
    pods = [(0, (4,), 0, "default/x"), (1, (4,), 7, "")]
    problem = problem_of([[0], [0]], pods, [(4,)], minimums={"default/x": 2}, protected={"default/x": 1})
    assert victims(planned(problem)) == ["v1"]


def test_budgets_come_before_priorities() -> None:
    pods = [(0, (4,), 0, ""), (1, (4,), 9, "")]
    plan = planned(problem_of([[0], [0]], pods, [(4,)], budgets=[(0, [0])]))
    assert victims(plan) == ["v1"]


def test_a_budget_is_broken_where_nothing_else_helps() -> None:
    plan = planned(problem_of([[0]], [(0, (4,), 0, "")], [(4,)], budgets=[(0, [0])]))
    assert plan.damage.violations == 1


def test_members_of_unequal_size_get_the_nodes_that_suit_them() -> None:
    pods = [(0, (8,), 0, ""), (1, (4,), 0, "")]
    plan = planned(problem_of([[0], [0]], pods, [(8,), (4,)]))
    assert dict(plan.nominations) == {"default/m0": "n1", "default/m1": "n2"}


def test_an_overcommitted_node_matters_only_where_a_member_goes() -> None:
    plan = planned(problem_of([[-3], [0]], [(0, (4,), 0, ""), (1, (2,), 5, "")], [(2,)]))
    assert victims(plan) == ["v1"]


def test_the_minimum_preempts_and_others_take_what_is_free_then() -> None:
    pods = [(0, (4,), 0, ""), (1, (2,), 0, "")]
    problem = problem_of([[0], [0]], pods, [(2,), (2,), (2,)], least=1)
    plan = planned(problem)
    assert len(plan.victims) == 1
    assert len(plan.nominations) == 2
    assert len(plan.left_out) == 1
    everybody = planned(problem, Members.ALL)
    assert victims(everybody) == ["v0", "v1"]


def test_not_helpful_is_proven() -> None:
    plan = plan_preemption(problem_of([[0]], [(0, (4,), 0, "")], [(5,)]))
    assert isinstance(plan, NotHelpful)
    assert plan.certificate.status is CertificateStatus.INFEASIBLE


def test_the_domain_is_chosen_by_damage() -> None:
    pods = [(0, (4,), 3, ""), (1, (4,), 3, ""), (2, (4,), 0, ""), (3, (4,), 0, "")]
    problem = problem_of(
        [[0]] * 4,
        pods,
        [(4,), (4,)],
        blocks=["a", "a", "b", "b"],
        rules=[GatherRule("BlockLayer", "MustGather")],
    )
    plan = planned(problem)
    assert (plan.layer, plan.domain) == ("BlockLayer", "b")
    other = rejected_alternative(problem, plan)
    assert other is not None
    assert other.where == "BlockLayer/a"
    assert other.damage.highest == 3


def test_a_wish_for_gathering_wins_over_damage_unless_asked_otherwise() -> None:
    pods = [(0, (8,), 9, ""), (1, (4,), 0, ""), (2, (4,), 0, "")]
    problem = problem_of([[0]] * 3, pods, [(4,), (4,)], blocks=["a", "b", "c"])
    deepest = plan_preemption(problem)
    cheapest = plan_preemption(problem, gather=Gather.IF_FREE)
    assert isinstance(deepest, PreemptionPlan)
    assert isinstance(cheapest, PreemptionPlan)
    assert victims(deepest) == ["v0"]
    assert victims(cheapest) == ["v1", "v2"]


def test_multiples_hold_on_every_layer() -> None:
    pods = [(0, (8,), 0, ""), (1, (8,), 0, "")]
    rule = GatherRule("BlockLayer", "PreferGather", 2)
    problem = problem_of([[0], [0]], pods, [(4,), (4,), (4,)], blocks=["a", "b"], rules=[rule])
    assert isinstance(plan_preemption(problem), NotHelpful)


def test_what_a_dry_run_finds_out_is_planned_around() -> None:
    """A node on which the amounts alone are not enough: both pods have to go."""
    pods = [(0, (4,), 0, ""), (0, (4,), 0, ""), (1, (8,), 5, "")]
    problem = problem_of([[0], [0]], pods, [(4,)])

    def dry_run(counts: np.ndarray, chosen: np.ndarray, moves: np.ndarray) -> Conflict | None:
        if counts[0, 0] and not chosen[:2].all():
            return Conflict(0, counts[:, 0], chosen)
        return None

    plan = plan_preemption(problem, dry_run=dry_run)
    assert isinstance(plan, PreemptionPlan)
    assert victims(plan) == ["v0", "v1"]
    assert plan.certificate.proven


def test_the_best_plan_so_far_is_returned_with_its_bound() -> None:
    pods = [(node, (1,), 0, f"default/g{(node * 3 + k) % 7}") for node in range(6) for k in range(4)]
    minimums = {f"default/g{number}": 2 for number in range(7)}
    problem = problem_of([[0]] * 6, pods, [(3,)] * 4, minimums=minimums)
    plan = plan_preemption(problem, limits=Limits(deterministic_time=1e-6))
    assert isinstance(plan, PreemptionPlan)
    assert plan.certificate.bound <= plan.certificate.objective
    assert len(plan.nominations) == 4


def test_a_member_that_occurs_twice_is_refused() -> None:
    problem = problem_of([[1]], [], [(1,)])
    twice = Role(name="x", members=(Member("default/m0"), Member("default/m0")), min_available=1)
    with pytest.raises(ModelError, match="twice"):
        PreemptionProblem(
            nodes=problem.nodes,
            free=problem.free,
            shapes=problem.shapes,
            roles=(twice,),
            candidates=problem.candidates,
            jobs=problem.jobs,
        )
