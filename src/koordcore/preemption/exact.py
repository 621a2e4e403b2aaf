"""The cheapest victims as an integer program over counts.

The stages are the fields of :class:`Damage` in their order, then
members beyond the minimum, then nodes used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._certify import certified
from koordcore._cpsat import Outcome, OutcomeStatus, Presolve, Relaxation, Stage, solve
from koordcore._record import record
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.preemption import NO_PRIORITY, Members
from koordcore.preemption.bounds import eviction_problem
from koordcore.preemption.moves import nobody_moves
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.victim_program import Scope, VictimProgram, above, excess


@record(eq=False, kw_only=True)
class ExactAnswer:
    """A plan in counts.

    Parameters
    ----------
    counts
        Members per class and node, shape (C, N).
    chosen
        Who leaves, shape (V,).
    moves
        Row of the node to which each of them moves, -1 for none, shape (V,).
    certificate
        Over the fields of the damage.
    first
        It was the cheapest of all plans: no dry run refused another one before.
    evidence
        Looks for evidence that nothing is cheaper, and gives what is known then; ``None`` where that is the
        certificate. Plans that a dry run refuses need none.
    """

    counts: IntMatrix
    chosen: BoolVector
    moves: IntVector
    certificate: Certificate
    first: bool = False
    evidence: Callable[[], Certificate] | None = None

    def with_evidence(self) -> ExactAnswer:
        """Give the plan that is kept, with evidence where that is found."""
        if self.evidence is None:
            return self
        return attrs.evolve(self, certificate=self.evidence(), evidence=None)


class _Model(VictimProgram):
    """The program with what its plans cost."""

    def __init__(self, problem: PreemptionProblem, scope: Scope) -> None:
        super().__init__(problem, scope)
        self._damage()

    # -- what it costs ---------------------------------------------------------------------------------

    def _damage(self) -> None:
        problem, program, table = self.problem, self.program, self.problem.candidates
        violations = []
        for budget in range(len(problem.budgets)):
            terms = [
                (unit.variable, covered)
                for unit in self.units
                if (covered := int(problem.covered[budget, list(unit.ones[: unit.step])].sum()))
            ]
            allowed = max(0, int(problem.budgets[budget]))
            top = program.span(terms)[1]
            if top > allowed:
                over = self.following(program.integer(0, top - allowed), excess(terms, allowed))
                program.require([*terms, (over, -1)], at_most=allowed)
                violations.append((over, 1))
        lone = [term for unit in self.units if unit.job < 0 for term in unit.lost]
        parts = [
            violations,
            self._heights(),
            [
                *lone,
                *((variable, 1) for variable in self.broken.values()),
                *((variable, -1) for variable in self.kept.values()),
            ],
            self._lost([unit.step for unit in self.units]),
            self._lost([int(table.priority[list(unit.ones[: unit.step])].sum()) for unit in self.units]),
            [
                (unit.variable, int(problem.restart[list(unit.ones[: unit.step])].sum()))
                for unit in self.units
            ],
            [(unit.moved, unit.step) for unit in self.units if unit.moved >= 0],
        ]
        self.stages = [self._stage(number, terms) for number, terms in enumerate(parts)]

    def _lost(self, weights: Sequence[int]) -> list[tuple[int, int]]:
        """Weigh the steps that are evictions."""
        return [
            (variable, sign * weight)
            for unit, weight in zip(self.units, weights, strict=True)
            for variable, sign in unit.lost
        ]

    def _heights(self) -> list[tuple[int, int]]:
        """The highest priority that is hit, as a rank among those that occur."""
        program, table = self.program, self.problem.candidates
        tops = [int(table.priority[list(unit.ones)].max()) for unit in self.units]
        self.levels = sorted(set(tops))
        floor = self.scope.floor
        self._settled_height = bool(self.levels) and len(floor) > 1 and floor[1] == self.levels[-1]
        if self._settled_height:
            return []
        height = program.integer(0, len(self.levels))
        hits = []
        for number, priority in enumerate(self.levels):
            lost = (unit.lost for unit, top in zip(self.units, tops, strict=True) if top == priority)
            terms = [term for one in lost for term in one]
            hit = self.following(program.boolean(), above(terms, 0))
            hits.append((hit, number + 1))
            program.require([*terms, (hit, -program.span(terms)[1])], at_most=0)
            program.require([(height, 1), (hit, -(number + 1))], at_least=0)
        self.following(height, lambda values: max((n * values[hit] for hit, n in hits), default=0))
        return [(height, 1)]

    def _stage(self, number: int, terms: Sequence[tuple[int, int]]) -> Stage:
        floor = self.scope.floor
        if number == 1 and self._settled_height:
            return Stage((), constant=len(self.levels))
        # What is known of the later fields holds only where the highest priority is that of the floor.
        if number >= min(2, len(floor)):
            return Stage(terms)
        least = floor[number]
        if number == 1:
            least = sum(priority < least for priority in self.levels) + (least > NO_PRIORITY)
        return Stage(terms, at_least=least)

    def tail(self) -> list[Stage]:
        """What decides between plans of equal damage."""
        preferred = [Stage([(one, number) for number, one in enumerate(self.inside) if number])]
        if self.problem.homes is None or not self.inside:
            preferred = []
        if self.scope.members is Members.ALL:
            return preferred
        return [*preferred, Stage([(variable, -1) for variable in self.place.values()])]

    # -- to and from answers ---------------------------------------------------------------------------

    def hint(self, counts: IntMatrix, chosen: BoolVector, moves: IntVector) -> tuple[int, ...]:
        """Write a plan as an assignment; auxiliary variables follow from the others."""
        values = [0] * len(self.program)
        for (number, row), variable in self.place.items():
            values[variable] = int(counts[number, row])
        for unit in self.units:
            values[unit.variable] = int(chosen[list(unit.ones)].sum()) // unit.step
        if self.arrivals is not None:
            self.arrivals.hint(values, chosen, moves)
        for variable, value in self._follow:
            values[variable] = value(values)
        return tuple(values)

    def read(self, outcome: Outcome, limits: Limits) -> ExactAnswer:
        """Read a plan."""
        problem = self.problem
        counts = np.zeros((len(problem.classes), len(problem.nodes)), dtype=np.int64)
        for (number, row), variable in self.place.items():
            counts[number, row] = outcome.values[variable]
        chosen = np.zeros(len(problem.candidates), dtype=bool)
        for unit in self.units:
            chosen[list(unit.ones[: unit.step * outcome.values[unit.variable]])] = True
        moves = nobody_moves(problem)
        if self.arrivals is not None:
            moves = self.arrivals.read(outcome.values, chosen)
        objective = self._priority_for(outcome.objective[: len(self.stages)])
        bound = self._priority_for(outcome.bound[: len(self.stages)])
        certificate = Certificate.make_bounded(objective, bound)
        answer = ExactAnswer(counts=counts, chosen=chosen, moves=moves, certificate=certificate)
        if not certificate.proven:
            return answer
        return attrs.evolve(answer, evidence=partial(self.evident, answer, outcome.values, limits))

    def evident(self, answer: ExactAnswer, values: tuple[int, ...], limits: Limits) -> Certificate:
        """Look for evidence that nothing is cheaper."""
        if self._settled_height and len(self.problem.classes) > 1:
            whole = _Model(self.problem, attrs.evolve(self.scope, floor=()))
            values = whole.hint(answer.counts, answer.chosen, answer.moves)
            return (
                whole.evident(answer, values, limits) if whole.program.holds(values) else answer.certificate
            )
        asked = self.program.problem(self.stages)
        # The highest priority stands there as its place among those that occur.
        levels = attrs.evolve(asked.stages[1], levels=(NO_PRIORITY, *self.levels))
        asked = attrs.evolve(asked, stages=(asked.stages[0], levels, *asked.stages[2:]))
        certificate = certified(asked, values, limits)
        if not self._settled_height or certificate.problem is None:
            return certificate
        # That somebody of that priority has to leave was counted and is not part of the program.
        counted = eviction_problem(self.problem, self.scope.domains, self.scope.members, asked)
        return attrs.evolve(certificate, problem=counted)

    def _priority_for(self, values: tuple[int, ...]) -> tuple[int, ...]:
        level = values[1]
        return (values[0], NO_PRIORITY if level <= 0 else self.levels[level - 1], *values[2:])


def solve_exact(
    problem: PreemptionProblem,
    scope: Scope,
    *,
    start: tuple[IntMatrix, BoolVector, IntVector] | None = None,
    limits: Limits,
) -> ExactAnswer | CertificateStatus:
    """Find the cheapest plan within a scope.

    Parameters
    ----------
    start
        Counts, victims and moves of a legal plan; the answer is never worse.
    limits
        Budget and seed.

    Returns
    -------
    ExactAnswer or CertificateStatus
        The plan with its bound, ``INFEASIBLE`` when there is provably none, ``FEASIBLE`` when the budget
        ended before anything was known.
    """
    if not scope.domains.count:
        return CertificateStatus.INFEASIBLE
    model = _Model(problem, scope)
    hint = model.hint(*start) if start is not None else ()
    outcome = solve(
        model.program,
        [*model.stages, *model.tail()],
        hint=hint,
        limits=limits,
        presolve=Presolve.LIGHT,
        relaxation=Relaxation.WHOLE,
    )
    if outcome.solved:
        return model.read(outcome, limits)
    if outcome.status is OutcomeStatus.INFEASIBLE:
        return CertificateStatus.INFEASIBLE
    return CertificateStatus.FEASIBLE


def certify_nowhere(problem: PreemptionProblem, scope: Scope, limits: Limits) -> Certificate:
    """Certify that there is no plan within a scope, which is known.

    Parameters
    ----------
    problem, scope
        What is asked, and within which domains and members.
    limits
        Budget of the solver.
    """
    return certified(_Model(problem, scope).program.problem(), None, limits)


def certify_plan(
    problem: PreemptionProblem, scope: Scope, answer: ExactAnswer, limits: Limits
) -> Certificate:
    """Certify a plan that is known to be the cheapest, with evidence where that is soon found.

    Parameters
    ----------
    problem, scope
        What is asked, and within which domains and members.
    answer
        The plan.
    limits
        Budget of the solver.
    """
    model = _Model(problem, scope)
    values = model.hint(answer.counts, answer.chosen, answer.moves)
    if not model.program.holds(values):
        return answer.certificate
    known = model.evident(answer, values, limits)
    return known if known.objective == answer.certificate.objective else answer.certificate
