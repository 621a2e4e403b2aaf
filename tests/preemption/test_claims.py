"""What a plan claims: proven is proven, bounds are bounds, and budgets of any kind that end prove nothing."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pytest

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.checking.certificates import check_certificate
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.gangs import GatherRule
from koordcore.model.preemption import Gather, Members, NotHelpful, PreemptionPlan
from koordcore.preemption import evident as evident_plans
from koordcore.preemption.bounds import fewest_pods, floor_of, usable_up_to, widest_slots
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Conflict, Pool, PreemptionProblem, Refuges
from tests.preemption.test_greedy import anywhere
from tests.preemption.worlds import one_member, problem_of

HARDLY_ANY = Limits(deterministic_time=1e-6)
G = "default/g"


def planned(found: PreemptionPlan | NotHelpful) -> PreemptionPlan:
    assert isinstance(found, PreemptionPlan)
    return found


def victims(plan: PreemptionPlan) -> list[str]:
    return sorted(victim.pod.name for victim in plan.victims)


def refusing(nodes: set[int], *, elsewhere: bool = False) -> Callable[..., Conflict | None]:
    """Refuse whatever uses one of some nodes, whoever has left it."""

    def run(counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> Conflict | None:
        used = [row for row in np.flatnonzero(counts.sum(axis=0)).tolist() if row in nodes]
        if not used:
            return None
        return Conflict(used[0], counts[:, used[0]], np.ones_like(chosen), elsewhere)

    return run


def test_plans_that_were_refused_until_the_rounds_ended_prove_nothing() -> None:
    problem = problem_of([[0], [0]], [(0, (8,), 0, ""), (1, (8,), 5, "")], [(4,), (4,)])
    found = plan_preemption(problem, dry_run=refusing({0, 1}), rounds=1)
    assert isinstance(found, NotHelpful)
    assert found.certificate.status is CertificateStatus.HEURISTIC
    found = plan_preemption(problem, dry_run=refusing({0, 1}))
    assert isinstance(found, NotHelpful)
    assert found.certificate.infeasible


@pytest.mark.parametrize("size", [8, 4])
def test_a_refusal_that_looks_elsewhere_leaves_a_proof_only_where_one_node_was_used(size: int) -> None:
    """With ``size`` 8 both members go to one node, with 4 they need two."""
    pods = [(row, (size,), row, "") for row in range(4)]
    problem = problem_of([[0]] * 4, pods, [(4,), (4,)])
    plan = planned(plan_preemption(problem, dry_run=refusing({0}, elsewhere=True)))
    assert "n1" not in plan.nominations.values()
    assert plan.certificate.proven is (size == 8)
    assert plan.certificate.bound <= plan.damage.vector
    assert planned(plan_preemption(problem, dry_run=refusing({0}))).certificate.proven


def test_whoever_needs_more_than_budgets_allow_is_told_so_without_a_proof() -> None:
    problem = problem_of([[0]], [(0, (8,), 0, "")], [(4,), (4,)], budgets=[(0, [0])])
    found = plan_preemption(problem, within_budgets=True)
    assert isinstance(found, NotHelpful)
    assert found.certificate.status is CertificateStatus.HEURISTIC
    assert planned(plan_preemption(problem)).damage.violations == 1


def test_a_plan_within_budgets_gathers_less_where_it_has_to() -> None:
    pods = [(0, (8,), 0, ""), (1, (4,), 0, ""), (2, (4,), 0, "")]
    problem = problem_of([[0]] * 3, pods, [(4,), (4,)], blocks=["a", "b", "c"], budgets=[(0, [0])])
    plan = planned(plan_preemption(problem, within_budgets=True))
    assert victims(plan) == ["v1", "v2"]
    assert not plan.certificate.proven


def test_a_budget_that_is_used_up_weighs_more_than_a_priority() -> None:
    """The first draft evicts the less important pod, whom a budget covers."""
    pods = [(0, (8,), 0, ""), (1, (8,), 5, "")]
    problem = problem_of([[0], [0]], pods, [(4,), (4,)], budgets=[(0, [0])])
    plan = planned(plan_preemption(problem))
    assert victims(plan) == ["v1"]
    assert plan.damage.violations == 0
    assert plan.certificate.proven


def test_a_gang_that_is_short_already_is_not_broken_by_others() -> None:
    pods = [(0, (8,), 0, ""), (1, (8,), 5, G)]
    plan = planned(plan_preemption(problem_of([[0], [0]], pods, [(4,), (4,)], minimums={G: 3})))
    assert victims(plan) == ["v0"]
    assert plan.damage.vector == (0, 0, 1, 1, 0, 0, 0)
    assert plan.broken == ()
    assert plan.certificate.proven


def test_members_go_where_those_run_who_have_a_place_already() -> None:
    """The block without any of them would cost less; of two where they run it is the cheaper one."""
    pods = [(0, (8,), 0, ""), (1, (8,), 5, ""), (2, (8,), 0, "")]
    rules = [GatherRule("BlockLayer", "MustGather")]
    problem = problem_of([[0]] * 3, pods, [(4,), (4,)], blocks=["a", "b", "c"], rules=rules)
    assert victims(planned(plan_preemption(problem))) == ["v0"]
    beside = attrs.evolve(problem, bound=np.array([0, 1, 0]))
    plan = planned(plan_preemption(beside))
    assert victims(plan) == ["v1"]
    assert set(plan.nominations.values()) == {"n2"}
    apart = planned(plan_preemption(attrs.evolve(problem, bound=np.array([0, 1, 1]))))
    assert victims(apart) == ["v2"]
    assert apart.certificate.proven


def test_what_counting_shows_is_proven_without_a_search() -> None:
    """A gang can spare both that have to leave."""
    problem = problem_of([[0]], [(0, (4,), 1, G)] * 3, [(4,), (4,)], minimums={G: 1})
    plan = planned(plan_preemption(problem, limits=HARDLY_ANY))
    assert plan.damage.vector == (0, 1, 0, 2, 2, 0, 0)
    assert plan.certificate.proven
    assert plan.certificate.problem is not None
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted


def test_members_of_two_sizes_are_not_counted_as_if_they_were_alike() -> None:
    """One pod on n2 makes room for both; the large member alone would find it on n1, too."""
    pods = [(0, (1, 8), 0, G), (1, (5, 8), 0, G), (2, (1, 1), 0, G)]
    problem = problem_of([[0, 0]] * 3, pods, [(1, 8), (2, 0)], minimums={G: 1})
    plan = planned(plan_preemption(problem))
    assert victims(plan) == ["v1"]


# -- where victims may move ----------------------------------------------------------------------------------


def movable(problem: PreemptionProblem, *, most: tuple[int, ...] = ()) -> PreemptionProblem:
    """Let all candidates, which are alike, run anywhere."""
    kind = MemberShape(
        request=problem.candidates.amounts[:, 0],
        allowed=np.ones(len(problem.nodes), dtype=np.bool_),
        most=np.array(most, dtype=np.int64),
    )
    return attrs.evolve(problem, refuges=Refuges(np.zeros(len(problem.candidates), dtype=np.int64), (kind,)))


def test_a_plan_that_is_given_is_made_better_where_victims_can_move() -> None:
    problem = problem_of([[0], [0], [4]], [(0, (4,), 0, ""), (1, (4,), 5, "")], [(4,)])
    given = planned(plan_preemption(problem))
    assert given.damage.pods == 0  # the free node
    problem = problem_of([[0], [4]], [(0, (4,), 0, "")], [(4,)], allowed=[[True, False]])
    given = planned(plan_preemption(problem))
    assert given.damage.pods == 1
    plan = planned(plan_preemption(movable(problem), start=given))
    assert plan.damage.vector == (0, plan.damage.highest, 0, 0, 0, 0, 1)
    assert [(str(move.victim.pod), move.node) for move in plan.moves] == [("default/v0", "n2")]
    assert plan.certificate.proven
    # That nobody is evicted and as few move as have to is seen by counting, with whatever budget.
    again = planned(plan_preemption(movable(problem), start=plan, limits=HARDLY_ANY))
    assert again.certificate.proven
    assert again == attrs.evolve(plan, certificate=again.certificate)


def test_moves_keep_to_what_devices_of_a_node_take() -> None:
    """By amounts both would find room on n2, whose devices take one of them."""
    pods = [(0, (4,), 0, ""), (0, (4,), 0, "")]
    problem = problem_of([[0], [8]], pods, [(8,)], allowed=[[True, False]])
    both = planned(plan_preemption(movable(problem)))
    assert (both.damage.pods, both.damage.moves) == (0, 2)
    one = planned(plan_preemption(movable(problem, most=(0, 1))))
    assert (one.damage.pods, one.damage.moves) == (1, 1)
    assert one.certificate.proven


# -- counting ------------------------------------------------------------------------------------------------


def test_room_that_is_free_costs_nobody() -> None:
    """n1 takes one member for nothing and two for one pod."""
    problem = problem_of([[4]], [(0, (4,), 0, "")], [(4,), (4,)])
    usable = usable_up_to(problem, None)
    slots = widest_slots(problem, usable)
    assert fewest_pods(problem, usable, slots, 2) == 0
    problem = problem_of([[2]], [(0, (2,), 0, "")], [(4,), (4,)])
    usable = usable_up_to(problem, None)
    assert fewest_pods(problem, usable, widest_slots(problem, usable), 1) == 1


def test_the_floor_is_the_least_priority_that_is_enough_among_many() -> None:
    pods = [(0, (1,), 10 * number, "") for number in range(12)]
    for needed in range(1, 13):
        problem = problem_of([[0]], pods, [(needed,)])
        floor = floor_of(problem, anywhere(problem), Members.ALL)
        assert floor.vector == (0, 10 * (needed - 1))


# -- evidence ------------------------------------------------------------------------------------------------


def crowd(each: tuple[int, ...], *, nodes: int = 70, budget: bool = False) -> PreemptionProblem:
    """Hundreds of pods, more important from node to node but for the last one."""
    pods = [(row, (size,), (row + 1) % nodes + 1, "") for row in range(nodes) for size in each]
    budgets = [(len(pods), [0])] if budget else ()
    return problem_of([[0]] * nodes, pods, [(4,)], budgets=budgets)


@pytest.mark.parametrize(
    ("each", "budget"),
    [
        pytest.param((4, 1, 1), False, id="one of many"),
        pytest.param((4, 1, 1), True, id="one of many, beside a budget that allows it"),
        pytest.param((2, 2, 2), False, id="two of many"),
    ],
)
def test_what_counting_shows_is_evident_among_hundreds(each: tuple[int, ...], budget: bool) -> None:
    plan = planned(plan_preemption(crowd(each, budget=budget)))
    assert plan.damage.highest == 1
    assert plan.certificate.proven
    assert plan.certificate.problem is not None
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted


def test_what_a_gang_can_spare_is_evident_among_hundreds() -> None:
    """Two pods of one gang, which spares both; a budget is there, so that counting is all there is."""
    nodes = 70
    pods = [(row, (2,), 1, f"default/g{row}") for row in range(nodes) for _ in range(3)]
    minimums = {f"default/g{row}": 1 for row in range(nodes)}
    problem = problem_of([[0]] * nodes, pods, [(4,)], minimums=minimums, budgets=[(500, [0])])
    plan = planned(plan_preemption(problem))
    assert plan.damage.vector == (0, 1, 0, 2, 2, 0, 0)
    assert plan.certificate.problem is not None
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted


def test_no_evidence_is_claimed_where_amounts_are_not_what_is_lacking() -> None:
    """There is room; something else keeps the member from every node until a pod has left."""
    pods = [(row, (1,), 1 + row % 2, "") for row in range(70) for _ in range(3)]
    problem = problem_of([[9]] * 70, pods, [(4,)])
    (shape,) = problem.shapes
    problem = attrs.evolve(problem, shapes=(attrs.evolve(shape, now=np.zeros(70, dtype=np.bool_)),))
    plan = planned(plan_preemption(problem))
    assert (plan.damage.highest, plan.damage.pods) == (1, 1)
    certificate = plan.certificate
    assert certificate.proven
    assert certificate.problem is None or check_certificate(certificate.problem, certificate).accepted


def test_what_a_quota_lacks_is_told_by_priority() -> None:
    """The pod on the other node gives the quota back, the more important one beside the member does not."""
    pods = [(0, (4,), 5, ""), (1, (4,), 0, ""), (1, (4,), 1, "")]
    problem = problem_of([[4], [0]], pods, [(4,)])
    pool = Pool(room=np.array([0]), uses=np.array([[1]]), gives=np.array([[0, 1, 1]]))
    plan = planned(plan_preemption(attrs.evolve(problem, pools=(pool,)), gather=Gather.IF_FREE))
    assert victims(plan) == ["v1"]
    assert plan.damage.vector == (0, 0, 1, 1, 0, 0, 0)
    assert plan.certificate.proven
    assert plan.certificate.problem is not None
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted


def test_that_there_is_too_little_for_anybody_is_evident_among_thousands() -> None:
    problem = problem_of([[0]], [(0, (1,), 0, "")] * 2100, [(2101,)])
    for asked in (problem, problem_of([[0]], [(0, (1,), 0, "")] * 2100, [(1051,)] * 2)):
        found = plan_preemption(asked)
        assert isinstance(found, NotHelpful)
        assert found.certificate.problem is not None
        assert check_certificate(found.certificate.problem, found.certificate).accepted


def test_what_counting_shows_is_true_whatever_the_world() -> None:
    """With no other way to find evidence: whatever counts as evident can be repeated."""
    evident = plans = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evident_plans, "_EVIDENT", -1)
        for seed in range(250):
            plan = plan_preemption(one_member(seed))
            if isinstance(plan, PreemptionPlan):
                plans += 1
                evident += plan.certificate.problem is not None
                if plan.certificate.problem is not None:
                    assert check_certificate(plan.certificate.problem, plan.certificate).accepted
    assert (plans, evident) == (180, 151)


def test_a_gang_that_cannot_spare_as_many_as_have_to_leave_is_no_evidence_by_counting() -> None:
    """It can spare three of four. Whoever counts pods alone finds them cheaper than the gang."""
    problem = problem_of([[0]], [(0, (1,), 0, G)] * 4, [(4,)], minimums={G: 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evident_plans, "_EVIDENT", -1)
        plan = planned(plan_preemption(problem))
    assert plan.damage.jobs == 1
    assert plan.certificate.proven
    assert plan.certificate.problem is None


def test_what_a_single_gang_can_spare_is_evident_on_any_node() -> None:
    """A restart cost is there, so that trying everybody is all there is."""
    pods = [(1, (4,), 0, G), (2, (1,), 0, G)]
    problem = problem_of([[0]] * 3, pods, [(4,)], minimums={G: 1})
    table = attrs.evolve(problem.candidates, restart=np.array([3, 0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evident_plans, "_EVIDENT", -1)
        plan = planned(plan_preemption(attrs.evolve(problem, candidates=table)))
    assert victims(plan) == ["v0"]
    assert plan.certificate.problem is not None
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted
