"""The least damage of evictions, counted once more: who fits once somebody may leave, and at what rate."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore.checking.cover_proof import cheapest_node
from koordcore.model.preemption import NO_PRIORITY
from koordcore.model.proofs import EvictionEvidence, EvictionProblem, Evidence

BoolVector: TypeAlias = NDArray[np.bool_]
IntVector: TypeAlias = NDArray[np.int64]


def eviction_fault(
    problem: EvictionProblem, objective: tuple[int, ...] | None, evidence: Evidence | None
) -> str:
    """Say why counting does not show that a damage is the least; empty where it does.

    Parameters
    ----------
    objective
        The damage: violations, highest priority, jobs, pods, priorities, restarts, moves; None where no plan
        is to exist at all.
    """
    if objective is None:
        everybody = _usable(problem, np.ones(len(problem.node), bool))
        return "with everybody gone the members may fit" if _holds(problem, everybody) else ""
    if not isinstance(evidence, EvictionEvidence) or _damage(problem, evidence.leaving) != objective:
        return "it is not said who leaves at this damage"
    violations, highest, jobs, pods, priorities, restarts, moves = objective
    if violations or moves or (restarts and problem.members != 1):
        return "a plan without violations, restarts and moves may exist"
    if highest == NO_PRIORITY:
        return "somebody is lost, and nobody leaves" if jobs or pods or priorities else ""
    fault = floor_fault(problem, objective)
    if fault:
        return fault
    usable = _usable(problem, problem.priority <= highest)
    if problem.members == 1:
        rows = _slots(problem, usable) > 0
        fine = cheapest_node(problem, usable, rows & (problem.home >= 0), (jobs, pods, priorities, restarts))
        return "" if fine else "a node may have a cheaper choice"
    if jobs and _holds(problem, usable & (problem.slack > 0)[problem.job]):
        return "the members may fit without a broken job"
    least = 1 if jobs else max(1, _fewest(problem, usable))
    lowest = int(problem.priority[usable].min(initial=highest))
    shown = (min(jobs, 1), least, highest + (least - 1) * lowest)
    if (jobs, pods, priorities) != shown:
        return f"no more is shown than {shown[0]} jobs, {shown[1]} pods and priorities of {shown[2]}"
    return ""


def _damage(problem: EvictionProblem, leaving: tuple[int, ...]) -> tuple[int, ...] | None:
    """Add up what it costs that some leave; None where that is no plan."""
    gone = np.zeros(len(problem.node), bool)
    gone[list(leaving)] = True
    left = np.bincount(problem.job[gone], minlength=len(problem.slack))
    whole = np.bincount(problem.job, minlength=len(problem.slack))
    broken = left > problem.slack
    if (broken & (~problem.breakable | (left < whole))).any() or not _holds(problem, gone):
        return None
    highest = int(problem.priority[gone].max(initial=NO_PRIORITY))
    restarts = 0 if problem.restart is None else int(problem.restart[gone].sum())
    return 0, highest, int(broken.sum()), int(gone.sum()), int(problem.priority[gone].sum()), restarts, 0


def floor_fault(problem: EvictionProblem, objective: tuple[int, ...]) -> str:
    """Say why counting does not show that somebody of the highest priority has to leave."""
    highest = objective[1]
    if highest > NO_PRIORITY and _holds(problem, _usable(problem, problem.priority < highest)):
        return f"with pods below priority {highest} gone the members may fit"
    return ""


def _usable(problem: EvictionProblem, mask: BoolVector) -> BoolVector:
    """Tell who of some may leave: where its job can spare somebody, or leaves whole."""
    whole = problem.breakable.copy()
    whole[problem.job[~mask]] = False
    usable: BoolVector = mask & (whole | (problem.slack > 0))[problem.job]
    return usable


def _slots(problem: EvictionProblem, gone: BoolVector) -> IntVector:
    """Count the members that every node takes once some have left, shape (N,)."""
    slots = problem.most.copy()
    for asked, free, amounts in zip(problem.request, problem.free, problem.amounts, strict=True):
        if asked > 0:
            room = free.copy()
            np.add.at(room, problem.node[gone], amounts[gone])
            np.minimum(slots, room // asked, out=slots)
    return np.maximum(slots, 0)


def _holds(problem: EvictionProblem, gone: BoolVector) -> bool:
    """Tell whether some domain may hold all members once some have left; False is certain."""
    if problem.members <= 0:
        return True
    inside = problem.home >= 0
    sums = np.zeros(int(problem.home.max(initial=-1)) + 1, np.int64)
    np.add.at(sums, problem.home[inside], _slots(problem, gone)[inside])
    return bool((sums >= problem.members).any())


def _fewest(problem: EvictionProblem, usable: BoolVector) -> int:
    """Bound the pods that have to leave: no place costs less than at the best rate of a node."""
    best: Fraction | None = None
    order = np.argsort(problem.node[usable], kind="stable")
    ones = np.flatnonzero(usable)[order]
    starts = np.searchsorted(problem.node[ones], np.arange(problem.free.shape[1] + 1))
    slots = _slots(problem, usable)
    for row in np.flatnonzero((slots > 0) & (problem.home >= 0)).tolist():
        here = ones[starts[row] : starts[row + 1]]
        needed = np.zeros(int(slots[row]), np.int64)
        for asked, free, amounts in zip(problem.request, problem.free, problem.amounts, strict=True):
            if asked > 0:
                # The largest leave first: so many of them at least.
                given = np.concatenate(([0], np.cumsum(np.sort(amounts[here])[::-1])))
                lack = np.arange(1, len(needed) + 1) * asked - free[row]
                np.maximum(needed, np.searchsorted(given, lack), out=needed)
        rate = min(Fraction(int(pods), count) for count, pods in enumerate(needed, 1))
        best = rate if best is None else min(best, rate)
    return 0 if best is None else -(-problem.members * best.numerator // best.denominator)
