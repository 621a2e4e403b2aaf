"""What the search for one member's place knows of nodes that it has not worked out: node by node, plainly."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.preemption import NO_PRIORITY
from koordcore.preemption.problem import Domains, PreemptionProblem

__all__ = ["NodeBound", "nodes_in_order"]

NodeBound: TypeAlias = tuple[tuple[int, int, int, int, int, int], int]
"""The least damage on a node, and its row."""


def nodes_in_order(problem: PreemptionProblem, domains: Domains) -> list[NodeBound]:
    """Give all nodes that one member could go to, cheapest first by what is known of each."""
    order: list[NodeBound] = []
    seen: set[int] = set()
    heights = _heights(problem)
    for level in [NO_PRIORITY, *sorted(set(heights[problem.usable].tolist()))]:
        gone = problem.usable & (heights <= level)
        rows = [
            row
            for row in range(len(problem.nodes))
            if row not in seen and _opens(problem, domains, row, gone)
        ]
        order += sorted((_least(problem, row, level, gone), row) for row in rows)
        seen.update(rows)
    return order


def _heights(problem: PreemptionProblem) -> IntVector:
    """Up to which priority evictions go for each to leave; of a gang that spares nobody all leave."""
    table, jobs = problem.candidates, problem.jobs
    heights = table.priority.copy()
    for one, job in enumerate(table.job.tolist()):
        if jobs.gang[job] and jobs.running[job] > 1 and jobs.running[job] <= jobs.least[job]:
            heights[one] = table.priority[table.job == job].max()
    return heights


def _lacks(problem: PreemptionProblem, row: int) -> dict[int, int]:
    request = problem.shapes[problem.members[0].shape].request
    lacks = {
        one: int(asked - problem.free[one, row]) for one, asked in enumerate(request.tolist()) if asked > 0
    }
    return {one: amount for one, amount in lacks.items() if amount > 0}


def _far(problem: PreemptionProblem) -> list[tuple[list[int], int]]:
    """What each candidate gives back, and what is missing, of everything beside the nodes."""
    shape = problem.members[0].shape
    return [
        (pool.gives[one].tolist(), int(asked - pool.room[one]))
        for pool in problem.pools
        for one, asked in enumerate(pool.uses[shape].tolist())
        if asked > 0 and asked > pool.room[one]
    ]


def _taken_now(problem: PreemptionProblem, row: int) -> bool:
    shape = problem.shapes[problem.members[0].shape]
    return not _lacks(problem, row) and (not len(shape.now) or bool(shape.now[row]))


def _opens(problem: PreemptionProblem, domains: Domains, row: int, gone: BoolVector) -> bool:
    shape = problem.shapes[problem.members[0].shape]
    if not shape.allowed[row] or domains.home[row] < 0 or (len(shape.most) and not shape.most[row]):
        return False
    leaving = np.flatnonzero(gone).tolist()
    if any(sum(given[one] for one in leaving) < missing for given, missing in _far(problem)):
        return False
    here = [one for one in leaving if problem.candidates.node[one] == row]
    if not here and not _taken_now(problem, row):
        return False
    given = problem.candidates.amounts
    return all(sum(given[r, one] for one in here) >= lack for r, lack in _lacks(problem, row).items())


def _least(
    problem: PreemptionProblem, row: int, level: int, gone: BoolVector
) -> tuple[int, int, int, int, int, int]:
    if level == NO_PRIORITY:
        return (0, level, 0, 0, 0, 0)
    table, jobs = problem.candidates, problem.jobs
    leaving = np.flatnonzero(gone).tolist()
    here = [one for one in leaving if table.node[one] == row]
    far, lacks = _far(problem), _lacks(problem, row)
    pods = 1
    for given, missing in far:
        pods = max(pods, _how_many([given[one] for one in leaving], missing))
    for resource, lack in lacks.items():
        pods = max(pods, _how_many([int(table.amounts[resource, one]) for one in here], lack))
    if pods == 1 and not _one_is_enough(problem, row, here):
        pods = 2
    # Who may be asked to leave at all, for what is missing beside the nodes.
    others = [
        one for one in np.flatnonzero(problem.usable).tolist() if any(given[one] > 0 for given, _ in far)
    ]
    priorities = sorted(table.priority[here].tolist())
    found = [*here, *others]
    several = any(jobs.several[table.job[one]] for one in found)
    if far:
        sums = level + (pods - 1) * min(level, int(table.priority[problem.usable].min()))
        lost = 1 if several else pods
    elif several:
        units = _units(problem, here)
        lost = 1
        for resource, lack in lacks.items():
            given = [sum(int(table.amounts[resource, one]) for one in unit) for unit in units]
            lost = max(lost, _how_many(given, lack))
        if lost == 1 and not any(_is_enough(problem, unit, lacks) for unit in units):
            lost = 2
        leave = [_with_gang(problem, unit[0]) for unit in units]
        pods = sum(sorted(map(len, leave))[:lost])
        sums = level + (pods - 1) * min(level, *(int(table.priority[one]) for ones in leave for one in ones))
    else:
        sums, lost = level + sum(priorities[: pods - 1]), pods
    if any(jobs.spares[table.job[one]] for one in found):
        lost = 0
    return (0, level, lost, pods, sums, 0)


def _is_enough(problem: PreemptionProblem, unit: list[int], lacks: dict[int, int]) -> bool:
    amounts = problem.candidates.amounts
    return all(sum(int(amounts[resource, one]) for one in unit) >= lack for resource, lack in lacks.items())


def _with_gang(problem: PreemptionProblem, one: int) -> list[int]:
    """Give who leaves with a candidate: all of a gang that spares nobody."""
    job, jobs = int(problem.candidates.job[one]), problem.jobs
    if jobs.spares[job]:
        return [one]
    return [other for other, its in enumerate(problem.candidates.job.tolist()) if its == job]


def _units(problem: PreemptionProblem, here: list[int]) -> list[list[int]]:
    """Group the candidates of a node: members of a gang that spares nobody leave together."""
    units: dict[tuple[str, int], list[int]] = {}
    for one in here:
        job = int(problem.candidates.job[one])
        units.setdefault(("pod", one) if problem.jobs.spares[job] else ("job", job), []).append(one)
    return list(units.values())


def _how_many(amounts: list[int], missing: int) -> int:
    number = 0
    for amount in sorted(amounts, reverse=True):
        if missing <= 0:
            break
        number += 1
        missing -= amount
    return number


def _one_is_enough(problem: PreemptionProblem, row: int, here: list[int]) -> bool:
    far, lacks = _far(problem), _lacks(problem, row)
    if far and not lacks:
        return True
    amounts = problem.candidates.amounts
    return any(
        all(given[one] >= missing for given, missing in far)
        and all(amounts[resource, one] >= lack for resource, lack in lacks.items())
        for one in here
    )
