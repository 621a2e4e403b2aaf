"""Integer programs in, checked answers out: the only place that knows the solver.

A :class:`Program` holds integer variables (plain indices) and linear constraints. :func:`solve` minimises
stages one after the other: each later stage keeps what the earlier ones reached. One worker, a fixed seed
and a deterministic budget make the answer the same on every run; which of several equally good answers comes
out may change with the solver's version, so callers canonicalise what they show.

Every answer is checked here in exact integers before anyone sees it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from koordcore._record import record
from koordcore.errors import MissingExtraError, SolverError
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.proofs import LinearProblem, LinearRow, LinearStage

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


Terms: TypeAlias = Sequence[tuple[int, int]]
"""Pairs of variable and coefficient; a variable that occurs twice counts with the sum."""

_INT64: Final = 2**63 - 1
_NEVER: Final = LinearRow((), (), 1, None)
_LEAST_BUDGET: Final = 1e-6
"""A later stage is still asked when earlier ones used everything: presolve alone may close it."""


class OutcomeStatus(StrEnum):
    """How a call ended; values exist for the first two only."""

    OPTIMAL = "Optimal"
    FEASIBLE = "Feasible"
    INFEASIBLE = "Infeasible"
    UNKNOWN = "Unknown"


class Presolve(StrEnum):
    """How much work is put into simplifying before the search; light suits programs built tight already."""

    FULL = "Full"
    LIGHT = "Light"


class Relaxation(StrEnum):
    """How much of the program the linear relaxation sees; covering programs over 0/1 need all of it."""

    USUAL = "Usual"
    WHOLE = "Whole"


@record
class Stage:
    """One objective to minimise (negate the coefficients to maximise).

    Parameters
    ----------
    terms, constant
        The linear expression.
    at_least
        A lower bound that the caller has proven, given the optima of the stages before; a hint that meets
        it spares the solver call.
    """

    terms: Terms
    constant: int = 0
    at_least: int | None = None

    def value(self, values: Sequence[int]) -> int:
        """Evaluate the objective."""
        return self.constant + sum(coefficient * values[variable] for variable, coefficient in self.terms)


@record
class Outcome:
    """What came out of one call.

    Parameters
    ----------
    status
        Optimal (every stage proven), feasible, infeasible (proven), or unknown.
    values
        One integer per variable; empty unless optimal or feasible.
    objective
        The value of each stage.
    bound
        Lexicographic lower bound of the stages; stages behind the first unproven one carry what the
        variables' ranges allow.
    deterministic_time
        Work units used.
    solves
        Solver calls made; 0 when the hint met every bound.
    """

    status: OutcomeStatus
    values: tuple[int, ...] = ()
    objective: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()
    deterministic_time: float = 0.0
    solves: int = 0

    @property
    def solved(self) -> bool:
        """There are values to read."""
        return self.status in (OutcomeStatus.OPTIMAL, OutcomeStatus.FEASIBLE)


class Program:
    """Integer variables and linear constraints; built inside one call and dropped with it."""

    def __init__(self) -> None:
        self._lower: list[int] = []
        self._upper: list[int] = []
        self._constraints: list[LinearRow] = []
        self._impossible = False

    def __len__(self) -> int:
        return len(self._lower)

    def integer(self, lower: int, upper: int) -> int:
        """Add a variable with its range; an empty range makes the program infeasible."""
        self._impossible |= lower > upper
        self._lower.append(lower)
        self._upper.append(max(lower, upper))
        return len(self._lower) - 1

    def boolean(self) -> int:
        """Add a variable that is 0 or 1."""
        return self.integer(0, 1)

    def span(self, terms: Terms, constant: int = 0) -> tuple[int, int]:
        """Least and greatest value of an expression that the variables' ranges allow."""
        least = greatest = constant
        for variable, coefficient in terms:
            low, high = self._lower[variable] * coefficient, self._upper[variable] * coefficient
            least += min(low, high)
            greatest += max(low, high)
        return least, greatest

    def require(
        self,
        terms: Iterable[tuple[int, int]],
        *,
        at_least: int | None = None,
        at_most: int | None = None,
        equal: int | None = None,
        when: Sequence[int] = (),
        unless: Sequence[int] = (),
    ) -> None:
        """Add a linear constraint.

        Parameters
        ----------
        terms
            Variables with their coefficients.
        at_least, at_most, equal
            Bounds, inclusive; ``equal`` stands for both.
        when, unless
            Boolean variables: the constraint binds only if all of ``when`` are 1 and all of ``unless`` 0.

        Raises
        ------
        SolverError
            When the expression can leave 64 bits; scale the amounts first.
        """
        summed: dict[int, int] = {}
        for variable, coefficient in terms:
            summed[variable] = summed.get(variable, 0) + coefficient
        pairs = [(variable, coefficient) for variable, coefficient in summed.items() if coefficient]
        lower = equal if equal is not None else at_least
        upper = equal if equal is not None else at_most
        divisor = math.gcd(*(coefficient for _, coefficient in pairs))
        if divisor > 1:
            pairs = [(variable, coefficient // divisor) for variable, coefficient in pairs]
            lower = None if lower is None else -(-lower // divisor)
            upper = None if upper is None else upper // divisor
        least, greatest = self.span(pairs)
        if max(abs(least), abs(greatest)) > _INT64 // 2:
            raise SolverError(f"a constraint spans {least} to {greatest}, beyond 64 bits")
        if (lower is None or least >= lower) and (upper is None or greatest <= upper):
            return
        if not pairs and not when and not unless:
            self._impossible = True
            return
        conditions = (*((variable, True) for variable in when), *((variable, False) for variable in unless))
        self._constraints.append(
            LinearRow(tuple(v for v, _ in pairs), tuple(c for _, c in pairs), lower, upper, conditions)
        )

    def holds(self, values: Sequence[int]) -> bool:
        """Check an assignment in exact integers; False when it is incomplete."""
        if self._impossible or len(values) != len(self):
            return False
        for low, value, high in zip(self._lower, values, self._upper, strict=True):
            if not low <= value <= high:
                return False
        for row in self._constraints:
            if any(bool(values[variable]) is not wanted for variable, wanted in row.conditions):
                continue
            total = sum(
                values[variable] * coefficient
                for variable, coefficient in zip(row.variables, row.coefficients, strict=True)
            )
            if (row.lower is not None and total < row.lower) or (row.upper is not None and total > row.upper):
                return False
        return True

    def problem(self, stages: Sequence[Stage] = ()) -> LinearProblem:
        """State what is asked, for a proof of the answer."""
        return LinearProblem(
            lower=tuple(self._lower),
            upper=tuple(self._upper),
            rows=(_NEVER,) if self._impossible else tuple(self._constraints),
            stages=tuple(LinearStage(tuple(stage.terms), stage.constant) for stage in stages),
        )

    def _compile(self) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
        """Write the program in the solver's terms."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        variables = [
            model.new_int_var(low, high, "") for low, high in zip(self._lower, self._upper, strict=True)
        ]
        for row in self._constraints:
            bounds = cp_model.Domain(
                -_INT64 if row.lower is None else max(-_INT64, row.lower),
                _INT64 if row.upper is None else min(_INT64, row.upper),
            )
            expression = cp_model.LinearExpr.weighted_sum(
                [variables[index] for index in row.variables], list(row.coefficients)
            )
            constraint = model.add_linear_expression_in_domain(expression, bounds)
            if row.conditions:
                constraint.only_enforce_if(
                    [variables[index] if wanted else ~variables[index] for index, wanted in row.conditions]
                )
        return model, variables


def solve(
    program: Program,
    stages: Sequence[Stage] = (),
    *,
    hint: Sequence[int] = (),
    limits: Limits = DEFAULT_LIMITS,
    presolve: Presolve = Presolve.FULL,
    relaxation: Relaxation = Relaxation.USUAL,
) -> Outcome:
    """Minimise the stages lexicographically.

    Parameters
    ----------
    program
        Variables and constraints.
    stages
        Objectives, most important first; none asks for any legal assignment.
    hint
        A complete assignment to start from, such as a greedy answer; the answer is then never worse. An
        illegal or incomplete one is ignored.
    limits
        Budget over all stages, and the seed; a stage may use half of what the earlier ones left, the last
        one all of it.
    presolve
        Effort before the search of every stage.
    relaxation
        What bounds are drawn from.

    Returns
    -------
    Outcome
        The best assignment found and what is proven about it.

    Raises
    ------
    SolverError
        When the solver's answer breaks the program: a defect, never the caller's input.
    """
    return _Search(program, limits, presolve, relaxation).run(stages or (Stage(()),), tuple(hint))


class _Search:
    """One call: the solver's model, the budget left, the best assignment so far."""

    def __init__(self, program: Program, limits: Limits, presolve: Presolve, relaxation: Relaxation) -> None:
        self._program = program
        self._presolve = presolve
        self._relaxation = relaxation
        self._limits = limits
        self._spent = 0.0
        self._solves = 0
        self._model: tuple[cp_model.CpModel, list[cp_model.IntVar]] | None = None
        self._kept: list[tuple[Stage, int]] = []

    def run(self, stages: Sequence[Stage], hint: tuple[int, ...]) -> Outcome:
        best = hint if self._program.holds(hint) else None
        if best is None and self._program._impossible:  # noqa: SLF001 - one file, one idea
            return Outcome(OutcomeStatus.INFEASIBLE)
        bounds: list[int] = []
        proven = True
        for number, stage in enumerate(stages):
            least = self._program.span(stage.terms, stage.constant)[0]
            if proven and stage.at_least is not None:
                least = max(least, stage.at_least)
            if best is None or stage.value(best) > least:
                status, found, lower = self._minimise(stage, best, later=len(stages) - number - 1)
                if status is OutcomeStatus.INFEASIBLE and best is None:
                    return self._end(OutcomeStatus.INFEASIBLE)
                best = _better(stages, best, found)
                if best is None:
                    return self._end(OutcomeStatus.UNKNOWN)
                if status is OutcomeStatus.OPTIMAL:
                    least = max(least, stage.value(best)) if proven else least
                elif proven and lower is not None:
                    least = max(least, lower)
            bounds.append(least)
            proven = proven and stage.value(best) == least
            self._kept.append((stage, stage.value(best)))
        assert best is not None
        objective = tuple(stage.value(best) for stage in stages)
        status = OutcomeStatus.OPTIMAL if proven else OutcomeStatus.FEASIBLE
        return self._end(status, best, objective, tuple(bounds))

    def _end(
        self,
        status: OutcomeStatus,
        values: tuple[int, ...] = (),
        objective: tuple[int, ...] = (),
        bound: tuple[int, ...] = (),
    ) -> Outcome:
        return Outcome(status, values, objective, bound, round(self._spent, 9), self._solves)

    def _model_of(self, stage: Stage, hint: tuple[int, ...] | None) -> cp_model.CpModel:
        """Put a stage to the model: what the earlier stages reached are constraints; the hint is complete."""
        from ortools.sat.python import cp_model

        if self._model is None:
            self._model = self._program._compile()  # noqa: SLF001 - one file, one idea
        model, variables = self._model

        def expression(of: Stage) -> cp_model.LinearExprT:
            return cp_model.LinearExpr.weighted_sum(
                [variables[index] for index, _ in of.terms], [coefficient for _, coefficient in of.terms]
            )

        for kept, value in self._kept:
            if kept.terms:
                model.add_linear_expression_in_domain(
                    expression(kept), cp_model.Domain(-_INT64, value - kept.constant)
                )
        self._kept.clear()
        model.proto.clear_objective()
        if stage.terms:
            model.minimize(expression(stage))
        model.proto.clear_solution_hint()
        for variable, value in zip(variables, hint or (), strict=hint is not None):
            model.add_hint(variable, value)
        return model

    def _solver(self, later: int) -> cp_model.CpSolver:
        """Make a solver of one worker, with a seed and a deterministic budget."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self._limits.seed
        # Else every call takes Ctrl-C away from the process, and one that is interrupted answers early.
        solver.parameters.catch_sigint_signal = False
        left = self._limits.deterministic_time - self._spent
        solver.parameters.max_deterministic_time = max(_LEAST_BUDGET, left / 2 if later else left)
        if self._presolve is Presolve.LIGHT:
            solver.parameters.max_presolve_iterations = 1
            solver.parameters.cp_model_probing_level = 0
            solver.parameters.symmetry_level = 0
        if self._relaxation is Relaxation.WHOLE:
            solver.parameters.linearization_level = 2
        return solver

    def _minimise(
        self, stage: Stage, best: tuple[int, ...] | None, *, later: int
    ) -> tuple[OutcomeStatus, tuple[int, ...] | None, int | None]:
        """Ask the solver for one stage; keep what the earlier stages reached.

        With ``later`` stages still to come it may use half of what is left of the budget.

        Returns
        -------
        status, found, lower
            How the call ended; the solver's assignment; its bound, ``None`` where it has computed none.
        """
        try:
            from ortools.sat.python import cp_model
        except ImportError:  # whoever has installed the library without its dependencies
            raise MissingExtraError.for_extra("ortools", "solver", "this question") from None

        model = self._model_of(stage, best)
        solver = self._solver(later)
        code = solver.solve(model)
        response = solver.response_proto
        self._solves += 1
        self._spent += float(response.deterministic_time)
        if code == cp_model.MODEL_INVALID:
            raise SolverError(f"the solver refuses the program: {model.validate()}")
        if code == cp_model.INFEASIBLE and best is None:
            return OutcomeStatus.INFEASIBLE, None, None
        if code == cp_model.INFEASIBLE:
            raise SolverError("the solver calls a program infeasible that has a checked answer")
        if code not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            # A solver that stops before it has loaded the objective reports the bound 0, which says nothing.
            return OutcomeStatus.UNKNOWN, None, None
        found = tuple(int(value) for value in response.solution)
        if not self._program.holds(found):
            raise SolverError("the solver's answer breaks a constraint")
        status = OutcomeStatus.OPTIMAL if code == cp_model.OPTIMAL else OutcomeStatus.FEASIBLE
        lower = _whole(float(solver.best_objective_bound), stage) if stage.terms else stage.constant
        if lower is not None and lower > min(stage.value(one) for one in (best, found) if one is not None):
            raise SolverError("the solver's bound is above a checked answer")
        return status, found, lower


def _better(
    stages: Sequence[Stage], best: tuple[int, ...] | None, found: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Take the lexicographically better of two assignments, the one at hand among equals.

    A solver that looks at one stage only may return what is worse in the later ones.
    """
    if best is None or found is None:
        return found if best is None else best
    ahead = [stage.value(found) for stage in stages] < [stage.value(best) for stage in stages]
    return found if ahead else best


def _whole(bound: float, stage: Stage) -> int | None:
    """Round the solver's bound up to an integer; None where it is no number that can be trusted."""
    if not math.isfinite(bound) or abs(bound) > 2**52:
        return None
    return math.ceil(bound - 1e-6) + stage.constant
