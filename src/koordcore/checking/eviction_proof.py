"""The least damage of evictions, counted once more: who fits once somebody may leave, and at what cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from koordcore.checking.cover_proof import PART, cheapest_room, units_of
from koordcore.model.preemption import NO_PRIORITY
from koordcore.model.proofs import EvictionEvidence, EvictionProblem, Evidence, VacatingProblem


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
    _, highest, *known, _ = objective
    fault = floor_fault(problem, objective) if evidence.leaving else ""
    if fault or not evidence.leaving:
        return fault
    least = _least(problem, _usable(problem, problem.priority <= highest), known)
    return (
        "" if least == _packed(known) else "the members may fit for fewer jobs, pods, priorities or restarts"
    )


def floor_fault(problem: EvictionProblem, objective: tuple[int, ...]) -> str:
    """Say why counting does not show that somebody of the highest priority has to leave."""
    highest = objective[1]
    if highest > NO_PRIORITY and _holds(problem, _usable(problem, problem.priority < highest)):
        return f"with pods below priority {highest} gone the members may fit"
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
    return 0, highest, int(broken.sum()), *_costs(problem)[gone].sum(axis=0).tolist(), 0


def _costs(problem: EvictionProblem) -> NDArray[np.int64]:
    """What each adds to pods, priorities and restarts, shape (V, 3)."""
    ones = np.ones_like(problem.node)
    return np.stack(
        (ones, problem.priority, 0 * ones if problem.restart is None else problem.restart), axis=1
    )


def _usable(problem: EvictionProblem, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Tell who of some may leave: where its job can spare somebody, or leaves whole."""
    whole = problem.breakable.copy()
    whole[problem.job[~mask]] = False
    return mask & (whole | (problem.slack > 0))[problem.job]


def _slots(problem: EvictionProblem, gone: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the members that every node of a domain takes once some have left, shape (N,)."""
    slots = np.where(problem.home >= 0, problem.most, 0)
    for asked, free, amounts in zip(problem.request, problem.free, problem.amounts, strict=True):
        if asked > 0:
            room = free.copy()
            np.add.at(room, problem.node[gone], amounts[gone])
            np.minimum(slots, room // asked, out=slots)
    return np.maximum(slots, 0)


def _holds(problem: EvictionProblem, gone: NDArray[np.bool_]) -> bool:
    """Tell whether some domain may hold all members once some have left; False is certain."""
    sums = np.zeros(int(problem.home.max(initial=-1)) + 2, np.int64)
    np.add.at(sums, problem.home, _slots(problem, gone))
    return bool((sums >= problem.members).any())


def _least(problem: EvictionProblem, usable: NDArray[np.bool_], known: list[int]) -> int | None:
    """Bound jobs, pods, priorities and restarts, in one number; None where more than is known is needed.

    A single member is on one node, where of every job single pods leave, or all of it. Several are placed
    node by node, and everybody leaves alone; that a job breaks counts once, and not who leaves with it.
    """
    spared, lone = usable & (problem.slack > 0)[problem.job], problem.members == 1
    broken = not lone and not _holds(problem, spared)
    most, asked = _slots(problem, usable if broken or lone else spared), problem.request > 0
    chosen = np.flatnonzero(usable if broken else spared)
    node, job, amounts = problem.node[chosen], problem.job[chosen], problem.amounts[:, chosen]
    # Of a job that spares one, and of no more than one, one leaves; more than that is not looked at.
    alike = np.where((problem.slack[job] == 1) & (not broken), job, -1 - np.arange(len(job)))
    single = [_packed([0, *one]) for one in _costs(problem)[chosen].tolist()]
    if lone:
        here = np.flatnonzero(usable & problem.breakable[problem.job] & (problem.slack < 2)[problem.job])
        whole = np.zeros((len(problem.slack), 3), np.int64)
        np.add.at(whole, problem.job, _costs(problem))
        pairs, at = np.unique(np.stack((problem.node, problem.job))[:, here], axis=1, return_inverse=True)
        gives = np.zeros((len(amounts), pairs.shape[1]), np.int64)
        np.add.at(gives.T, at.ravel(), problem.amounts[:, here].T)
        single += [_packed([1, *one]) for one in whole[pairs[1]].tolist()]
        node, alike = np.concatenate((node, pairs[0])), np.concatenate((alike, pairs[1]))
        amounts = np.concatenate((amounts, gives), axis=1)
    room = VacatingProblem(
        request=problem.request[asked],
        count=problem.members,
        free=problem.free[asked],
        most=most,
        home=np.where(most > 0, problem.home, -1),
        host=node,
        amounts=amounts[asked],
    )
    units = units_of(room, len(most), single, alike.tolist())
    caps = [_packed(known) + 1] if lone else [_packed([0, pods, 0, 0]) for pods in range(1, known[1] + 2)]
    missing, least = cheapest_room(room, units, caps)
    return None if missing else _packed([int(broken), 0, 0, 0]) + least


def _packed(parts: list[int]) -> int:
    """Write parts as one number that compares like them; the later ones may be negative."""
    return sum(part << PART * place for place, part in enumerate(reversed(parts)))
