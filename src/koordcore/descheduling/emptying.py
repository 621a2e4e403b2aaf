"""Which nodes can be emptied, and by which moves: bin-packing down by plan.

Nodes with the cheapest pods are emptied first, each into the tightest places among the nodes that stay in
use. Nodes that are empty already stay so: to fill one for each that is emptied would go on for ever. What is
free on all nodes in use together bounds how many can be emptied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

import attrs

from koordcore._certify import certified
from koordcore._cpsat import Program, Stage
from koordcore._record import record
from koordcore.descheduling.moves import Host, Movable, MoveProblem
from koordcore.descheduling.placing import Room
from koordcore.descheduling.waves import in_waves, wave_prices
from koordcore.model.certificates import Certificate
from koordcore.model.moves import Move


@record(kw_only=True)
class EmptyingPlan:
    """Nodes that nothing movable stays on.

    Parameters
    ----------
    moves
        By wave.
    emptied
        Names of the nodes that were emptied, in the order in which that was decided.
    gains
        How many of these are empty after each wave.
    prices
        Cost of the moves that arrive in each wave.
    certificate
        Objective: emptied nodes (negative), moves, cost.
    """

    moves: tuple[Move, ...]
    emptied: tuple[str, ...]
    gains: tuple[int, ...]
    prices: tuple[int, ...]
    certificate: Certificate


def plan_emptying(problem: MoveProblem, *, most: int | None = None) -> EmptyingPlan:
    """Plan to empty nodes, those with the cheapest pods first.

    A node counts as emptied when everything that it is asked for leaves with its movable pods; one that
    holds anything else is not emptied. No pod moves twice, and none onto a node that is to be emptied or is
    empty already.

    Parameters
    ----------
    problem
        Hosts, movable pods, limits, and where pods may run.
    most
        Empty at most so many nodes; ``None`` as many as possible.
    """
    by_node: dict[str, list[Movable]] = {}
    for one in problem.movable:
        by_node.setdefault(one.node, []).append(one)
    problem = attrs.evolve(problem, hosts=tuple(_kept_empty(host, by_node) for host in problem.hosts))
    candidates = []
    for host in problem.hosts:
        own = by_node.get(host.name, [])
        leaving = {name: sum(one.requests.get(name, 0) for one in own) for name in host.requested}
        if own and all(leaving[name] == amount for name, amount in host.requested.items()):
            candidates.append((sum(one.cost for one in own), len(own), host.name))
    room, filled = Room(problem), set[str]()
    emptied: list[str] = []
    for _, _, name in sorted(candidates):
        if most is not None and len(emptied) >= most:
            break
        # A node that took pods of another is in use, and emptying it would move them twice.
        if name not in filled and room.place(by_node[name], [*emptied, name]):
            emptied.append(name)
            filled = set(room.targets.values())
    cost = sum(one.cost for one in problem.movable if one.pod in room.targets)
    objective = (-len(emptied), len(room.targets), cost)
    moves = in_waves(problem, room.targets) or ()
    last = {name: max(move.leaves for move in moves if move.source == name) for name in emptied}
    prices = wave_prices(problem, moves)
    return EmptyingPlan(
        moves=moves,
        emptied=tuple(emptied),
        gains=tuple(sum(left <= wave for left in last.values()) for wave in range(len(prices))),
        prices=prices,
        certificate=_certificate(problem, candidates, most, emptied, objective),
    )


def _kept_empty(host: Host, by_node: Mapping[str, Sequence[Movable]]) -> Host:
    """Let no pod come to a node that nothing runs on."""
    used = host.name in by_node or any(host.requested.values())
    return host if used else attrs.evolve(host, receives=False)


def _certificate(
    problem: MoveProblem,
    candidates: Sequence[tuple[int, int, str]],
    most: int | None,
    emptied: Sequence[str],
    objective: tuple[int, ...],
) -> Certificate:
    """Certify a plan; where it meets its bound, with the sums of what fits as a program."""
    known = Certificate.make_bounded(objective, _bound(problem, candidates, most))
    if not known.proven:
        return known
    program = Program()
    chosen = {name: program.boolean() for _, _, name in candidates}
    hosts = {host.name: host for host in problem.hosts}
    if most is not None:
        program.require([(variable, 1) for variable in chosen.values()], at_most=most)
    for name in sorted({name for one in chosen for name, amount in hosts[one].requested.items() if amount}):
        free = {host.name: _free(host, name) for host in problem.hosts if host.receives}
        held = [(chosen[one], hosts[one].requested.get(name, 0) + free.get(one, 0)) for one in chosen]
        program.require(held, at_most=sum(free.values()))
    stages = (
        Stage([(variable, -1) for variable in chosen.values()]),
        Stage([(chosen[name], pods) for _, pods, name in candidates]),
        Stage([(chosen[name], cost) for cost, _, name in candidates]),
    )
    values = [int(name in set(emptied)) for name in chosen]
    found = certified(program.problem(stages), values)
    return found if found.objective == objective and program.holds(values) else known


def _free(host: Host, name: str) -> int:
    return max(0, host.allocatable.get(name, 0) - host.requested.get(name, 0))


def _bound(
    problem: MoveProblem, candidates: Sequence[tuple[int, int, str]], most: int | None
) -> tuple[int, ...]:
    """Bound every plan: what leaves the emptied nodes fits into what is free on the others.

    An emptied node takes away what it held and what was free on it; for every resource the smallest such
    sums may add up to no more than all that is free.
    """
    hosts = {host.name: host for host in problem.hosts}
    chosen = [hosts[name] for _, _, name in candidates]
    count = len(chosen) if most is None else min(most, len(chosen))
    for name in sorted({name for host in chosen for name, amount in host.requested.items() if amount}):
        free = {host.name: _free(host, name) for host in problem.hosts if host.receives}
        taken = sorted(host.requested.get(name, 0) + free.get(host.name, 0) for host in chosen)
        fitting = sum(one <= sum(free.values()) for one in accumulate(taken))
        count = min(count, fitting)
    pods = sum(sorted(number for _, number, _ in candidates)[:count])
    return -count, pods, sum(sorted(cost for cost, _, _ in candidates)[:count])
