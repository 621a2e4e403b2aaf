"""What the reference does for a plain gang: members one by one without siblings, victims put back per node.

Only what a comparison of plans needs: candidate nodes are all that do not take the first member now.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from koordcore.preemption.problem import PreemptionProblem

__all__ = ["as_is_plan"]

Mask = NDArray[np.bool_]


def as_is_plan(problem: PreemptionProblem) -> tuple[list[int], Mask] | None:
    """Give the node of every member and who leaves; None where the reference gives up."""
    table = problem.candidates
    everybody = np.ones(len(table), dtype=np.bool_)
    emptied = problem.freed(everybody)
    first = problem.shapes[problem.members[0].shape].request
    rows = [row for row in range(len(problem.nodes)) if not _fits(first, problem.free[:, row])]
    ranks = {priority: rank for rank, priority in enumerate(np.unique(table.priority).tolist())}
    cost = {}
    for row in range(len(problem.nodes)):
        here = problem.on_node(row).tolist()
        cost[row] = ranks[int(table.priority[here[0]])] if here else 0
    where: list[int] = []
    for member in problem.members:
        shape = problem.shapes[member.shape]
        rows = [row for row in rows if shape.allowed[row] and _fits(shape.request, emptied[:, row])]
        if not rows:
            return None
        where.append(min(rows, key=lambda row: (cost[row], problem.nodes[row])))
    gone = np.zeros(len(table), dtype=np.bool_)
    for row in sorted(set(where)):
        _put_back(problem, row, where, gone)
    return where, gone


def _fits(request: NDArray[np.int64], room: NDArray[np.int64]) -> bool:
    return bool((room[request > 0] >= request[request > 0]).all())


def _put_back(problem: PreemptionProblem, row: int, where: list[int], gone: Mask) -> None:
    table = problem.candidates
    members = [m for m, node in zip(problem.members, where, strict=True) if node == row]
    needed = np.sum([problem.shapes[m.shape].request for m in members], axis=0)
    here = sorted(problem.on_node(row).tolist(), key=lambda one: (-int(table.priority[one]), table.keys[one]))
    room = problem.free[:, row] + table.amounts[:, here].sum(axis=1)
    for one in here:
        if _fits(needed, room - table.amounts[:, one]):
            room = room - table.amounts[:, one]
        else:
            gone[one] = True
