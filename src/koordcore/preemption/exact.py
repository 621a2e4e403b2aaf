"""The cheapest victims as an integer program over counts.

Members of one class, and candidates of one node that are alike, are counted instead of told apart. A gang is
either kept at its minimum or leaves whole. The stages are the fields of :class:`Damage` in their order, then
members beyond the minimum, then nodes used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._cpsat import Outcome, OutcomeStatus, Presolve, Program, Stage, solve
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.preemption import NO_PRIORITY, Members
from koordcore.preemption.problem import Conflict, PreemptionProblem

__all__ = ["ExactAnswer", "Scope", "solve_exact"]


@attrs.frozen(eq=False, kw_only=True)
class Scope:
    """What the program may use.

    Parameters
    ----------
    domains
        Sets of nodes, each shape (N,); all members go into one of them.
    usable
        Candidates that may leave, shape (V,).
    members
        For whom room is made.
    conflicts
        What dry runs found out.
    floor
        A proven lower bound of the damage, field by field from the first; shorter where less is known.
    """

    domains: tuple[BoolVector, ...]
    usable: BoolVector
    members: Members = Members.MINIMUM
    conflicts: tuple[Conflict, ...] = ()
    floor: tuple[int, ...] = ()


@attrs.frozen(eq=False, kw_only=True)
class ExactAnswer:
    """A plan in counts.

    Parameters
    ----------
    counts
        Members per class and node, shape (C, N).
    chosen
        Who leaves, shape (V,).
    certificate
        Over the fields of the damage.
    """

    counts: IntMatrix
    chosen: BoolVector
    certificate: Certificate


@attrs.frozen(eq=False)
class _Group:
    """Candidates of one node that are alike, in the order in which they are taken."""

    ones: tuple[int, ...]
    job: int
    """Their gang; -1 where each is a job of its own."""


class _Model:
    """The program with the meaning of its variables."""

    def __init__(self, problem: PreemptionProblem, scope: Scope) -> None:
        self.problem, self.scope = problem, scope
        self.program = Program()
        self.rows: list[int] = np.flatnonzero(np.any(np.stack(scope.domains), axis=0)).tolist()
        self.place: dict[tuple[int, int], int] = {}
        self.gone: list[int] = []
        self.groups: list[_Group] = []
        self.broken: dict[int, int] = {}
        self._follow: list[tuple[int, Callable[[list[int]], int]]] = []
        self._members()
        self._victims()
        self._gangs()
        self._room()
        self._domains()
        self._gathering()
        self._conflicts()
        self._damage()

    def _following(self, variable: int, value: Callable[[list[int]], int]) -> int:
        """Say what an auxiliary variable is once the others are known; earlier ones first."""
        self._follow.append((variable, value))
        return variable

    # -- who goes where --------------------------------------------------------------------------------

    def _members(self) -> None:
        problem, program = self.problem, self.program
        for number, (_, shape) in enumerate(problem.classes):
            most = self._most(shape)
            for row in self.rows:
                upper = min(problem.sizes[number], int(most[row]))
                if upper > 0:
                    self.place[number, int(row)] = program.integer(0, upper)
        self._at: dict[int, list[tuple[int, int]]] = {}
        for (number, row), variable in self.place.items():
            self._at.setdefault(row, []).append((number, variable))
        for index, role in enumerate(problem.roles):
            total = []
            for number, (of_role, _) in enumerate(problem.classes):
                if of_role != index:
                    continue
                terms = [(variable, 1) for (one, _), variable in self.place.items() if one == number]
                program.require(terms, at_most=problem.sizes[number])
                total += terms
            least = len(role.members) if self.scope.members is Members.ALL else role.min_available
            program.require(total, at_least=max(0, least))

    @cached_property
    def _widest(self) -> IntMatrix:
        """Room once everybody usable has left."""
        return self.problem.freed(self.scope.usable)

    def _most(self, shape: int) -> IntVector:
        """Members of a shape that each node takes at most, shape (N,)."""
        problem = self.problem
        request = problem.shapes[shape].request
        most = np.full(len(problem.nodes), len(problem.members), dtype=np.int64)
        for row in np.flatnonzero(request > 0):
            np.minimum(most, self._widest[row] // request[row], out=most)
        return np.where(problem.shapes[shape].allowed, np.maximum(most, 0), 0)

    # -- who leaves ------------------------------------------------------------------------------------

    def _victims(self) -> None:
        problem, table = self.problem, self.problem.candidates
        jobs = problem.jobs
        useful = self._useful()
        alike: dict[tuple[int, int, int, bytes, int, bytes], list[int]] = {}
        for one in np.flatnonzero(useful).tolist():
            job = int(table.job[one])
            lone = jobs.running[job] == 1 and jobs.least[job] == 1
            key = (
                int(table.node[one]),
                -1 if lone else job,
                int(table.priority[one]),
                table.amounts[:, one].tobytes(),
                int(problem.restart[one]),
                problem.covered[:, one].tobytes(),
            )
            alike.setdefault(key, []).append(one)
        for key, ones in alike.items():
            ordered = tuple(sorted(ones, key=lambda one: table.keys[one]))
            self.groups.append(_Group(ordered, key[1]))
            self.gone.append(self.program.integer(0, len(ones)))

    def _useful(self) -> BoolVector:
        """Candidates that make room where a member may go, and their gangs."""
        problem, table = self.problem, self.problem.candidates
        open_rows = np.zeros(len(problem.nodes), dtype=bool)
        open_rows[list(self._at)] = True
        here = self.scope.usable & open_rows[table.node]
        concerned = np.zeros(len(problem.jobs.names), dtype=bool)
        concerned[table.job[here]] = True
        # A gang member elsewhere leaves only when its gang breaks for the sake of a member here.
        return self.scope.usable & (here | concerned[table.job])

    def _gangs(self) -> None:
        problem, program = self.problem, self.program
        jobs = problem.jobs
        of_job: dict[int, list[tuple[int, int]]] = {}
        for group, variable in zip(self.groups, self.gone, strict=True):
            if group.job >= 0:
                of_job.setdefault(group.job, []).append((variable, 1))
        whole = np.bincount(problem.candidates.job[self.scope.usable], minlength=len(jobs.names))
        for job, terms in of_job.items():
            running, least, slack = int(jobs.running[job]), int(jobs.least[job]), int(jobs.slack[job])
            if least <= 0:
                continue
            if not jobs.breakable[job] or int(whole[job]) < running:
                program.require(terms, at_most=slack)
                continue
            broken = self.broken[job] = self._following(program.boolean(), _above(terms, slack))
            program.require([*terms, (broken, -running)], at_least=0)
            program.require([*terms, (broken, -(running - slack))], at_most=slack)

    # -- room ------------------------------------------------------------------------------------------

    def _room(self) -> None:
        problem, program, table = self.problem, self.program, self.problem.candidates
        leaving: dict[int, list[tuple[int, int]]] = {}
        for number, group in enumerate(self.groups):
            leaving.setdefault(int(table.node[group.ones[0]]), []).append((self.gone[number], group.ones[0]))
        self._leaving = leaving
        for row, placed in self._at.items():
            for resource in range(problem.free.shape[0]):
                asked = [
                    (variable, int(problem.requests[problem.classes[number][1], resource]))
                    for number, variable in placed
                ]
                asked = [(variable, amount) for variable, amount in asked if amount > 0]
                if not asked:
                    continue
                given = [
                    (variable, -int(table.amounts[resource, one]))
                    for variable, one in leaving.get(row, ())
                    if table.amounts[resource, one]
                ]
                room = int(problem.free[resource, row])
                if room >= 0:
                    program.require([*asked, *given], at_most=room)
                    continue
                # Too much runs there already; that matters only if a member comes.
                used = self._following(program.boolean(), _above(asked, 0))
                for variable, _ in asked:
                    most = program.span([(variable, 1)])[1]
                    program.require([(variable, 1), (used, -most)], at_most=0)
                program.require([*asked, *given, (used, -room)], at_most=0)

    def _domains(self) -> None:
        self.inside: list[int] = []
        if len(self.scope.domains) < 2:
            return
        program = self.program
        self.inside = [program.boolean() for _ in self.scope.domains]
        for number in range(len(self.inside)):
            self._following(self.inside[number], self._at_home(number))
        program.require([(one, 1) for one in self.inside], equal=1)
        for (_, row), variable in self.place.items():
            homes = [
                (one, -1) for one, mask in zip(self.inside, self.scope.domains, strict=True) if mask[row]
            ]
            most = program.span([(variable, 1)])[1]
            program.require([(variable, 1), *((one, -most) for one, _ in homes)], at_most=0)

    def _at_home(self, number: int) -> Callable[[list[int]], int]:
        return lambda values: int(self._home(values) == number)

    def _home(self, values: list[int]) -> int:
        """First domain that holds all members of an assignment."""
        rows = [row for (_, row), variable in self.place.items() if values[variable]]
        masks = self.scope.domains
        return next((n for n, mask in enumerate(masks) if all(mask[row] for row in rows)), 0)

    def _gathering(self) -> None:
        problem, program, tree = self.problem, self.program, self.problem.tree
        if tree is None:
            return
        for layer, multiple in problem.spec.multiples.items():
            depth = tree.depth_of(layer)
            if depth is None:
                continue
            inside: dict[int, list[tuple[int, int]]] = {}
            for (_, row), variable in self.place.items():
                inside.setdefault(int(tree.ancestors[depth][problem.place[row]]), []).append((variable, 1))
            held = self._held(depth)
            for domain, terms in inside.items():
                before = held.get(domain, 0)
                top = program.span(terms)[1] + before
                times = self._following(program.integer(0, top // multiple), _share(terms, before, multiple))
                program.require([*terms, (times, -multiple)], equal=-before)

    def _held(self, depth: int) -> dict[int, int]:
        problem, tree = self.problem, self.problem.tree
        held: dict[int, int] = {}
        if tree is None or not len(problem.bound):
            return held
        for row in np.flatnonzero(problem.bound).tolist():
            if problem.place[row] >= 0:
                domain = int(tree.ancestors[depth][problem.place[row]])
                held[domain] = held.get(domain, 0) + int(problem.bound[row])
        return held

    def _conflicts(self) -> None:
        """More members than fitted, or as many with somebody else gone as well."""
        program, classes = self.program, self.problem.classes
        for conflict in self.scope.conflicts:
            others = [
                (self.gone[number], sum(not conflict.gone[one] for one in group.ones), group)
                for number, group in enumerate(self.groups)
                if int(self.problem.candidates.node[group.ones[0]]) == conflict.node
            ]
            more = []
            for variable, rest, group in others:
                if rest == 0:
                    continue
                kept = len(group.ones) - rest
                extra = self._following(program.boolean(), _above([(variable, 1)], kept))
                program.require([(variable, 1), (extra, -(kept + 1))], at_least=0)
                more.append((extra, 1))
            full = []
            for shape, count in enumerate(conflict.counts.tolist()):
                if not count:
                    continue
                terms = [
                    (variable, 1)
                    for number, variable in self._at.get(conflict.node, ())
                    if classes[number][1] == shape
                ]
                short = self._following(program.boolean(), _below(terms, count))
                top = program.span(terms)[1]
                program.require([*terms, (short, max(0, top - count + 1))], at_most=max(top, count - 1))
                full.append((short, 1))
            program.require([*full, *more], at_least=1)

    # -- what it costs ---------------------------------------------------------------------------------

    def _damage(self) -> None:
        problem, program, table = self.problem, self.program, self.problem.candidates
        first = [group.ones[0] for group in self.groups]
        violations = []
        for budget in range(len(problem.budgets)):
            terms = [
                (variable, 1)
                for variable, one in zip(self.gone, first, strict=True)
                if problem.covered[budget, one]
            ]
            allowed = max(0, int(problem.budgets[budget]))
            top = program.span(terms)[1]
            if top > allowed:
                over = self._following(program.integer(0, top - allowed), _excess(terms, allowed))
                program.require([*terms, (over, -1)], at_most=allowed)
                violations.append((over, 1))
        self.levels = sorted({int(table.priority[one]) for one in first})
        rank = {priority: number + 1 for number, priority in enumerate(self.levels)}
        height = program.integer(0, len(self.levels))
        hits = []
        for priority in self.levels:
            terms = [
                (variable, 1)
                for variable, one in zip(self.gone, first, strict=True)
                if int(table.priority[one]) == priority
            ]
            hit = self._following(program.boolean(), _above(terms, 0))
            hits.append((hit, rank[priority]))
            program.require([*terms, (hit, -program.span(terms)[1])], at_most=0)
            program.require([(height, 1), (hit, -rank[priority])], at_least=0)
        self._following(height, lambda values: max((n * values[hit] for hit, n in hits), default=0))
        lone = [
            (variable, 1) for variable, group in zip(self.gone, self.groups, strict=True) if group.job < 0
        ]
        parts = [
            violations,
            [(height, 1)],
            [*lone, *((variable, 1) for variable in self.broken.values())],
            [(variable, 1) for variable in self.gone],
            [(variable, int(table.priority[one])) for variable, one in zip(self.gone, first, strict=True)],
            [(variable, int(problem.restart[one])) for variable, one in zip(self.gone, first, strict=True)],
        ]
        self.stages = [self._stage(number, terms) for number, terms in enumerate(parts)]

    def _stage(self, number: int, terms: Sequence[tuple[int, int]]) -> Stage:
        floor = self.scope.floor
        if number >= len(floor):
            return Stage(terms)
        least = floor[number]
        if number == 1:
            least = sum(priority < least for priority in self.levels) + (least > NO_PRIORITY)
        return Stage(terms, at_least=least)

    def tail(self) -> list[Stage]:
        """What decides between plans of equal damage."""
        if self.scope.members is Members.ALL:
            return []
        return [Stage([(variable, -1) for variable in self.place.values()])]

    # -- to and from answers ---------------------------------------------------------------------------

    def hint(self, counts: IntMatrix, chosen: BoolVector) -> tuple[int, ...]:
        """Write a plan as an assignment; auxiliary variables follow from the others."""
        values = [0] * len(self.program)
        for (number, row), variable in self.place.items():
            values[variable] = int(counts[number, row])
        for variable, group in zip(self.gone, self.groups, strict=True):
            values[variable] = int(chosen[list(group.ones)].sum())
        for variable, value in self._follow:
            values[variable] = value(values)
        return tuple(values)

    def read(self, outcome: Outcome) -> ExactAnswer:
        """Read a plan."""
        problem = self.problem
        counts = np.zeros((len(problem.classes), len(problem.nodes)), dtype=np.int64)
        for (number, row), variable in self.place.items():
            counts[number, row] = outcome.values[variable]
        chosen = np.zeros(len(problem.candidates), dtype=bool)
        for variable, group in zip(self.gone, self.groups, strict=True):
            chosen[list(group.ones[: outcome.values[variable]])] = True
        objective = self._priority_for(outcome.objective[: len(self.stages)])
        bound = self._priority_for(outcome.bound[: len(self.stages)])
        certificate = Certificate.make_bounded(objective, min(bound, objective))
        return ExactAnswer(counts=counts, chosen=chosen, certificate=certificate)

    def _priority_for(self, values: tuple[int, ...]) -> tuple[int, ...]:
        level = values[1]
        return (values[0], NO_PRIORITY if level <= 0 else self.levels[level - 1], *values[2:])


def solve_exact(
    problem: PreemptionProblem,
    scope: Scope,
    *,
    start: tuple[IntMatrix, BoolVector] | None = None,
    limits: Limits,
) -> ExactAnswer | CertificateStatus:
    """Find the cheapest plan within a scope.

    Parameters
    ----------
    start
        Counts and victims of a legal plan; the answer is never worse.
    limits
        Budget and seed.

    Returns
    -------
    ExactAnswer or CertificateStatus
        The plan with its bound, ``INFEASIBLE`` when there is provably none, ``FEASIBLE`` when the budget
        ended before anything was known.
    """
    if not scope.domains:
        return CertificateStatus.INFEASIBLE
    model = _Model(problem, scope)
    hint = model.hint(*start) if start is not None else ()
    outcome = solve(
        model.program, [*model.stages, *model.tail()], hint=hint, limits=limits, presolve=Presolve.LIGHT
    )
    if outcome.solved:
        return model.read(outcome)
    if outcome.status is OutcomeStatus.INFEASIBLE:
        return CertificateStatus.INFEASIBLE
    return CertificateStatus.FEASIBLE


def _total(terms: Sequence[tuple[int, int]], values: list[int]) -> int:
    return sum(values[variable] * coefficient for variable, coefficient in terms)


def _above(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    return lambda values: int(_total(terms, values) > limit)


def _below(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    return lambda values: int(_total(terms, values) < limit)


def _excess(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    return lambda values: max(0, _total(terms, values) - limit)


def _share(terms: Sequence[tuple[int, int]], before: int, multiple: int) -> Callable[[list[int]], int]:
    return lambda values: (_total(terms, values) + before) // multiple
