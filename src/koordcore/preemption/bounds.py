"""Bounds from closed forms: how many members fit once everybody up to some priority has left."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.model.preemption import NO_PRIORITY, Members
from koordcore.preemption.problem import PreemptionProblem

__all__ = ["Floor", "floor_of", "may_hold", "usable_up_to", "widest_slots"]


@attrs.frozen
class Floor:
    """What no plan can beat.

    Parameters
    ----------
    vector
        A lexicographic lower bound of the damage, as many fields as are known.
    highest
        Per domain, the least priority that has to be hit there; None where the domain cannot hold the job.
    """

    vector: tuple[int, ...]
    highest: tuple[int | None, ...]


def usable_up_to(problem: PreemptionProblem, priority: int | None) -> BoolVector:
    """Tell who may leave when nobody above a priority does, shape (V,); None sets no limit.

    A gang with a member above it, or with one that may not be evicted, gives no more than it can spare.
    """
    table, jobs = problem.candidates, problem.jobs
    fine = np.ones(len(table), dtype=bool) if priority is None else table.priority <= priority
    whole = jobs.breakable.copy()
    whole[table.job[~fine]] = False
    usable: BoolVector = fine & (whole | (jobs.slack > 0))[table.job]
    return usable


def widest_slots(problem: PreemptionProblem, gone: BoolVector) -> IntMatrix:
    """Count the members of each class that every node takes alone once some have left, shape (C, N)."""
    room = problem.freed(gone)
    of_shape: dict[int, IntVector] = {}
    for _, shape in problem.classes:
        if shape in of_shape:
            continue
        asked = problem.shapes[shape]
        slots = np.full(len(problem.nodes), len(problem.members), dtype=np.int64)
        for row in np.flatnonzero(asked.request > 0):
            np.minimum(slots, room[row] // asked.request[row], out=slots)
        of_shape[shape] = np.where(asked.allowed, np.maximum(slots, 0), 0)
    if not problem.classes:
        return np.zeros((0, len(problem.nodes)), dtype=np.int64)
    return np.stack([of_shape[shape] for _, shape in problem.classes])


def may_hold(problem: PreemptionProblem, slots: IntMatrix, mask: BoolVector, members: Members) -> bool:
    """Tell whether nodes with these slots could hold what is needed of every role; False is certain."""
    sums = slots[:, mask].sum(axis=1).tolist()
    for index, role in enumerate(problem.roles):
        need = len(role.members) if members is Members.ALL else role.min_available
        room = sum(
            min(size, total)
            for (of_role, _), size, total in zip(problem.classes, problem.sizes, sums, strict=True)
            if of_role == index
        )
        if room < need:
            return False
    return _together(problem, sums, members)


def _together(problem: PreemptionProblem, sums: Sequence[int], members: Members) -> bool:
    """Roles of one shape share its slots."""
    least: dict[int, int] = {}
    total: dict[int, int] = {}
    for index, role in enumerate(problem.roles):
        shapes = {member.shape for member in role.members}
        if len(shapes) == 1:
            need = len(role.members) if members is Members.ALL else max(0, role.min_available)
            (shape,) = shapes
            least[shape] = least.get(shape, 0) + need
            number = problem.classes.index((index, shape))
            total[shape] = sums[number]
    return all(total[shape] >= need for shape, need in least.items())


def floor_of(problem: PreemptionProblem, domains: Sequence[BoolVector], members: Members) -> Floor:
    """Bound the damage of placing the job in one of the domains.

    For every domain the least priority is searched up to which everybody has to leave for the members to
    fit; one pass over the candidates per step of a binary search.
    """
    levels = [NO_PRIORITY, *np.unique(problem.candidates.priority).tolist()]
    slots: dict[int, IntMatrix] = {}

    def holds(level: int, mask: BoolVector) -> bool:
        if level not in slots:
            nobody = np.zeros(len(problem.candidates), dtype=bool)
            gone = nobody if level == 0 else usable_up_to(problem, levels[level])
            slots[level] = widest_slots(problem, gone)
        return may_hold(problem, slots[level], mask, members)

    highest: list[int | None] = []
    for mask in domains:
        if not holds(len(levels) - 1, mask):
            highest.append(None)
            continue
        low, high = 0, len(levels) - 1
        while low < high:
            middle = (low + high) // 2
            if holds(middle, mask):
                high = middle
            else:
                low = middle + 1
        highest.append(levels[low])
    least = min((one for one in highest if one is not None), default=None)
    if least is None:
        return Floor((), tuple(highest))
    vector = (0, least, 0, 0, 0, 0) if least == NO_PRIORITY else (0, least)
    return Floor(vector, tuple(highest))
