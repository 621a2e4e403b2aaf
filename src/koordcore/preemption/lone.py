"""One member to be placed: whether a single victim is enough is a question of one pass over all of them."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.preemption import NO_PRIORITY
from koordcore.preemption.bounds import Floor, usable_up_to
from koordcore.preemption.cost import close, damage_of
from koordcore.preemption.greedy import Draft
from koordcore.preemption.problem import Domains, PreemptionProblem

__all__ = ["one_member"]


def one_member(problem: PreemptionProblem, domains: Domains, floor: Floor) -> tuple[Draft, Floor] | None:
    """Find the cheapest single eviction that makes room for a single member.

    Parameters
    ----------
    domains
        Where the member may go.
    floor
        What is known about the damage.

    Returns
    -------
    Draft and Floor, or None
        The plan, and a bound that it may have tightened. None when the job has more members, when budgets,
        pools or multiples have a say, or when no single eviction at the least priority is enough.
    """
    if len(problem.members) != 1 or len(floor.vector) != 2 or problem.pools:
        return None
    if len(problem.budgets) or problem.spec.multiples:
        return None
    shape = problem.shapes[problem.members[0].shape]
    allowed = shape.allowed & (domains.home >= 0)
    if len(shape.most):
        allowed &= shape.most > 0
    usable = usable_up_to(problem, floor.vector[1])
    enough = _enough(problem, usable & allowed[problem.candidates.node], shape.request)
    if not len(enough):
        return None
    jobs, job = problem.jobs, problem.candidates.job[enough]
    breaks = jobs.slack[job] == 0
    pods = np.where(breaks, jobs.running[job], 1)
    order = np.lexsort((enough, problem.restart[enough], pods, breaks))
    one = int(enough[order[0]])
    chosen = np.zeros(len(problem.candidates), dtype=bool)
    chosen[one] = True
    closed = close(problem, chosen)
    if closed is None:
        return None
    counts = np.zeros((1, len(problem.nodes)), dtype=np.int64)
    counts[0, problem.candidates.node[one]] = 1
    draft = Draft(counts, closed, damage_of(problem, closed), whole=True)
    return draft, _tightened(problem, draft, floor, allowed, usable)


def _enough(problem: PreemptionProblem, mask: BoolVector, request: IntVector) -> IntVector:
    """Candidates each of whom alone makes room on its node."""
    ones = np.flatnonzero(mask)
    table = problem.candidates
    for row in np.flatnonzero(request > 0):
        room = problem.free[row, table.node[ones]] + table.amounts[row, ones]
        ones = ones[room >= request[row]]
    return ones


def _tightened(
    problem: PreemptionProblem, draft: Draft, floor: Floor, allowed: BoolVector, usable: BoolVector
) -> Floor:
    """Prove the draft where that takes one more look.

    Any plan evicts somebody of the least priority. One pod without a broken job is the least there is; one
    pod with its job is the least where no node can be cleared by what the gangs can spare.
    """
    damage = draft.damage
    least = floor.vector[1]
    if damage.pods != 1 or damage.highest != least or least == NO_PRIORITY:
        return floor
    if problem.restart.any():
        return floor
    if damage.jobs == 1 and _spared_enough(problem, allowed, usable):
        return floor
    return Floor(damage.vector, floor.open)


def _spared_enough(problem: PreemptionProblem, allowed: BoolVector, usable: BoolVector) -> bool:
    """Tell whether some node might be cleared without breaking a job; False is certain."""
    spared = usable & (problem.jobs.slack > 0)[problem.candidates.job]
    room = problem.freed(spared)
    shape = problem.shapes[problem.members[0].shape]
    fits = allowed.copy()
    for row in np.flatnonzero(shape.request > 0):
        fits &= room[row] >= shape.request[row]
    return bool(fits.any())
