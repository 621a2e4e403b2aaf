"""What a set of victims costs, once the gangs that it breaks are counted whole (ruling 9)."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.preemption import NO_PRIORITY, Damage
from koordcore.preemption.problem import PreemptionProblem

__all__ = ["broken_jobs", "close", "damage_of"]


def _evicted(problem: PreemptionProblem, chosen: BoolVector) -> IntVector:
    return np.bincount(problem.candidates.job[chosen], minlength=len(problem.jobs.names)).astype(np.int64)


def broken_jobs(problem: PreemptionProblem, chosen: BoolVector) -> BoolVector:
    """Tell which jobs fall below their minimum when the chosen candidates go, shape (J,)."""
    evicted = _evicted(problem, chosen)
    return (evicted > 0) & (problem.jobs.running - evicted < problem.jobs.least)


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


def damage_of(problem: PreemptionProblem, chosen: BoolVector) -> Damage:
    """Add up what a closed set of victims costs; see :class:`Damage` for the order."""
    table = problem.candidates
    if not chosen.any():
        return Damage()
    over = problem.covered[:, chosen].sum(axis=1) - problem.budgets if len(problem.budgets) else np.zeros(0)
    priorities = table.priority[chosen]
    return Damage(
        violations=int(np.maximum(0, over).sum()),
        highest=max(NO_PRIORITY, int(priorities.max())),
        jobs=int(broken_jobs(problem, chosen).sum()),
        pods=int(chosen.sum()),
        priorities=int(priorities.sum()),
        restarts=int(problem.restart[chosen].sum()),
    )
