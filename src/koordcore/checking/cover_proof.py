"""The cheapest way to free enough on one node, by trying all that is not dearer than what is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore.model.proofs import CoolingProblem, EvictionProblem, VacatingProblem

BoolVector: TypeAlias = NDArray[np.bool_]
IntVector: TypeAlias = NDArray[np.int64]
Option: TypeAlias = tuple[int, tuple[int, ...]]
"""What it costs that somebody leaves, and what that gives."""
_PART = 80
"""Bits of a part of a cost: no sum of 64-bit amounts reaches so far."""


def cheapest_cover(units: Sequence[Sequence[Option]], lack: tuple[int, ...], most: int) -> int | None:
    """Choose at most one option of every unit, so that what they give is enough, at the least cost.

    Parameters
    ----------
    units
        Options cost more than nothing.
    lack
        What is missing, per resource.
    most
        Costs of so much and more are no answer.
    """
    if max(lack, default=0) <= 0:
        return 0
    best = most
    reached = {lack: 0}
    for unit in units:
        for left, cost in list(reached.items()):
            for price, gives in unit:
                total = cost + price
                if total >= best:
                    continue
                rest = tuple(max(0, missing - given) for missing, given in zip(left, gives, strict=True))
                if not any(rest):
                    best = total
                elif total < reached.get(rest, best):
                    reached[rest] = total
    return best if best < most else None


def _fewest(
    gives: Sequence[tuple[int, ...]], costs: Sequence[int], lack: Sequence[int]
) -> tuple[int, int] | None:
    """Give how many have to leave at least, and what so many cost at least; None where all are too few."""
    if any(need > sum(given[at] for given in gives) for at, need in enumerate(lack)):
        return None
    units = [[((1 << _PART) + cost, given)] for given, cost in zip(gives, costs, strict=True)]
    needed = tuple(max(0, amount) for amount in lack)
    for count in range(len(units) + 1):
        found = cheapest_cover(units, needed, (count + 1) << _PART)
        if found is not None:
            return found >> _PART, found % (1 << _PART)
    return None


def least_vacating(problem: VacatingProblem) -> tuple[int, int, int]:
    """Bound every plan: slots that are missing, pods that move, and again, as each costs 1 at least."""
    best = problem.count, 0
    for block in sorted({*problem.home.tolist()} - {-1}):
        reached = {0: 0}
        for host in np.flatnonzero(problem.home == block).tolist():
            own = np.flatnonzero(problem.host == host)
            gives = [tuple(column) for column in problem.amounts[:, own].T.tolist()]
            curve = []
            for slots in range(1, min(problem.count, int(problem.most[host])) + 1):
                found = _fewest(
                    gives, [0] * len(gives), (slots * problem.request - problem.free[:, host]).tolist()
                )
                if found is None:
                    break
                curve.append(found[0])
            for slots, moves in sorted(reached.items(), reverse=True):
                for more, price in enumerate(curve, 1):
                    to = min(problem.count, slots + more)
                    reached[to] = min(reached.get(to, moves + price), moves + price)
        most = max(reached)
        best = min(best, (problem.count - most, reached[most]))
    return *best, best[1]


def least_cooling(problem: CoolingProblem) -> tuple[int, int, int, int]:
    """Bound every plan: hosts that stay hot, their permille above the limits, pods that move, their cost."""
    stuck = over = moves = cost = 0
    if (
        problem.share.min(initial=1) < 1
        or min(problem.cost.min(initial=0), problem.amounts.min(initial=0)) < 0
    ):
        raise ValueError("shares are at least 1, costs and amounts not negative")
    for host in range(problem.excess.shape[1]):
        own = np.flatnonzero(problem.host == host).tolist()
        gives = [tuple(problem.amounts[:, one].tolist()) for one in own]
        lack = problem.excess[:, host].tolist()
        left = [need - sum(given[at] for given in gives) for at, need in enumerate(lack)]
        if max(left, default=0) > 0:
            stuck += 1
            for number, (amount, share) in enumerate(zip(left, problem.share[:, host].tolist(), strict=True)):
                permille = max(0, -(-1000 * amount // share))
                over += permille
                # What rounding up does not show needs not go.
                lack[number] -= permille * share // 1000
        found = _fewest(gives, problem.cost[own].tolist(), lack)
        assert found is not None  # all of them are enough
        moves, cost = moves + found[0], cost + found[1]
    return stuck, over, moves, cost


def cheapest_node(
    problem: EvictionProblem, usable: BoolVector, rows: BoolVector, known: tuple[int, ...]
) -> bool:
    """Tell whether no node takes one member for fewer jobs, pods, priorities and restarts than is known.

    Parameters
    ----------
    usable, rows
        Who may leave at all, shape (V,), and where the member may go then, shape (N,).
    known
        Jobs, pods, priorities, restarts.
    """
    if problem.amounts.min(initial=0) < 0 or _restarts(problem).min(initial=0) < 0:
        raise ValueError("amounts and restarts are not negative")
    asked = np.flatnonzero(problem.request > 0)
    whole = _costs_of_jobs(problem)
    candidates = np.flatnonzero(usable)
    candidates = candidates[np.argsort(problem.node[candidates], kind="stable")]
    starts = np.searchsorted(problem.node[candidates], np.arange(len(rows) + 1))
    for row in np.flatnonzero(rows).tolist():
        here = candidates[starts[row] : starts[row + 1]]
        lack = (problem.request - problem.free[:, row])[asked].tolist()
        units = list(_units(problem, here, asked, whole))
        if cheapest_cover(units, tuple(max(0, one) for one in lack), packed(known)) is not None:
            return False
    return True


def packed(parts: Sequence[int]) -> int:
    """Write parts as one number that compares like them; the later ones may be negative."""
    total = 0
    for part in parts:
        total = (total << _PART) + part
    return total


def _costs_of_jobs(problem: EvictionProblem) -> dict[int, int]:
    """What it costs that a whole job leaves."""
    restart = _restarts(problem)
    jobs = len(problem.slack)
    pods, priorities, restarts = np.zeros((3, jobs), np.int64)
    for sums, weights in ((pods, np.ones_like(restart)), (priorities, problem.priority), (restarts, restart)):
        np.add.at(sums, problem.job, weights)
    sums_of = zip(pods.tolist(), priorities.tolist(), restarts.tolist(), strict=True)
    breakable = problem.breakable.tolist()
    return {job: packed((1, *parts)) for job, parts in enumerate(sums_of) if breakable[job]}


def _restarts(problem: EvictionProblem) -> IntVector:
    return np.zeros(len(problem.node), np.int64) if problem.restart is None else problem.restart


def _units(
    problem: EvictionProblem, here: IntVector, asked: IntVector, whole: dict[int, int]
) -> Iterator[list[Option]]:
    """Of every job: single pods while it can spare them, or all of it."""
    restart = _restarts(problem)
    for job in np.unique(problem.job[here]).tolist():
        ones = here[problem.job[here] == job]
        gives = problem.amounts[asked][:, ones]
        slack = int(problem.slack[job])
        broken = [(whole[job], tuple(gives.sum(axis=1).tolist()))] if job in whole else []
        single = [
            (
                packed((0, 1, int(problem.priority[one]), int(restart[one]))),
                tuple(gives[:, at].tolist()),
            )
            for at, one in enumerate(ones.tolist())
        ]
        if slack == 0:
            yield broken
        elif slack == 1:
            yield [*single, *broken]
        else:
            # That no more than the slack leave so is left out: that only makes plans cheaper.
            yield from ([one] for one in single)
