"""Room for several members at once: all that is rare is there, what was refused is not tried again."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import pytest

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.allocators.gang.demand import Member, Role, Unit
from koordcore.checking.certificates import check_certificate
from koordcore.model.certificates import Limits
from koordcore.model.gangs import GatherRule
from koordcore.model.preemption import Gather, Members, NotHelpful, PreemptionPlan
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.plan import DryRun, plan_preemption
from koordcore.preemption.problem import Conflict, Domains, Pool, PreemptionProblem, Refuges
from koordcore.preemption.shares import Shares
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


# -- moves ---------------------------------------------------------------------------------------------------


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


# -- which roles start ---------------------------------------------------------------------------------------


def shared(
    running: Sequence[tuple[int, tuple[int, ...], int, str]],
    roles: Sequence[tuple[int, int, int]],
    *,
    chosen: set[int],
    units: tuple[Unit, ...] = (Unit(name="all", least=1),),
) -> PreemptionProblem:
    """Let other roles start than those that were chosen, as many and with as many members.

    Each role is given by the number and size of its members, all of which it needs, and its unit.
    """
    sizes = sorted({size for _, size, _ in roles})
    rows = 1 + max(row for row, *_ in running)
    problem = problem_of([[0]] * rows, running, [(size,) for size in sizes])
    own = tuple(
        Role(
            name=f"default/r{number}",
            members=tuple(Member(f"default/r{number}-{one}", sizes.index(size)) for one in range(count)),
            min_available=count,
            unit=unit,
        )
        for number, (count, size, unit) in enumerate(roles)
    )
    asked = tuple(
        attrs.evolve(role, min_available=role.min_available if number in chosen else 0)
        for number, role in enumerate(own)
    )
    members = sum(role.min_available for role in asked)
    shares = Shares(roles=own, units=units, starting=len(chosen), members=members)
    return attrs.evolve(problem, roles=asked, shares=shares)


def started(plan: PreemptionPlan) -> set[str]:
    return {key.removeprefix("default/").split("-")[0] for key in plan.nominations}


def test_those_roles_start_for_whom_the_least_important_leave() -> None:
    """Two small members cost less than two large ones; one role of four would not be as good as two."""
    roles = [(2, 2, 0), (2, 4, 0), (2, 4, 0), (4, 2, 0)]
    pods = [(0, (12,), 0, ""), (1, (16,), 7, ""), (2, (8,), -5, "")]
    plan = planned(shared(pods, roles, chosen={1, 2}))
    assert victims(plan) == ["v0"]
    assert len(started(plan)) == 2
    assert len(plan.nominations) >= 4


def test_roles_below_a_group_that_does_not_start_are_left_out() -> None:
    """The first role would need the least room, but for the second, without which it does not start."""
    units = (
        Unit(name="all", least=1),
        Unit(name="pair", least=2, parent=0),
        Unit(name="single", least=1, parent=0),
    )
    pods = [(0, (4,), 0, ""), (1, (8,), 3, ""), (2, (20,), 7, "")]
    plan = planned(shared(pods, [(2, 2, 1), (4, 4, 1), (2, 4, 2)], chosen={2}, units=units))
    assert victims(plan) == ["v1"]
    assert started(plan) == {"r2"}
    pods = [(0, (8,), 0, ""), (1, (12,), 3, ""), (2, (24,), 7, "")]
    plan = planned(shared(pods, [(2, 2, 1), (4, 4, 1), (2, 2, 2), (2, 4, 2)], chosen={2, 3}, units=units))
    assert victims(plan) == ["v1"]
    assert started(plan) == {"r2", "r3"}


def test_a_group_starts_where_all_that_it_needs_is_the_cheapest() -> None:
    units = (Unit(name="all", least=1), Unit(name="pair", least=2, parent=0))
    pods = [(0, (8,), 0, ""), (1, (16,), 3, "")]
    plan = planned(shared(pods, [(2, 2, 1), (2, 2, 1), (4, 4, 0)], chosen={0, 1}, units=units))
    assert victims(plan) == ["v0"]
    assert started(plan) == {"r0", "r1"}
