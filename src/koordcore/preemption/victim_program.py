"""The variables and rows of the cheapest victims: who leaves, who comes where, and what must hold.

Members of one class, and candidates of one node that are alike, are counted instead of told apart. A gang is
either kept at its minimum or leaves whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._cpsat import Program
from koordcore._record import record
from koordcore.model.preemption import Members
from koordcore.preemption.bounds import needs_of
from koordcore.preemption.moves import Arrivals, Unit, slots_of, with_moves
from koordcore.preemption.pool_rows import require_pools
from koordcore.preemption.problem import Conflict, Domains, Multiple, PreemptionProblem
from koordcore.preemption.shares import ShareRows


@record(eq=False, kw_only=True)
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


class VictimProgram:
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
        require_pools(self)
        self._conflicts()

    def following(self, variable: int, value: Callable[[list[int]], int]) -> int:
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
        placed: list[list[tuple[int, int]]] = [[] for _ in problem.roles]
        for number, (role, _) in enumerate(problem.classes):
            terms = [(variable, 1) for (one, _), variable in self.place.items() if one == number]
            program.require(terms, at_most=problem.sizes[number])
            placed[role] += terms
        if problem.shares is not None:
            whole = self.scope.members is Members.ALL
            self._follow += ShareRows(program, problem.shares, placed, whole=whole).follow
            return
        for terms, least in zip(placed, needs_of(problem, self.scope.members), strict=True):
            program.require(terms, at_least=least)

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
        apart = {-1 if conflict.beside else conflict.node for conflict in self.scope.conflicts}
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
                one if apart & {-1, int(table.node[one])} or (apart and problem.reaching[one]) else -1,
            )
            alike.setdefault(key, []).append(one)
        for key, ones in alike.items():
            ordered = tuple(sorted(ones, key=lambda one: table.keys[one]))
            self.units.append(Unit(self.program.integer(0, len(ones)), ordered, 1, key[1]))
        for job, ones in together.items():
            variable = self.broken[job] = self.program.boolean()
            self.units.append(Unit(variable, tuple(ones), len(ones), job))

    def _moves(self) -> None:
        """Who leaves may go on elsewhere, where others may leave for him."""
        problem = self.problem
        self.arrivals: Arrivals | None = None
        if problem.refuges is None:
            return
        self.units = with_moves(self.program, problem, self.units, self.broken)
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
        """Candidates that make room where a member, or one who makes room, may go, and their gangs."""
        problem, table = self.problem, self.problem.candidates
        open_rows = np.zeros(len(problem.nodes), dtype=bool)
        open_rows[list(self._at)] = True
        here = self._here(open_rows)
        seen: set[int] = set()
        while kinds := {*np.unique(problem.shape_of_kind[here]).tolist()} - {-1} - seen:
            seen |= kinds
            for shape in kinds:
                open_rows |= slots_of(problem, shape, self._widest) > 0
            here = self._here(open_rows)
        concerned = np.zeros(len(problem.jobs.names), dtype=bool)
        concerned[table.job[here]] = True
        # A gang member elsewhere leaves only when its gang breaks for the sake of a member here.
        return self.scope.usable & (here | concerned[table.job])

    def _here(self, open_rows: BoolVector) -> BoolVector:
        """Tell who may leave some nodes, or what is shared beside or by the nodes, shape (V,)."""
        problem = self.problem
        here: BoolVector = self.scope.usable & (open_rows[problem.candidates.node] | problem.reaching)
        for pool in self.problem.pools:
            here |= self.scope.usable & pool.gives.any(axis=0)
        return here

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
            broken = self.following(program.boolean(), above(terms, slack))
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
        kept = self.following(
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
                used = self.following(program.boolean(), above(asked, 0))
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
            self.following(self.inside[number], self._at_home(number))
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
                choice = self.following(program.boolean(), above(terms, 0))
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
        problem, tree = self.problem, self.problem.tree
        if tree is None:
            return
        everybody = frozenset(range(len(problem.roles)))
        for layer, multiple in problem.spec.multiples.items():
            depth = tree.depth_of(layer)
            if depth is not None:
                home = tree.ancestors[depth][problem.place]
                self._in_multiples(Multiple(everybody, home, multiple, self._held(depth)))
        for own in problem.multiples:
            self._in_multiples(own)

    def _in_multiples(self, multiple: Multiple) -> None:
        program, size = self.program, multiple.size
        inside: dict[int, list[tuple[int, int]]] = {}
        for (number, row), variable in self.place.items():
            if self.problem.classes[number][0] in multiple.roles:
                inside.setdefault(int(multiple.home[row]), []).append((variable, 1))
        if any(self.problem.roles[role].min_available > 0 for role in multiple.roles):
            inside = {**{domain: [] for domain in sorted(multiple.held)}, **inside}
        for domain, terms in inside.items():
            before = multiple.held.get(domain, 0)
            if domain < 0:
                program.require(terms, at_most=0)
                continue
            top = program.span(terms)[1] + before
            times = self.following(program.integer(0, top // size), _share(terms, before, size))
            program.require([*terms, (times, -size)], equal=-before)

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
        program = self.program
        for conflict in self.scope.conflicts:
            more = [] if conflict.ways is None else self._one_of(conflict.ways)
            for unit in self.units if conflict.ways is None else ():
                here = [one for one in unit.ones if not conflict.gone[one] and self._matters(conflict, one)]
                if not here:
                    continue
                if unit.step > 1:
                    more.append((unit.variable, 1))
                    continue
                gone = len(unit.ones) - len(here)
                extra = self.following(program.boolean(), above([(unit.variable, 1)], gone))
                program.require([(unit.variable, 1), (extra, -(gone + 1))], at_least=0)
                more.append((extra, 1))
            full = []
            there = [(conflict.node, conflict.counts), *conflict.beside]
            for row, shape, count in ((row, *one) for row, some in there for one in enumerate(some.tolist())):
                if not count:
                    continue
                if row >= 0:
                    terms = [(one, 1) for number, one in self._at.get(row, ()) if number == shape]
                else:
                    terms = self.arrivals.of(shape) if self.arrivals is not None else []
                short = self.following(program.boolean(), _below(terms, count))
                top = program.span(terms)[1]
                program.require([*terms, (short, max(0, top - count + 1))], at_most=max(top, count - 1))
                full.append((short, 1))
            program.require([*full, *more], at_least=1)

    def _matters(self, conflict: Conflict, one: int) -> bool:
        """Tell whether it may make a difference to a conflict that a candidate leaves."""
        problem = self.problem
        if conflict.node < 0 or conflict.beside or problem.reaching[one]:
            return True
        return conflict.node == int(problem.candidates.node[one])

    def _one_of(self, ways: Iterable[frozenset[int]]) -> list[tuple[int, int]]:
        """Give a variable for each of some sets, which says that all of it has left."""
        unit_of = {one: unit for unit in self.units for one in unit.ones}
        found = []
        for way in ways:
            # On a node with a conflict every candidate is a unit of its own, or leaves with its gang.
            units = {unit_of[one].variable for one in way if one in unit_of}
            if any(one not in unit_of for one in way):
                continue
            gone = self.following(self.program.boolean(), _all_of(sorted(units)))
            for variable in sorted(units):
                self.program.require([(variable, 1), (gone, -1)], at_least=0)
            found.append((gone, 1))
        return found


def _total(terms: Sequence[tuple[int, int]], values: list[int]) -> int:
    return sum(values[variable] * coefficient for variable, coefficient in terms)


def _all_of(variables: Sequence[int]) -> Callable[[list[int]], int]:
    return lambda values: int(all(values[one] >= 1 for one in variables))


def above(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    """Give a variable that is 1 where a sum is above a limit."""
    return lambda values: int(_total(terms, values) > limit)


def _below(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    return lambda values: int(_total(terms, values) < limit)


def excess(terms: Sequence[tuple[int, int]], limit: int) -> Callable[[list[int]], int]:
    """Give a variable that says how far a sum is above a limit."""
    return lambda values: max(0, _total(terms, values) - limit)


def _share(terms: Sequence[tuple[int, int]], before: int, multiple: int) -> Callable[[list[int]], int]:
    return lambda values: (_total(terms, values) + before) // multiple
