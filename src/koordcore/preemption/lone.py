"""One member to be placed: node after node in the order of what its victims cost at least.

Closed forms bound the damage on all nodes at once; the cheapest set of victims is worked out only where no
other node can be cheaper. A set that its dry run refuses is left out and the next cheapest comes up, until
one holds: everything cheaper has then been refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import TypeAlias

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.preemption import NO_PRIORITY
from koordcore.preemption.exact import solve_exact
from koordcore.preemption.lone_bounds import bounded
from koordcore.preemption.node_victims import (
    Cost,
    NodeVictims,
    StepsExceeded,
    Wanted,
    cheapest_victims,
)
from koordcore.preemption.problem import Conflict, Domains, PreemptionProblem
from koordcore.preemption.victim_program import Scope

Offers: TypeAlias = Callable[[IntVector], BoolVector]
"""Tells which of some nodes would take the member if everybody had left them; a yes may be wrong."""
Plan: TypeAlias = tuple[Cost, int, tuple[int, ...]]
"""What it costs, the row of the node, and who leaves."""


def is_lone(problem: PreemptionProblem) -> bool:
    """Tell whether a problem asks for a place for one pod and nothing else ties its victims together."""
    return (
        len(problem.members) == 1
        and problem.roles[0].min_available > 0
        and problem.refuges is None
        and problem.homes is None
        and not problem.gathers
        and not problem.multiples
        and not problem.spec.multiples
    )


class LoneSearch:
    """Nodes for one member, with who would have to leave them, cheapest first.

    Parameters
    ----------
    problem
        With one member, see :func:`is_lone`.
    domains
        Where it may go.
    limits
        Budget of the solver, which is asked about nodes with very many different pods.
    """

    def __init__(self, problem: PreemptionProblem, domains: Domains, limits: Limits) -> None:
        self._problem, self._limits = problem, limits
        shape = problem.shapes[problem.members[0].shape]
        self._allowed = shape.allowed & (domains.home >= 0)
        if len(shape.most):
            self._allowed &= shape.most > 0
        self._asked: list[int] = np.flatnonzero(shape.request > 0).tolist()
        self._lack: IntMatrix = shape.request[self._asked, None] - problem.free[self._asked]
        enough: BoolVector = np.asarray((self._lack <= 0).all(axis=0))
        self._usable = problem.usable
        self._height = problem.heights
        self._shared = _missing(problem)
        # Who leaves for what is missing beside the nodes may have been in the way from afar.
        self._far = shape.elsewhere and bool(self._shared)
        self._taken_now: BoolVector = enough
        if len(shape.now) and not self._far:
            self._taken_now = enough & shape.now
        self._givers = _givers(problem, self._shared)
        self._reaching: list[int] = np.flatnonzero(problem.reaching).tolist()
        self._refused: dict[int, list[BoolVector]] = {}
        self._refused_anywhere: list[BoolVector] = []
        self._ways: dict[int, tuple[frozenset[int], ...]] = {}
        self._dead: set[int] = set()
        self._found: list[Plan] = []
        self._levels = [NO_PRIORITY, *problem.levels]
        self._level = -1
        self._least_level = self._first_level()
        self._open = np.zeros(len(problem.nodes), dtype=np.bool_)
        # Of the nodes that were not worked out yet, the cheapest last: row, lost, pods, sums.
        self._bounds: IntMatrix = np.zeros((4, 0), dtype=np.int64)
        self._number = 0
        self.loose: Cost | None = None

    # -- cheapest first --------------------------------------------------------------------------------

    def pop(self) -> Plan | None:
        """Give the cheapest plan that is left: what it costs, its node, and who leaves; None for none."""
        while True:
            bound = self.bound()
            if self._found and (bound is None or self._found[0][:2] <= bound):
                plan = heappop(self._found)
                if not self._stale(plan):
                    return plan
                self.work_out(plan[1])
                continue
            if bound is None:
                return None
            if not self._number:
                self._next_level()
                continue
            self._number -= 1
            self.work_out(int(self._bounds[0, self._number]))

    def bound(self) -> tuple[Cost, int] | None:
        """Give what the nodes that were not worked out yet cost at least; None where none is left."""
        if self._number:
            row, lost, pods, sums = self._bounds[:, self._number - 1].tolist()
            return (0, self._levels[self._level], lost, pods, sums, 0), row
        if self._level + 1 < len(self._levels):
            return (0, self._levels[self._level + 1], 0, 0, 0, 0), -1
        return None

    def refuse(self, row: int, ones: Iterable[int]) -> None:
        """Leave out a set of victims and every part of it, whoever else leaves where that does not matter."""
        mask = self._around(row, ones)
        if self._far:
            mask &= np.isin(np.arange(len(mask)), list(ones))
        self._refused.setdefault(row, []).append(mask)

    def only(self, row: int, ways: tuple[frozenset[int], ...]) -> None:
        """Leave out all sets of victims on a node that contain none of some."""
        self._ways[row] = ways

    def refuse_anywhere(self, gone: BoolVector) -> None:
        """Leave out a set of victims, and every part of it, whatever the node."""
        self._refused_anywhere.append(gone)

    def _stale(self, plan: Plan) -> bool:
        """Tell whether a plan stays within what was refused since it was worked out."""
        return any(bool(gone[list(plan[2])].all()) for gone in self._refused_anywhere)

    def _around(self, row: int, ones: Iterable[int]) -> BoolVector:
        """Mark some candidates on a node, and all who are not on it and do not reach it."""
        mask = np.ones(len(self._problem.candidates), dtype=np.bool_)
        mask[self._problem.on_node(row)] = False
        mask[self._reaching] = False
        mask[list(ones)] = True
        return mask

    def drop(self, rows: IntVector) -> None:
        """Leave nodes out."""
        self._dead.update(rows.tolist())

    def upcoming(self, most: int) -> IntVector:
        """Give the nodes that come next by what is known of them."""
        coming = self._bounds[0, max(0, self._number - most) : self._number].tolist()
        return np.array([row for row in coming if row not in self._dead], dtype=np.int64)

    def everybody(self, row: int) -> frozenset[int]:
        """Give the candidates on a node, or who reach it, that may leave at all."""
        return frozenset(self._problem.near(row).tolist())

    def candidates(self) -> list[Plan]:
        """Give the plans that were worked out and are left, cheapest first."""
        return sorted(self._found)

    def work_out(self, row: int) -> None:
        """Look for the cheapest set of victims on a node that was not refused."""
        if row in self._dead:
            return
        refused = [*self._refused.get(row, ()), *self._refused_anywhere]
        if not self._taken_now[row]:
            refused.append(self._around(row, ()))
        lacks = zip(self._asked, self._lack[:, row].tolist(), strict=True)
        lack = tuple((resource, amount) for resource, amount in lacks if amount > 0)
        if not lack and not refused and not self._shared:
            heappush(self._found, ((0, NO_PRIORITY, 0, 0, 0, 0), row, ()))
            return
        far = tuple(one for ones in self._givers for one in ones[: self._enough(ones[0]) + len(refused)])
        if self._reaching:
            far = tuple(dict.fromkeys((*far, *self._reaching)))
        wanted = Wanted(row, lack, self._shared, far, tuple(refused))
        try:
            best = self._cheapest(wanted)
        except StepsExceeded:
            self._ask_solver(row)
            return
        if best is not None:
            heappush(self._found, (best.cost, row, best.ones))

    def _cheapest(self, wanted: Wanted) -> NodeVictims | None:
        """Find the cheapest victims; where sets are known of which one must leave, the cheapest of these."""
        ways = self._ways.get(wanted.row)
        if ways is None:
            return cheapest_victims(self._problem, wanted)
        everybody = self.everybody(wanted.row)
        best: NodeVictims | None = None
        priority = self._problem.candidates.priority
        for way in sorted(ways, key=lambda ones: (max(priority[list(ones)], default=0), sorted(ones))):
            if best is not None and (0, int(max(priority[list(way)], default=NO_PRIORITY))) > best.cost[:2]:
                break
            # Each of them has to leave: nothing that stays within the others is enough.
            needed = tuple(self._around(wanted.row, everybody - {one}) for one in sorted(way))
            found = cheapest_victims(self._problem, attrs.evolve(wanted, refused=(*wanted.refused, *needed)))
            if found is not None and (best is None or (found.cost, found.ones) < (best.cost, best.ones)):
                best = found
        return best

    def _first_level(self) -> int:
        """Give the first level at which what is missing beside the nodes may be made up for."""
        if not self._shared:
            return 0
        low, high = 0, len(self._levels)
        while low < high:
            middle = (low + high) // 2
            gone = self._leaving(middle)
            if all(int(given[gone].sum()) >= missing for given, missing in self._shared):
                high = middle
            else:
                low = middle + 1
        return low

    def _leaving(self, level: int) -> BoolVector:
        """Tell who may leave up to a level, shape (V,), to be read only."""
        if level == len(self._levels) - 1:
            return self._usable  # the heights of all of them are among the levels
        return self._usable & (self._height <= self._levels[level])

    def _fewest_shared(self, priority: int) -> int:
        """Count how many have to leave at least for what is missing beside the nodes."""
        fewest = 1
        for given, missing in self._shared:
            sums = np.cumsum(np.sort(given[self._usable & (self._height <= priority)])[::-1])
            fewest = max(fewest, int(np.searchsorted(sums, missing)) + 1)
        return fewest

    def _enough(self, one: int) -> int:
        """Count how many who are like a candidate make up for all that is missing beside the nodes."""
        counts = [-(-amount // int(given[one])) for given, amount in self._shared if given[one] > 0]
        return max(counts)

    def _ask_solver(self, row: int) -> None:
        """Let the solver find the cheapest victims on a node whose pods are too different to be tried."""
        problem = self._problem
        home = np.full(len(problem.nodes), -1, dtype=np.int64)
        home[row] = 0
        here = np.ones(len(problem.all_shapes), dtype=np.int64)
        where = (-1, np.zeros_like(here)) if self._far else (row, here)
        conflicts = [Conflict(*where, gone) for gone in self._refused.get(row, ())]
        conflicts += [Conflict(-1, np.zeros_like(here), gone) for gone in self._refused_anywhere]
        if not self._taken_now[row]:
            conflicts.append(Conflict(row, here, self._around(row, ())))
        scope = Scope(domains=Domains(home, 1), usable=self._usable, conflicts=tuple(conflicts), floor=(0,))
        answer = solve_exact(problem, scope, limits=self._limits)
        if isinstance(answer, CertificateStatus):
            return
        leaving = tuple(np.flatnonzero(answer.chosen).tolist())
        if not answer.certificate.proven:
            bound = _cost(answer.certificate.bound)
            self.loose = min(self.loose or bound, bound)
        heappush(self._found, (_cost(answer.certificate.objective), row, leaving))

    # -- bounds ----------------------------------------------------------------------------------------

    def _next_level(self) -> None:
        """Go on to the least priority at which more nodes come into question."""
        last = len(self._levels) - 1
        if self._least_level > last:
            self._level = last
            return
        there: BoolVector | None = None
        if self._level < 0:
            low, high = self._least_level, last
            while low < high:
                middle = (low + high) // 2
                opens = self._opens(middle)
                if opens.any():
                    high, there = middle, opens
                else:
                    low = middle + 1
            self._level = low
        else:
            self._level += 1
        if there is None:
            there = self._opens(self._level)
        rows = np.flatnonzero(there & ~self._open)
        self._open |= there
        self._number = len(rows)
        if len(rows):
            self._bounds = self._bounded(rows)

    def _bounded(self, rows: IntVector) -> IntMatrix:
        """Bound the damage on nodes that open at the level; the cheapest last."""
        if not self._level:
            return np.stack([rows[::-1], *np.zeros((3, len(rows)), dtype=np.int64)])
        lack = self._lack if len(rows) == len(self._open) else self._lack[:, rows]
        lacks = dict(zip(self._asked, lack, strict=True))
        priority = self._levels[self._level]
        fewest = self._fewest_shared(priority)
        there = self._leaving(self._level)
        return bounded(self._problem, rows, there, priority, lacks, self._shared, fewest)

    def _opens(self, level: int) -> BoolVector:
        """Tell which nodes might take the member once all up to a level have left, shape (N,)."""
        if level < self._least_level:
            return np.zeros_like(self._allowed)
        if not level:
            return self._allowed & self._taken_now
        problem = self._problem
        gone = self._leaving(level)
        opens = self._allowed.copy()
        if not gone[self._reaching].any():
            shut = np.flatnonzero(~self._taken_now)
            opens[shut] &= problem.counted(gone)[shut] > 0
        for resource, lack in zip(self._asked, self._lack, strict=True):
            if lack.max(initial=0) > 0:
                opens &= problem.given(resource, gone) >= lack
        return opens


def _missing(problem: PreemptionProblem) -> tuple[tuple[IntVector, int], ...]:
    """Give what the member lacks beside the nodes, with what each candidate gives back, shape (V,)."""
    shape = problem.members[0].shape
    found = []
    for pool in problem.pools:
        for number, (asked, room) in enumerate(
            zip(pool.uses[shape].tolist(), pool.room.tolist(), strict=True)
        ):
            if asked > room and (asked > 0 or shape in pool.strict):
                found.append((pool.gives[number], asked - room))
    return tuple(found)


def _givers(problem: PreemptionProblem, shared: tuple[tuple[IntVector, int], ...]) -> list[tuple[int, ...]]:
    """Group the candidates that give something back beside the nodes by what they give and cost."""
    if not shared:
        return []
    mask = problem.usable & np.any([given > 0 for given, _ in shared], axis=0)
    alike: dict[tuple[object, ...], list[int]] = {}
    jobs = problem.jobs
    for one in np.flatnonzero(mask).tolist():
        job = int(problem.candidates.job[one])
        alone = jobs.running[job] == 1 and jobs.least[job] == 1
        key = (
            -1 if alone else job,
            int(problem.candidates.priority[one]),
            tuple(int(given[one]) for given, _ in shared),
            int(problem.restart[one]),
            problem.budgets_of(one),
        )
        alike.setdefault(key, []).append(one)
    return [tuple(ones) for ones in alike.values()]


def _cost(vector: tuple[int, ...]) -> Cost:
    violations, highest, jobs, pods, priorities, restarts, _ = vector
    return violations, highest, jobs, pods, priorities, restarts
