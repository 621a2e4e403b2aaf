"""What a draft takes: few pods, whom budgets allow, no more of a gang than it gives, nobody who may stay."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.certificates import Limits
from koordcore.model.gangs import GatherRule
from koordcore.model.preemption import Members, NotHelpful, PreemptionPlan
from koordcore.preemption.bounds import floor_of
from koordcore.preemption.greedy import Draft, draft_plan, spare
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import Pool, PreemptionProblem, Refuges
from tests.preemption.test_greedy import anywhere
from tests.preemption.worlds import problem_of

HARDLY_ANY = Limits(deterministic_time=1e-6)
G = "default/g"


def drafted(problem: PreemptionProblem, members: Members = Members.MINIMUM) -> Draft:
    domains = anywhere(problem)
    draft = draft_plan(problem, domains, members, floor_of(problem, domains, members))
    assert draft is not None
    return draft


def leaving(chosen: BoolVector) -> list[int]:
    return [int(one) for one in np.flatnonzero(chosen)]


def ones(problem: PreemptionProblem, *chosen: int) -> BoolVector:
    mask = np.zeros(len(problem.candidates), dtype=np.bool_)
    mask[list(chosen)] = True
    return mask


def at(problem: PreemptionProblem, *rows: int) -> np.ndarray:
    counts = np.zeros((1, len(problem.nodes)), dtype=np.int64)
    np.add.at(counts[0], list(rows), 1)
    return counts


def test_room_that_is_free_is_taken_before_anybody_leaves() -> None:
    pods = [(1, (4,), 0, ""), (2, (4,), 0, "")]
    problem = problem_of([[4], [0], [0]], pods, [(4,), (4,)])
    assert leaving(drafted(problem).chosen) == [0]
    plan = plan_preemption(problem, limits=HARDLY_ANY)
    assert isinstance(plan, PreemptionPlan)
    assert [one.pod.name for one in plan.victims] == ["v0"]
    assert not plan.certificate.proven
    assert plan.certificate.bound[:2] == (0, 0)


def test_what_one_node_takes_of_a_gang_is_not_taken_on_another() -> None:
    """One of the gang may go; who is placed where the other runs would find no room."""
    pods = [(0, (4,), 0, G), (1, (4,), 0, G), (2, (2,), 0, ""), (2, (2,), 0, "")]
    problem = problem_of([[0], [0], [0]], pods, [(4,), (4,)], minimums={G: 2}, protected={G: 1})
    draft = drafted(problem)
    assert leaving(draft.chosen) == [0, 2, 3]
    assert draft.counts.tolist() == [[1, 0, 1]]


def test_a_gang_gives_as_many_on_one_node_as_it_can_spare() -> None:
    pods = [(0, (3,), 0, G), (0, (1,), 0, G)]
    problem = problem_of([[0]], pods, [(4,)], minimums={G: 1}, protected={G: 1})
    assert leaving(drafted(problem).chosen) == [0, 1]


def test_a_gang_that_gave_what_it_can_spare_leaves_whole_for_one_more() -> None:
    pods = [(0, (4,), 0, G), (1, (4,), 0, G), (2, (4,), 0, G)]
    problem = problem_of([[0], [0], [0]], pods, [(4,), (4,)], minimums={G: 2})
    draft = drafted(problem)
    assert leaving(draft.chosen) == [0, 1, 2]
    assert (draft.damage.jobs, draft.damage.pods) == (1, 3)


def test_a_gang_with_a_member_above_the_least_priority_is_not_broken() -> None:
    pods = [(0, (4,), 0, G), (1, (4,), 0, G), (2, (4,), 9, G), (3, (2,), 0, ""), (3, (2,), 0, "")]
    problem = problem_of([[0]] * 4, pods, [(4,), (4,)], minimums={G: 2})
    draft = drafted(problem)
    assert draft.damage.highest == 0
    assert leaving(draft.chosen) == [0, 3, 4]


def test_whom_a_budget_still_allows_is_taken() -> None:
    pods = [(0, (4,), 0, ""), (1, (2,), 0, ""), (1, (2,), 0, "")]
    problem = problem_of([[0], [0]], pods, [(4,), (9,)], least=0, budgets=[(1, [0])])
    (role,) = problem.roles
    problem = attrs.evolve(problem, roles=(attrs.evolve(role, members=role.members[:1], min_available=1),))
    assert leaving(drafted(problem).chosen) == [0]


def test_one_broken_gang_costs_less_than_two_lone_jobs() -> None:
    """Both pods of the gang run on one node, as do two pods of their own on the other."""
    pods = [(0, (2,), 0, ""), (0, (2,), 0, ""), (1, (2,), 0, G), (1, (2,), 0, G)]
    problem = problem_of([[0], [0]], pods, [(4,)], minimums={G: 2})
    draft = drafted(problem)
    assert leaving(draft.chosen) == [2, 3]
    assert (draft.damage.jobs, draft.damage.pods) == (1, 2)


def test_a_pod_that_a_gang_can_spare_is_taken_before_a_gang_is_broken() -> None:
    pods = [(0, (4,), 0, G), (1, (1,), 0, G), (0, (4,), 0, "default/h"), (1, (1,), 0, "default/h")]
    problem = problem_of([[0], [0]], pods, [(4,)], minimums={G: 2, "default/h": 1})
    assert leaving(drafted(problem).chosen) == [2]


def test_small_pods_make_up_for_what_is_still_lacking() -> None:
    problem = problem_of([[0]], [(0, (3,), 0, ""), (0, (1,), 0, "")], [(4,)])
    assert leaving(drafted(problem).chosen) == [0, 1]


def test_room_that_one_victim_gives_serves_several_members() -> None:
    draft = drafted(problem_of([[0]], [(0, (8,), 0, ""), (0, (1,), 0, "")], [(4,), (4,)]))
    assert leaving(draft.chosen) == [0]
    assert draft.counts.tolist() == [[2]]


def test_nobody_leaves_for_members_beyond_the_minimum() -> None:
    draft = drafted(problem_of([[0], [0]], [(0, (4,), 0, ""), (1, (4,), 0, "")], [(4,), (4,)], least=1))
    assert leaving(draft.chosen) == [0]
    assert not draft.whole


def test_two_less_important_pods_leave_before_one_that_is_more_important() -> None:
    """By amounts alone both pods of the gang might go, which needs the other of them."""
    pods = [(0, (4,), 0, G), (1, (4,), 0, G), (2, (2,), 5, ""), (2, (2,), 5, ""), (3, (4,), 9, "")]
    problem = problem_of([[0]] * 4, pods, [(4,), (4,)], minimums={G: 2}, protected={G: 1})
    assert leaving(drafted(problem).chosen) == [0, 2, 3]


def test_members_keep_to_multiples_whatever_layers_else_a_rule_names() -> None:
    """The rule before it names a layer that this network does not have."""
    rules = [GatherRule("RackLayer", "PreferGather", 3), GatherRule("BlockLayer", "PreferGather", 2)]
    problem = problem_of([[4], [4]], [], [(4,), (4,)], blocks=["a", "b"], rules=rules)
    assert isinstance(plan_preemption(problem), NotHelpful)
    together = problem_of([[4], [8]], [], [(4,), (4,)], blocks=["a", "b"], rules=rules)
    plan = plan_preemption(together)
    assert isinstance(plan, PreemptionPlan)
    assert set(plan.nominations.values()) == {"n2"}


# -- who may stay --------------------------------------------------------------------------------------------


def test_who_is_not_needed_stays_though_the_node_lacks_what_nobody_asks_for() -> None:
    pods = [(0, (2, 1), 0, ""), (0, (2, 1), 5, ""), (1, (2, 1), 0, "")]
    problem = problem_of([[2, -5], [-9, -5]], pods, [(4, 0)])
    kept = spare(problem, at(problem, 0), ones(problem, 0, 1, 2))
    assert leaving(kept) == [0]


def test_whoever_moves_needs_room_where_it_goes() -> None:
    """``v0`` goes to n1 for ``v1``: there is no room for both; on n2 there is."""
    pods = [(1, (4,), 0, ""), (0, (4,), 5, ""), (2, (4,), 0, "")]
    problem = problem_of([[0], [0], [4]], pods, [(4,)])
    kind = MemberShape(request=np.array([4]), allowed=np.ones(3, dtype=np.bool_))
    problem = attrs.evolve(problem, refuges=Refuges(np.zeros(3, dtype=np.int64), (kind,)))

    def stays(*moves: int) -> list[int]:
        chosen = ones(problem, 0, 1)
        to: IntVector = np.array(moves, dtype=np.int64)
        return leaving(spare(problem, at(problem, 1), chosen, to))

    assert stays(0, -1, -1) == [0, 1]
    assert stays(2, -1, -1) == [0]


def test_of_a_gang_that_left_too_far_only_those_leave_who_have_to() -> None:
    pods: Sequence[tuple[int, tuple[int, ...], int, str]] = [(0, (4,), 0, G)] * 3
    problem = problem_of([[0]], pods, [(4,)], minimums={G: 1})
    assert len(leaving(spare(problem, at(problem, 0), ones(problem, 0, 1, 2)))) == 1


def test_who_moves_takes_nothing_from_those_who_lack_what_it_does_not_ask_for() -> None:
    pods = [(1, (4, 0), 0, ""), (0, (2, 1), 5, "")]
    problem = problem_of([[4, -5], [0, 0]], pods, [(4, 0)])
    kind = MemberShape(request=np.array([4, 0]), allowed=np.ones(2, dtype=np.bool_))
    problem = attrs.evolve(problem, refuges=Refuges(np.array([0, -1]), (kind,)))
    kept = spare(problem, at(problem, 1), ones(problem, 0, 1), np.array([0, -1]))
    assert leaving(kept) == [0]


def test_who_moves_gives_nothing_back_to_a_quota() -> None:
    """``v1`` could stay as far as its node goes; what it gives back is what the member takes."""
    pods = [(1, (4,), 0, ""), (0, (2,), 5, "")]
    problem = problem_of([[4], [0]], pods, [(4,)])
    kind = MemberShape(request=np.array([4]), allowed=np.ones(2, dtype=np.bool_))
    pool = Pool(room=np.array([0]), uses=np.array([[1], [1]]), gives=np.array([[1, 1]]))
    problem = attrs.evolve(problem, refuges=Refuges(np.array([0, -1]), (kind,)), pools=(pool,))
    kept = spare(problem, at(problem, 1), ones(problem, 0, 1), np.array([0, -1]))
    assert leaving(kept) == [0, 1]


def test_the_rest_of_a_broken_gang_leaves_too() -> None:
    problem = problem_of([[0], [0]], [(0, (4,), 0, G), (1, (4,), 0, G)], [(4,)], minimums={G: 2})
    assert leaving(spare(problem, at(problem, 0), ones(problem, 0))) == [0, 1]
