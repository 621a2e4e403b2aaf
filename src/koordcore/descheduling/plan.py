"""The fewest moves that cool every hot node, or as much of it as can be, without heating another.

A greedy that takes the smallest set of pods off each hot node is compared with a bound that no plan can
beat. Where they do not meet, an integer program decides, over everything for a small cluster and over the
roomiest targets for a large one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._certify import certified
from koordcore._cpsat import Presolve, Program, Stage, solve
from koordcore._record import record
from koordcore.descheduling.binding import why_hot
from koordcore.descheduling.excess import excess_after, permille, share
from koordcore.descheduling.moves import (
    Host,
    Movable,
    MoveProblem,
    cheapest_cover,
    covering_sets,
    fewest_leaving,
    hot_hosts,
)
from koordcore.descheduling.placing import Room
from koordcore.descheduling.program import add_excess, add_pairs, bind_amounts
from koordcore.descheduling.waves import in_waves
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey
from koordcore.model.proofs import CoolingProblem

_WHOLE: Final = 6_000
"""Pairs of pod and target up to which the program covers every pod and every node."""
_NO_LIMIT: Final = 2**62
"""Stands for the limit of a resource that has none."""
_SHORT: Final = 10_000
"""Pairs up to which it covers what the greedy left hot or moved, and a shortlist of targets."""


@record(kw_only=True)
class RebalancePlan:
    """Who moves where.

    Parameters
    ----------
    moves
        By wave; see :class:`~koordcore.model.moves.Move`.
    before, after
        Names of the hot nodes before and after.
    certificate
        Objective: hot nodes that stay, by how much they exceed their limits (in permille of what the node
        has, rounded up for each resource, summed), moves, cost of the moves.
    why
        Of each node that stays hot, what keeps its pods there: the limits that bind, and what they lack.
    unmeasured
        Names of nodes that nobody looked at, as their usage is not known; they may be hot.
    leaving
        Pods that leave hot nodes without this plan, and whose usage is taken to have gone.
    hot_again
        Names of nodes that are not hot by the thresholds before the moves, and are by those around the
        average after them, where thresholds are deviations and nodes of unequal size.
    """

    moves: tuple[Move, ...]
    before: tuple[str, ...]
    after: tuple[str, ...]
    certificate: Certificate
    why: immutabledict[str, tuple[str, ...]] = attrs.field(default=immutabledict(), converter=immutabledict)
    unmeasured: tuple[str, ...] = ()
    leaving: tuple[PodKey, ...] = ()
    hot_again: tuple[str, ...] = ()


def plan_rebalance(problem: MoveProblem, *, limits: Limits = DEFAULT_LIMITS) -> RebalancePlan:
    """Plan the fewest moves that leave the fewest nodes hot, and those the least above their limits.

    Any movable pod may move, also one of a node that is not hot, and also in chains and rings. A node that
    is not hot never becomes hot; a node that takes a pod ends within its allocatable amounts; no group loses
    more pods than it may.

    Parameters
    ----------
    problem
        Hosts, movable pods, limits, and where pods may run.
    limits
        Budget of the solver.

    Returns
    -------
    RebalancePlan
        Proven when the objective meets its bound; never worse than doing nothing.
    """
    hot = hot_hosts(problem.hosts)
    unmeasured = tuple(sorted(host.name for host in problem.hosts if not host.measured))
    leaving = tuple(sorted(pod for host in problem.hosts for pod in host.leaving))
    if not hot:
        nothing = certified(Program().problem((Stage(()),) * 4), (), limits)
        return RebalancePlan(
            moves=(), before=(), after=(), certificate=nothing, unmeasured=unmeasured, leaving=leaving
        )
    by_node: dict[str, list[Movable]] = {}
    for one in problem.movable:
        by_node.setdefault(one.node, []).append(one)
    bound = counted = _bound(hot, by_node)
    targets = greedy = _greedy(problem, hot, by_node)
    objective = _objective(problem, hot, targets)
    pairs = len(problem.movable) * sum(host.receives for host in problem.hosts)
    if objective[:3] != bound[:3]:
        # Only what the greedy left open, and what it moved: often enough, and small.
        quarter = attrs.evolve(limits, deterministic_time=limits.deterministic_time / 4)
        targets = _by_program(problem, hot, targets, whole=False, limits=quarter).targets
        objective = _objective(problem, hot, targets)
    if objective != bound and pairs <= _WHOLE:
        solved = _by_program(problem, hot, targets, whole=True, limits=limits)
        targets, objective = solved.targets, _objective(problem, hot, solved.targets)
        if solved.bound is not None:
            bound = max(bound, solved.bound)
    moves = in_waves(problem, targets)
    if moves is None:
        # A ring that the limits forbid; the greedy's moves can be carried out one by one.
        targets, objective = greedy, _objective(problem, hot, greedy)
        moves = in_waves(problem, targets) or ()
    certificate = Certificate.make_bounded(objective, bound)
    if objective == counted:
        certificate = Certificate.make_proven(objective, _cooling(hot, by_node))
    elif certificate.proven and pairs <= _WHOLE:
        certificate = _evident(problem, hot, targets, certificate, limits)
    still = _after(problem, hot, targets)
    return RebalancePlan(
        moves=moves,
        before=tuple(sorted(host.name for host in hot)),
        after=tuple(sorted(host.name for host in still)),
        certificate=certificate,
        why=why_hot(problem, still, targets),
        unmeasured=unmeasured,
        leaving=leaving,
    )


def _evident(
    problem: MoveProblem,
    hot: Sequence[Host],
    targets: Mapping[PodKey, str],
    known: Certificate,
    limits: Limits,
) -> Certificate:
    """Look for evidence over all pods and targets."""
    asked = _Asked(problem, hot, targets, problem.movable, _receivers(problem))
    found = certified(asked.program.problem(asked.stages), asked.hint, limits)
    return found if found.objective == known.objective else known


def _cooling(hot: Sequence[Host], by_node: Mapping[str, Sequence[Movable]]) -> CoolingProblem:
    """State the question that the bound answers."""
    names = sorted({name for host in hot for name in host.high})
    own = [(number, one) for number, host in enumerate(hot) for one in by_node.get(host.name, ())]
    over = [[host.usage.get(name, 0) - host.high.get(name, _NO_LIMIT) for host in hot] for name in names]
    used = [[one.usage.get(name, 0) for _, one in own] for name in names]
    return CoolingProblem(
        excess=np.array(over, np.int64).reshape(len(names), len(hot)),
        share=np.array([[share(host, name) for host in hot] for name in names], np.int64),
        host=np.array([number for number, _ in own], np.int64),
        cost=np.array([one.cost for _, one in own], np.int64),
        amounts=np.array(used, np.int64).reshape(len(names), len(own)),
    )


def _excess(host: Host) -> dict[str, int]:
    return {
        name: host.usage.get(name, 0) - limit
        for name, limit in host.high.items()
        if host.usage.get(name, 0) > limit
    }


def _bound(hot: Sequence[Host], by_node: Mapping[str, Sequence[Movable]]) -> tuple[int, ...]:
    """Bound every plan: nodes that nothing can cool, their excess then, and the pods that must leave."""
    stuck = over = moves = cost = 0
    for host in hot:
        own = by_node.get(host.name, ())
        used, excess = [one.usage for one in own], _excess(host)
        if fewest_leaving(used, excess) is None:
            stuck += 1
            left = {name: excess[name] - sum(one.get(name, 0) for one in used) for name in excess}
            over += sum(permille(host, name, amount) for name, amount in left.items())
            # Less than all that may go is enough where rounding up comes to the same.
            kept = {name: permille(host, name, left[name]) * share(host, name) // 1000 for name in excess}
            excess = {name: amount - kept[name] for name, amount in excess.items() if amount > kept[name]}
        least = fewest_leaving(used, excess) or 0
        moves += least
        # A plan with no more moves than that takes exactly so many pods off each of these nodes.
        cost += cheapest_cover(own, used, excess, least) if excess else 0
    return stuck, over, moves, cost


def _greedy(
    problem: MoveProblem, hot: Sequence[Host], by_node: Mapping[str, Sequence[Movable]]
) -> dict[PodKey, str]:
    room = Room(problem)
    names = [host.name for host in hot]
    # Nodes with the least choice first.
    order = sorted(hot, key=lambda host: (len(by_node.get(host.name, ())), host.name))
    for host in order:
        own = sorted(by_node.get(host.name, ()), key=lambda one: one.pod)
        sets = covering_sets(own, [one.usage for one in own], _excess(host))
        for tried, chosen in enumerate(sets):
            if room.place(chosen, names) or tried >= _MOST_TRIES:
                break
    for host in order:
        if any(room.targets.get(one.pod) for one in by_node.get(host.name, ())):
            continue
        _relieve(room, host, by_node.get(host.name, ()), names)
    return room.targets


def _relieve(room: Room, host: Host, own: Sequence[Movable], excluded: Sequence[str]) -> None:
    """Take as much off a node that cannot be cooled as goes, what relieves it most first."""
    excess = _excess(host)

    def relief(one: Movable) -> int:
        return sum(permille(host, name, min(one.usage.get(name, 0), over)) for name, over in excess.items())

    for one in sorted(own, key=lambda one: (-relief(one), one.cost, one.pod)):
        if relief(one) and room.place([one], excluded):
            excess = {name: over - one.usage.get(name, 0) for name, over in excess.items()}
            excess = {name: over for name, over in excess.items() if over > 0}


_MOST_TRIES: Final = 512


def _after(problem: MoveProblem, hot: Sequence[Host], targets: Mapping[PodKey, str]) -> tuple[Host, ...]:
    """List the hosts that are hot after the moves, given those that are before."""
    changes: dict[str, dict[str, int]] = {}
    for one in problem.movable:
        target = targets.get(one.pod)
        if target is not None:
            for name, amount in one.usage.items():
                for node, sign in ((one.node, -1), (target, 1)):
                    change = changes.setdefault(node, {})
                    change[name] = change.get(name, 0) + sign * amount
    before = {host.name for host in hot}
    after = []
    for host in problem.hosts:
        moved = changes.get(host.name)
        if moved is None:
            if host.name in before:
                after.append(host)
        elif any(host.usage.get(name, 0) + moved.get(name, 0) > limit for name, limit in host.high.items()):
            after.append(host)
    return tuple(after)


def _objective(problem: MoveProblem, hot: Sequence[Host], targets: Mapping[PodKey, str]) -> tuple[int, ...]:
    cost = sum(one.cost for one in problem.movable if one.pod in targets)
    over = sum(excess_after(problem, hot, targets).values())
    return len(_after(problem, hot, targets)), over, len(targets), cost


@record
class _Solved:
    targets: dict[PodKey, str]
    bound: tuple[int, ...] | None


def _by_program(
    problem: MoveProblem,
    hot: Sequence[Host],
    start: Mapping[PodKey, str],
    *,
    whole: bool,
    limits: Limits,
) -> _Solved:
    names = {host.name for host in hot}
    still = {host.name for host in _after(problem, hot, start)}
    pods = [one for one in problem.movable if whole or one.node in still or one.pod in start]
    receivers = _receivers(problem) if whole else _roomiest(problem, names, start, len(pods))
    asked = _Asked(problem, hot, start, pods, receivers)
    outcome = solve(asked.program, asked.stages, hint=asked.hint, limits=limits, presolve=Presolve.LIGHT)
    if not outcome.solved:
        return _Solved(dict(start), None)
    targets = {pod: target for (pod, target), variable in asked.pairs.items() if outcome.values[variable]}
    return _Solved(targets, outcome.bound if whole else None)


class _Asked:
    """The program over some pods and targets, with a plan as its hint."""

    def __init__(
        self,
        problem: MoveProblem,
        hot: Sequence[Host],
        start: Mapping[PodKey, str],
        pods: Sequence[Movable],
        receivers: Sequence[str],
    ) -> None:
        self.program = Program()
        self.pairs = add_pairs(self.program, problem, pods, receivers)
        names = {host.name for host in hot}
        over = bind_amounts(self.program, problem, pods, self.pairs, names)
        excess = add_excess(self.program, problem, pods, self.pairs, names)
        costs = {one.pod: one.cost for one in pods}
        self.stages = (
            Stage([(variable, 1) for variable in over.values()]),
            Stage([(variable, 1) for variable in excess.values()]),
            Stage([(variable, 1) for variable in self.pairs.values()]),
            Stage([(variable, costs[pod]) for (pod, _), variable in self.pairs.items()]),
        )
        still = {host.name for host in _after(problem, hot, start)}
        self.hint = [0] * len(self.program)
        for (pod, target), variable in self.pairs.items():
            self.hint[variable] = int(start.get(pod) == target)
        for name, variable in over.items():
            self.hint[variable] = int(name in still)
        known = excess_after(problem, hot, start)
        for place, variable in excess.items():
            self.hint[variable] = known.get(place, 0)


def _receivers(problem: MoveProblem) -> list[str]:
    return [host.name for host in problem.hosts if host.receives]


def _roomiest(problem: MoveProblem, hot: set[str], start: Mapping[PodKey, str], pods: int) -> list[str]:
    """List the targets that are in use and the roomiest others."""
    receiving = [host for host in problem.hosts if host.receives]
    used = set(start.values())
    count = max(8, _SHORT // max(1, pods) - len(used))

    def coolness(host: Host) -> float:
        rooms = [
            (limit - host.usage.get(name, 0)) / max(1, limit) for name, limit in sorted(host.high.items())
        ]
        return min(rooms, default=1.0)

    others = sorted(
        (host for host in receiving if host.name not in used and host.name not in hot),
        key=lambda host: (-coolness(host), host.name),
    )
    return sorted([*used, *(host.name for host in others[:count])])
