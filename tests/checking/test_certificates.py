"""Proofs are repeated by other code, and a wrong bound finds no proof."""

from __future__ import annotations

import itertools
import pickle

import attrs
import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from koordcore._certify import certified
from koordcore._cpsat import OutcomeStatus, Program, Stage, solve
from koordcore._duals import evidence_for
from koordcore.allocators.gang.planner import place_gang
from koordcore.checking.certificates import CertificateCheck, check_certificate
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.preemption import Gather, Members
from koordcore.model.proofs import (
    Branch,
    EvictionEvidence,
    Leaf,
    LinearEvidence,
    LinearProblem,
    LinearRow,
    LinearStage,
)
from koordcore.preemption.plan import plan_preemption
from tests.preemption.worlds import random_problem
from tests.property.gang_strategies import (
    OPEN_NODES,
    demand_of,
    even_instances,
    mixed_instances,
    scored_instances,
    snug_instances,
    tree_of,
    uniform_instances,
)
from tests.reference.gang_placement import Instance

pytestmark = pytest.mark.solver

CLAIMS = (CertificateStatus.PROVEN, CertificateStatus.INFEASIBLE)


def better(certificate: Certificate) -> list[Certificate]:
    """The same evidence for claims that are too good: each part of the objective one less, or no answer."""
    claims = []
    for part in range(len(certificate.objective)):
        objective = [*certificate.objective]
        objective[part] -= 1
        claims.append(attrs.evolve(certificate, objective=tuple(objective), bound=tuple(objective)))
    nothing = attrs.evolve(certificate, status=CertificateStatus.INFEASIBLE, objective=(), bound=())
    return [*claims, nothing] if certificate.objective else []


def accepted(certificate: Certificate) -> bool:
    """What says proven is accepted, and nothing better with it; tell whether it says so."""
    check = check_certificate(certificate.problem, certificate)
    if certificate.status not in CLAIMS:
        assert check.outcome is CertificateCheck.NOT_CHECKED
        return False
    assert check.accepted, check.reason
    for planted in better(certificate):
        assert check_certificate(planted.problem, planted).outcome is CertificateCheck.REJECTED
    return True


@settings(max_examples=53)
@given(uniform_instances() | scored_instances() | even_instances() | snug_instances())
@example(OPEN_NODES)
def test_the_best_gathering_is_found_once_more(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    assert accepted(place_gang(tree, demand_of(problem, tree)).certificate)


@settings(max_examples=17)
@given(mixed_instances())
def test_members_of_several_shapes_come_with_evidence_or_say_that_they_do_not(problem: Instance) -> None:
    tree = tree_of(problem.paths)
    accepted(place_gang(tree, demand_of(problem, tree)).certificate)


def test_nearly_all_small_evictions_can_be_checked() -> None:
    checked = [
        accepted(plan_preemption(random_problem(seed, most=6), members=members, gather=gather).certificate)
        for seed in range(40)
        for members in Members
        for gather in Gather
    ]
    assert sum(checked) >= 0.95 * len(checked)


def test_a_claim_about_fewer_victims_is_refuted() -> None:
    """The counting proof is asked about another number of victims, and about another question."""
    plans = [plan_preemption(random_problem(seed, most=6), members=Members.ALL) for seed in range(40)]
    counted = [one.certificate for one in plans if one.certificate.objective]
    assert counted
    for one in counted:
        easier = attrs.evolve(one, objective=(0, -(2**31), 0, 0, 0, 0, 0), bound=(0, -(2**31), 0, 0, 0, 0, 0))
        assert one.objective == easier.objective or not check_certificate(easier.problem, easier).accepted


def knapsack() -> tuple[Program, list[Stage]]:
    """Fill 7 with 5, 4 and 3: most first, then with the fewest items."""
    program = Program()
    items = [program.boolean() for _ in range(3)]
    program.require(zip(items, (5, 4, 3), strict=True), at_most=7)
    size = Stage([(items[0], -5), (items[1], -4), (items[2], -3)])
    return program, [size, Stage([(item, 1) for item in items])]


def test_what_is_claimed_without_evidence_is_not_checked() -> None:
    program, stages = knapsack()
    silent = certified(program.problem(stages), (0, 1, 1), Limits(1e-9))
    assert silent.status is CertificateStatus.PROVEN_BY_SOLVER
    assert check_certificate(silent.problem, silent).outcome is CertificateCheck.NOT_CHECKED
    assert check_certificate(None, Certificate(CertificateStatus.HEURISTIC, (1,))).reason.startswith("heur")
    assert silent.proven
    assert certified(program.problem(stages), (0, 1, 1)) != silent


def test_the_search_for_evidence_ends_where_the_linear_solver_would_go_round_in_circles() -> None:
    """Prices of moves far apart, 2 and 2^31 + 3, as eviction costs may be: the dual simplex cycles."""
    rows: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
        *(((first, first + 1), (1, 1), 1) for first in (0, 2, 4, 6)),
        ((0, 1), (1, 1), 0),
        ((0, 1, 2, 3), (1, 1, 1, 1), 1),
        *(((one, 8), (1, 1), 1) for one in (4, 6)),
        ((0, 1, 2, 3, 4, 6), (-5, -5, -5, -5, 1, 1), -7),
        ((4, 5, 0, 2, 7), (-1, -1, 5, 5, 1), 2),
        ((6, 7, 1, 3, 5), (-1, -1, 5, 5, 1), 9),
        ((0, 1, 2, 3, 4, 6, 9), (-625, -625, -625, -625, 125, 125, -1), -875),
    ]
    made = tuple(
        LinearRow(variables, each, None, most, ((8, False),) if most == -7 else ())
        for variables, each, most in rows
    )
    prices = (2, 2, 2**31 + 3, 2**31 + 3, 102, 102, 4, 4)
    stages = (((8, 1),), ((9, 1),), tuple((one, 1) for one in range(8)), tuple(enumerate(prices)))
    problem = LinearProblem(
        lower=(0,) * 10,
        upper=(*(1,) * 9, 1125),
        rows=made,
        stages=tuple(LinearStage(terms) for terms in stages),
    )
    values = (0, 0, 0, 1, 0, 0, 0, 0, 1, 250)
    evidence = evidence_for(problem, values)
    assert evidence is None or evidence.values == values


def test_programs_and_evidence_that_say_the_same_are_equal() -> None:
    """Whoever asks another process compares what comes back with what he has."""
    rows = (LinearRow((0, 1), (1, 2), 1, None),)
    program = LinearProblem(lower=(0, 0), upper=(1, 1), rows=rows, stages=(LinearStage(((0, 1),)),))
    told = (program, LinearEvidence((0, 1), (Leaf(((0, 1),), 1),)), EvictionEvidence((1, 2)))
    assert pickle.loads(pickle.dumps(told)) == told
    assert attrs.evolve(program, upper=(1, 2)) != program


def test_evidence_for_another_answer_is_rejected() -> None:
    program, stages = knapsack()
    good = certified(program.problem(stages), (0, 1, 1))
    assert accepted(good)
    assert isinstance(good.evidence, LinearEvidence)
    for values, reason in (((1, 1, 0), "breaks a row"), ((0, 1, 0), "may be better"), ((0, 1), "breaks")):
        evidence = attrs.evolve(good.evidence, values=values)
        check = check_certificate(good.problem, attrs.evolve(good, evidence=evidence))
        assert check.outcome is CertificateCheck.REJECTED
        assert reason in check.reason


@pytest.mark.parametrize(
    "leaf",
    [
        Leaf(((9, 1),), 1),
        Leaf((), -1),
        Leaf((), 0),
        Leaf(((0, -5),), 1),
        Branch(8, 0, Leaf((), 1), Leaf((), 1)),
    ],
)
def test_broken_evidence_is_rejected(leaf: Leaf | Branch) -> None:
    program, stages = knapsack()
    good = certified(program.problem(stages), (0, 1, 1))
    assert isinstance(good.evidence, LinearEvidence)
    broken = attrs.evolve(good, evidence=LinearEvidence((0, 1, 1), (leaf, good.evidence.trees[1])))
    assert check_certificate(good.problem, broken).outcome is CertificateCheck.REJECTED
    short = attrs.evolve(good, evidence=LinearEvidence((0, 1, 1), good.evidence.trees[:1]))
    assert check_certificate(good.problem, short).outcome is CertificateCheck.REJECTED


small = st.integers(-4, 4)
rows = st.builds(
    lambda terms, low, room, condition: LinearRow(
        (0, 1),
        terms,
        low,
        None if low is None else low + room,
        ((2, condition),) if condition is not None else (),
    ),
    st.tuples(small, small),
    st.none() | st.integers(-9, 2),
    st.integers(0, 9),
    st.sampled_from((None, True, False)),
)
weights = st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), max_size=4).map(tuple)
leaves = st.builds(Leaf, weights, st.integers(0, 4))
trees = st.recursive(
    leaves,
    lambda below: st.builds(Branch, st.integers(0, 2), st.integers(-2, 3), below, below),
    max_leaves=5,
)


@settings(max_examples=80)
@given(st.lists(rows, min_size=1, max_size=4), st.tuples(small, small, small), trees)
def test_no_evidence_whatsoever_shows_what_is_false(
    made: list[LinearRow], cost: tuple[int, int, int], tree: Leaf | Branch
) -> None:
    """Sums drawn by chance are accepted for true claims at most."""
    stage = LinearStage(tuple(enumerate(cost)))
    problem = LinearProblem(lower=(-2, 0, 0), upper=(3, 3, 1), rows=tuple(made), stages=(stage,))
    costs = {
        point: sum(c * v for c, v in zip(cost, point, strict=True))
        for point in itertools.product(range(-2, 4), range(4), range(2))
        if all(holds(row, point) for row in made)
    }
    nothing = Certificate.make_infeasible(problem, LinearEvidence((), (tree,)))
    assert not costs or not check_certificate(problem, nothing).accepted
    for point, value in costs.items():
        claim = Certificate.make_proven((value,), problem, LinearEvidence(point, (tree,)))
        assert value == min(costs.values()) or not check_certificate(problem, claim).accepted


def holds(row: LinearRow, point: tuple[int, ...]) -> bool:
    if any(point[variable] != wanted for variable, wanted in row.conditions):
        return True
    total = sum(c * point[v] for v, c in zip(row.variables, row.coefficients, strict=True))
    return row.lower is None or row.upper is None or row.lower <= total <= row.upper


@settings(max_examples=23)
@given(st.lists(rows, min_size=1, max_size=4), st.tuples(small, small, small), st.tuples(small, small, small))
def test_evidence_is_found_for_small_programs(
    made: list[LinearRow], first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    program = Program()
    for low, high in ((-2, 3), (0, 3), (0, 1)):
        program.integer(low, high)
    for row in made:
        program.require(
            zip(row.variables, row.coefficients, strict=True),
            at_least=row.lower,
            at_most=row.upper,
            when=[v for v, wanted in row.conditions if wanted],
            unless=[v for v, wanted in row.conditions if not wanted],
        )
    stages = [Stage(tuple(enumerate(first))), Stage(tuple(enumerate(second)))]
    outcome = solve(program, stages)
    known = outcome.status is OutcomeStatus.INFEASIBLE
    assert accepted(certified(program.problem(stages), None if known else outcome.values))


def test_levels_stand_for_what_is_shown() -> None:
    stage = LinearStage(((0, 1),), levels=(-7, 3, 9))
    problem = LinearProblem(lower=(0,), upper=(2,), rows=(LinearRow((0,), (1,), 1, None),), stages=(stage,))
    certificate = certified(problem, (1,))
    assert certificate.objective == (3,)
    assert accepted(certificate)
    falling = attrs.evolve(problem, stages=(attrs.evolve(stage, levels=(9, 3, 1)),))
    assert not check_certificate(falling, certificate).accepted


def test_large_gangs_are_checked_at_the_sizes_of_the_benchmarks() -> None:
    from benchmarks.bench_gangs import SPREAD, free_nodes, network, uniform

    tree = network(10, 16, 32)
    slots = free_nodes(tree, 1) * np.random.default_rng(2).integers(1, 9, size=len(tree.nodes))
    placed = place_gang(tree, uniform(tree, 512, SPREAD, slots))
    assert check_certificate(placed.certificate.problem, placed.certificate).accepted
