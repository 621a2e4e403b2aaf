"""A place for one pod: the cheapest node of all, whatever the order in which nodes are looked at."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pytest

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.preemption import NO_PRIORITY, PreemptionPlan
from koordcore.preemption.plan import DryRun, plan_preemption
from koordcore.preemption.problem import Conflict, Pool, PreemptionProblem
from tests.preemption.worlds import problem_of

LITTLE = Limits(deterministic_time=0.1)
G, H = "default/g", "default/h"


def planned(problem: PreemptionProblem, dry_run: DryRun | None = None) -> PreemptionPlan:
    plan = plan_preemption(problem, dry_run=dry_run)
    assert isinstance(plan, PreemptionPlan)
    assert plan.certificate.proven
    assert plan.certificate.objective == plan.damage.vector
    return plan


def victims(plan: PreemptionPlan) -> list[str]:
    return sorted(victim.pod.name for victim in plan.victims)


def where(plan: PreemptionPlan) -> str:
    (node,) = plan.nominations.values()
    return node


# -- which node ----------------------------------------------------------------------------------------------


def test_free_room_where_the_member_may_not_go_is_none() -> None:
    pods = [(0, (4,), 0, ""), (1, (4,), 5, "")]
    plan = planned(problem_of([[4], [0]], pods, [(4,)], allowed=[[False, True]]))
    assert (where(plan), victims(plan)) == ("n2", ["v1"])
    plan = planned(problem_of([[0], [0]], pods, [(4,)], allowed=[[False, True]]))
    assert (where(plan), victims(plan)) == ("n2", ["v1"])


def test_a_node_that_looks_cheaper_than_it_is_does_not_win() -> None:
    """A gang on n1 could spare a pod, which is too small to be of use there; two others would leave."""
    pods = [(0, (1,), 0, G), (0, (2,), 0, ""), (0, (2,), 0, ""), (1, (4,), 0, ""), (2, (1,), 0, G)]
    plan = planned(problem_of([[0]] * 3, pods, [(4,)], minimums={G: 1}))
    assert (where(plan), victims(plan)) == ("n2", ["v3"])
    pods += [(3, (1,), 0, "")] * 4
    plan = planned(problem_of([[0]] * 4, pods, [(4,)], minimums={G: 1}))
    assert (where(plan), victims(plan)) == ("n2", ["v3"])


@pytest.mark.parametrize("turn", [0, 1, 2, 3, 4])
def test_the_order_in_which_pods_are_listed_makes_no_difference(turn: int) -> None:
    pods = [(1, (4,), 3, ""), (0, (2,), 0, ""), (2, (1,), 0, ""), (1, (4,), 2, ""), (0, (2,), 1, "")]
    plan = planned(problem_of([[0], [0], [2]], [*pods[turn:], *pods[:turn]], [(4,)]))
    assert where(plan) == "n1"
    assert plan.damage.vector == (0, 1, 2, 2, 1, 0, 0)


def test_of_nodes_that_cost_the_same_the_first_is_taken() -> None:
    """n2 is looked at first: a gang there could spare a pod, which is too small."""
    pods = [(0, (4,), 0, ""), (1, (1,), 0, G), (1, (4,), 0, ""), (2, (1,), 0, G)]
    plan = planned(problem_of([[0]] * 3, pods, [(4,)], minimums={G: 1}))
    assert (where(plan), victims(plan)) == ("n1", ["v0"])


def test_two_pods_that_give_different_things_cost_less_than_three() -> None:
    pods = [*[(0, (2, 2), 0, "")] * 3, (1, (5, 0), 0, ""), (1, (0, 5), 0, "")]
    plan = planned(problem_of([[0, 0], [0, 0]], pods, [(5, 5)]))
    assert (where(plan), victims(plan)) == ("n2", ["v3", "v4"])


def test_a_pod_that_its_gang_can_spare_costs_less_than_one_without_a_gang() -> None:
    pods = [(0, (4,), 0, ""), (1, (4,), 0, G), (2, (1,), 0, G)]
    plan = planned(problem_of([[0]] * 3, pods, [(4,)], minimums={G: 1}))
    assert (where(plan), victims(plan)) == ("n2", ["v1"])
    assert plan.damage.vector == (0, 0, 0, 1, 0, 0, 0)


def test_nobody_leaves_where_room_is_free() -> None:
    plan = planned(problem_of([[0], [4]], [(0, (4,), 0, ""), (1, (4,), 0, "")], [(4,)]))
    assert (where(plan), victims(plan)) == ("n2", [])
    assert plan.damage.vector == (0, NO_PRIORITY, 0, 0, 0, 0, 0)


# -- what a quota lacks --------------------------------------------------------------------------------------


def pooled(
    problem: PreemptionProblem, gives: list[list[int]], room: list[int], uses: list[int]
) -> PreemptionProblem:
    pool = Pool(room=np.array(room), uses=np.array([uses]), gives=np.array(gives))
    return attrs.evolve(problem, pools=(pool,))


def test_whoever_gives_a_quota_back_elsewhere_is_enough_where_a_node_has_room() -> None:
    pods = [(0, (4,), 0, ""), (2, (4,), 0, "")]
    problem = problem_of([[0], [4], [0]], pods, [(4,)], allowed=[[True, True, False]])
    plan = planned(pooled(problem, [[0, 1]], [0], [1]))
    assert (where(plan), victims(plan)) == ("n2", ["v1"])


def test_what_a_gang_can_spare_elsewhere_costs_less_than_a_pod_beside_the_member() -> None:
    pods = [(0, (4,), 0, ""), (2, (1,), 0, G), (2, (1,), 0, G)]
    problem = problem_of([[0], [4], [0]], pods, [(4,)], minimums={G: 1}, allowed=[[True, True, False]])
    plan = planned(pooled(problem, [[1, 1, 0]], [0], [1]))
    assert (where(plan), victims(plan)) == ("n2", ["v1"])
    assert plan.damage.jobs == 0


def test_two_gangs_that_can_spare_one_each_give_a_quota_back_together() -> None:
    pods = [(1, (1,), 0, G), (1, (1,), 0, G), (1, (1,), 0, H), (1, (1,), 0, H)]
    problem = problem_of([[4], [0]], pods, [(4,)], minimums={G: 1, H: 1}, allowed=[[True, False]])
    plan = planned(pooled(problem, [[1, 1, 1, 1]], [0], [2]))
    assert victims(plan) == ["v0", "v2"]
    assert plan.damage.jobs == 0


def test_as_many_give_a_quota_back_as_the_scarcest_of_it_needs() -> None:
    pods = [(1, (1,), 0, "")] * 3
    problem = problem_of([[4], [0]], pods, [(4,)], allowed=[[True, False]])
    plan = planned(pooled(problem, [[1, 1, 1], [1, 1, 1]], [0, 0], [1, 3]))
    assert victims(plan) == ["v0", "v1", "v2"]


def test_a_quota_that_is_overdrawn_in_what_nobody_asks_for_is_no_hindrance() -> None:
    problem = problem_of([[4]], [(0, (4,), 0, "")], [(4,)])
    plan = planned(pooled(problem, [[1], [1]], [-1, 1], [0, 1]))
    assert victims(plan) == []
    plan = planned(pooled(problem, [[1], [1]], [-1, 0], [0, 1]))
    assert victims(plan) == ["v0"]


# -- what dry runs say ---------------------------------------------------------------------------------------


def test_a_refusal_on_the_first_node_says_nothing_of_others() -> None:
    problem = problem_of([[4], [4]], [(0, (4,), 0, ""), (1, (4,), 0, "")], [(4,)])

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        assert counts.shape == (1, 2)
        return Conflict(0, counts[:, 0], chosen) if counts[0, 0] else None

    plan = planned(problem, run)
    assert (where(plan), victims(plan)) == ("n2", [])


def test_who_is_in_the_way_leaves_though_there_is_room() -> None:
    problem = problem_of([[4]], [(0, (1,), 0, ""), (0, (1,), 5, "")], [(4,)])

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        return None if chosen[1] else Conflict(0, counts[:, 0], chosen)

    plan = planned(problem, run)
    assert victims(plan) == ["v1"]


def test_a_refusal_that_holds_everywhere_is_asked_about_once() -> None:
    """Whatever the node, ``v2`` has to leave: the plans that were known before are found again with it."""
    pods = [(0, (4,), 0, ""), (1, (4,), 0, ""), (2, (4,), 0, "")]
    problem = problem_of([[0]] * 3, pods, [(4,)])
    asked = []

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        asked.append(np.flatnonzero(chosen).tolist())
        gone = np.array([True, True, False])
        return None if chosen[2] else Conflict(-1, np.zeros(1, dtype=np.int64), gone)

    plan = planned(problem, run)
    assert (where(plan), victims(plan)) == ("n3", ["v2"])
    assert asked[:2] == [[0], [2]]


@pytest.mark.parametrize("mirrored", [False, True])
def test_of_the_sets_that_a_dry_run_names_the_cheapest_leaves(mirrored: bool) -> None:
    """Each of three pairs would do, and only as a whole; there is one that nobody may evict as well."""
    priorities = [0, 5, 1, 9, 2, 3]
    ways = [frozenset({0, 1}), frozenset({2, 3}), frozenset({4, 5})]
    if mirrored:
        priorities, ways = priorities[::-1], [frozenset(5 - one for one in way) for way in ways]
    problem = problem_of([[0]], [(0, (4,), priority, "") for priority in priorities], [(4,)])

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        gone = {int(one) for one in np.flatnonzero(chosen)}
        return (
            None if any(way <= gone for way in ways) else Conflict(0, counts[:, 0], chosen, ways=tuple(ways))
        )

    plan = planned(problem, run)
    assert victims(plan) == [f"v{one}" for one in sorted(ways[2])]
    assert plan.damage.vector == (0, 3, 2, 2, 5, 0, 0)


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_sets_as_important_as_each_other_the_less_important_rest_decides(turned: bool) -> None:
    pods = [(0, (4,), priority, "") for priority in ((2, 3, 0, 3) if turned else (0, 3, 2, 3))]
    ways = (frozenset({0, 1}), frozenset({2, 3}))

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        gone = {int(one) for one in np.flatnonzero(chosen)}
        return None if any(way <= gone for way in ways) else Conflict(0, counts[:, 0], chosen, ways=ways)

    plan = planned(problem_of([[0]], pods, [(4,)]), run)
    assert victims(plan) == (["v2", "v3"] if turned else ["v0", "v1"])


def hidden(problem: PreemptionProblem) -> tuple[PreemptionProblem, DryRun]:
    """Let only dry runs see the second amount."""
    (shape,) = problem.shapes
    asked = attrs.evolve(problem, shapes=(attrs.evolve(shape, request=shape.request * np.array([1, 0])),))

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        row = int(np.flatnonzero(counts.sum(axis=0))[0])
        fits = (problem.freed(chosen)[:, row] >= shape.request).all()
        return None if fits else Conflict(row, counts[:, row], chosen)

    return asked, run


def test_whom_a_node_cannot_do_without_losing_is_found_before_the_budget_ends() -> None:
    """Any of eight unimportant pods gives what is counted; one important pod gives what a dry run sees."""
    pods = [*((0, (4, 0), priority, "") for priority in range(8)), (0, (0, 4), 9, "")]
    problem, run = hidden(problem_of([[0, 0]], pods, [(4, 4)]))

    def every(rows: IntVector) -> BoolVector:
        return np.ones(len(rows), dtype=np.bool_)

    for offers in (None, every):
        plan = plan_preemption(problem, dry_run=run, offers=offers, limits=LITTLE)
        assert isinstance(plan, PreemptionPlan)
        assert victims(plan) == ["v0", "v8"]
        assert plan.certificate.proven


def rows_with(number: int) -> tuple[PreemptionProblem, DryRun, Callable[[IntVector], BoolVector]]:
    """Give nodes of which the last alone has what only a dry run sees, and who tells so at once."""
    pods = [(row, (4, 2), row % 2, "") for row in range(number)]
    problem = problem_of([[0, 0]] * (number + 1), [*pods, (number, (4, 4), 9, "")], [(4, 4)])
    return (*hidden(problem), lambda rows: rows == number)


def test_nodes_that_can_never_serve_cost_no_dry_runs_where_that_is_known() -> None:
    problem, run, offers = rows_with(60)
    plan = plan_preemption(problem, dry_run=run, offers=offers, limits=LITTLE)
    assert isinstance(plan, PreemptionPlan)
    assert victims(plan) == ["v60"]
    assert plan.certificate.proven
    assert (
        plan_preemption(problem, dry_run=run, limits=LITTLE).certificate.status is CertificateStatus.HEURISTIC
    )


def test_the_least_budget_is_enough_for_some_refusals() -> None:
    problem, run, _ = rows_with(10)
    plan = plan_preemption(problem, dry_run=run, limits=LITTLE)
    assert isinstance(plan, PreemptionPlan)
    assert victims(plan) == ["v10"]
    assert plan.certificate.proven


# -- who leaves a node ---------------------------------------------------------------------------------------


def test_everybody_leaves_where_everybody_has_to() -> None:
    pods = [(0, (2,), 0, ""), (0, (1,), 3, ""), (0, (1,), 0, "")]
    assert victims(planned(problem_of([[0]], pods, [(4,)]))) == ["v0", "v1", "v2"]


def test_of_pods_that_are_alike_as_many_leave_as_have_to() -> None:
    assert victims(planned(problem_of([[0]], [(0, (1,), 0, "")] * 4, [(2,)]))) == ["v0", "v1"]


def test_of_pods_that_are_alike_as_many_leave_as_the_scarcest_amount_needs() -> None:
    assert victims(planned(problem_of([[0, 0]], [(0, (1, 2), 0, "")] * 3, [(3, 2)]))) == ["v0", "v1", "v2"]


def test_a_gang_spares_no_more_because_its_pods_differ() -> None:
    pods = [*((0, (2,), priority, G) for priority in range(3)), (0, (2,), 2, "")]
    plan = planned(problem_of([[0]], pods, [(4,)], minimums={G: 2}))
    assert victims(plan) == ["v0", "v3"]
    assert plan.damage.vector == (0, 2, 1, 2, 2, 0, 0)


def test_of_equal_numbers_the_less_important_leave() -> None:
    pods = [(0, (3,), 5, ""), (0, (1,), 3, ""), (0, (1,), 1, "")]
    plan = planned(problem_of([[0]], pods, [(4,)]))
    assert victims(plan) == ["v0", "v2"]
    assert plan.damage.priorities == 6


def test_a_gang_costs_as_much_as_its_most_important_member() -> None:
    pods = [(0, (4,), 0, G), (1, (1,), 9, G), (0, (4,), 5, "")]
    plan = planned(problem_of([[0], [0]], pods, [(4,)], minimums={G: 2}, allowed=[[True, False]]))
    assert victims(plan) == ["v2"]


def test_a_gang_gives_no_more_than_it_can_spare_or_leaves_whole() -> None:
    """Three of one gang, which spares one; another pod makes up for the second."""
    pods = [*[(0, (2,), 0, G)] * 3, (0, (2,), 0, "")]
    plan = planned(problem_of([[0]], pods, [(4,)], minimums={G: 2}))
    assert victims(plan) == ["v0", "v3"]
    assert plan.damage.vector == (0, 0, 1, 2, 0, 0, 0)
    plan = planned(problem_of([[0]], pods[:3], [(4,)], minimums={G: 2}))
    assert victims(plan) == ["v0", "v1", "v2"]
    assert plan.broken == (G,)
    plan = planned(problem_of([[0]], pods[:3], [(4,)], minimums={G: 1}))
    assert plan.damage.vector == (0, 0, 0, 2, 0, 0, 0)


@pytest.mark.parametrize(("allows", "over"), [(2, 0), (1, 1), (0, 2), (-1, 2)])
def test_evictions_beyond_a_budget_are_counted(allows: int, over: int) -> None:
    problem = problem_of([[0]], [(0, (2,), 0, "")] * 2, [(4,)], budgets=[(allows, [0, 1])])
    plan = planned(problem)
    assert plan.damage.violations == over


def test_what_a_budget_does_not_allow_is_left_for_somebody_more_important() -> None:
    pods = [*[(0, (2,), 0, "")] * 2, (0, (2,), 7, "")]
    plan = planned(problem_of([[0]], pods, [(4,)], budgets=[(1, [0, 1])]))
    assert victims(plan) == ["v0", "v2"]
    assert plan.damage.vector == (0, 7, 2, 2, 7, 0, 0)


def test_two_of_a_pair_that_runs_apart_cost_one_job() -> None:
    """A gang of two on the node costs one job; two pods of their own cost two."""
    pods = [(0, (2,), 0, ""), (0, (2,), 0, ""), (1, (2,), 0, G), (1, (2,), 0, G)]
    plan = planned(problem_of([[0], [0]], pods, [(4,)], minimums={G: 2}))
    assert victims(plan) == ["v2", "v3"]
    assert plan.damage.vector == (0, 0, 1, 2, 0, 0, 0)
