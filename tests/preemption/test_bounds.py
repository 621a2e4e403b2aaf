"""Bounds never exceed what the cheapest plan costs."""

from __future__ import annotations

import attrs
import numpy as np

from koordcore.model.preemption import NO_PRIORITY, Gather, Members, PreemptionPlan
from koordcore.preemption.bounds import fewest_pods, floor_of, usable_up_to, widest_slots
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Domains
from tests.preemption.worlds import problem_of, random_problem


def test_a_floor_is_never_above_the_cheapest_plan() -> None:
    plans = 0
    for seed in range(60):
        problem = random_problem(seed)
        for members in Members:
            plan = plan_preemption(problem, members=members, gather=Gather.IF_FREE)
            if isinstance(plan, PreemptionPlan):
                plans += 1
                everywhere = Domains(np.zeros(len(problem.nodes), dtype=np.int64), 1)
                assert floor_of(problem, everywhere, members).vector <= plan.damage.vector
    assert plans > 40


def test_fewest_pods_counts_at_the_best_rate() -> None:
    """n1 gives two places for three pods, n2 one place for one."""
    pods = [(0, (2,), 0, ""), (0, (2,), 0, ""), (0, (2,), 0, ""), (1, (3,), 0, "")]
    problem = problem_of([[0], [0]], pods, [(3,)] * 3)
    usable = usable_up_to(problem, None)
    assert fewest_pods(problem, usable, widest_slots(problem, usable), 3) == 3


def test_fewest_pods_counts_no_more_members_on_a_node_than_it_takes() -> None:
    """Amounts for two come free with each pod; a node takes one."""
    problem = problem_of([[0], [0]], [(0, (2,), 0, ""), (1, (2,), 0, "")], [(1,)] * 2)
    (shape,) = problem.shapes
    problem = attrs.evolve(problem, shapes=(attrs.evolve(shape, most=np.array([1, 1])),))
    usable = usable_up_to(problem, None)
    assert fewest_pods(problem, usable, widest_slots(problem, usable), 2) == 2


def test_room_that_is_free_needs_nobody() -> None:
    problem = problem_of([[4]], [(0, (2,), 7, "")], [(3,)])
    everywhere = Domains(np.zeros(1, dtype=np.int64), 1)
    assert floor_of(problem, everywhere, Members.ALL).vector == (0, NO_PRIORITY, 0, 0, 0, 0, 0)
