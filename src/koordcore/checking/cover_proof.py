"""The cheapest way to free enough, node by node, by trying all that is not dearer than what is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from koordcore.model.proofs import CoolingProblem, VacatingProblem

Option: TypeAlias = tuple[int, tuple[int, ...]]
"""What it costs that somebody leaves, and what that gives."""
Unit: TypeAlias = Sequence[Option]
"""Options of which one may be chosen."""
PART = 80
"""Bits of a part of a cost: no sum of 64-bit amounts reaches so far."""


def cheapest_cover(units: Sequence[Unit], lack: Sequence[int], caps: Iterable[int]) -> int | None:
    """Choose at most one option of every unit, so that what they give is enough, at the least cost.

    Parameters
    ----------
    units
        Options cost more than nothing, and give nothing negative.
    lack
        What is missing, per resource.
    caps
        Costs of so much and more are no answer; tried in this order until there is one.
    """
    if max(lack, default=0) <= 0:
        return 0
    for at, need in enumerate(lack):
        if need > sum(max((gives[at] for _, gives in unit), default=0) for unit in units):
            return None
    for cap in caps:
        best, reached = cap, {tuple(max(0, need) for need in lack): 0}
        for unit in units:
            for left, cost in list(reached.items()):
                for price, gives in unit:
                    total = cost + price
                    rest = tuple([max(0, need - given) for need, given in zip(left, gives, strict=True)])
                    if not any(rest):
                        best = min(best, total)
                    elif total < reached.get(rest, best):
                        reached[rest] = total
        if best < cap:
            return best
    return None


def cheapest_room(
    problem: VacatingProblem, units: Sequence[Sequence[Unit]], caps: Sequence[int]
) -> tuple[int, int]:
    """Bound the slots that are missing in every block, and what those that are made cost.

    Parameters
    ----------
    units
        Who may leave each host.
    caps
        Costs up to which each number of slots is tried on a host, in this order.
    """
    best = problem.count, 0
    for block in sorted({*problem.home.tolist()} - {-1}):
        reached = {0: 0}
        for host in np.flatnonzero(problem.home == block).tolist():
            curve: list[int] = []
            for slots in range(1, min(problem.count, int(problem.most[host])) + 1):
                lack = (slots * problem.request - problem.free[:, host]).tolist()
                found = cheapest_cover(units[host], lack, caps)
                if found is None:
                    break
                curve.append(found)
            for slots, cost in sorted(reached.items(), reverse=True):
                for more, price in enumerate(curve, 1):
                    to = min(problem.count, slots + more)
                    reached[to] = min(reached.get(to, cost + price), cost + price)
        best = min(best, (problem.count - max(reached), reached[max(reached)]))
    return best


def units_of(
    problem: CoolingProblem | VacatingProblem, hosts: int, costs: Sequence[int], alike: Sequence[int]
) -> list[list[Unit]]:
    """Let everybody of every host leave; of those that are alike, only one of a host."""
    if problem.amounts.min(initial=0) < 0:
        raise ValueError("amounts are not negative")
    units: list[dict[int, list[Option]]] = [{} for _ in range(hosts)]
    everybody = zip(problem.host.tolist(), costs, alike, problem.amounts.T.tolist(), strict=True)
    for host, cost, kind, gives in everybody:
        units[host].setdefault(kind, []).append((cost, tuple(gives)))
    return [list(own.values()) for own in units]


def least_vacating(problem: VacatingProblem) -> tuple[int, int, int]:
    """Bound every plan: slots that are missing, pods that move, and again, as each costs 1 at least."""
    many = len(problem.host)
    units = units_of(problem, len(problem.home), [1] * many, range(many))
    missing, moves = cheapest_room(problem, units, range(1, many + 2))
    return missing, moves, moves


def least_cooling(problem: CoolingProblem) -> tuple[int, int, int, int]:
    """Bound every plan: hosts that stay hot, their permille above the limits, pods that move, their cost."""
    if problem.share.min(initial=1) < 1 or problem.cost.min(initial=0) < 0:
        raise ValueError("shares are at least 1, costs not negative")
    costs = [(1 << PART) + cost for cost in problem.cost.tolist()]
    units = units_of(problem, problem.excess.shape[1], costs, range(len(costs)))
    stuck = over = total = 0
    for host, own in enumerate(units):
        lack = problem.excess[:, host].tolist()
        left = [need - sum(gives[at] for ((_, gives),) in own) for at, need in enumerate(lack)]
        stuck += max(left, default=0) > 0
        for number, (amount, share) in enumerate(zip(left, problem.share[:, host].tolist(), strict=True)):
            permille = max(0, -(-1000 * amount // share))
            over += permille
            # What rounding up does not show needs not go.
            lack[number] -= permille * share // 1000
        found = cheapest_cover(own, lack, [many << PART for many in range(1, len(own) + 2)])
        assert found is not None  # all of them are enough
        total += found
    return stuck, over, total >> PART, total % (1 << PART)
