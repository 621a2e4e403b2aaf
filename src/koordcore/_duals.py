"""Evidence for answers of integer programs: which rows to add up, found by a linear solver.

The solver's prices are floating-point numbers. Rounded to whole weights they are a proof all the same, since
every variable has a range: whatever weights rows are added up with, what remains bounds the objective. Where
one sum does not reach the optimum, cases are told apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from koordcore.errors import MissingExtraError
from koordcore.model.proofs import DEEPEST, Branch, Leaf, LinearEvidence, LinearProblem, ProofTree

if TYPE_CHECKING:
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]  # it has no stubs


MOST_WORK: Final = 100_000
"""Entries of rows that the linear solver is given, over all cases; about two tenths of a second."""
_PARAMETERS: Final = "use_dual_simplex: true use_preprocessing: false max_deterministic_time: 0.5"
"""One case after the other differs in a few ranges: the last basis is a start for the dual simplex.

Where coefficients are far apart it may go round in circles: then it ends, without prices, after ten times the
work of the largest program.
"""
_SCALE: Final = 1 << 60
_CLOSE: Final = 1e-6
_FEW: Final = 64
"""Steps from one end of a range to the other, up to which a variable is a choice rather than an amount."""


def evidence_for(
    problem: LinearProblem, values: Sequence[int] | None, *, work: int = MOST_WORK
) -> LinearEvidence | None:
    """Look for a proof that an answer is the best, or, without an answer, that there is none.

    Parameters
    ----------
    problem
        What was asked.
    values
        The answer; ``None`` for none.
    work
        Entries of rows that may be looked at, over all cases.

    Returns
    -------
    LinearEvidence or None
        ``None`` where none was found with so much work.
    """
    search = _Search(problem, work)
    if values is None:
        tree = search.prove({}, None)
        return None if tree is None else LinearEvidence((), (tree,))
    trees: list[ProofTree] = []
    for stage in problem.stages:
        terms: dict[int, int] = {}
        for variable, coefficient in stage.terms:
            terms[variable] = terms.get(variable, 0) + coefficient
        value = sum(coefficient * values[variable] for variable, coefficient in terms.items())
        tree = search.prove(terms, value)
        if tree is None:
            return None
        trees.append(tree)
        search.keep(terms, value)
    return LinearEvidence(tuple(values), tuple(trees))


@attrs.define
class _Split:
    """Two cases of which the first is being proven, or, once ``below`` is there, the second.

    Parameters
    ----------
    variable, at
        What tells them apart, and its value where the linear program is best.
    cut
        The first case goes up to it.
    low, high
        The range of the variable before.
    reached
        How far the prices come without telling apart.
    below
        The proof of the first case.
    """

    variable: int
    at: float
    cut: int
    low: int
    high: int
    reached: float
    below: ProofTree | None = None


class _Search:
    """One problem as rows "no more than" and as a linear program."""

    def __init__(self, problem: LinearProblem, work: int) -> None:
        self._lower, self._upper = list(problem.lower), list(problem.upper)
        self._work = work
        self._number = len(problem.rows)
        self._rows: list[tuple[dict[int, int], int]] = []
        self._names: list[tuple[int, int]] = []
        for number, row in enumerate(problem.rows):
            terms = dict(zip(row.variables, row.coefficients, strict=True))
            for sign, bound in ((1, row.upper), (-1, row.lower)):
                if bound is not None:
                    self._add(number, sign, terms, sign * bound, row.conditions)
        self._entries = sum(len(terms) for terms, _ in self._rows) + len(self._lower)
        self._lps: dict[bool, _Relaxation] = {}
        self._gains: dict[tuple[int, bool], tuple[float, int]] = {}

    def _add(
        self,
        number: int,
        sign: int,
        terms: Mapping[int, int],
        limit: int,
        conditions: Sequence[tuple[int, bool]] = (),
    ) -> None:
        """Take in one side of a row; conditions become terms that free it."""
        signed = {variable: sign * coefficient for variable, coefficient in terms.items()}
        most = sum(max(c * self._lower[v], c * self._upper[v]) for v, c in signed.items())
        slack = most - limit
        if slack <= 0:
            return
        for variable, wanted in conditions:
            signed[variable] = signed.get(variable, 0) + (slack if wanted else -slack)
            limit += slack if wanted else 0
        self._rows.append((signed, limit))
        self._names.append((number, sign))

    def keep(self, terms: Mapping[int, int], value: int) -> None:
        """Bind an earlier part of the objective to its optimum."""
        before = len(self._rows)
        for sign in (1, -1):
            self._add(self._number, sign, terms, sign * value)
        self._number += 1
        for row in self._rows[before:]:
            self._entries += len(row[0])
            for relaxation in self._lps.values():
                relaxation.add(row)

    def prove(self, terms: Mapping[int, int], value: int | None) -> ProofTree | None:
        """Show that nothing has less than a value, or, for ``None``, that there is nothing."""
        if value is not None:
            least = sum(min(c * self._lower[v], c * self._upper[v]) for v, c in terms.items())
            if least >= value:
                return Leaf((), 1)
        self._gains = {}
        most = math.inf if value is None else value
        told_apart: list[_Split] = []
        while True:
            found = self._case(terms, value)
            if found is None:
                return None
            case, reached = found
            if isinstance(case, _Split):
                # A deeper proof cannot be read back from JSON, and seldom comes to an end.
                if len(told_apart) == DEEPEST:
                    return None
                told_apart.append(case)
                self._upper[case.variable] = case.cut
                continue
            shown: ProofTree = case
            while told_apart:
                split = told_apart[-1]
                gain = min(reached, most) - split.reached
                if split.below is None:
                    self._learn((split.variable, False), gain / (split.at - split.cut))
                    split.below = shown
                    self._lower[split.variable], self._upper[split.variable] = split.cut + 1, split.high
                    break
                self._learn((split.variable, True), gain / (split.cut + 1 - split.at))
                self._lower[split.variable] = split.low
                shown, reached = Branch(split.variable, split.cut, split.below, shown), split.reached
                told_apart.pop()
            else:
                return shown

    def _case(self, terms: Mapping[int, int], value: int | None) -> tuple[Leaf | _Split, float] | None:
        """Prove one case or tell two apart in it, and say how far the prices alone come."""
        if self._entries > self._work:
            return None
        self._work -= self._entries
        found = self._relaxation(elastic=value is None).solve(terms, self._lower, self._upper)
        if found is None:
            # Nothing is left here at all: the elastic program says by which rows.
            nothing = None if value is None else self._nothing_left()
            return None if nothing is None else (nothing, math.inf)
        prices, point, reached = found
        leaf = self._leaf(terms, value, prices)
        if leaf is not None:
            return leaf, reached
        variable = self._most_telling(point)
        if variable is None:
            return None
        at, low, high = point[variable], self._lower[variable], self._upper[variable]
        cut = math.floor(at)
        return (_Split(variable, at, cut, low, high, reached), reached) if low <= cut < high else None

    def _nothing_left(self) -> Leaf | None:
        self._work -= self._entries
        found = self._relaxation(elastic=True).solve({}, self._lower, self._upper)
        return None if found is None else self._leaf({}, None, found[0])

    def _most_telling(self, point: Sequence[float]) -> int | None:
        """Choose what to tell cases apart by: where both sides are likely to raise the bound most.

        What a side is likely to do is what it has done so far in this proof (pseudo-costs).
        """
        means = {side: total / times for side, (total, times) in self._gains.items()}
        usual = sum(means.values()) / len(means) if means else 1.0
        best, most = None, (False, 0.0, 0.0)
        for variable, at in enumerate(point):
            over = at - math.floor(at)
            near = min(over, 1 - over)
            if near < _CLOSE:
                continue
            below, above = (means.get((variable, side), usual) for side in (False, True))
            score = max(below * over, _CLOSE) * max(above * (1 - over), _CLOSE)
            # Amounts with a wide range mostly follow from the choices, and one step of them tells little.
            few = self._upper[variable] - self._lower[variable] <= _FEW
            if (few, score, near) > most:
                best, most = variable, (few, score, near)
        return best

    def _learn(self, side: tuple[int, bool], gain: float) -> None:
        if math.isfinite(gain):
            total, times = self._gains.get(side, (0.0, 0))
            self._gains[side] = (total + max(0.0, gain), times + 1)

    def _relaxation(self, *, elastic: bool) -> _Relaxation:
        if elastic not in self._lps:
            self._lps[elastic] = _Relaxation(self._rows, len(self._lower), elastic=elastic)
        return self._lps[elastic]

    def _leaf(self, terms: Mapping[int, int], value: int | None, prices: Sequence[float]) -> Leaf | None:
        """Round prices to weights and add up; None where that is not enough."""
        scale = 0 if value is None else _SCALE
        total = {variable: scale * coefficient for variable, coefficient in terms.items()}
        least, weights = 0, []
        for (row, limit), name, price in zip(self._rows, self._names, prices, strict=True):
            weight = round(price * _SCALE)
            if weight <= 0:
                continue
            weights.append((name[0], name[1] * weight))
            least -= weight * limit
            for variable, coefficient in row.items():
                total[variable] = total.get(variable, 0) + weight * coefficient
        least += sum(min(c * self._lower[v], c * self._upper[v]) for v, c in total.items())
        if least > (0 if value is None else scale * (value - max(1, math.gcd(*terms.values())))):
            return Leaf(tuple(weights), scale)
        return None


class _Relaxation:
    """A linear program that is solved again and again with other ranges and objectives.

    Parameters
    ----------
    elastic
        Rows may be broken by one common amount, which is to be as small as possible.
    """

    def __init__(self, rows: Sequence[tuple[dict[int, int], int]], size: int, *, elastic: bool) -> None:
        try:
            from ortools.linear_solver import pywraplp
        except ImportError:  # whoever has installed the library without its dependencies
            raise MissingExtraError.for_extra("ortools", "solver", "this question") from None

        self._status = pywraplp.Solver
        self._solver: pywraplp.Solver = pywraplp.Solver.CreateSolver("GLOP")
        self._solver.SetSolverSpecificParametersAsString(_PARAMETERS)
        self._variables = [self._solver.NumVar(0, 0, "") for _ in range(size)]
        self._give = self._solver.NumVar(0, self._solver.infinity(), "") if elastic else None
        self._constraints: list[pywraplp.Constraint] = []
        for row in rows:
            self.add(row)

    def add(self, row: tuple[dict[int, int], int]) -> None:
        """Take in one more row."""
        terms, limit = row
        made = self._solver.Constraint(-self._solver.infinity(), limit)
        for variable, coefficient in terms.items():
            made.SetCoefficient(self._variables[variable], coefficient)
        if self._give is not None:
            made.SetCoefficient(self._give, -max(map(abs, terms.values()), default=1))
        self._constraints.append(made)

    def solve(
        self, terms: Mapping[int, int], lower: Sequence[int], upper: Sequence[int]
    ) -> tuple[list[float], list[float], float] | None:
        """Give prices of the rows, values of the variables and what they reach; None where none is found."""
        for variable, low, high in zip(self._variables, lower, upper, strict=True):
            variable.SetBounds(low, high)
        objective = self._solver.Objective()
        objective.Clear()
        if self._give is not None:
            objective.SetCoefficient(self._give, 1)
        for index, coefficient in terms.items():
            objective.SetCoefficient(self._variables[index], coefficient)
        objective.SetMinimization()
        if self._solver.Solve() != self._status.OPTIMAL:
            return None
        return (
            [-one.dual_value() for one in self._constraints],
            [one.solution_value() for one in self._variables],
            objective.Value(),
        )
