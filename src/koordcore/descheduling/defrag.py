"""The fewest moves after which a wanted shape fits: whole nodes in a block, or slots for pods of one size.

For every node the fewest pods that must leave for one, two, … slots are bounded; the cheapest choice of
nodes over all blocks is then a bound that no plan beats. A greedy empties those nodes into the tightest
places. Where it misses the bound, an integer program over everything decides for small clusters, with
chains and rings of moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from koordcore._certify import certified
from koordcore._cpsat import Program, Stage, solve
from koordcore._record import record
from koordcore.descheduling.moves import (
    Host,
    Movable,
    MoveProblem,
    covering_sets,
    fewest_leaving,
)
from koordcore.descheduling.placing import Room
from koordcore.descheduling.program import add_pairs, bind_amounts
from koordcore.descheduling.wanted import Wanted, free_slots
from koordcore.descheduling.waves import in_waves, wave_prices
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey
from koordcore.model.proofs import VacatingProblem

__all__ = ["DefragmentationPlan", "Wanted", "plan_defragmentation"]

_WHOLE: Final = 6_000
_MOST_TRIES: Final = 64
_MOST_BLOCKS: Final = 8


@record(kw_only=True)
class DefragmentationPlan:
    """Who moves where so that the shape fits.

    Parameters
    ----------
    moves
        By wave.
    places
        Node and slots that it offers after the last wave, by name.
    missing
        Slots that no place was found for.
    gains
        Slots of the places that are free after each wave, counted up to what is wanted.
    prices
        Cost of the moves that arrive in each wave.
    certificate
        Objective: missing slots, moves, cost of the moves.
    """

    moves: tuple[Move, ...]
    places: tuple[tuple[str, int], ...]
    missing: int
    gains: tuple[int, ...]
    prices: tuple[int, ...]
    certificate: Certificate


@record
class _Choice:
    """Places with the pods that leave them and where those go."""

    places: dict[str, int]
    targets: dict[PodKey, str]


def plan_defragmentation(
    problem: MoveProblem, wanted: Wanted, *, limits: Limits = DEFAULT_LIMITS
) -> DefragmentationPlan:
    """Plan the moves that make most of a wanted shape fit, and among those plans the fewest moves.

    A node that is hot need not be cooled, but takes no pod while it stays so; no other becomes hot.

    Parameters
    ----------
    problem
        Hosts, movable pods, limits, and where pods may run.
    wanted
        What should fit.
    limits
        Budget of the solver.

    Returns
    -------
    DefragmentationPlan
        Without moves when the shape fits already. Proven when the objective meets its bound.
    """
    by_node: dict[str, list[Movable]] = {}
    for one in sorted(problem.movable, key=lambda one: one.pod):
        by_node.setdefault(one.node, []).append(one)
    blocks = _blocks(problem, wanted)
    curves = {
        host.name: _curve(host, by_node.get(host.name, ()), wanted)
        for hosts in blocks.values()
        for host in hosts
    }
    bound, ranked = _bound(blocks, curves, wanted)
    counted = bound
    choice = greedy = _greedy(problem, wanted, ranked, blocks, curves, by_node)
    objective = _objective(problem, wanted, choice)
    whole = len(problem.movable) * sum(host.receives for host in problem.hosts) <= _WHOLE
    if objective != bound and whole:
        choice, proven = _by_program(problem, wanted, blocks, choice, limits)
        objective = _objective(problem, wanted, choice)
        bound = max(bound, proven)
    moves = in_waves(problem, choice.targets)
    if moves is None:
        # A ring that the limits forbid; the greedy's moves can be carried out one by one.
        choice, objective = greedy, _objective(problem, wanted, greedy)
        moves = in_waves(problem, choice.targets) or ()
    certificate = Certificate.make_bounded(objective, bound)
    if objective == counted:
        certificate = Certificate.make_proven(objective, _vacating(blocks, by_node, wanted))
    elif certificate.proven and whole:
        certificate = _evident(problem, wanted, blocks, choice, certificate, limits)
    return DefragmentationPlan(
        moves=moves,
        places=tuple(sorted(choice.places.items())),
        missing=objective[0],
        gains=_gains(problem, wanted, choice, moves),
        prices=wave_prices(problem, moves),
        certificate=certificate,
    )


def _evident(
    problem: MoveProblem,
    wanted: Wanted,
    blocks: Mapping[str, list[Host]],
    choice: _Choice,
    known: Certificate,
    limits: Limits,
) -> Certificate:
    """Look for evidence over all pods and nodes."""
    asked = _Asked(problem, wanted, blocks, choice)
    found = certified(asked.program.problem(asked.stages), asked.hint, limits)
    return found if found.objective == known.objective else known


def _vacating(
    blocks: Mapping[str, list[Host]], by_node: Mapping[str, Sequence[Movable]], wanted: Wanted
) -> VacatingProblem:
    """State the question that the bound answers."""
    names = sorted(name for name, amount in wanted.requests.items() if amount)
    hosts = [(number, host) for number, ones in enumerate(blocks.values()) for host in ones]
    own = [(row, one) for row, (_, host) in enumerate(hosts) for one in by_node.get(host.name, ())]
    most = [
        min(
            wanted.most_on(host.name),
            *(host.allocatable.get(name, 0) // wanted.requests[name] for name in names),
        )
        for _, host in hosts
    ]
    free = [[_free(host).get(name, 0) for _, host in hosts] for name in names]
    return VacatingProblem(
        request=np.array([wanted.requests[name] for name in names], np.int64),
        count=wanted.count,
        free=np.array(free, np.int64).reshape(len(names), len(hosts)),
        most=np.array(most, np.int64),
        home=np.array([number for number, _ in hosts], np.int64),
        host=np.array([row for row, _ in own], np.int64),
        amounts=np.array([[one.requests.get(name, 0) for _, one in own] for name in names], np.int64).reshape(
            len(names), len(own)
        ),
    )


def _blocks(problem: MoveProblem, wanted: Wanted) -> dict[str, list[Host]]:
    allowed = None if wanted.nodes is None else set(wanted.nodes)
    blocks: dict[str, list[Host]] = {}
    for host in sorted(problem.hosts, key=lambda host: host.name):
        if not host.receives or (allowed is not None and host.name not in allowed):
            continue
        if not wanted.blocks:
            blocks.setdefault("", []).append(host)
        elif host.name in wanted.blocks:
            blocks.setdefault(wanted.blocks[host.name], []).append(host)
    return dict(sorted(blocks.items()))


def _free(host: Host) -> dict[str, int]:
    names = {*host.allocatable, *host.requested}
    return {name: host.allocatable.get(name, 0) - host.requested.get(name, 0) for name in sorted(names)}


def _lack(host: Host, wanted: Wanted, slots: int) -> dict[str, int]:
    free = _free(host)
    lack = {name: slots * amount - free.get(name, 0) for name, amount in wanted.requests.items() if amount}
    return {name: amount for name, amount in lack.items() if amount > 0}


def _curve(host: Host, pods: Sequence[Movable], wanted: Wanted) -> tuple[int, ...]:
    """Bound the pods that must leave for 0, 1, 2, … slots, as far as that is possible at all."""
    curve = [0]
    amounts = [one.requests for one in pods]
    for slots in range(1, wanted.most_on(host.name) + 1):
        lack = _lack(host, wanted, slots)
        if any(
            slots * amount > host.allocatable.get(name, 0)
            for name, amount in wanted.requests.items()
            if amount
        ):
            break
        least = fewest_leaving(amounts, lack)
        if least is None:
            break
        curve.append(least)
    return tuple(curve)


def _cheapest(
    hosts: Sequence[Host], curves: Mapping[str, tuple[int, ...]], count: int
) -> tuple[int, int, dict[str, int]]:
    """Choose slots on nodes of one block for the fewest leaving pods: slots reached, price, node to slots."""
    # Best price for so many slots, and the choice that gave it.
    best: list[tuple[int, tuple[tuple[str, int], ...]] | None] = [(0, ()), *([None] * count)]
    free = [host for host in hosts if any(price == 0 for price in curves[host.name][1:])]
    others = [host for host in hosts if host not in free and len(curves[host.name]) > 1]
    # Only the cheapest nodes of each slot number can be part of a cheapest choice.
    keep: dict[str, Host] = {host.name: host for host in free}
    for slots in range(1, count + 1):
        able = [host for host in others if len(curves[host.name]) > slots]
        for host in sorted(able, key=lambda host: (curves[host.name][slots], host.name))[:count]:
            keep[host.name] = host
    for name in sorted(keep):
        curve = curves[name]
        for reached in range(count, 0, -1):
            for slots in range(1, min(reached, len(curve) - 1) + 1):
                before = best[reached - slots]
                if before is None:
                    continue
                price = before[0] + curve[slots]
                now = best[reached]
                if now is None or price < now[0]:
                    best[reached] = (price, (*before[1], (name, slots)))
    reached = max(index for index, one in enumerate(best) if one is not None)
    found = best[reached]
    assert found is not None
    return reached, found[0], dict(found[1])


def _bound(
    blocks: Mapping[str, list[Host]], curves: Mapping[str, tuple[int, ...]], wanted: Wanted
) -> tuple[tuple[int, ...], list[str]]:
    ranked = []
    for name, hosts in blocks.items():
        reached, price, _ = _cheapest(hosts, curves, wanted.count)
        ranked.append(((wanted.count - reached, price), name))
    ranked.sort()
    if not ranked:
        return (wanted.count, 0, 0), []
    missing, price = ranked[0][0]
    return (missing, price, price), [name for _, name in ranked]


def _greedy(
    problem: MoveProblem,
    wanted: Wanted,
    ranked: Sequence[str],
    blocks: Mapping[str, list[Host]],
    curves: Mapping[str, tuple[int, ...]],
    by_node: Mapping[str, Sequence[Movable]],
) -> _Choice:
    best = _Choice({}, {})
    reached = _objective(problem, wanted, best)
    for name in ranked[:_MOST_BLOCKS]:
        choice = _empty_block(problem, wanted, blocks[name], dict(curves), by_node)
        objective = _objective(problem, wanted, choice)
        if objective < reached:
            best, reached = choice, objective
    return best


def _empty_block(
    problem: MoveProblem,
    wanted: Wanted,
    hosts: Sequence[Host],
    curves: dict[str, tuple[int, ...]],
    by_node: Mapping[str, Sequence[Movable]],
) -> _Choice:
    """Empty the cheapest nodes of a block; one whose pods find no place is offered for less."""
    known = {host.name: host for host in hosts}
    for _ in range(_MOST_TRIES):
        _, _, places = _cheapest(hosts, curves, wanted.count)
        room = Room(problem)
        failed = None
        # Nodes from which most must leave first: their pods are the hardest to place.
        for name in sorted(places, key=lambda name: (-curves[name][places[name]], name)):
            if not _vacate(room, known[name], places, wanted, by_node.get(name, ())):
                failed = name
                break
        if failed is None:
            return _Choice(places, dict(room.targets))
        curves[failed] = curves[failed][: places[failed]]
    return _Choice({}, {})


def _vacate(
    room: Room, host: Host, places: Mapping[str, int], wanted: Wanted, pods: Sequence[Movable]
) -> bool:
    lack = _lack(host, wanted, places[host.name])
    if not lack:
        return True
    sets = covering_sets(pods, [one.requests for one in pods], lack)
    for tried, chosen in enumerate(sets):
        if room.place(chosen, places):
            return True
        if tried >= _MOST_TRIES:
            break
    return False


def _objective(problem: MoveProblem, wanted: Wanted, choice: _Choice) -> tuple[int, ...]:
    cost = sum(one.cost for one in problem.movable if one.pod in choice.targets)
    return wanted.count - sum(choice.places.values()), len(choice.targets), cost


def _by_program(
    problem: MoveProblem,
    wanted: Wanted,
    blocks: Mapping[str, list[Host]],
    start: _Choice,
    limits: Limits,
) -> tuple[_Choice, tuple[int, ...]]:
    asked = _Asked(problem, wanted, blocks, start)
    outcome = solve(asked.program, asked.stages, hint=asked.hint, limits=limits)
    if not outcome.solved:
        return start, ()
    values = outcome.values
    places = {name: values[variable] for name, variable in asked.slots.items() if values[variable]}
    targets = {pod: target for (pod, target), variable in asked.pairs.items() if values[variable]}
    return _Choice(places, targets), outcome.bound


class _Asked:
    """The program over everything, with a plan as its hint."""

    def __init__(
        self, problem: MoveProblem, wanted: Wanted, blocks: Mapping[str, list[Host]], start: _Choice
    ) -> None:
        self.program = program = Program()
        receiving = [host.name for host in problem.hosts if host.receives]
        self.pairs = add_pairs(program, problem, problem.movable, receiving)
        self.slots: dict[str, int] = {}
        chosen, serving = self._places(wanted, blocks)
        bind_amounts(program, problem, problem.movable, self.pairs, (), self.slots, wanted.requests, serving)
        costs = {one.pod: one.cost for one in problem.movable}
        self.stages = (
            Stage([(variable, -1) for variable in self.slots.values()], wanted.count),
            Stage([(variable, 1) for variable in self.pairs.values()]),
            Stage([(variable, costs[pod]) for (pod, _), variable in self.pairs.items()]),
        )
        self.hint = [0] * len(program)
        for (pod, target), variable in self.pairs.items():
            self.hint[variable] = int(start.targets.get(pod) == target)
        for name, hosts in blocks.items():
            self.hint[chosen[name]] = int(any(host.name in start.places for host in hosts))
        for name, variable in self.slots.items():
            self.hint[variable] = start.places.get(name, 0)
            if name in serving:
                self.hint[serving[name]] = int(name in start.places)

    def _places(
        self, wanted: Wanted, blocks: Mapping[str, list[Host]]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Add the slots of every node; gives which block is chosen, and which overdrawn nodes serve."""
        program, slots = self.program, self.slots
        chosen: dict[str, int] = {}
        serving: dict[str, int] = {}
        for name, hosts in blocks.items():
            chosen[name] = program.boolean()
            for host in hosts:
                free, most = _free(host), wanted.most_on(host.name)
                slots[host.name] = program.integer(0, most)
                if any(free.get(one, 0) < 0 for one, amount in wanted.requests.items() if amount):
                    serving[host.name] = program.boolean()
                    program.require([(slots[host.name], 1), (serving[host.name], -most)], at_most=0)
                program.require([(slots[host.name], 1), (chosen[name], -most)], at_most=0)
        program.require([(variable, 1) for variable in chosen.values()], at_most=1)
        program.require([(variable, 1) for variable in slots.values()], at_most=wanted.count)
        return chosen, serving


def _gains(problem: MoveProblem, wanted: Wanted, choice: _Choice, moves: Sequence[Move]) -> tuple[int, ...]:
    free = {host.name: _free(host) for host in problem.hosts}
    movable = {one.pod: one for one in problem.movable}
    gains = []
    for wave in range(max((move.arrives for move in moves), default=-1) + 1):
        for move in moves:
            for name, amount in movable[move.pod].requests.items():
                if move.leaves == wave:
                    free[move.source][name] = free[move.source].get(name, 0) + amount
                if move.arrives == wave:
                    free[move.target][name] = free[move.target].get(name, 0) - amount
        gains.append(sum(min(slots, free_slots(free[name], wanted)) for name, slots in choice.places.items()))
    return tuple(gains)
