"""Who leaves runs on elsewhere where that is possible: whole gangs, within quotas, on another node."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pytest

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._certify import certified as search
from koordcore.model.certificates import Certificate
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.preemption import PreemptionPlan, PreemptionRules, Relocation
from koordcore.preemption import exact
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Conflict, Pool, PreemptionProblem, Refuges
from koordcore.scheduling import preempt, schedule
from koordcore.snapshot import ClusterSnapshot
from tests.preemption.test_jobs_of_several import HARDLY_ANY, G, nodes, planned, victims
from tests.preemption.worlds import problem_of


def movable(problem: PreemptionProblem, only: Sequence[int] | None = None) -> PreemptionProblem:
    """Let candidates of each size run anywhere, or some of them only."""
    sizes = sorted({tuple(column) for column in problem.candidates.amounts.T.tolist()})
    anywhere = np.ones(len(problem.nodes), dtype=np.bool_)
    shapes = tuple(MemberShape(request=np.array(size), allowed=anywhere) for size in sizes)
    kind = [
        sizes.index(tuple(column)) if only is None or number in only else -1
        for number, column in enumerate(problem.candidates.amounts.T.tolist())
    ]
    return attrs.evolve(problem, refuges=Refuges(np.array(kind, dtype=np.int64), shapes))


def moved(plan: PreemptionPlan) -> dict[str, str]:
    return {move.victim.pod.name: move.node for move in plan.moves}


def test_whoever_can_move_does_and_whoever_cannot_is_evicted() -> None:
    pods = [(0, (4,), 0, ""), (0, (2,), 0, "")]
    problem = problem_of([[0], [6]], pods, [(4,), (2,)], allowed=[[True, False]] * 2)
    plan = planned(movable(problem))
    assert moved(plan) == {"v0": "n2", "v1": "n2"}
    assert (plan.damage.pods, plan.damage.moves) == (0, 2)
    plan = planned(movable(problem, only=[0]))
    assert moved(plan) == {"v0": "n2"}
    assert victims(plan) == ["v0", "v1"]
    assert (plan.damage.pods, plan.damage.moves) == (1, 1)
    short = attrs.evolve(problem, free=np.array([[0, 3]]))
    plan = planned(movable(short))
    assert moved(plan) == {"v1": "n2"}


def test_a_gang_that_breaks_goes_on_elsewhere_with_everybody_on_another_node() -> None:
    """``v0`` makes room on n2 and takes the place of ``v1``, who goes to n1."""
    pods = [(1, (4,), 0, G), (2, (4,), 0, G)]
    problem = problem_of([[4], [0], [0]], pods, [(4,)], minimums={G: 2}, allowed=[[False, True, False]])
    plan = planned(movable(problem))
    assert moved(plan) == {"v0": "n3", "v1": "n1"}
    assert plan.damage.vector[2:] == (0, 0, 0, 0, 2)


def test_who_has_to_leave_with_its_gang_goes_on_where_it_was_if_there_is_no_other_place() -> None:
    pods = [(0, (4,), 0, G), (1, (2,), 0, G)]
    problem = problem_of([[0], [4]], pods, [(4,)], minimums={G: 2}, allowed=[[True, False]])
    plan = planned(movable(problem))
    assert moved(plan) == {"v0": "n2", "v1": "n2"}
    assert plan.damage.vector[2:] == (0, 0, 0, 0, 2)


def test_places_change_hands_until_nobody_is_given_his_own() -> None:
    """One place on n1 and two on n3: whoever ran on n3 goes to n1, the others to n3."""
    pods = [(0, (4,), 0, G), (1, (4,), 0, G), (2, (4,), 0, G)]
    problem = problem_of([[0], [0], [4]], pods, [(4,)], minimums={G: 3}, allowed=[[False, True, False]])
    plan = planned(movable(problem))
    assert moved(plan) == {"v0": "n3", "v1": "n3", "v2": "n1"}


def test_of_equal_pods_that_one_leaves_who_can_go_on_elsewhere() -> None:
    pods = [(0, (4,), 0, ""), (1, (4,), 0, "")]
    problem = problem_of([[0], [0], [4]], pods, [(4,)], allowed=[[True, True, False]])
    plan = planned(movable(problem, only=[1]))
    assert moved(plan) == {"v1": "n3"}
    assert plan.damage.vector[2:] == (0, 0, 0, 0, 1)


def test_fewer_than_a_gang_needs_do_not_move_where_it_breaks() -> None:
    """It can spare one of three, all have to leave, and one or two of them would find room."""
    pods = [(0, (2,), 0, G)] * 3
    problem = problem_of([[0], [4]], pods, [(6,)], minimums={G: 2}, allowed=[[True, False]])
    plan = planned(movable(problem, only=[0]))
    assert (moved(plan), victims(plan)) == ({}, ["v0", "v1", "v2"])
    plan = planned(movable(problem, only=[0, 2]))
    assert moved(plan) == {"v0": "n2", "v2": "n2"}
    assert plan.damage.vector[2:] == (0, 1, 0, 0, 2)


def test_a_gang_that_breaks_does_not_move_in_part() -> None:
    """There is room for one; the other would be too few for the gang to go on."""
    pods = [(0, (4,), 0, G), (0, (4,), 0, G), (1, (8,), 9, "")]
    problem = problem_of([[0], [0], [4]], pods, [(8,)], minimums={G: 2}, allowed=[[True, True, False]])
    plan = planned(movable(problem, only=[0, 1]))
    assert victims(plan) == ["v0", "v1"]
    assert moved(plan) == {}
    assert plan.damage.vector == (0, 0, 1, 2, 0, 0, 0)


def test_a_gang_goes_on_with_as_many_as_it_needs() -> None:
    pods = [(0, (4,), 0, G)] * 3
    problem = problem_of([[0], [8]], pods, [(12,)], minimums={G: 2}, allowed=[[True, False]])
    plan = planned(movable(problem))
    assert len(plan.victims) == 3
    assert sorted(moved(plan).values()) == ["n2", "n2"]
    assert plan.damage.vector == (0, 0, 0, 1, 0, 0, 2)


def test_a_move_that_a_dry_run_refuses_everywhere_becomes_an_eviction() -> None:
    problem = movable(problem_of([[0], [4]], [(0, (4,), 0, "")], [(4,)], allowed=[[True, False]]))

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        if (moves >= 0).any():
            return Conflict(-1, np.array([0, 1]), np.ones_like(chosen))
        return None

    plan = planned(problem, run)
    assert moved(plan) == {}
    assert victims(plan) == ["v0"]


def test_a_plan_that_is_given_is_not_taken_for_the_best_where_members_differ() -> None:
    """One pod has to move; in the plan that is given the small member goes where another one had to."""
    pods = [(0, (0, 8), 0, ""), (1, (2, 8), 0, "")]
    sizes = [(1, 8), (2, 0)]
    free = [[5, 0], [0, 0], [9, 99]]
    narrow = problem_of(free, pods, sizes, allowed=[[True, True, False], [False, True, False]])
    given = planned(movable(narrow))
    assert given.damage.moves == 2
    problem = movable(problem_of(free, pods, sizes, allowed=[[True, True, False]] * 2))
    plan = plan_preemption(problem, start=given)
    assert isinstance(plan, PreemptionPlan)
    assert plan.damage.moves == 1


def test_a_plan_that_is_given_is_kept_where_the_budget_allows_no_search() -> None:
    """Its pod moves to the first node."""
    pods = [(1, (4,), 0, ""), (1, (2,), 0, "")]
    problem = movable(problem_of([[6], [0]], pods, [(4,), (2,)], allowed=[[False, True]] * 2))
    best = planned(problem)
    assert moved(best) == {"v0": "n1", "v1": "n1"}
    plan = plan_preemption(problem, start=best, limits=HARDLY_ANY)
    assert isinstance(plan, PreemptionPlan)
    assert plan.damage == best.damage


def test_who_moves_is_counted_where_it_goes_by_a_quota() -> None:
    """The quota holds what moves or the member, not both."""
    problem = movable(problem_of([[0], [4]], [(0, (4,), 0, "")], [(4,)], allowed=[[True, False]]))
    for room, moves in ((1, 1), (0, 0)):
        pool = Pool(room=np.array([room]), uses=np.array([[1], [1]]), gives=np.array([[1]]))
        plan = planned(attrs.evolve(problem, pools=(pool,)))
        assert len(plan.moves) == moves


def test_evidence_is_looked_for_once_a_plan_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for it takes as long as to plan; the plans that a dry run refuses are thrown away."""
    pods = [(row, (4,), row, "") for row in range(4)]
    problem = movable(problem_of([[0], [0], [0], [0], [4]], pods, [(4,)], allowed=[[True] * 4 + [False]]))
    looked, tried = list[object](), list[int]()

    def certified(*given: object) -> Certificate:
        looked.append(given)
        return search(*given)  # type: ignore[arg-type]  # as they came

    def dry_run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        (row,) = np.flatnonzero(counts.sum(axis=0))
        tried.append(int(row))
        return None if len(tried) == 3 else Conflict(int(row), np.array([1, 0]), chosen)

    monkeypatch.setattr(exact, "certified", certified)
    plan = planned(problem, dry_run)
    assert len(tried) == len(set(tried)) == 3
    assert nodes(plan) == [problem.nodes[tried[-1]]]
    assert len(looked) == 1


def test_a_plan_that_holds_is_improved_on_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: dict[bool, int] = {}

    def planning(problem: PreemptionProblem, **given: object) -> object:
        rounds[problem.refuges is not None] = given["rounds"]  # type: ignore[assignment]  # a number
        return plan_preemption(problem, **given)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(preempt, "plan_preemption", planning)
    there = Node(name="n", allocatable={"cpu": 4000, "pods": 9})
    running = Pod(name="a", requests={"cpu": 4000}).at("n")
    asked = Pod(name="p", requests={"cpu": 4000}, priority=9)
    snapshot = ClusterSnapshot(nodes=[NodeState(there, (running,))], pending=[asked])
    schedule(snapshot, preempt=PreemptionRules(relocation=Relocation.FIRST))
    assert rounds == {False: 64, True: 16}
