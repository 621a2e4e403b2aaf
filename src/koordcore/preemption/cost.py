"""What a set of victims costs, once the gangs that it breaks are counted whole (ruling 9)."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.preemption import NO_PRIORITY, Damage
from koordcore.preemption.problem import PreemptionProblem


def broken_jobs(problem: PreemptionProblem, chosen: BoolVector) -> BoolVector:
    """Tell which jobs fall below their minimum when the chosen candidates go, shape (J,)."""
    broken = np.zeros(len(problem.jobs.names), dtype=np.bool_)
    broken[_broken(problem, chosen)] = True
    return broken


def _broken(problem: PreemptionProblem, chosen: BoolVector) -> IntVector:
    """Give the numbers of these jobs, ascending: few leave of very many."""
    jobs = problem.jobs
    concerned, evicted = np.unique(problem.candidates.job[np.flatnonzero(chosen)], return_counts=True)
    below: IntVector = concerned[jobs.running[concerned] - evicted < jobs.least[concerned]]
    return below


def close(problem: PreemptionProblem, chosen: BoolVector) -> BoolVector | None:
    """Add the rest of every gang that would fall below its minimum.

    Parameters
    ----------
    chosen
        Candidates that leave, shape (V,).

    Returns
    -------
    array or None
        All that leave, shape (V,); None when a broken gang has members that may not be evicted, so that
        they would hold room for nothing.
    """
    broken = broken_jobs(problem, chosen)
    if (broken & ~problem.jobs.breakable).any():
        return None
    closed: BoolVector = chosen | broken[problem.candidates.job]
    return closed


def damage_of(problem: PreemptionProblem, chosen: BoolVector, moved: BoolVector | None = None) -> Damage:
    """Add up what a closed set of victims costs; see :class:`Damage` for the order.

    Parameters
    ----------
    chosen
        Candidates that leave, shape (V,).
    moved
        Those of them that run on elsewhere, shape (V,); nobody when left out.
    """
    table = problem.candidates
    if not chosen.any():
        return Damage()
    over = problem.covered[:, chosen].sum(axis=1) - np.maximum(0, problem.budgets)
    if moved is not None and not moved.any():
        moved = None
    evicted = chosen if moved is None else chosen & ~moved
    priorities = table.priority[evicted]
    lost = _broken(problem, chosen)
    if moved is not None:
        # Who moves on is not lost to his gang.
        gone = np.bincount(table.job[evicted], minlength=len(problem.jobs.names))[lost]
        lost = lost[problem.jobs.running[lost] - gone < problem.jobs.least[lost]]
    return Damage(
        violations=int(np.maximum(0, over).sum()),
        highest=max(NO_PRIORITY, int(priorities.max())) if len(priorities) else NO_PRIORITY,
        jobs=len(lost),
        pods=int(evicted.sum()),
        priorities=int(priorities.sum()),
        restarts=int(problem.restart[chosen].sum()),
        moves=int(chosen.sum()) - int(evicted.sum()),
    )
