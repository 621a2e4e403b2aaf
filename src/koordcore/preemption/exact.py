"""The cheapest victims as an integer program over counts.

Members of one class, and candidates of one node that are alike, are counted instead of told apart. A gang is
either kept at its minimum or leaves whole. The stages are the fields of :class:`Damage` in their order, then
members beyond the minimum, then nodes used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._certify import certified
from koordcore._cpsat import Outcome, OutcomeStatus, Presolve, Program, Relaxation, Stage, solve
from koordcore.model.certificates import Certificate, CertificateStatus, Limits
from koordcore.model.preemption import NO_PRIORITY, Members
from koordcore.preemption.bounds import eviction_problem
from koordcore.preemption.moves import Arrivals, Unit, nobody_moves, with_moves
from koordcore.preemption.problem import Conflict, Domains, PreemptionProblem


@attrs.frozen(eq=False, kw_only=True)
class Scope:
    """What the program may use.

    Parameters
    ----------
    domains
        All members go into one of them.
    usable
        Candidates that may leave, shape (V,).
    members
        For whom room is made.
    conflicts
        What dry runs found out.
    floor
        A proven lower bound of the damage, field by field from the first; shorter where less is known.
    """

    domains: Domains
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
    moves
        Row of the node to which each of them moves, -1 for none, shape (V,).
    certificate
        Over the fields of the damage.
    """

    counts: IntMatrix
    chosen: BoolVector
    moves: IntVector
    certificate: Certificate


class _Model:
    """The program with the meaning of its variables."""

    def __init__(self, problem: PreemptionProblem, scope: Scope) -> None:
        self.problem, self.scope = problem, scope
        self.program = Program()
        self.rows: list[int] = np.flatnonzero(scope.domains.home >= 0).tolist()
        self.place: dict[tuple[int, int], int] = {}
        self.units: list[Unit] = []
        self.broken: dict[int, int] = {}
        self._follow: list[tuple[int, Callable[[list[int]], int]]] = []
        self.kept: dict[int, int] = {}
        self._members()
        self._victims()
        self._moves()
        self._gangs()
        self._room()
        self._domains()
        self._gathers()
        self._gathering()
        self._pools()
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
            self._at.setdefault(row, []).append((problem.classes[number][1], variable))
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
        if len(problem.shapes[shape].most):
            np.minimum(most, problem.shapes[shape].most, out=most)
        return np.where(problem.shapes[shape].allowed, np.maximum(most, 0), 0)

    # -- who leaves ------------------------------------------------------------------------------------

    def _victims(self) -> None:
        problem, table = self.problem, self.problem.candidates
        jobs = problem.jobs
        useful = self._useful()
        found = np.bincount(table.job[self.scope.usable], minlength=len(jobs.names))
        self._whole = (jobs.least > 0) & jobs.breakable & (found == jobs.running)
        # Where a dry run said that amounts are not all, candidates of equal amounts are told apart.
        apart = {conflict.node for conflict in self.scope.conflicts}
        alike: dict[tuple[int, int, int, bytes, int, bytes, int, int], list[int]] = {}
        together: dict[int, list[int]] = {}
        for one in np.flatnonzero(useful).tolist():
            job = int(table.job[one])
            lone = jobs.running[job] == 1 and jobs.least[job] == 1
            if jobs.slack[job] == 0 and not lone:
                if self._whole[job]:
                    together.setdefault(job, []).append(one)
                continue
            key = (
                int(table.node[one]),
                -1 if lone else job,
                int(table.priority[one]),
                table.amounts[:, one].tobytes(),
                int(problem.restart[one]),
                problem.covered[:, one].tobytes(),
                int(problem.shape_of_kind[one]),
                one if apart & {-1, int(table.node[one])} else -1,
            )
            alike.setdefault(key, []).append(one)
        for key, ones in alike.items():
            ordered = tuple(sorted(ones, key=lambda one: table.keys[one]))
            self.units.append(Unit(self.program.integer(0, len(ones)), ordered, 1, key[1]))
        for job, ones in together.items():
            variable = self.broken[job] = self.program.boolean()
            self.units.append(Unit(variable, tuple(ones), len(ones), job))

    def _moves(self) -> None:
        """Who leaves may go on elsewhere; only nodes to which members may go lose pods for that."""
        problem = self.problem
        self.arrivals: Arrivals | None = None
        if problem.refuges is None:
            return
        self.units = with_moves(self.program, problem, self.units)
        for unit in self.units:
            if unit.job in self.broken and unit.moved >= 0:
                self.kept[unit.job] = unit.moved
        losing = np.zeros(len(problem.nodes), dtype=bool)
        losing[[int(problem.candidates.node[one]) for unit in self.units for one in unit.ones]] = True
        room = np.where(losing, self._widest, problem.free)
        self.arrivals = Arrivals(self.program, problem, self.units, room)
        for (shape, row), variable in self.arrivals.at.items():
            self._at.setdefault(row, []).append((shape, variable))

    def _useful(self) -> BoolVector:
        """Candidates that make room where a member may go, and their gangs."""
        problem, table = self.problem, self.problem.candidates
        open_rows = np.zeros(len(problem.nodes), dtype=bool)
        open_rows[list(self._at)] = True
        here = self.scope.usable & open_rows[table.node]
        for pool in problem.pools:
            here |= self.scope.usable & pool.gives.any(axis=0)
        concerned = np.zeros(len(problem.jobs.names), dtype=bool)
        concerned[table.job[here]] = True
        # A gang member elsewhere leaves only when its gang breaks for the sake of a member here.
        return self.scope.usable & (here | concerned[table.job])

    def _gangs(self) -> None:
        """Gangs that can spare somebody: up to that many leave, or all of them."""
        program, jobs = self.program, self.problem.jobs
        of_job: dict[int, list[Unit]] = {}
        for unit in self.units:
            if unit.job >= 0 and unit.job not in self.broken:
                of_job.setdefault(unit.job, []).append(unit)
        for job, units in of_job.items():
            running, least, slack = int(jobs.running[job]), int(jobs.least[job]), int(jobs.slack[job])
            terms = [(unit.variable, 1) for unit in units]
            if least <= 0:
                continue
            if not self._whole[job]:
                program.require(terms, at_most=slack)
                continue
            broken = self._following(program.boolean(), _above(terms, slack))
            self.broken[job] = broken
            program.require([*terms, (broken, -(running - slack))], at_most=slack)
            for unit in units:
                size = len(unit.ones)
                program.require([(unit.variable, 1), (broken, -size)], at_least=0)
                few = min(size, slack)
                program.require([(unit.variable, 1), (broken, -(size - few))], at_most=few)
            self._moved_or_not(job, units, broken)

    def _moved_or_not(self, job: int, units: list[Unit], broken: int) -> None:
        """Of a gang that breaks as many move as it needs to go on, or nobody."""
        program, least = self.program, int(self.problem.jobs.least[job])
        moving = [(unit.moved, len(unit.ones)) for unit in units if unit.moved >= 0]
        total = [(moved, 1) for moved, _ in moving]
        if sum(size for _, size in moving) < least:
            for moved, size in moving:
                program.require([(moved, 1), (broken, size)], at_most=size)
            return
        kept = self._following(
            program.boolean(), lambda values: int(values[broken] and _total(total, values) >= least)
        )
        self.kept[job] = kept
        program.require([(kept, 1), (broken, -1)], at_most=0)
        program.require([*total, (kept, -least)], at_least=0)
        for moved, size in moving:
            program.require([(moved, 1), (broken, size), (kept, -size)], at_most=size)

    # -- room ------------------------------------------------------------------------------------------

    def _room(self) -> None:
        problem, program, table = self.problem, self.program, self.problem.candidates
        leaving: dict[int, list[tuple[int, int]]] = {}
        for unit in self.units:
            # One step frees the first of candidates that are alike, or every member of a gang at once.
            for one in unit.ones if unit.step > 1 else unit.ones[:1]:
                leaving.setdefault(int(table.node[one]), []).append((unit.variable, one))
        for row, placed in self._at.items():
            for resource in range(problem.free.shape[0]):
                asked = [(variable, int(problem.requests[shape, resource])) for shape, variable in placed]
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
        home = self.scope.domains.home
        if self.scope.domains.count < 2:
            return
        program = self.program
        self.inside = [program.boolean() for _ in range(self.scope.domains.count)]
        for number in range(len(self.inside)):
            self._following(self.inside[number], self._at_home(number))
        program.require([(one, 1) for one in self.inside], equal=1)
        for (_, row), variable in self.place.items():
            most = program.span([(variable, 1)])[1]
            program.require([(variable, 1), (self.inside[int(home[row])], -most)], at_most=0)

    def _gathers(self) -> None:
        """Members of some roles share a domain of their own."""
        program = self.program
        for roles, domains in self.problem.gathers:
            placed: dict[int, list[int]] = {}
            for (number, row), variable in self.place.items():
                if self.problem.classes[number][0] in roles:
                    placed.setdefault(int(domains.home[row]), []).append(variable)
            choices = []
            for home, variables in sorted(placed.items()):
                terms = [(variable, 1) for variable in variables]
                if home < 0:
                    program.require(terms, at_most=0)
                    continue
                choice = self._following(program.boolean(), _above(terms, 0))
                for variable in variables:
                    program.require([(variable, 1), (choice, -program.span([(variable, 1)])[1])], at_most=0)
                choices.append((choice, 1))
            program.require(choices, at_most=1)

    def _at_home(self, number: int) -> Callable[[list[int]], int]:
        return lambda values: int(self._home(values) == number)

    def _home(self, values: list[int]) -> int:
        """Domain of an assignment's members."""
        rows = (row for (_, row), variable in self.place.items() if values[variable])
        return int(self.scope.domains.home[next(rows, self.rows[0])])

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

    def _pools(self) -> None:
        """What the members take out of a pool is there, or is given back."""
        problem, program = self.problem, self.program
        for pool in problem.pools:
            for row in range(len(pool.room)):
                asked = [
                    (variable, int(pool.uses[problem.classes[number][1], row]))
                    for (number, _), variable in self.place.items()
                ]
                coming = self.arrivals.at.items() if self.arrivals is not None else ()
                asked += [(variable, int(pool.uses[shape, row])) for (shape, _), variable in coming]
                asked = [(variable, amount) for variable, amount in asked if amount > 0]
                given = [
                    (unit.variable, -int(pool.gives[row, list(unit.ones[: unit.step])].sum()))
                    for unit in self.units
                ]
                if asked:
                    program.require([*asked, *given], at_most=int(pool.room[row]))

    def _conflicts(self) -> None:
        """More members than fitted, or as many with somebody else gone as well."""
        program = self.program
        for conflict in self.scope.conflicts:
            more = [] if conflict.ways is None else self._one_of(conflict.ways)
            for unit in self.units if conflict.ways is None else ():
                here = [
                    one
                    for one in unit.ones
                    if conflict.node in (-1, int(self.problem.candidates.node[one]))
                    and not conflict.gone[one]
                ]
                if not here:
                    continue
                if unit.step > 1:
                    more.append((unit.variable, 1))
                    continue
                gone = len(unit.ones) - len(here)
                extra = self._following(program.boolean(), _above([(unit.variable, 1)], gone))
                program.require([(unit.variable, 1), (extra, -(gone + 1))], at_least=0)
                more.append((extra, 1))
            full = []
            for shape, count in enumerate(conflict.counts.tolist()):
                if not count:
                    continue
                if conflict.node >= 0:
                    terms = [(one, 1) for number, one in self._at.get(conflict.node, ()) if number == shape]
                else:
                    terms = self.arrivals.of(shape) if self.arrivals is not None else []
                short = self._following(program.boolean(), _below(terms, count))
                top = program.span(terms)[1]
                program.require([*terms, (short, max(0, top - count + 1))], at_most=max(top, count - 1))
                full.append((short, 1))
            program.require([*full, *more], at_least=1)

    def _one_of(self, ways: Iterable[frozenset[int]]) -> list[tuple[int, int]]:
        """Give a variable for each of some sets, which says that all of it has left."""
        unit_of = {one: unit for unit in self.units for one in unit.ones}
        found = []
        for way in ways:
            # On a node with a conflict every candidate is a unit of its own, or leaves with its gang.
            units = {unit_of[one].variable for one in way if one in unit_of}
            if any(one not in unit_of for one in way):
                continue
            gone = self._following(self.program.boolean(), _all_of(sorted(units)))
            for variable in sorted(units):
                self.program.require([(variable, 1), (gone, -1)], at_least=0)
            found.append((gone, 1))
        return found

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
                over = self._following(program.integer(0, top - allowed), _excess(terms, allowed))
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
            hit = self._following(program.boolean(), _above(terms, 0))
            hits.append((hit, number + 1))
            program.require([*terms, (hit, -program.span(terms)[1])], at_most=0)
            program.require([(height, 1), (hit, -(number + 1))], at_least=0)
        self._following(height, lambda values: max((n * values[hit] for hit, n in hits), default=0))
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
        return attrs.evolve(answer, certificate=self.evident(answer, outcome.values, limits))

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


def _total(terms: Sequence[tuple[int, int]], values: list[int]) -> int:
    return sum(values[variable] * coefficient for variable, coefficient in terms)


def _all_of(variables: Sequence[int]) -> Callable[[list[int]], int]:
    return lambda values: int(all(values[one] >= 1 for one in variables))


def _above(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    return lambda values: int(_total(terms, values) > limit)


def _below(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    return lambda values: int(_total(terms, values) < limit)


def _excess(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    return lambda values: max(0, _total(terms, values) - limit)


def _share(terms: Sequence[tuple[int, int]], before: int, multiple: int) -> Callable[[list[int]], int]:
    return lambda values: (_total(terms, values) + before) // multiple
