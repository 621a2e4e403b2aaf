"""Moves in the integer program: whoever leaves may run on where it fits, and costs less than an eviction.

Pods that move are counted per kind and node, as members are. Of a gang that
breaks its minimum moves, or nobody.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._cpsat import Program
from koordcore._record import record
from koordcore.preemption.problem import PreemptionProblem


@record(eq=False)
class Unit:
    """What leaves together: one step of the variable takes ``step`` more of the candidates.

    Parameters
    ----------
    variable
        How many steps are taken.
    ones
        Candidates in the order in which they are taken.
    step
        1 for candidates that are alike and counted; all of them for a gang that cannot spare anybody.
    job
        The gang; -1 where each candidate is a job of its own.
    moved
        Variable that says how many of the steps are moves; -1 where they all are evictions.
    """

    variable: int
    ones: tuple[int, ...]
    step: int
    job: int
    moved: int = -1

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Steps that are evictions."""
        return [(self.variable, 1), (self.moved, -1)] if self.moved >= 0 else [(self.variable, 1)]


def nobody_moves(problem: PreemptionProblem) -> IntVector:
    """Give the destinations of nobody, shape (V,), to be read only."""
    return np.broadcast_to(np.int64(-1), len(problem.candidates))


def movers(moves: IntVector) -> IntVector:
    """List the candidates that move."""
    if not moves.strides[0] and (moves[:1] < 0).all():
        return np.empty(0, np.int64)  # one value for all, as `nobody_moves` gives it
    return np.flatnonzero(moves >= 0)


def arrivals_of(problem: PreemptionProblem, moves: IntVector) -> IntMatrix:
    """Count what comes to each node by moves, per kind, shape (K, N)."""
    kinds = len(problem.all_shapes) - len(problem.shapes)
    counts = np.zeros((kinds, len(problem.nodes)), dtype=np.int64)
    gone = np.flatnonzero(moves >= 0)
    np.add.at(counts, (problem.shape_of_kind[gone] - len(problem.shapes), moves[gone]), 1)
    return counts


def with_moves(
    program: Program, problem: PreemptionProblem, units: Iterable[Unit], whole: Container[int]
) -> list[Unit]:
    """Let units move all of whose candidates have somewhere to go.

    Parameters
    ----------
    program, problem
        The program that is built, and what is asked.
    units
        Candidates that leave together.
    whole
        Gangs that leave as one unit. Those that run below their minimum could not start elsewhere.
    """
    made = []
    for unit in units:
        few = unit.job in whole and len(unit.ones) < problem.jobs.least[unit.job]
        if few or (problem.shape_of_kind[list(unit.ones)] < 0).any():
            made.append(unit)
            continue
        moved = program.integer(0, len(unit.ones) // unit.step)
        program.require([(moved, 1), (unit.variable, -1)], at_most=0)
        made.append(attrs.evolve(unit, moved=moved))
    return made


class Arrivals:
    """Where those go who move: a count per kind and node.

    Parameters
    ----------
    room
        What each node has left at most, shape (R, N).
    """

    def __init__(
        self, program: Program, problem: PreemptionProblem, units: Sequence[Unit], room: IntMatrix
    ) -> None:
        self._problem, self._units = problem, units
        self.at: dict[tuple[int, int], int] = {}
        leaving: dict[int, list[tuple[int, int]]] = {}
        most: dict[int, int] = {}
        for unit in units:
            if unit.moved < 0:
                continue
            shapes = problem.shape_of_kind[list(unit.ones)]
            numbers, counts = np.unique(shapes, return_counts=True)
            for shape, count in zip(numbers.tolist(), counts.tolist(), strict=True):
                leaving.setdefault(shape, []).append((unit.moved, -count if unit.step > 1 else -1))
                most[shape] = most.get(shape, 0) + count
        for shape in sorted(leaving):
            slots = slots_of(problem, shape, room)
            for row in np.flatnonzero(slots > 0).tolist():
                self.at[shape, row] = program.integer(0, min(most[shape], int(slots[row])))
            program.require([*leaving[shape], *self.of(shape)], equal=0)

    def of(self, shape: int) -> list[tuple[int, int]]:
        """Terms that count the moves of one kind."""
        return [(variable, 1) for (kind, _), variable in self.at.items() if kind == shape]

    def hint(self, values: list[int], chosen: BoolVector, moves: IntVector) -> None:
        """Write moves into an assignment."""
        moved = chosen & (moves >= 0)
        for unit in self._units:
            if unit.moved >= 0:
                values[unit.moved] = int(moved[list(unit.ones)].sum()) // unit.step
        counts = arrivals_of(self._problem, np.where(moved, moves, -1))
        for (shape, row), variable in self.at.items():
            values[variable] = int(counts[shape - len(self._problem.shapes), row])

    def read(self, values: Sequence[int], chosen: BoolVector) -> IntVector:
        """Say where each candidate moves, -1 for none, shape (V,); ``chosen`` loses those who can stay."""
        problem = self._problem
        moves = nobody_moves(problem).copy()
        going: dict[int, list[int]] = {}
        bound: set[int] = set()
        for unit in self._units:
            ones = unit.ones[: unit.step * values[unit.moved]] if unit.moved >= 0 else ()
            whole = unit.job >= 0 and chosen[problem.of_job(unit.job)].all()
            bound.update(ones if whole else ())
            for one in ones:
                going.setdefault(int(problem.shape_of_kind[one]), []).append(one)
        for shape in sorted(going):
            places = [
                row for (kind, row), at in sorted(self.at.items()) if kind == shape for _ in range(values[at])
            ]
            _deal(problem, sorted(going[shape]), places, moves)
        home = np.flatnonzero(moves == problem.candidates.node)
        idle = [one for one in home.tolist() if one not in bound]
        chosen[idle], moves[idle] = False, -1
        return moves


def slots_of(problem: PreemptionProblem, shape: int, room: IntMatrix) -> IntVector:
    """Count the pods of a kind that each node takes alone, shape (N,)."""
    asked = problem.all_shapes[shape]
    slots = np.full(len(problem.nodes), len(problem.candidates), dtype=np.int64)
    for resource in np.flatnonzero(asked.request > 0).tolist():
        np.minimum(slots, room[resource] // asked.request[resource], out=slots)
    if len(asked.most):
        np.minimum(slots, asked.most, out=slots)
    return np.where(asked.allowed, np.maximum(slots, 0), 0)


def _deal(problem: PreemptionProblem, ones: Sequence[int], places: list[int], moves: IntVector) -> None:
    """Hand places out so that nobody gets its own node, as far as that is possible."""
    node = problem.candidates.node
    for one in ones:
        at = next((number for number, row in enumerate(places) if row != node[one]), 0)
        moves[one] = places.pop(at)
    for one in ones:
        if moves[one] != node[one]:
            continue
        for other in ones:
            if moves[other] != node[one] and moves[one] != node[other]:
                moves[one], moves[other] = moves[other], moves[one]
                break
