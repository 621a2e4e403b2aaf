"""Room for several members at once: all that is rare is there, what was refused is not tried again."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.checking.certificates import check_certificate
from koordcore.model.certificates import Limits
from koordcore.model.gangs import GatherRule
from koordcore.model.preemption import Gather, Members, NotHelpful, PreemptionPlan
from koordcore.preemption.plan import DryRun, plan_preemption
from koordcore.preemption.problem import Conflict, Domains, Pool, PreemptionProblem
from tests.preemption.worlds import problem_of

HARDLY_ANY = Limits(deterministic_time=1e-6)
G = "default/g"


def planned(
    problem: PreemptionProblem, dry_run: DryRun | None = None, *, members: Members = Members.MINIMUM
) -> PreemptionPlan:
    """Plan, with a proof; where there is evidence for it that has to be accepted."""
    plan = plan_preemption(problem, dry_run=dry_run, members=members, gather=Gather.IF_FREE)
    assert isinstance(plan, PreemptionPlan)
    assert plan.certificate.proven
    assert plan.certificate.objective == plan.damage.vector
    if plan.certificate.problem is not None:
        assert check_certificate(plan.certificate.problem, plan.certificate).accepted
    return plan


def victims(plan: PreemptionPlan) -> list[str]:
    return sorted(victim.pod.name for victim in plan.victims)


def nodes(plan: PreemptionPlan) -> list[str]:
    return [plan.nominations[key] for key in sorted(plan.nominations)]


# -- amounts -------------------------------------------------------------------------------------------------


def test_every_amount_that_is_asked_for_must_be_there() -> None:
    """``v0`` gives all of the first resource; of the second there is none without ``v1``."""
    pods = [(0, (8, 0), 0, ""), (0, (0, 3), 0, ""), (1, (8, 3), 9, "")]
    plan = planned(problem_of([[0, 0], [0, 0]], pods, [(4, 1), (4, 2)]))
    assert victims(plan) == ["v0", "v1"]


def test_a_plan_for_unequal_members_comes_with_evidence() -> None:
    pods = [(0, (4,), 0, ""), (1, (2,), 0, G), (1, (2,), 5, G), (2, (2,), 5, "")]
    plan = planned(problem_of([[0]] * 3, pods, [(4,), (2,)], minimums={G: 1}))
    assert victims(plan) == ["v0", "v1"]
    assert plan.damage.vector == (0, 0, 1, 2, 0, 0, 0)
    assert plan.certificate.problem is not None


def test_what_a_gang_can_spare_costs_less_than_a_pod_of_its_own() -> None:
    pods = [(0, (4,), 0, ""), (1, (4,), 0, G), (2, (4,), 0, G), (3, (2,), 0, "")]
    plan = planned(problem_of([[0]] * 4, pods, [(4,), (2,)], minimums={G: 1}))
    assert len({"v1", "v2"} & set(victims(plan))) == 1
    assert plan.damage.vector == (0, 0, 1, 2, 0, 0, 0)


def test_a_gang_without_a_minimum_gives_all_it_has() -> None:
    pods = [(0, (4,), 0, G), (1, (2,), 0, G), (0, (4,), 0, ""), (1, (2,), 0, "")]
    plan = planned(problem_of([[0]] * 2, pods, [(4,), (2,)], minimums={G: 0}))
    assert victims(plan) == ["v0", "v1"]
    assert plan.damage.jobs == 0


def test_a_gang_that_may_not_be_broken_gives_what_it_can_spare_and_no_more() -> None:
    pods = [(0, (4,), 0, G), (1, (2,), 0, G), (1, (2,), 7, "")]
    problem = problem_of([[0]] * 2, pods, [(4,), (2,)], minimums={G: 2}, protected={G: 1})
    plan = planned(problem)
    assert victims(plan) == ["v0", "v2"]


def test_each_of_two_such_gangs_keeps_its_minimum() -> None:
    pods = [(0, (1,), 0, G), (0, (4,), 0, "default/h"), (0, (3,), 0, "default/h"), (1, (4,), 7, "")]
    minimums = {G: 1, "default/h": 2}
    problem = problem_of(
        [[0]] * 2, pods, [(4,), (3,)], minimums=minimums, protected=dict.fromkeys(minimums, 1)
    )
    plan = planned(problem)
    assert len({"v1", "v2"} & set(victims(plan))) == 1
    assert plan.damage.highest == 7


def test_a_pod_of_its_own_costs_less_than_a_gang_of_two() -> None:
    pods = [(0, (4,), 0, G), (0, (4,), 0, G), (1, (8,), 0, "")]
    plan = planned(problem_of([[0]] * 2, pods, [(4,), (3,)], minimums={G: 2}))
    assert victims(plan) == ["v2"]


def test_a_broken_gang_leaves_whole_from_whichever_nodes() -> None:
    pods = [(0, (4,), 0, G), (1, (2,), 0, G), (2, (2,), 0, G), (1, (2,), 7, "")]
    plan = planned(problem_of([[0]] * 3, pods, [(4,), (2,)], minimums={G: 2}))
    assert victims(plan) == ["v0", "v1", "v2"]
    assert plan.broken == (G,)
    assert plan.damage.vector == (0, 0, 1, 3, 0, 0, 0)


def test_a_node_that_holds_too_much_already_has_to_be_made_good_before_a_member_comes() -> None:
    pods = [(0, (4,), 0, ""), (0, (2,), 1, ""), (1, (4,), 5, ""), (2, (2,), 0, "")]
    plan = planned(problem_of([[-2], [0], [0]], pods, [(4,), (2,)]))
    assert victims(plan) == ["v0", "v1", "v3"]


def test_devices_bound_the_members_that_a_node_takes() -> None:
    pods = [(0, (8,), 0, ""), (1, (8,), 3, "")]
    problem = problem_of([[0], [0]], pods, [(4,), (2,), (4,)])
    small, large = problem.shapes
    limited = attrs.evolve(problem, shapes=(small, attrs.evolve(large, most=np.array([1, 1]))))
    assert victims(planned(limited)) == ["v0", "v1"]
    plan = planned(attrs.evolve(problem, free=np.array([[2, 0]])))
    assert victims(plan) == ["v0"]


@pytest.mark.parametrize("amount", [1, 2])
def test_a_quota_that_is_used_up_costs_a_pod_of_it(amount: int) -> None:
    """Both nodes have room; the quota has none, and the cheapest pod gives nothing back to it."""
    pods = [(0, (1,), 0, ""), (1, (1,), 3, ""), (1, (1,), 4, "")]
    for members in ([(4,), (4,)], [(4,), (3,)]):
        problem = problem_of([[4], [4]], pods, members)
        uses = np.full((len(problem.shapes), 1), amount)
        pool = Pool(room=np.array([amount]), uses=uses, gives=np.array([[0, amount, amount]]))
        plan = planned(attrs.evolve(problem, pools=(pool,)))
        assert victims(plan) == ["v1"]


def test_all_members_are_placed_where_all_are_asked_for_though_none_is_needed() -> None:
    problem = problem_of([[0], [0]], [(0, (4,), 0, ""), (1, (4,), 0, "")], [(4,), (4,)], least=0)
    assert len(planned(problem, members=Members.ALL).nominations) == 2
    assert victims(planned(problem)) == []


@pytest.mark.parametrize(("allows", "over"), [(2, 0), (1, 1), (0, 2), (-1, 2)])
def test_evictions_beyond_a_budget_are_counted(allows: int, over: int) -> None:
    pods = [(0, (4,), 0, ""), (1, (4,), 0, "")]
    for sizes in ([(4,), (4,)], [(4,), (3,)]):
        plan = planned(problem_of([[0], [0]], pods, sizes, budgets=[(allows, [0, 1])]))
        assert plan.damage.violations == over


def test_a_quota_that_one_member_takes_of_is_not_overdrawn_by_it() -> None:
    problem = problem_of([[4], [4]], [(0, (1,), 0, ""), (1, (1,), 3, "")], [(4,), (3,)])
    pool = Pool(room=np.array([0]), uses=np.array([[1], [0]]), gives=np.array([[0, 1]]))
    assert victims(planned(attrs.evolve(problem, pools=(pool,)))) == ["v1"]


# -- gathering -----------------------------------------------------------------------------------------------


def test_members_of_a_role_share_a_domain_of_their_own() -> None:
    """There is room for one on each of two nodes, and for both on a third outside all domains."""
    problem = problem_of([[4], [4], [8]], [(0, (4,), 0, ""), (1, (4,), 5, "")], [(4,), (4,)])
    gathers = ((frozenset({0}), Domains(np.array([0, 1, -1]), 2)),)
    plan = planned(attrs.evolve(problem, gathers=gathers))
    assert victims(plan) == ["v0"]
    assert nodes(plan) == ["n1", "n1"]
    assert victims(planned(problem)) == []
    others = ((frozenset({7}), Domains(np.array([0, 1, -1]), 2)),)
    assert victims(planned(attrs.evolve(problem, gathers=others))) == []


def test_members_of_different_sizes_gather_in_one_domain() -> None:
    """A node of each of the first two blocks would cost less than the third block."""
    pods = [(0, (4,), 0, ""), (1, (4,), 0, ""), (2, (4,), 5, ""), (3, (4,), 5, "")]
    rules = [GatherRule("BlockLayer", "MustGather")]
    problem = problem_of([[0]] * 4, pods, [(4,), (3,)], blocks=["a", "b", "c", "c"], rules=rules)
    plan = planned(problem)
    assert victims(plan) == ["v2", "v3"]
    assert plan.domain == "c"


def test_members_that_lie_together_by_themselves_need_no_search() -> None:
    problem = problem_of([[0], [0]], [(0, (8,), 0, ""), (1, (8,), 5, "")], [(4,), (4,)])
    gathers = ((frozenset({0}), Domains(np.array([0, 1]), 2)),)
    plan = plan_preemption(attrs.evolve(problem, gathers=gathers), limits=HARDLY_ANY)
    assert isinstance(plan, PreemptionPlan)
    assert victims(plan) == ["v0"]


def test_running_members_count_towards_a_multiple() -> None:
    """Two of three run in ``a``; in multiples of three one more may come there, and three to ``b``."""
    rules = [GatherRule("RackLayer", "PreferGather", 2), GatherRule("BlockLayer", "PreferGather", 3)]
    pods = [(0, (4,), 5, ""), (1, (4,), 0, ""), (1, (8,), 0, "")]
    blocks = ["a", "b"]
    alone = problem_of([[0], [0]], pods, [(4,), (2,)], blocks=blocks, rules=rules, least=1)
    assert isinstance(plan_preemption(alone), NotHelpful)
    beside = attrs.evolve(alone, bound=np.array([2, 0]))
    plan = planned(beside)
    assert victims(plan) == ["v0"]
    assert nodes(plan) == ["n1"]
    full = problem_of([[0], [0]], pods, [(4,), (4,), (2,)], blocks=blocks, rules=rules)
    assert victims(planned(full)) == ["v1", "v2"]
    many = attrs.evolve(alone, bound=np.array([5, 0]))
    assert victims(planned(many)) == ["v0"]


def test_where_nobody_has_to_come_nobody_leaves_for_a_multiple() -> None:
    """Two of three run in ``a``; ``b`` has room for one, which is no multiple, and needs nobody."""
    rules = [GatherRule("BlockLayer", "PreferGather", 3)]
    pods = [(0, (4,), 0, ""), (1, (2,), 0, "")]
    problem = problem_of([[0], [2]], pods, [(2,), (2,)], blocks=["a", "b"], rules=rules, least=0)
    plan = plan_preemption(attrs.evolve(problem, bound=np.array([2, 0])), gather=Gather.IF_FREE)
    assert isinstance(plan, PreemptionPlan)
    assert (victims(plan), nodes(plan)) == ([], [])


# -- what dry runs say ---------------------------------------------------------------------------------------


def test_what_did_not_fit_together_is_not_tried_again() -> None:
    """On n1 the amounts alone are not enough: both pods have to go, or the members go elsewhere."""
    pods = [(0, (8,), 0, ""), (0, (4,), 1, ""), (1, (8,), 5, "")]
    problem = problem_of([[0], [0]], pods, [(4,), (4,)])
    asked = []

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        asked.append(np.flatnonzero(chosen).tolist())
        if counts[:, 0].sum() and not chosen[:2].all():
            return Conflict(0, counts[:, 0], chosen)
        return None

    assert victims(planned(problem, run)) == ["v0", "v1"]
    assert len(asked) == 2
    assert victims(planned(problem_of([[0], [0]], pods[::2], [(4,), (4,)]), refusing_the_first)) == ["v1"]


def refusing_the_first(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
    if counts[:, 0].sum():
        return Conflict(0, counts[:, 0], np.ones_like(chosen))
    return None


def test_fewer_members_may_fit_where_all_did_not() -> None:
    """n1 takes one of two; that n2 would not take three either says nothing of two."""
    pods = [(0, (8,), 0, ""), (1, (8,), 5, ""), (2, (4,), 9, "")]

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        everybody = np.ones_like(chosen)
        if counts[0, 0] > 1:
            return Conflict(0, counts[:, 0], everybody, others=(Conflict(1, np.array([3]), everybody),))
        return None

    assert victims(planned(problem_of([[0]] * 3, pods, [(4,), (4,)]), run)) == ["v1"]
    small = [(0, (8,), 0, ""), (1, (4,), 5, ""), (2, (4,), 9, "")]
    assert victims(planned(problem_of([[0]] * 3, small, [(4,), (4,)]), run)) == ["v0", "v1"]


def test_one_of_the_sets_that_a_dry_run_names_leaves_as_a_whole() -> None:
    pods = [(0, (8,), 0, ""), (0, (4,), 5, ""), (0, (4,), 1, ""), (0, (4,), 2, ""), (1, (8,), 9, "")]
    ways = (frozenset({0, 1}), frozenset({0, 2, 3}))

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        gone = {int(one) for one in np.flatnonzero(chosen)}
        if counts[:, 0].sum() and not any(way <= gone for way in ways):
            return Conflict(0, counts[:, 0], chosen, ways=ways)
        return None

    plan = planned(problem_of([[0], [0]], pods, [(4,), (4,)]), run)
    assert victims(plan) == ["v0", "v2", "v3"]


def test_somebody_more_has_to_leave_wherever_that_is() -> None:
    """A quota that only the dry run knows of: ``v2`` is the only one that gives it back."""
    pods = [(0, (8,), 0, ""), (1, (8,), 1, ""), (2, (4,), 3, "")]
    gone = np.array([True, True, False])

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        return None if chosen[2] else Conflict(-1, np.zeros(1, dtype=np.int64), gone)

    pool = Pool(room=np.array([9]), uses=np.array([[1]]), gives=np.array([[0, 0, 1]]))
    problem = attrs.evolve(problem_of([[0]] * 3, pods, [(4,), (4,)]), pools=(pool,))
    assert victims(planned(problem, run)) == ["v0", "v2"]
