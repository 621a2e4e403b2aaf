"""The least that has to leave, against trying everything; what planners claim, and what is too good."""

from __future__ import annotations

import itertools

import attrs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmarks.bench_rebalance import cards, cluster, plan
from koordcore.checking.certificates import check_certificate
from koordcore.checking.cover_proof import cheapest_cover, least_cooling, least_vacating
from koordcore.descheduling.defrag import Wanted, plan_defragmentation
from koordcore.manifests.proof_records import proofs_from_record, proofs_record
from koordcore.model.certificates import Certificate
from koordcore.model.preemption import Members
from koordcore.model.proofs import CoolingProblem, EvictionEvidence, EvictionProblem, VacatingProblem
from koordcore.model.resources import make_resources
from koordcore.preemption.plan import plan_preemption
from tests.checking.test_certificates import better
from tests.preemption.worlds import random_problem

pytestmark = pytest.mark.solver

amounts = st.tuples(st.integers(0, 4), st.integers(0, 4))
options = st.lists(st.tuples(st.integers(1, 9), amounts), max_size=3)


@given(st.lists(options, max_size=5), amounts, st.integers(1, 30))
def test_the_cheapest_cover_is_found(
    units: list[list[tuple[int, tuple[int, int]]]], lack: tuple[int, int], most: int
) -> None:
    costs = [
        sum(price for price, _ in chosen)
        for choice in itertools.product(*([None, *unit] for unit in units))
        for chosen in [[one for one in choice if one is not None]]
        if all(sum(gives[r] for _, gives in chosen) >= lack[r] for r in range(2))
    ]
    best = min(costs, default=most)
    assert cheapest_cover(units, lack, [most // 2, most]) == (best if best < most else None)


def cooling(excess: list[int], items: list[tuple[int, int, int]]) -> CoolingProblem:
    """One resource; items are host, amount, cost; shares of 100."""
    return CoolingProblem(
        excess=np.array([excess]),
        share=np.full((1, len(excess)), 100),
        host=np.array([host for host, _, _ in items], np.int64),
        cost=np.array([cost for _, _, cost in items], np.int64),
        amounts=np.array([[amount for _, amount, _ in items]], np.int64),
    )


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6), st.integers(0, 3)), max_size=6),
)
def test_the_least_cooling_is_found(excess: list[int], drawn: list[tuple[int, int, int]]) -> None:
    items = [(host % len(excess), amount, cost) for host, amount, cost in drawn]

    def worth(chosen: tuple[tuple[int, int, int], ...]) -> tuple[int, int, int, int]:
        left = [
            max(0, over - sum(one[1] for one in chosen if one[0] == host)) for host, over in enumerate(excess)
        ]
        permille = sum(-(-1000 * one // 100) for one in left)
        return sum(one > 0 for one in left), permille, len(chosen), sum(one[2] for one in chosen)

    every = (chosen for count in range(len(items) + 1) for chosen in itertools.combinations(items, count))
    assert least_cooling(cooling(excess, items)) == min(map(worth, every))


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 4)), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=5),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_the_fewest_that_make_room_are_found(
    hosts: list[tuple[int, int]], drawn: list[tuple[int, int]], size: int, count: int
) -> None:
    items = [(host % len(hosts), amount) for host, amount in drawn]
    problem = VacatingProblem(
        request=np.array([size]),
        count=count,
        free=np.array([[free for _, free in hosts]]),
        most=np.full(len(hosts), 2),
        home=np.array([block for block, _ in hosts]),
        host=np.array([host for host, _ in items], np.int64),
        amounts=np.array([[amount for _, amount in items]], np.int64),
    )
    best = (count, 0, 0)
    for block in (0, 1):
        for few in range(len(items) + 1):
            for gone in itertools.combinations(items, few):
                slots = sum(
                    min(2, (free + sum(a for at, a in gone if at == row)) // size)
                    for row, (home, free) in enumerate(hosts)
                    if home == block
                )
                best = min(best, (max(0, count - slots), few, few))
    assert least_vacating(problem) == best


def accepted(certificate: Certificate) -> bool:
    """What is claimed is shown, also after it was written and read, and nothing better with it."""
    check = check_certificate(certificate.problem, certificate)
    read = proofs_from_record(proofs_record({"it": certificate}))["it"]
    assert check_certificate(read.problem, read).outcome is check.outcome
    if not check.accepted:
        assert certificate.status.text.endswith("by solver"), check.reason
        return False
    for planted in better(certificate):
        assert not check_certificate(planted.problem, planted).accepted
    return True


def test_plans_that_meet_their_bound_are_repeated() -> None:
    plans = [plan(cluster(6, 30, 2, seed, idle=(0.3, 0.6)), 0.25).certificate for seed in range(8)]
    wanted = Wanted(requests=make_resources({"cpu": 100_000}), count=2, per_node=1)
    plans += [plan_defragmentation(cards(8, seed)[0], wanted).certificate for seed in range(8)]
    proven = [one for one in plans if one.proven]
    assert len(proven) >= 12
    assert sum(map(accepted, proven)) >= 0.9 * len(proven)
    assert {type(one.problem) for one in proven} >= {CoolingProblem, VacatingProblem}


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.booleans())
def test_the_cheapest_eviction_for_one_pod_is_found_once_more(seed: int, whole: bool) -> None:
    problem = random_problem(seed, most=8)
    members = problem.roles[0].members[:1]
    one = attrs.evolve(problem.roles[0], members=members, min_available=1)
    lone = attrs.evolve(problem, roles=(one,))
    found = plan_preemption(lone, members=Members.ALL if whole else Members.MINIMUM).certificate
    if found.proven:
        accepted(found)


def test_whom_a_cheaper_choice_would_spare_is_seen() -> None:
    """Two pods of 1 would do; one of 3 is named, whose priority is lower."""
    question = EvictionProblem(
        request=np.array([2]),
        members=1,
        free=np.array([[0, 0]]),
        most=np.array([1, 1]),
        home=np.array([0, 0]),
        node=np.array([0, 0, 1]),
        priority=np.array([5, 5, 5]),
        job=np.array([0, 1, 2]),
        amounts=np.array([[1, 1, 3]]),
        slack=np.array([0, 0, 0]),
        breakable=np.array([True, True, True]),
        restart=np.array([0, 0, 7]),
    )
    one = Certificate.make_proven((0, 5, 1, 1, 5, 7, 0), question, EvictionEvidence((2,)))
    two = Certificate.make_proven((0, 5, 2, 2, 10, 0, 0), question, EvictionEvidence((0, 1)))
    assert check_certificate(question, one).accepted
    assert check_certificate(question, two).reason == (
        "the members may fit for fewer jobs, pods, priorities or restarts"
    )
    spared = attrs.evolve(question, restart=np.array([0, 0, 8]))
    assert check_certificate(spared, one).reason == "it is not said who leaves at this damage"


def test_a_question_without_sense_is_not_accepted() -> None:
    question = cooling([3], [(0, 5, 1)])
    good = Certificate.make_proven((0, 0, 1, 1), question)
    assert check_certificate(question, good).accepted
    for broken in (
        attrs.evolve(question, share=np.array([[0]])),
        attrs.evolve(question, cost=np.array([-1])),
        attrs.evolve(question, cost=np.zeros(0, np.int64)),
        attrs.evolve(question, amounts=np.array([[-5]])),
    ):
        assert not check_certificate(broken, good).accepted


Pods = tuple[tuple[int, int, int, int], ...]
"""Amount, priority, restart, and how many its job spares."""


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        (((2, 7, 0, 1),), ((2, 7, 0, 0),)),
        (((2, 7, 0, 1),), ((1, 7, 0, 1), (1, 7, 0, 1))),
        (((1, 7, 0, 1), (1, 3, 0, 1)), ((1, 7, 0, 1), (1, 4, 0, 1))),
        (((2, 7, 1, 1),), ((2, 7, 2, 1),)),
    ],
    ids=["jobs", "pods", "priorities", "restarts"],
)
@pytest.mark.parametrize("members", [1, 2])
def test_a_claim_that_is_dearer_in_any_part_is_told(members: int, cheap: Pods, dear: Pods) -> None:
    """Two blocks of as many nodes as members; in one of them who leaves costs less."""
    rows = [
        (block * members + node, *pod)
        for block in (0, 1)
        for node in range(members)
        for pod in (cheap, dear)[block]
    ]
    pods = np.array(rows, np.int64)
    problem = EvictionProblem(
        request=np.array([2]),
        members=members,
        free=np.zeros((1, 2 * members), np.int64),
        most=np.full(2 * members, members),
        home=np.repeat([0, 1], members),
        node=pods[:, 0],
        amounts=pods[:, 1][None, :],
        priority=pods[:, 2],
        restart=pods[:, 3],
        job=np.arange(len(pods)),
        slack=pods[:, 4],
        breakable=np.full(len(pods), True),
    )

    def claim(block: int) -> Certificate:
        leaving = np.flatnonzero(pods[:, 0] // members == block)
        parts = pods[leaving]
        broken = int((parts[:, 4] == 0).sum())
        sums = (len(leaving), int(parts[:, 2].sum()), int(parts[:, 3].sum()))
        evidence = EvictionEvidence(tuple(leaving.tolist()))
        return Certificate.make_proven((0, 7, broken, *sums, 0), problem, evidence)

    assert check_certificate(problem, claim(0)).accepted
    assert check_certificate(problem, claim(1)).reason.startswith("the members may fit for fewer")
