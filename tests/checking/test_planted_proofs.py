"""Small proofs worked out by hand: the right claim is accepted, and every other one is refused."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from koordcore.checking.certificates import check_certificate
from koordcore.checking.cover_proof import cheapest_cover, least_cooling, least_vacating
from koordcore.checking.gathering_proof import best_gathering
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.preemption import NO_PRIORITY
from koordcore.model.proofs import (
    Branch,
    CoolingProblem,
    EvictionEvidence,
    EvictionProblem,
    Evidence,
    Leaf,
    LinearEvidence,
    LinearProblem,
    LinearRow,
    LinearStage,
    Problem,
    ProofTree,
    TreeProblem,
    VacatingProblem,
)


def refusal(problem: Problem, objective: tuple[int, ...] | None, evidence: Evidence | None = None) -> str:
    """Why a claim is not accepted; empty where it is."""
    if objective is None:
        claim = Certificate.make_infeasible(problem, evidence)
    else:
        claim = Certificate(
            CertificateStatus.PROVEN, objective, bound=objective, problem=problem, evidence=evidence
        )
    check = check_certificate(problem, claim)
    assert check.accepted == (check.reason == "")
    return check.reason


# -- linear -----------------------------------------

# Two amounts of 0 to 3, 3 together at least, at 2 and 3 each; then as few as can be of the second.
MIX = LinearProblem(
    lower=(0, 0),
    upper=(3, 3),
    rows=(LinearRow((0, 1), (1, 1), 3, None),),
    stages=(LinearStage(((0, 2), (1, 3))), LinearStage(((1, 1),))),
)
SHOWN: tuple[ProofTree, ...] = (Leaf(((0, -2),), 1), Leaf((), 1))


def mixed(*values: int, trees: tuple[ProofTree, ...] = SHOWN) -> LinearEvidence:
    return LinearEvidence(values, trees)


def test_a_sum_of_rows_shows_the_best_mix() -> None:
    assert refusal(MIX, (6, 0), mixed(3, 0)) == ""
    assert refusal(MIX, (5, 0), mixed(3, 0)) == "the answer has objective (6, 0)"
    assert refusal(MIX, (7, 1), mixed(2, 1)) == "part 1 of the objective may be better"
    assert (
        refusal(MIX, (6, 0), mixed(3, 0, trees=(SHOWN[0], Leaf((), 0))))
        == "part 2 of the objective may be better"
    )
    assert refusal(MIX, (6, 0), mixed(3, 0, trees=SHOWN[:1])) == "not every part of the objective has a proof"
    assert refusal(MIX, (6, 0)) == "no evidence"


@pytest.mark.parametrize("values", [(2, 0), (4, 0), (4, -1), (3,), (3, 0, 0)])
def test_an_answer_keeps_to_ranges_and_rows(values: tuple[int, ...]) -> None:
    assert refusal(MIX, (6, 0), mixed(*values)) == "the answer breaks a row"


@pytest.mark.parametrize(
    ("bounds", "fine"), [((3, 3), True), ((None, 3), True), ((4, None), False), ((None, 2), False)]
)
def test_rows_have_two_sides(bounds: tuple[int | None, int | None], fine: bool) -> None:
    both = attrs.evolve(MIX, rows=(*MIX.rows, LinearRow((0, 1), (1, 1), *bounds)))
    assert refusal(both, (6, 0), mixed(3, 0)) == ("" if fine else "the answer breaks a row")


def test_a_row_binds_only_where_all_its_conditions_hold() -> None:
    """At least 2 of the first amount, but only with both switches on."""
    row = LinearRow((0,), (1,), 2, None, ((1, True), (2, True)))
    problem = LinearProblem(lower=(0, 0, 0), upper=(3, 1, 1), rows=(row,), stages=(LinearStage(((0, 1),)),))
    cheap = LinearEvidence((0, 1, 0), (Leaf((), 1),))
    assert refusal(problem, (0,), cheap) == ""
    assert refusal(problem, (0,), LinearEvidence((0, 1, 1), (Leaf((), 1),))) == "the answer breaks a row"
    forced = attrs.evolve(problem, lower=(0, 1, 1))
    assert refusal(forced, (2,), LinearEvidence((2, 1, 1), (Leaf(((0, -1),), 1),))) == ""
    unless = attrs.evolve(
        forced,
        rows=(attrs.evolve(row, conditions=((1, True), (2, False))),),
        lower=(0, 1, 0),
        upper=(3, 1, 0),
    )
    assert refusal(unless, (2,), LinearEvidence((2, 1, 0), (Leaf(((0, -1),), 1),))) == ""
    dear = LinearEvidence((3, 1, 1), (Leaf(((0, -1),), 1),))
    assert refusal(forced, (3,), dear) == "part 1 of the objective may be better"
    # With a switch that may be off nothing is shown.
    loose = attrs.evolve(problem, lower=(0, 1, 0))
    assert refusal(loose, (2,), LinearEvidence((2, 1, 1), (Leaf(((0, -1),), 1),))) == (
        "part 1 of the objective may be better"
    )


def test_the_upper_side_of_a_row_that_a_switch_frees() -> None:
    """As much as can be: at most 1 while the switch is on, and it is on."""
    row = LinearRow((0,), (1,), None, 1, ((1, True),))
    problem = LinearProblem(lower=(0, 1), upper=(3, 1), rows=(row,), stages=(LinearStage(((0, -1),)),))
    assert refusal(problem, (-1,), LinearEvidence((1, 1), (Leaf(((0, 1),), 1),))) == ""
    free = attrs.evolve(problem, lower=(0, 0))
    assert refusal(free, (-1,), LinearEvidence((1, 1), (Leaf(((0, 1),), 1),))) != ""
    assert refusal(free, (-3,), LinearEvidence((3, 0), (Leaf((), 1),))) == ""


def test_cases_together_show_that_nothing_is_left() -> None:
    """Twice a whole number is never 3: below and above 1 the rows leave nothing."""
    odd = LinearProblem(lower=(0,), upper=(3,), rows=(LinearRow((0,), (2,), 3, 3),))
    tree = Branch(0, 1, Leaf(((0, -1),), 0), Leaf(((0, 1),), 0))
    assert refusal(odd, None, LinearEvidence((), (tree,))) == ""
    room = "the sums leave room for an answer"
    for wrong in (
        Leaf(((0, -1),), 0),
        Leaf(((0, 1),), 0),
        Branch(0, 2, tree.below, tree.above),
        Leaf(((0, 1),), 1),
    ):
        assert refusal(odd, None, LinearEvidence((), (wrong,))) == room
    assert refusal(odd, None, LinearEvidence((), (tree, tree))) == room
    even = attrs.evolve(odd, rows=(LinearRow((0,), (2,), 2, 2),))
    assert refusal(even, None, LinearEvidence((), (tree,))) == room


def test_a_side_that_a_row_does_not_have_shows_nothing() -> None:
    assert refusal(MIX, (6, 0), mixed(3, 0, trees=(Leaf(((0, 2),), 1), SHOWN[1]))) != ""
    assert refusal(MIX, (6, 0), mixed(3, 0, trees=(Leaf(((7, -2),), 1), SHOWN[1]))) == (
        "the question or its evidence names what does not exist"
    )


def test_what_was_shown_before_holds_in_later_parts() -> None:
    """First as many as can be of both, then as few of the first as that leaves."""
    problem = LinearProblem(
        lower=(0, 0), upper=(3, 1), rows=(), stages=(LinearStage(((0, -1), (1, -1))), LinearStage(((0, 1),)))
    )
    # The second part by the first: their sum is 4, and the other one is at most 1.
    trees = (Leaf((), 1), Leaf(((0, 1),), 1))
    assert refusal(problem, (-4, 3), LinearEvidence((3, 1), trees)) == ""
    assert refusal(problem, (-4, 3), LinearEvidence((3, 1), (trees[0], Leaf((), 1)))) == (
        "part 2 of the objective may be better"
    )


@pytest.mark.parametrize(
    ("levels", "constant", "objective", "wrong"),
    [
        ((), 0, (2,), ""),
        ((), 5, (7,), ""),
        ((10, 20, 30), 0, (30,), ""),
        ((10, 20, 30), 0, (20,), "the answer has objective (30,)"),
        ((10, 20, 30), -1, (20,), ""),
        ((10, 20), 0, (20,), "part 1 of the objective stands for nothing"),
        ((10, 20, 20), 0, (20,), "part 1 of the objective stands for nothing"),
        ((10, 20, 30), -3, (30,), "part 1 of the objective stands for nothing"),
    ],
)
def test_values_and_what_they_stand_for(
    levels: tuple[int, ...], constant: int, objective: tuple[int, ...], wrong: str
) -> None:
    stage = LinearStage(((0, 1),), constant, levels)
    problem = LinearProblem(lower=(2,), upper=(3,), rows=(), stages=(stage,))
    assert refusal(problem, objective, LinearEvidence((2,), (Leaf((), 1),))) == wrong


# -- covers -----------------------------------------


def test_the_cheapest_who_give_enough() -> None:
    units = [[(5, (4, 0))], [(2, (2, 0)), (3, (0, 2))], [(2, (2, 1))]]
    for lack, cost in (
        ((0, 0), 0),
        ((-1, 0), 0),
        ((2, 0), 2),
        ((4, 0), 4),
        ((2, 2), 5),
        ((5, 0), 7),
        ((8, 1), 9),
    ):
        assert cheapest_cover(units, lack, [100]) == cost
    assert cheapest_cover(units, (9, 0), [100]) is None
    assert cheapest_cover(units, (0, 4), [100]) is None
    # A cost of the cap is no answer; the next cap is tried.
    assert cheapest_cover(units, (4, 0), [4]) is None
    assert cheapest_cover(units, (4, 0), [4, 5]) == 4


def hosts(
    free: list[int], blocks: list[int], pods: list[tuple[int, int]], count: int, size: int = 2
) -> VacatingProblem:
    return VacatingProblem(
        request=np.array([size]),
        count=count,
        free=np.array([free]),
        most=np.full(len(free), 2),
        home=np.array(blocks),
        host=np.array([host for host, _ in pods], np.int64),
        amounts=np.array([[amount for _, amount in pods]], np.int64),
    )


@pytest.mark.parametrize(
    ("problem", "least"),
    [
        (hosts([2], [0], [], 1), (0, 0, 0)),
        (hosts([1], [0], [(0, 1)], 1), (0, 1, 1)),
        (hosts([1], [0], [], 1), (1, 0, 0)),
        (hosts([0], [0], [(0, 1), (0, 1)], 1), (0, 2, 2)),
        (hosts([0, 1], [0, 0], [(0, 1), (0, 1), (1, 1)], 1), (0, 1, 1)),
        (hosts([0, 1], [0, 0], [(0, 1), (0, 1), (1, 1)], 2), (0, 3, 3)),
        (hosts([0, 1], [0, 1], [(0, 1), (0, 1), (1, 1)], 2), (1, 1, 1)),
        (hosts([6], [0], [], 3), (1, 0, 0)),
        (hosts([6], [-1], [], 1), (1, 0, 0)),
        (hosts([0], [0], [(0, 4)], 2), (0, 1, 1)),
    ],
)
def test_slots_that_can_be_made_and_the_pods_that_move(
    problem: VacatingProblem, least: tuple[int, ...]
) -> None:
    assert least_vacating(problem) == least
    assert refusal(problem, least) == ""
    assert refusal(problem, (*least[:-1], least[-1] + 1)) == f"no more than {least} is shown"


def hot(excess: list[int], pods: list[tuple[int, int, int]], share: int = 100) -> CoolingProblem:
    return CoolingProblem(
        excess=np.array([excess]),
        share=np.full((1, len(excess)), share),
        host=np.array([host for host, _, _ in pods], np.int64),
        cost=np.array([cost for _, _, cost in pods], np.int64),
        amounts=np.array([[amount for _, amount, _ in pods]], np.int64),
    )


@pytest.mark.parametrize(
    ("problem", "least"),
    [
        (hot([0], [(0, 5, 1)]), (0, 0, 0, 0)),
        (hot([5], [(0, 5, 7), (0, 9, 3)]), (0, 0, 1, 3)),
        (hot([5], [(0, 3, 1), (0, 2, 1), (0, 9, 4)]), (0, 0, 1, 4)),
        (hot([5], [(0, 3, 4)]), (1, 20, 1, 4)),
        (hot([5], []), (1, 50, 0, 0)),
        (hot([5, 2], [(0, 5, 1), (1, 1, 1)]), (1, 10, 2, 2)),
        (hot([5, 2], []), (2, 70, 0, 0)),
        (hot([1], [], 3000), (1, 1, 0, 0)),
        (hot([4], [(0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 2)]), (0, 0, 4, 8)),
    ],
)
def test_hosts_that_can_be_cooled_and_the_pods_that_move(
    problem: CoolingProblem, least: tuple[int, ...]
) -> None:
    assert least_cooling(problem) == least
    assert refusal(problem, least) == ""
    assert refusal(problem, (*least[:-1], least[-1] + 1)) == f"no more than {least} is shown"


def test_questions_with_negative_amounts_are_not_proven() -> None:
    unknown = "the question or its evidence names what does not exist"
    assert refusal(hot([5], [(0, -1, 1)]), (1, 50, 0, 0)) == unknown
    assert refusal(hot([5], [(0, 1, -1)]), (1, 50, 0, 0)) == unknown
    assert refusal(hot([5], [], 0), (1, 50, 0, 0)) == unknown


# -- evictions -----------------------------------------


def evictions(*pods: tuple[int, int, int], free: tuple[int, ...] = (0,), **fields: Any) -> EvictionProblem:
    """Pods are node, priority and amount, each its own job that never breaks; one member of 2 is to come."""
    given: dict[str, Any] = {
        "request": np.array([2]),
        "members": 1,
        "free": np.array([free]),
        "most": np.full(len(free), 9),
        "home": np.zeros(len(free), np.int64),
        "node": np.array([node for node, _, _ in pods], np.int64),
        "priority": np.array([priority for _, priority, _ in pods], np.int64),
        "job": np.arange(len(pods)),
        "amounts": np.array([[amount for _, _, amount in pods]], np.int64),
        "slack": np.ones(len(pods), np.int64),
        "breakable": np.zeros(len(pods), bool),
    }
    return EvictionProblem(**{**given, **fields})


def leaving(*places: int) -> EvictionEvidence:
    return EvictionEvidence(places)


UNSAID = "it is not said who leaves at this damage"


def test_one_leaves_who_gives_enough() -> None:
    problem = evictions((0, 5, 2), (0, 7, 2))
    assert refusal(problem, (0, 5, 0, 1, 5, 0, 0), leaving(0)) == ""
    assert (
        refusal(problem, (0, 7, 0, 1, 7, 0, 0), leaving(1))
        == "with pods below priority 7 gone the members may fit"
    )
    assert refusal(problem, (0, 5, 0, 1, 5, 0, 0), leaving(1)) == UNSAID
    assert refusal(problem, (0, 5, 0, 1, 5, 0, 0)) == UNSAID
    assert refusal(problem, (0, 4, 0, 1, 4, 0, 0), leaving(0)) == UNSAID
    assert refusal(problem, None) == "with everybody gone the members may fit"


def test_nobody_leaves_where_there_is_room_already() -> None:
    free = evictions((0, 5, 2), free=(2,))
    assert refusal(free, (0, NO_PRIORITY, 0, 0, 0, 0, 0), leaving()) == ""
    assert refusal(evictions((0, 5, 2)), (0, NO_PRIORITY, 0, 0, 0, 0, 0), leaving()) == UNSAID


def test_no_plan_at_all_where_everybody_together_gives_too_little() -> None:
    assert refusal(evictions((0, 5, 1)), None) == ""
    assert refusal(evictions((0, 5, 1), (0, 5, 1)), None) != ""
    assert refusal(evictions((0, 5, 1), (1, 5, 1), free=(0, 0)), None) == ""
    assert refusal(evictions((0, 5, 2), slack=np.array([0])), None) == ""
    assert refusal(evictions((0, 5, 2), slack=np.array([0]), breakable=np.array([True])), None) != ""
    assert refusal(evictions((0, 5, 2), home=np.array([-1])), None) == ""
    assert refusal(evictions((0, 5, 2), most=np.array([0])), None) == ""
    lame = evictions((0, 5, 1), request=np.array([2, 2]))
    assert refusal(lame, None) == "the question or its evidence names what does not exist"


def test_the_fewest_and_then_the_least_important_leave() -> None:
    problem = evictions((0, 5, 1), (0, 5, 1), (0, 5, 2), (1, 4, 1), (1, 5, 1), free=(0, 0))
    better = "the members may fit for fewer jobs, pods, priorities or restarts"
    assert refusal(problem, (0, 5, 0, 1, 5, 0, 0), leaving(2)) == ""
    assert refusal(problem, (0, 5, 0, 2, 10, 0, 0), leaving(0, 1)) == better
    assert refusal(problem, (0, 5, 0, 2, 9, 0, 0), leaving(3, 4)) == better
    pairs = evictions((0, 5, 1), (0, 5, 1), (1, 4, 1), (1, 5, 1), free=(0, 0))
    assert refusal(pairs, (0, 5, 0, 2, 9, 0, 0), leaving(2, 3)) == ""
    assert refusal(pairs, (0, 5, 0, 2, 10, 0, 0), leaving(0, 1)) == better


def test_restarts_decide_last() -> None:
    costs = np.array([4, 3])
    problem = evictions((0, 5, 2), (0, 5, 2), restart=costs)
    assert refusal(problem, (0, 5, 0, 1, 5, 3, 0), leaving(1)) == ""
    assert refusal(problem, (0, 5, 0, 1, 5, 4, 0), leaving(0)) != ""
    assert refusal(problem, (0, 5, 0, 1, 5, 0, 0), leaving(1)) == UNSAID


def test_a_job_leaves_whole_or_within_its_slack() -> None:
    """Two pods of one job that spares none of them, on two nodes."""
    fields = {"job": np.array([0, 0]), "slack": np.array([0]), "breakable": np.array([True])}
    whole = evictions((0, 5, 2), (1, 5, 2), free=(0, 0), **fields)
    assert refusal(whole, (0, 5, 1, 2, 10, 0, 0), leaving(0, 1)) == ""
    assert refusal(whole, (0, 5, 1, 1, 5, 0, 0), leaving(0)) == UNSAID
    spared = evictions(
        (0, 5, 2),
        (1, 5, 2),
        free=(0, 0),
        job=np.array([0, 0]),
        slack=np.array([1]),
        breakable=np.array([True]),
    )
    assert refusal(spared, (0, 5, 0, 1, 5, 0, 0), leaving(0)) == ""
    assert refusal(spared, (0, 5, 1, 2, 10, 0, 0), leaving(0, 1)) != ""
    firm = evictions((0, 5, 2), (1, 5, 2), free=(0, 0), job=np.array([0, 0]), slack=np.array([0]))
    assert refusal(firm, (0, 5, 1, 2, 10, 0, 0), leaving(0, 1)) == UNSAID


def test_several_members_need_room_in_one_domain() -> None:
    both = evictions((0, 5, 2), (1, 5, 2), free=(0, 0), members=2)
    assert refusal(both, (0, 5, 0, 2, 10, 0, 0), leaving(0, 1)) == ""
    assert refusal(both, (0, 5, 0, 1, 5, 0, 0), leaving(0)) == UNSAID
    apart = evictions((0, 5, 2), (1, 5, 2), free=(0, 0), members=2, home=np.array([0, 1]))
    assert refusal(apart, None) == ""
    assert refusal(apart, (0, 5, 0, 2, 10, 0, 0), leaving(0, 1)) == UNSAID


# -- gathering -----------------------------------------


def tree(
    slots: list[int], *, bound: list[int] | None = None, near: list[int] | None = None, **fields: Any
) -> TreeProblem:
    """Leaves two by two below racks, the racks below the root."""
    racks = len(slots) // 2
    leaves = len(slots)
    given: dict[str, Any] = {
        "parent": np.array([0, *[0] * racks, *(1 + leaf // 2 for leaf in range(leaves))]),
        "depth": np.array([0, *[1] * racks, *[2] * leaves]),
        "slots": np.array(slots),
        "bound": np.array(bound or [0] * leaves),
        "near": np.array(near or [0] * leaves),
        "multiples": (1, 1, 1),
        "must_depth": 0,
        "order": (1, 2),
        "least": 1,
        "size": 2,
    }
    return TreeProblem(**{**given, **fields})


@pytest.mark.parametrize(
    ("problem", "best"),
    [
        # Placed, racks opened, leaves opened, slots of the used leaves and of the used racks.
        (tree([2, 0, 1, 1]), (-2, 1, 1, 2, 2)),
        (tree([1, 1, 1, 1], size=3), (-3, 2, 3, 3, 4)),
        (tree([1, 1, 1, 1], size=3, must_depth=1), (-2, 1, 2, 2, 2)),
        (tree([1, 1, 1, 1], size=3, must_depth=1, least=3), None),
        (tree([3, 1, 2, 0]), (-2, 1, 1, 2, 2)),
        (tree([1, 1, 1, 1], size=1, multiples=(1, 2, 1)), None),
        (tree([1, 1, 1, 1], size=3, multiples=(1, 2, 1)), (-2, 1, 2, 2, 2)),
        (tree([1, 1, 1, 1], bound=[0, 0, 1, 0], size=1), (-1, 0, 0, 1, 2)),
        (tree([1, 1, 0, 1], bound=[0, 0, 1, 0], size=1), (-1, 0, 1, 1, 1)),
        (tree([1, 1, 0, 1], bound=[0, 0, 1, 0], must_depth=1), (-1, 0, 1, 1, 1)),
        (tree([1, 1, 1, 1], near=[0, 0, 5, 0], size=1), (-1, 1, 1, 0, 0, 1, 2)),
        (tree([1, 1, 0, 1], near=[0, 0, 5, 0], size=1), (-1, 1, 1, 5, 0, 1, 1)),
        (tree([2, 1, 1, 1], even=(1,), size=4), (-4, 2, 8, 3, 4, 5)),
        (tree([2, 2, 0, 0], snug=True), (-2, 1, 2, 4, 1)),
        (tree([1, 1, 1, 1], size=1, worth=np.array([0, 7, 3, 0])), (-1, 1, 1, 1, 2, -7)),
        (tree([1, 1], must_depth=-1), None),
        (tree([1, 1], must_depth=-1, least=0), (0, 0, 0, 0, 0)),
        (tree([0, 0]), None),
        (tree([0, 0], least=0), (0, 0, 0, 0, 0)),
    ],
)
def test_the_best_gathering_worked_out_by_hand(problem: TreeProblem, best: tuple[int, ...] | None) -> None:
    assert best_gathering(problem) == best
    assert refusal(problem, best) == ""
    if best is not None:
        planted = (*best[:-1], best[-1] - 1)
        assert refusal(problem, planted) == f"the best there is has objective {best}"
        assert refusal(problem, None) == f"the best there is has objective {best}"


def test_domains_stand_behind_those_above_them() -> None:
    for parent in ([0, 0, 3, 1], [0, 0, -1, 1], [0, 0, 2, 1]):
        wrong = tree([1, 1], parent=np.array(parent))
        assert refusal(wrong, (-2, 1, 2, 2, 2)) == "the question or its evidence names what does not exist"
