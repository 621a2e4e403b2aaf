"""What the victims on a node cost at least: closed forms over all nodes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.preemption.problem import PreemptionProblem


def bounded(
    problem: PreemptionProblem,
    rows: IntVector,
    there: BoolVector,
    priority: int,
    lack_of: Mapping[int, IntVector],
    shared: Sequence[tuple[IntVector, int]],
    fewest: int,
) -> IntMatrix:
    """Bound the damage on some nodes, n of them, for one member.

    Parameters
    ----------
    problem
        Asks for one member's place.
    rows
        The nodes, ascending, shape (n,).
    there
        Who may leave, shape (V,).
    priority
        The highest that leaves.
    lack_of
        What each node lacks of a resource, shape (n,) each; what is there to spare is negative.
    shared
        What is missing beside the nodes, with what each candidate gives back, shape (V,).
    fewest
        How many have to leave for that.

    Returns
    -------
    ndarray
        Rows, and jobs, pods and sums of priorities at least, shape (4, n); the cheapest last.
    """
    table, jobs = problem.candidates, problem.jobs
    homes = table.node
    if len(rows) < len(problem.nodes):
        position = np.full(len(problem.nodes), -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        homes = position[table.node]
        there = there & (homes >= 0)
    # Where they stand in order and all of them count, nothing is copied.
    every = bool(there.all()) and problem.ordered
    ones = slice(None) if every else problem.in_order(there)
    at = homes[ones]
    starts = problem.by_node.starts[rows] if every else np.searchsorted(at, np.arange(len(rows)))
    pods = np.full(len(rows), fewest, dtype=np.int64)
    lacks = [(one, lack) for one, lack in lack_of.items() if lack.max() > 0]
    for resource, lack in lacks:
        given = table.amounts[resource, ones]
        largest = problem.by_node.largest(resource)[rows] if every else _largest(starts, given)
        np.maximum(pods, _fewest(at, given, largest, lack), out=pods)
    if len(lacks) + len(shared) > 1:
        # A single pod is enough only where it gives all that is lacking.
        alone = np.ones(len(at), dtype=np.bool_)
        for given, missing in shared:
            alone &= given[ones] >= missing
        for resource, lack in lacks:
            alone &= table.amounts[resource, ones] >= lack[at]
        single = np.bincount(at[alone], minlength=len(rows)) > 0
        if shared:
            single |= np.all([lack <= 0 for lack in lack_of.values()], axis=0)
        pods[(pods == 1) & ~single] = 2
    spare = _marked(at, jobs.spares, table.job[ones], len(rows))
    tight = _marked(at, jobs.several, table.job[ones], len(rows))
    far = np.flatnonzero(
        np.any([problem.reaching, *(given > 0 for given, _ in shared)], axis=0) & problem.usable
    )
    if shared or len(far):
        # Who leaves may be on any node.
        sums = priority + (pods - 1) * min(priority, int(table.priority[problem.usable].min()))
        spare |= bool(jobs.spares[table.job[far]].any())
        tight |= bool(jobs.several[table.job[far]].any())
        lost = np.where(tight, 1, pods)
    else:
        sums = priority + _smallest(at, starts, table.priority[ones], pods - 1)
        lost = pods
        if tight.any():
            amounts = [(table.amounts[resource, ones], lack) for resource, lack in lacks]
            bound, units = _of_units(problem, at, table.job[ones], table.priority[ones], amounts, len(rows))
            lost = np.where(tight, units, lost)
            sums = np.where(tight, priority + (bound[0] - 1) * np.minimum(priority, bound[1]), sums)
            pods = np.where(tight, bound[0], pods)
    lost = np.where(spare, 0, lost)
    bounds = np.stack([rows, lost, pods, sums])
    if (bounds[1:] == bounds[1:, :1]).all():
        return bounds[:, ::-1]  # by their rows, which ascend
    return bounds[:, np.lexsort((rows, sums, pods, lost))[::-1]]


def _of_units(
    problem: PreemptionProblem,
    at: IntVector,
    job: IntVector,
    priority: IntVector,
    amounts: Sequence[tuple[IntVector, IntVector]],
    number: int,
) -> tuple[IntMatrix, IntVector]:
    """Count a gang that spares nobody as one: it leaves whole, wherever its other members are.

    Parameters
    ----------
    at, job, priority
        Of those who may leave: the position of their node, ascending, their job, and their priority.
    amounts
        What each of them gives of a resource, and what each node lacks of it, shape (n,).

    Returns
    -------
    tuple
        How many pods leave at least and the least priority of those who come into question, shape (2, n);
        how many jobs of them, shape (n,).
    """
    jobs, table = problem.jobs, problem.candidates
    whole = (jobs.several & ~jobs.spares)[job]
    least = np.full(len(jobs.least), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(least, table.job, table.priority)
    unit = np.where(whole, job, len(jobs.least) + np.arange(len(job)))
    order = np.lexsort((unit, at))
    fresh = (np.diff(unit[order], prepend=-1) != 0) | (np.diff(at[order], prepend=-1) != 0)
    first = np.flatnonzero(fresh)
    homes = at[order][first]
    starts = np.searchsorted(homes, np.arange(number))
    units = np.ones(number, dtype=np.int64)
    enough = np.ones(len(first), dtype=np.bool_)
    for amount, lack in amounts:
        given = np.add.reduceat(amount[order], first)
        np.maximum(units, _fewest(homes, given, _largest(starts, given), lack), out=units)
        enough &= given >= lack[homes]
    units[(units == 1) & (np.bincount(homes[enough], minlength=number) == 0)] = 2
    sizes = np.where(whole, jobs.running[job], 1)[order][first]
    lowest = np.full(number, np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(lowest, homes, np.where(whole, least[job], priority)[order][first])
    return np.stack([_smallest(homes, starts, sizes, units), lowest]), units


def _marked(at: IntVector, marks: BoolVector, job: IntVector, number: int) -> BoolVector:
    """Tell at which of some positions there is a pod of a marked job, shape (n,)."""
    if not marks.any():
        return np.zeros(number, dtype=np.bool_)
    there: BoolVector = np.bincount(at[marks[job]], minlength=number) > 0
    return there


def _largest(starts: IntVector, given: IntVector) -> IntVector:
    """Give the largest amount at each position, shape (n,), where those of each begin; any where none is."""
    if not len(given):
        return np.zeros(len(starts), dtype=np.int64)
    largest: IntVector = np.maximum.reduceat(given, np.minimum(starts, len(given) - 1))
    return largest


def _fewest(at: IntVector, given: IntVector, largest: IntVector, lack: IntVector) -> IntVector:
    """Count how many of the largest amounts at each position make up for what is lacking, shape (n,).

    Parameters
    ----------
    at
        Position of each amount, ascending.
    largest
        The largest amount at each position, shape (n,); anything where there is none.
    """
    number = len(lack)
    fewest = (lack > 0).astype(np.int64)
    if not len(at):
        return fewest
    several = np.flatnonzero((lack > 0) & (largest < lack))
    if not len(several):
        return fewest
    short = np.zeros(number, dtype=np.bool_)
    short[several] = True
    picked = np.flatnonzero(short[at])
    order = picked[np.lexsort((-given[picked], at[picked]))]
    sums, homes = np.cumsum(given[order]), at[order]
    first = np.searchsorted(homes, several)
    before = np.zeros(number, dtype=np.int64)
    before[several] = sums[first] - given[order][first]
    unmet = sums - before[homes] < lack[homes]
    return fewest + np.bincount(homes, unmet, number).astype(np.int64)


def _smallest(at: IntVector, starts: IntVector, values: IntVector, counts: IntVector) -> IntVector:
    """Add up the ``counts`` smallest values at each position, shape (n,); ``at`` ascends."""
    if not counts.any():
        return np.zeros(len(counts), dtype=np.int64)
    order = np.lexsort((values, at))
    sums = np.concatenate([[0], np.cumsum(values[order])])
    smallest: IntVector = sums[starts + counts] - sums[starts]
    return smallest
