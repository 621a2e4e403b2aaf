"""The solver's adapter: stages, hints, bounds, and the same answer twice."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

from koordcore._certify import certify
from koordcore._cpsat import OutcomeStatus, Program, Stage, solve
from koordcore._duals import evidence_for
from koordcore.checking.certificates import check_certificate
from koordcore.errors import MissingExtraError, ModelError, SolverError
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.proofs import DEEPEST, Branch, LinearProblem, LinearRow, ProofTree

pytestmark = pytest.mark.solver


def knapsack(capacity: int) -> tuple[Program, Stage, Stage]:
    """Three items of sizes 5, 4, 3: most size first, then fewest items."""
    program = Program()
    items = [program.boolean() for _ in range(3)]
    program.require(zip(items, (5, 4, 3), strict=True), at_most=capacity)
    size = Stage([(items[0], -5), (items[1], -4), (items[2], -3)])
    return program, size, Stage([(item, 1) for item in items])


def test_stages_are_lexicographic() -> None:
    program, size, count = knapsack(7)
    outcome = solve(program, [size, count])
    assert outcome.status is OutcomeStatus.OPTIMAL
    assert outcome.values == (0, 1, 1)
    assert outcome.objective == outcome.bound == (-7, 2)
    certificate = certify(program.problem([size, count]), outcome)
    assert certificate.status is CertificateStatus.PROVEN
    assert check_certificate(certificate.problem, certificate).accepted


def test_a_hint_that_meets_the_bound_needs_no_solver() -> None:
    program, _, count = knapsack(7)
    outcome = solve(program, [Stage(count.terms, at_least=0)], hint=(0, 0, 0))
    assert (outcome.status, outcome.solves) == (OutcomeStatus.OPTIMAL, 0)


def test_whoever_has_no_solver_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    program, size, _ = knapsack(7)
    with pytest.raises(MissingExtraError, match=r"needs ortools: pip install 'koordcore\[solver\]'"):
        solve(program, [size])
    monkeypatch.setitem(sys.modules, "ortools.linear_solver", None)
    with pytest.raises(MissingExtraError, match=r"needs ortools: pip install 'koordcore\[solver\]'"):
        evidence_for(program.problem([size]), (0, 1, 1))


def test_an_illegal_hint_is_ignored() -> None:
    program, size, _ = knapsack(7)
    assert solve(program, [size], hint=(1, 1, 1)).objective == (-7,)
    assert solve(program, [size], hint=(1,)).objective == (-7,)


def test_infeasible_is_an_outcome() -> None:
    program = Program()
    x = program.integer(0, 3)
    program.require([(x, 2)], at_least=7)
    outcome = solve(program)
    assert outcome.status is OutcomeStatus.INFEASIBLE
    certificate = certify(program.problem(), outcome)
    assert certificate == Certificate(CertificateStatus.INFEASIBLE)
    assert check_certificate(certificate.problem, certificate).accepted


def test_an_empty_range_is_infeasible() -> None:
    program = Program()
    program.integer(2, 1)
    assert solve(program).status is OutcomeStatus.INFEASIBLE


def test_conditions_bind_only_when_they_hold() -> None:
    program = Program()
    switch, x = program.boolean(), program.integer(0, 9)
    program.require([(x, 1)], at_least=4, when=[switch])
    program.require([(x, 1)], at_least=7, unless=[switch])
    assert solve(program, [Stage([(x, 1)])]).values == (1, 4)


def test_equal_with_a_common_divisor_that_does_not_divide_is_infeasible() -> None:
    program = Program()
    x, y = program.integer(0, 9), program.integer(0, 9)
    program.require([(x, 4), (y, 6)], equal=7)
    assert solve(program).status is OutcomeStatus.INFEASIBLE


def test_amounts_beyond_64_bits_are_refused() -> None:
    program = Program()
    x, y = program.integer(0, 2**40), program.integer(0, 2**40)
    with pytest.raises(SolverError, match="64 bits"):
        program.require([(x, 2**40), (y, 2**40 + 1)], at_most=5)


def test_a_spent_budget_returns_the_hint_with_a_bound() -> None:
    program = Program()
    bins = range(12)
    sizes = [31 + 7 * (i * i % 11) for i in range(30)]
    used = [program.boolean() for _ in bins]
    placed = [[program.boolean() for _ in bins] for _ in sizes]
    for row in placed:
        program.require([(x, 1) for x in row], equal=1)
    for b in bins:
        load = [(row[b], size) for row, size in zip(placed, sizes, strict=True)]
        program.require([*load, (used[b], -200)], at_most=0)
    hint = [0] * len(program)
    room = [200] * len(bins)
    for row, size in sorted(zip(placed, sizes, strict=True), key=lambda pair: -pair[1]):
        target = next(b for b in bins if room[b] >= size)
        room[target] -= size
        hint[row[target]] = hint[used[target]] = 1
    stage = Stage([(x, 1) for x in used])
    assert program.holds(hint)
    outcome = solve(program, [stage, Stage([(used[0], 1)])], hint=hint, limits=Limits(1e-4))
    assert outcome.solved
    assert outcome.objective[0] <= stage.value(hint)
    assert outcome.bound <= outcome.objective
    assert solve(program, [stage, Stage([(used[0], 1)])], hint=hint, limits=Limits(1e-4)) == outcome


def packing(items: int) -> tuple[Program, Stage, tuple[int, ...]]:
    """Fill bins with most of what there is; the hint takes nothing."""
    program = Program()
    chosen = [[program.boolean() for _ in range(items // 4)] for _ in range(items)]
    sizes = [3 + 7 * item * item % 11 for item in range(items)]
    for row in chosen:
        program.require([(one, 1) for one in row], at_most=1)
    for bin_ in range(items // 4):
        program.require([(row[bin_], size) for row, size in zip(chosen, sizes, strict=True)], at_most=17)
    return program, Stage([(one, -1) for row in chosen for one in row]), (0,) * len(program)


@pytest.mark.parametrize("items", [4, 12, 40])
@pytest.mark.parametrize("budget", [1e-9, 1e-6, 1e-4, 1e-3])
def test_a_solver_that_stops_early_has_proven_nothing(items: int, budget: float) -> None:
    """Stopped before it has loaded the objective, the solver reports the bound 0."""
    program, stage, hint = packing(items)
    best = solve(program, [stage], hint=hint, limits=Limits(5.0))
    early = solve(program, [stage], hint=hint, limits=Limits(budget))
    assert best.objective < (0,)
    assert early.bound <= best.objective <= early.objective
    assert early.status is not OutcomeStatus.OPTIMAL or early.objective == best.objective


def test_limits_are_validated() -> None:
    with pytest.raises(ModelError):
        Limits(0.0)
    with pytest.raises(ModelError):
        Limits(float("nan"))
    with pytest.raises(ModelError):
        Limits(seed=-1)


def test_certificates_cannot_contradict_themselves() -> None:
    with pytest.raises(ModelError):
        Certificate(CertificateStatus.PROVEN, (1,), (0,))
    with pytest.raises(ModelError):
        Certificate(CertificateStatus.FEASIBLE, (1,), (2,))
    with pytest.raises(ModelError):
        Certificate(CertificateStatus.INFEASIBLE, (1,))
    assert Certificate.make_bounded((1, 5), (1, 4)).status is CertificateStatus.FEASIBLE


def test_the_solver_is_imported_only_when_asked() -> None:
    code = "import sys, koordcore._cpsat; sys.exit('ortools' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_solver_call_leaves_the_process_its_interrupts() -> None:
    code = """
import os, signal
from koordcore._cpsat import Program, Stage, solve
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start it deaf
program = Program()
items = [program.boolean() for _ in range(3)]
program.require([(item, size) for item, size in zip(items, (5, 4, 3))], at_most=7)
assert solve(program, [Stage([(item, -1) for item in items])]).solves
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("heard")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("heard\n", "")


@settings(max_examples=13, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(-4, 6)), min_size=1, max_size=4),
    st.tuples(st.integers(-2, 2), st.integers(-2, 2)),
    st.tuples(st.integers(-2, 2), st.integers(-2, 2)),
)
def test_agrees_with_enumeration(
    rows: list[tuple[int, int, int]], first: tuple[int, int], second: tuple[int, int]
) -> None:
    program = Program()
    x, y = program.integer(0, 4), program.integer(-2, 3)
    for a, b, bound in rows:
        program.require([(x, a), (y, b)], at_most=bound)
    legal = [
        (u, v)
        for u, v in itertools.product(range(5), range(-2, 4))
        if all(a * u + b * v <= bound for a, b, bound in rows)
    ]
    stages = [Stage([(x, first[0]), (y, first[1])]), Stage([(x, second[0]), (y, second[1])])]
    outcome = solve(program, stages)
    if not legal:
        assert outcome.status is OutcomeStatus.INFEASIBLE
        return
    best = min(tuple(stage.value(point) for stage in stages) for point in legal)
    assert outcome.status is OutcomeStatus.OPTIMAL
    assert outcome.objective == outcome.bound == best
    assert outcome.values in legal


def _even_and_odd(most: int) -> LinearProblem:
    """Twice one number is to be one more than twice another: any two real numbers apart by a half are."""
    return LinearProblem(lower=(0, 0), upper=(most, most), rows=(LinearRow((0, 1), (2, -2), 1, 1),))


def _depth(tree: ProofTree) -> int:
    return 1 + max(_depth(tree.below), _depth(tree.above)) if isinstance(tree, Branch) else 0


def test_a_proof_that_takes_cases_within_too_many_cases_is_given_up() -> None:
    short = evidence_for(_even_and_odd(20), None)
    assert short is not None
    assert 0 < _depth(short.trees[0]) <= DEEPEST
    proven = Certificate.make_infeasible(_even_and_odd(20), short)
    assert check_certificate(proven.problem, proven).accepted
    assert evidence_for(_even_and_odd(20), None).trees == short.trees  # type: ignore[union-attr]
    assert evidence_for(_even_and_odd(100_000), None) is None
