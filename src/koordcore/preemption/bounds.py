"""Bounds from closed forms: how many members fit once everybody up to some priority has left."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._record import record
from koordcore.model.preemption import NO_PRIORITY, Members
from koordcore.model.proofs import EvictionProblem, LinearProblem
from koordcore.preemption.problem import Domains, PreemptionProblem


@record(eq=False)
class Floor:
    """What no plan can beat.

    Parameters
    ----------
    vector
        A lexicographic lower bound of the damage, as many fields as are known.
    open
        Domains that may reach it, shape (domains,).
    """

    vector: tuple[int, ...]
    open: BoolVector


def needs_of(problem: PreemptionProblem, members: Members) -> list[int]:
    """Count the members of each role that have to be placed; where shares are chosen, one that does."""
    spares = problem.shares is not None
    return [
        len(role.members)
        if members is Members.ALL and not (spares and role.min_available <= 0)
        else max(0, role.min_available)
        for role in problem.roles
    ]


def needed_members(problem: PreemptionProblem, members: Members) -> int:
    """Count the members that have to be placed."""
    return sum(needs_of(problem, members))


def eviction_problem(
    problem: PreemptionProblem, domains: Domains, members: Members, rest: LinearProblem | None = None
) -> EvictionProblem | None:
    """State what is asked where all members are alike, for a proof of the answer; None where they are not.

    Pools, budgets, multiples and what dry runs found only take plans away: a bound holds without them.

    Parameters
    ----------
    problem
        What is asked.
    domains
        Where the members may go together.
    members
        The minimum, or all of them.
    rest
        What is known of moves; ``None`` where nobody moves.
    """
    if len(problem.classes) != 1:
        return None
    table, shape = problem.candidates, problem.shapes[problem.classes[0][1]]
    most = shape.most if len(shape.most) else np.full(len(problem.nodes), len(problem.members), np.int64)
    return EvictionProblem(
        request=shape.request,
        members=needed_members(problem, members),
        free=problem.free,
        most=np.where(shape.allowed, np.minimum(most, len(problem.members)), 0),
        home=domains.home,
        node=table.node,
        priority=table.priority,
        job=table.job,
        amounts=table.amounts,
        slack=problem.jobs.slack,
        breakable=problem.jobs.breakable,
        rest=rest,
        restart=problem.restart,
    )


def usable_up_to(problem: PreemptionProblem, priority: int | None) -> BoolVector:
    """Tell who may leave when nobody above a priority does, shape (V,); None sets no limit.

    A gang with a member above it, or with one that may not be evicted, gives no more than it can spare.
    """
    table, jobs = problem.candidates, problem.jobs
    if priority is None or not problem.priorities or priority >= problem.priorities[-1]:
        return problem.usable
    if priority < problem.priorities[0]:
        return np.zeros(len(table), dtype=bool)
    fine = table.priority <= priority
    whole = jobs.breakable.copy()
    whole[table.job[~fine]] = False
    usable: BoolVector = fine & (whole | jobs.spares)[table.job]
    return usable


def widest_slots(problem: PreemptionProblem, gone: BoolVector) -> IntMatrix:
    """Count the members of each class that every node takes alone once some have left, shape (C, N)."""
    some, most = bool(gone.any()), len(problem.members)
    of_shape: dict[int, IntVector] = {}
    for _, shape in problem.classes:
        if shape in of_shape:
            continue
        asked = problem.shapes[shape]
        slots = np.full(len(problem.nodes), most, dtype=np.int64)
        for row in np.flatnonzero(asked.request > 0).tolist():
            room = problem.free[row] + problem.given(row, gone) if some else problem.free[row]
            # To divide takes ten times as long as to compare.
            np.minimum(
                slots, room // asked.request[row] if most > 1 else room >= asked.request[row], out=slots
            )
        if len(asked.most):
            np.minimum(slots, asked.most, out=slots)
        of_shape[shape] = np.where(asked.allowed, np.maximum(slots, 0), 0)
    if not problem.classes:
        return np.zeros((0, len(problem.nodes)), dtype=np.int64)
    return np.stack([of_shape[shape] for _, shape in problem.classes])


def holding(problem: PreemptionProblem, slots: IntMatrix, domains: Domains, members: Members) -> BoolVector:
    """Tell which domains could hold what is needed of every role, shape (domains,); False is certain.

    Parameters
    ----------
    slots
        Members of each class that every node takes alone, shape (C, N).
    """
    # Mostly every node is in some domain: then none is looked for.
    inside = slice(None) if (domains.home >= 0).all() else domains.home >= 0
    home = domains.home[inside]
    sums = np.zeros((len(problem.classes), domains.count), dtype=np.int64)
    for number, row in enumerate(slots):
        sums[number] = np.bincount(home, row[inside], domains.count)  # far below 2**53
    if problem.shares is not None:
        return _most_of(problem, sums) >= problem.shares.members
    fits = np.ones(domains.count, dtype=bool)
    shared: dict[int, tuple[int, IntVector]] = {}
    for index, need in enumerate(needs_of(problem, members)):
        room = np.zeros(domains.count, dtype=np.int64)
        shapes = []
        for number, (of_role, shape) in enumerate(problem.classes):
            if of_role == index:
                room += np.minimum(problem.sizes[number], sums[number])
                shapes.append((shape, sums[number]))
        fits &= room >= need
        if len(shapes) == 1:
            # Roles of one shape share its slots.
            shape, total = shapes[0]
            shared[shape] = (shared.get(shape, (0, total))[0] + need, total)
    for need, total in shared.values():
        fits &= total >= need
    return fits


def _most_of(problem: PreemptionProblem, sums: IntMatrix) -> IntVector:
    """Bound the members that each domain takes, whichever roles they are of, shape (domains,)."""
    most = np.zeros(sums.shape[1], dtype=np.int64)
    shapes = np.array([shape for _, shape in problem.classes], dtype=np.int64)
    sizes = np.array(problem.sizes, dtype=np.int64)
    for shape in np.unique(shapes):
        # Roles of one shape share its slots.
        alike = np.flatnonzero(shapes == shape)
        most += np.minimum(sizes[alike].sum(), sums[alike[0]])
    return most


def floor_of(problem: PreemptionProblem, domains: Domains, members: Members) -> Floor:
    """Bound the damage of placing the job in one of the domains.

    The least priority is searched up to which everybody has to leave for the members to fit somewhere; one
    pass over the candidates per step of a binary search.

    Parameters
    ----------
    problem
        What is asked.
    domains
        Where the members may go together.
    members
        The minimum, or all of them.
    """
    levels = [NO_PRIORITY, *problem.priorities]
    known: dict[int, BoolVector] = {}

    def holds(level: int) -> BoolVector:
        if level not in known:
            known[level] = holding(problem, slots_up_to(problem, levels[level]), domains, members)
        return known[level]

    low, high = 0, len(levels) - 1
    if not holds(high).any():
        return Floor((), holds(high))
    while low < high:
        middle = (low + high) // 2
        if holds(middle).any():
            high = middle
        else:
            low = middle + 1
    least = levels[low]
    vector = (0, least, 0, 0, 0, 0, 0) if least == NO_PRIORITY else (0, least)
    return Floor(vector, holds(low))


def slots_up_to(problem: PreemptionProblem, priority: int) -> IntMatrix:
    """Count what every node takes once all who may have left up to a priority, shape (C, N)."""
    if priority == NO_PRIORITY:
        return widest_slots(problem, np.zeros(len(problem.candidates), dtype=bool))
    return widest_slots(problem, usable_up_to(problem, priority))


def fewest_pods(problem: PreemptionProblem, usable: BoolVector, slots: IntMatrix, members: int) -> int:
    """Bound the evictions that interchangeable members need: no place costs less than at the best rate.

    Parameters
    ----------
    usable
        Who may leave, shape (V,).
    slots
        Members that every node takes once they all have left, shape (1, N).
    members
        How many have to be placed.
    """
    request = problem.shapes[problem.classes[0][1]].request
    best = (1, 0)  # evictions over members, as a fraction turned upside down: members, evictions
    found = False
    for row in np.flatnonzero(slots[0] > 0).tolist():
        here = problem.on_node(row)
        here = here[usable[here]]
        counts = np.arange(1, int(slots[0, row]) + 1)
        fewest = np.zeros(len(counts), dtype=np.int64)
        for resource in np.flatnonzero(request > 0).tolist():
            given = np.cumsum(np.sort(problem.candidates.amounts[resource, here])[::-1])
            lack = counts * request[resource] - problem.free[resource, row]
            needed = np.where(lack > 0, np.searchsorted(given, lack) + 1, 0)
            np.maximum(fewest, needed, out=fewest)
        for count, evictions in zip(counts.tolist(), fewest.tolist(), strict=True):
            if not found or evictions * best[0] < best[1] * count:
                best, found = (count, evictions), True
    return -(-members * best[1] // best[0])
