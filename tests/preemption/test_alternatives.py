"""What else there would have been: other nodes or another domain, by name, and nothing that does not hold."""

from __future__ import annotations

import pytest

from koordcore.model.gangs import GatherRule
from koordcore.model.preemption import Gather, Members, PreemptionPlan
from koordcore.preemption.alternative import rejected_alternative
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Conflict, PreemptionProblem
from tests.preemption.worlds import problem_of

GATHERED = [GatherRule("BlockLayer", "MustGather")]


def planned(problem: PreemptionProblem, gather: Gather = Gather.DEEPEST) -> PreemptionPlan:
    plan = plan_preemption(problem, gather=gather)
    assert isinstance(plan, PreemptionPlan)
    return plan


def full(*priorities: int) -> list[tuple[int, tuple[int, ...], int, str]]:
    """Give a pod for each node that holds all of it."""
    return [(row, (4,), priority, "") for row, priority in enumerate(priorities)]


def members(number: int) -> list[tuple[int, ...]]:
    return [(4,)] * number


def test_an_alternative_lies_on_other_nodes() -> None:
    problem = problem_of([[0]] * 5, full(0, 0, 5, 5, 9), members(2))
    plan = planned(problem)
    assert sorted(plan.nominations.values()) == ["n1", "n2"]
    other = rejected_alternative(problem, plan)
    assert other is not None
    assert other.where == "n3, n4"
    assert other.damage.vector == (0, 5, 2, 2, 10, 0, 0)


def test_where_too_little_is_left_elsewhere_one_node_at_least_is_another() -> None:
    problem = problem_of([[0]] * 3, full(0, 0, 5), members(2))
    other = rejected_alternative(problem, planned(problem))
    assert other is not None
    assert other.where == "n2, n3"


def test_nodes_that_were_free_anyway_may_be_used_again() -> None:
    problem = problem_of([[4], [0], [0]], [(1, (4,), 0, ""), (2, (4,), 5, "")], members(2))
    other = rejected_alternative(problem, planned(problem))
    assert other is not None
    assert other.where == "n1, n3"


@pytest.mark.parametrize(
    ("number", "where"), [(4, "n5, n6, n7, n8"), (5, "n6, n7, n8 and 2 more"), (6, "n7, n8, n9 and 3 more")]
)
def test_of_many_nodes_three_are_named(number: int, where: str) -> None:
    problem = problem_of([[0]] * (2 * number), full(*[0] * number, *[5] * number), members(number))
    other = rejected_alternative(problem, planned(problem))
    assert other is not None
    assert other.where == where


def test_the_alternative_to_a_domain_is_one_other_domain_of_its_layer() -> None:
    """``c`` would be cheaper together with a node of ``a``; that is not one block."""
    problem = problem_of(
        [[0]] * 5, full(3, 3, 0, 0, 1), members(2), blocks=["a", "a", "b", "b", "c"], rules=GATHERED
    )
    plan = planned(problem)
    assert (plan.layer, plan.domain) == ("BlockLayer", "b")
    other = rejected_alternative(problem, plan)
    assert other is not None
    assert other.where == "BlockLayer/a"
    assert other.damage.vector == (0, 3, 2, 2, 6, 0, 0)


def test_a_single_node_of_another_domain_may_take_all_members() -> None:
    pods = [*full(0, 0), (2, (8,), 3, "")]
    problem = problem_of([[0]] * 3, pods, members(2), blocks=["a", "a", "b"], rules=GATHERED)
    other = rejected_alternative(problem, planned(problem, Gather.IF_FREE))
    assert other is not None
    assert other.where == "BlockLayer/b"


def test_a_job_that_spans_the_network_has_its_alternative_on_other_nodes() -> None:
    problem = problem_of([[0]] * 4, full(0, 0, 5, 5), members(2), blocks=["a", "b", "c", "d"])
    plan = planned(problem)
    assert plan.domain == ""
    other = rejected_alternative(problem, plan)
    assert other is not None
    assert other.where == "n3, n4"


def test_no_alternative_is_told_that_does_not_hold_or_that_nobody_needs() -> None:
    problem = problem_of([[0]] * 4, full(0, 0, 5, 5), members(2))
    plan = planned(problem)
    refused = rejected_alternative(
        problem, plan, dry_run=lambda counts, chosen, moves: Conflict(0, counts[:, 0], chosen)
    )
    assert refused is None
    free = problem_of([[4], [0]], [(1, (4,), 0, "")], members(1))
    assert rejected_alternative(free, planned(free)) is None
    only = problem_of([[0]], full(0), members(1))
    assert rejected_alternative(only, planned(only)) is None


def test_the_alternative_makes_room_for_as_many_as_the_plan() -> None:
    problem = problem_of([[0]] * 4, full(0, 0, 5, 5), members(2), least=1)
    plan = plan_preemption(problem, members=Members.ALL)
    assert isinstance(plan, PreemptionPlan)
    other = rejected_alternative(problem, plan, members=Members.ALL)
    assert other is not None
    assert other.damage.pods == 2


# -- of a single member --------------------------------------------------------------------------------------


def test_the_plan_for_one_pod_names_the_next_node_by_itself() -> None:
    plan = planned(problem_of([[0]] * 3, full(9, 0, 5), members(1)))
    assert plan.alternative is not None
    assert plan.alternative.where == "n3"
    assert plan.alternative.damage.highest == 5
    assert planned(problem_of([[0]], full(0), members(1))).alternative is None


def test_the_plan_for_one_pod_names_the_next_domain_where_it_gathers() -> None:
    problem = problem_of([[0]] * 2, full(0, 5), members(1), blocks=["a", "b"], rules=GATHERED)
    plan = planned(problem)
    assert plan.alternative is not None
    assert plan.alternative.where.endswith("n2")
    whole = planned(problem_of([[0]] * 2, full(0, 5), members(1), blocks=["a", "b"]))
    assert (whole.layer, whole.domain) == (plan.layer, plan.domain)


def test_where_it_is_best_that_nobody_comes_there_is_no_alternative() -> None:
    blocks = ["a", "b"]
    plan = planned(problem_of([[0], [0]], full(0, 0), members(1), blocks=blocks, rules=GATHERED))
    anybody = problem_of([[0], [0]], full(0, 0), members(1), blocks=blocks, rules=GATHERED, least=0)
    assert rejected_alternative(anybody, plan) is None
