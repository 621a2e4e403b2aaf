"""Drafts: legal at once, or none."""

from __future__ import annotations

import attrs
import numpy as np

from koordcore.model.preemption import Members, PreemptionPlan
from koordcore.preemption.bounds import floor_of
from koordcore.preemption.cost import close
from koordcore.preemption.greedy import draft_plan
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Domains, PreemptionProblem
from tests.preemption.worlds import problem_of, random_problem


def anywhere(problem: PreemptionProblem) -> Domains:
    return Domains(np.zeros(len(problem.nodes), dtype=np.int64), 1)


def test_a_draft_does_not_take_more_of_a_gang_than_it_can_spare() -> None:
    """Both small pods belong to a gang with a protected member, of which one may go."""
    pods = [(0, (3,), 10, ""), (0, (1,), 0, "default/g"), (0, (2,), 0, "default/g")]
    problem = problem_of([[3]], pods, [(3,), (3,)], minimums={"default/g": 2}, protected={"default/g": 1})
    plan = plan_preemption(problem, members=Members.ALL)
    assert isinstance(plan, PreemptionPlan)
    assert [victim.pod.name for victim in plan.victims] == ["v0"]


def test_drafts_are_legal() -> None:
    drafts = 0
    for seed in range(300):
        problem = random_problem(seed)
        for members in Members:
            domains = anywhere(problem)
            draft = draft_plan(problem, domains, members, floor_of(problem, domains, members))
            if draft is not None:
                drafts += 1
                closed = close(problem, draft.chosen)
                assert closed is not None
                assert (closed == draft.chosen).all()
    assert drafts > 100


def test_a_draft_puts_no_more_on_a_node_than_its_devices_take() -> None:
    """By amounts both fit on the node whose pods are less important; its devices take one of them."""
    problem = problem_of([[0], [0]], [(0, (2,), 8, ""), (1, (2,), 4, ""), (1, (2,), 0, "")], [(2,), (2,)])
    (shape,) = problem.shapes
    problem = attrs.evolve(problem, shapes=(attrs.evolve(shape, most=np.array([1, 1])),))
    plan = plan_preemption(problem, members=Members.ALL)
    assert isinstance(plan, PreemptionPlan)
    assert [victim.pod.name for victim in plan.victims] == ["v0", "v2"]
    assert plan.certificate.proven
