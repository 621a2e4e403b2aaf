"""Drafts: legal at once, or none."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import numpy as np
import pytest

from koordcore.model.certificates import Limits
from koordcore.model.preemption import Members, PreemptionPlan
from koordcore.preemption.bounds import floor_of
from koordcore.preemption.cost import close, damage_of
from koordcore.preemption.greedy import Draft, draft_plan
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Domains, PreemptionProblem
from tests.preemption.worlds import gang_problem, one_member, problem_of, random_problem


def anywhere(problem: PreemptionProblem) -> Domains:
    return Domains(np.zeros(len(problem.nodes), dtype=np.int64), 1)


def test_a_draft_does_not_take_more_of_a_gang_than_it_can_spare() -> None:
    """Both small pods belong to a gang with a protected member, of which one may go."""
    pods = [(0, (3,), 10, ""), (0, (1,), 0, "default/g"), (0, (2,), 0, "default/g")]
    problem = problem_of([[3]], pods, [(3,), (3,)], minimums={"default/g": 2}, protected={"default/g": 1})
    plan = plan_preemption(problem, members=Members.ALL)
    assert isinstance(plan, PreemptionPlan)
    assert [victim.pod.name for victim in plan.victims] == ["v0"]


def fits(problem: PreemptionProblem, draft: Draft) -> bool:
    """Tell whether the nodes hold those who come once the victims have gone."""
    used = draft.counts.T @ np.array([problem.shapes[shape].request for _, shape in problem.classes])
    return not ((used > 0) & (used > problem.freed(draft.chosen).T)).any()


def test_drafts_are_legal() -> None:
    drafts = 0
    for seed in range(120):
        problem = random_problem(seed)
        for members in Members:
            domains = anywhere(problem)
            draft = draft_plan(problem, domains, members, floor_of(problem, domains, members))
            if draft is not None:
                drafts += 1
                closed = close(problem, draft.chosen)
                assert closed is not None
                assert (closed == draft.chosen).all()
                assert fits(problem, draft)
    assert drafts > 100


@pytest.mark.parametrize(
    ("world", "plans", "best"),
    [(one_member, 148, 142), (gang_problem, 184, 169)],
    ids=["one member", "gangs"],
)
def test_nearly_all_drafts_of_small_problems_are_the_best(
    world: Callable[[int], PreemptionProblem], plans: int, best: int
) -> None:
    found = []
    for seed in range(200):
        problem = world(seed)
        plan = plan_preemption(problem, members=Members.ALL)
        if isinstance(plan, PreemptionPlan):
            floor = floor_of(problem, anywhere(problem), Members.ALL)
            draft = draft_plan(problem, anywhere(problem), Members.ALL, floor)
            assert draft is not None
            assert fits(problem, draft)
            found.append(draft.damage == plan.damage)
    assert len(found) == plans
    assert sum(found) >= best


def crowded(seed: int) -> PreemptionProblem:
    """Sixteen pods on five nodes, most of them in gangs, and four members."""
    rng = random.Random(seed)
    gangs = [f"default/g{number}" for number in range(4)]
    victims = [
        (
            rng.randrange(5),
            (rng.randint(1, 3), rng.randint(0, 2)),
            rng.choice((0, 0, 1, 5)),
            rng.choice((*gangs, "", "")),
        )
        for _ in range(16)
    ]
    shapes = [(rng.randint(2, 4), rng.randint(0, 2)) for _ in range(2)]
    return problem_of(
        [[rng.randint(0, 1) for _ in range(2)] for _ in range(5)],
        victims,
        [rng.choice(shapes) for _ in range(4)],
        minimums={gang: rng.randint(1, 4) for gang in gangs},
        protected={gang: 1 for gang in gangs if rng.random() < 0.2},
        budgets=[(rng.randint(0, 1), [one for one in range(16) if rng.random() < 0.3])],
    )


def test_drafts_among_gangs_cost_no_more_than_they_did() -> None:
    """What is lost in all: a draft that is worse leaves more to the solver."""
    none, lost = 0, np.zeros(7, dtype=np.int64)
    for seed in range(250):
        problem = crowded(seed)
        floor = floor_of(problem, anywhere(problem), Members.ALL)
        draft = draft_plan(problem, anywhere(problem), Members.ALL, floor)
        if draft is None:
            none += 1
        else:
            assert fits(problem, draft)
            assert draft.damage == damage_of(problem, draft.chosen)
            lost += draft.damage.vector
    violations, _, jobs, pods, priorities, *_ = lost.tolist()
    assert none <= 2
    assert violations <= 167
    assert jobs <= 633
    assert pods <= 1387
    assert priorities <= 845


def test_a_draft_asks_again_what_a_gang_can_spare_once_it_has_lost_somebody() -> None:
    """The gang keeps one pod that may not leave: it spares two, of which the second member needs both."""
    pods = [(0, (4,), 0, "default/g"), (1, (2,), 0, "default/g"), (1, (2,), 0, "default/g"), (2, (4,), 5, "")]
    gang = {"default/g": 2}
    problem = problem_of([[0]] * 3, pods, [(4,)] * 2, minimums=gang, protected={"default/g": 1})
    for limits in (Limits(), Limits(deterministic_time=1e-6)):
        plan = plan_preemption(problem, members=Members.ALL, limits=limits)
        assert isinstance(plan, PreemptionPlan)
        assert [victim.pod.name for victim in plan.victims] == ["v0", "v3"]


def test_a_draft_puts_no_more_on_a_node_than_its_devices_take() -> None:
    """By amounts both fit on the node whose pods are less important; its devices take one of them."""
    problem = problem_of([[0], [0]], [(0, (2,), 8, ""), (1, (2,), 4, ""), (1, (2,), 0, "")], [(2,), (2,)])
    (shape,) = problem.shapes
    problem = attrs.evolve(problem, shapes=(attrs.evolve(shape, most=np.array([1, 1])),))
    plan = plan_preemption(problem, members=Members.ALL)
    assert isinstance(plan, PreemptionPlan)
    assert [victim.pod.name for victim in plan.victims] == ["v0", "v2"]
    assert plan.certificate.proven
