"""The moves that lower fragmentation most for what they cost: FGD's measure, applied to running pods.

Idle card shares that the expected work cannot use are fragments
(:class:`~koordcore.scoring.fragmentation.FragmentationMeasure`). Every move has a price, given as the card
milli that it must win, so a plan is judged by one number: fragments that stay plus the price of the moves.
The greedy takes the move with the largest fall per cost until none is worth its price. Small clusters of
whole cards are then decided by an integer program; a bound holds for all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import numpy as np
from immutabledict import immutabledict
from numpy.typing import NDArray

from koordcore._cpsat import Program, Stage, solve
from koordcore.errors import ModelError
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey
from koordcore.model.resources import Resources
from koordcore.rebalance.moves import Allows, Host, MoveProblem
from koordcore.rebalance.placing import Room
from koordcore.rebalance.program import add_pairs, bind_amounts
from koordcore.rebalance.waves import in_waves, wave_prices
from koordcore.scoring.fragmentation import FragmentationMeasure, WorkloadMix, without
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode, first_free_slots

__all__ = ["Fragments", "FragmentsPlan", "plan_fragments"]

_WHOLE: Final = 3_000
"""Pairs of pod and target up to which the program covers everything."""
_MOST_STATES: Final = 6_000
"""States of all nodes together up to which it does."""
_NEVER: Final = -(2**62)
_MILLI: Final = "card milli"


@attrs.frozen(kw_only=True)
class Fragments:
    """Cards as they are held, and the work that idle ones are kept for.

    Parameters
    ----------
    mix
        The work to be expected.
    nodes
        Nodes with cards, with what is idle; nodes that are not listed play no part.
    demands, slots
        Of each pod that may move: what it asks for, and the minors that it holds. A pod that is not listed
        stays.
    worth
        Card milli that a move must win for each unit of its cost.
    most
        Moves at most; ``None`` for as many as are worth it.
    """

    mix: WorkloadMix
    nodes: tuple[GpuNode, ...]
    demands: Mapping[PodKey, GpuDemand] = attrs.field(factory=dict, converter=immutabledict)
    slots: Mapping[PodKey, tuple[int, ...]] = attrs.field(factory=dict, converter=immutabledict)
    worth: int = CARD // 10
    most: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.worth < 1:
            raise ModelError(f"worth: a move must win at least 1 card milli, not {self.worth}")
        for pod, demand in self.demands.items():
            if len(self.slots.get(pod, ())) != demand.gpus:
                raise ModelError(f"{pod} asks for {demand.gpus} cards and holds {self.slots.get(pod, ())}")


@attrs.frozen(kw_only=True)
class FragmentsPlan:
    """Who moves where so that fewer card shares are idle in vain.

    Parameters
    ----------
    moves
        By wave.
    before, after
        Fragmented card milli, rounded down.
    gains
        Card milli won after each wave, counted from the start.
    prices
        Cost of the moves that arrive in each wave.
    certificate
        Objective: fragments that stay and the price of the moves, in card milli times the tasks of the mix;
        then the number of moves.
    """

    moves: tuple[Move, ...]
    before: int
    after: int
    gains: tuple[int, ...]
    prices: tuple[int, ...]
    certificate: Certificate


def plan_fragments(problem: MoveProblem, aim: Fragments, *, limits: Limits = DEFAULT_LIMITS) -> FragmentsPlan:
    """Plan the moves after which fragments and the price of the moves are least together.

    Parameters
    ----------
    problem
        Hosts, movable pods, limits, and where pods may run.
    aim
        The cards, and what counts as a fragment.
    limits
        Budget of the solver.

    Returns
    -------
    FragmentsPlan
        Proven when the objective meets its bound. Planning on the result finds no move that is worth its
        price, unless ``most`` stopped the plan.
    """
    known = {node.name for node in aim.nodes}
    movable = tuple(one for one in problem.movable if one.pod in aim.demands and one.node in known)
    problem = _with_cards(attrs.evolve(problem, movable=movable, allows=_on_cards(problem, aim)), aim)
    search = _Search(problem, aim)
    first = search.run(again=False)
    targets = search.run(again=True)
    bound = _bound(problem, aim, search.measure)
    objective = search.objective(targets)
    if objective != bound:
        solved = _by_program(problem, aim, search, targets, limits)
        if solved is not None:
            targets, proven = solved
            objective, bound = search.objective(targets), max(bound, proven)
    moves = in_waves(problem, targets)
    if moves is None:
        # A ring that the limits forbid; these moves can be carried out one by one.
        targets, objective = first, search.objective(first)
        moves = in_waves(problem, first) or ()
    before, gains = search.gains(moves)
    return FragmentsPlan(
        moves=moves,
        before=before,
        after=before - gains[-1] if gains else before,
        gains=gains,
        prices=wave_prices(problem, moves),
        certificate=Certificate.make_bounded(objective, bound),
    )


def _on_cards(problem: MoveProblem, aim: Fragments) -> Allows:
    """Where a pod may run, and what kind of card it may get there."""
    models = {node.name: node.model for node in aim.nodes}

    def allows(pod: PodKey, node: str) -> bool:
        wanted = aim.demands[pod].models
        return node in models and (not wanted or models[node] in wanted) and problem.allows(pod, node)

    return allows


def _with_cards(problem: MoveProblem, aim: Fragments) -> MoveProblem:
    """Count card milli as an amount like any other, whatever the cards are called in requests."""
    cards = {node.name: node for node in aim.nodes}

    def host(one: Host) -> Host:
        node = cards.get(one.name)
        if node is None:
            return one
        size = len(node.cards) * CARD
        return attrs.evolve(
            one,
            requested={**one.requested, _MILLI: size - node.idle},
            allocatable={**one.allocatable, _MILLI: size},
        )

    movable = tuple(
        attrs.evolve(one, requests={**one.requests, _MILLI: aim.demands[one.pod].total})
        for one in problem.movable
    )
    return attrs.evolve(problem, hosts=tuple(map(host, problem.hosts)), movable=movable)


def _bound(problem: MoveProblem, aim: Fragments, measure: FragmentationMeasure) -> tuple[int, ...]:
    """Bound every plan: a node changes only by moves, and each move touches two nodes.

    Idle shares are all in vain for the part of the mix without cards, wherever they are; moves do not change
    their sum. Of the rest a node keeps all, or at least one move pays half its price there.
    """
    idle_anyhow = sum(count for shape, count in aim.mix.shapes if not shape.gpus)
    hosts = {host.name: host for host in problem.hosts}
    sources = {one.node for one in problem.movable}
    cheapest = min((one.cost for one in problem.movable), default=0)
    half = aim.worth * aim.mix.kept * cheapest // 2
    total = 0
    for node in aim.nodes:
        anyhow = node.idle * idle_anyhow
        rest = measure.weighted(node) - anyhow
        host = hosts.get(node.name)
        changes = node.name in sources or (host is not None and host.receives)
        total += anyhow + (min(rest, half) if changes and problem.movable else rest)
    return total, 0


@attrs.frozen
class _Kind:
    """What pods have in common that are alike to the planner."""

    demand: GpuDemand
    requests: Resources
    usage: Resources
    cost: int


class _Search:
    """Steepest descent over single moves; private to one call."""

    def __init__(self, problem: MoveProblem, aim: Fragments) -> None:
        self._problem, self._aim = problem, aim
        self.measure = FragmentationMeasure(aim.mix)
        self._movable = {one.pod: one for one in problem.movable}
        self._kinds: dict[_Kind, list[PodKey]] = {}
        for one in sorted(problem.movable, key=lambda one: one.pod):
            kind = _Kind(aim.demands[one.pod], one.requests, one.usage, one.cost)
            self._kinds.setdefault(kind, []).append(one.pod)
        self._room = Room(problem)
        self._nodes = {node.name: node for node in aim.nodes}
        self._slots = dict(aim.slots)
        self._given: dict[tuple[PodKey, str], tuple[int, ...]] = {}
        self._at = {one.pod: one.node for one in problem.movable}
        self._on: dict[str, set[PodKey]] = {}
        for pod, name in self._at.items():
            self._on.setdefault(name, set()).add(pod)
        self._leaving = {pod: self._fall_without(pod) for pod in self._movable}
        self._falls: dict[tuple[object, ...], int] = {}
        names = [host.name for host in problem.hosts]
        self._coming = {
            kind: np.array([self._fall_with(name, kind.demand) for name in names], dtype=np.int64)
            for kind in self._kinds
        }

    def _fall_without(self, pod: PodKey) -> int:
        """How much fragmentation falls where a pod is when it leaves."""
        node = self._nodes[self._at[pod]]
        rest = node.give_back(self._aim.demands[pod], self._slots[pod])
        return self.measure.weighted(node) - self.measure.weighted(rest)

    def _fall_with(self, name: str, demand: GpuDemand) -> int:
        """How much it falls where one comes; the best card counts for a share."""
        node = self._nodes.get(name)
        if node is None or not node.fits(demand):
            return _NEVER
        step = self.measure.cpu_step
        after = step(node.cpu - demand.cpu)
        key = (node.ordered, step(node.cpu), after, node.model, demand.milli, demand.gpus)
        known = self._falls.get(key)
        if known is None:
            now = self.measure.weighted(node)
            then = min(
                self.measure.of_state(ordered, after, node.model)[1] for ordered in _taken(node, demand)
            )
            known = self._falls[key] = now - then
        return known

    def _best_slots(self, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        if not demand.shared:
            return first_free_slots(node, demand)
        after = self.measure.cpu_step(node.cpu - demand.cpu)

        def rest(left: int) -> tuple[int, int]:
            ordered = without(node.ordered, left, demand.milli)
            return self.measure.of_state(ordered, after, node.model)[1], left

        best = min((left for left in set(node.cards) if left >= demand.milli), key=rest)
        return (node.cards.index(best),)

    def run(self, *, again: bool) -> dict[PodKey, str]:
        """Move while a move is worth its price; with ``again`` also pods that moved before."""
        price = self._aim.worth * self._aim.mix.kept
        while True:
            stopped = self._aim.most is not None and len(self._room.targets) >= self._aim.most
            best = self._best(price, again=again, stopped=stopped)
            if best is None:
                return dict(self._room.targets)
            self._move(*best)

    def _best(self, price: int, *, again: bool, stopped: bool) -> tuple[PodKey, str] | None:
        """Find the move with the largest fall per cost among those that are worth it."""
        found: tuple[PodKey, str] | None = None
        most, cost = 0, 1
        for kind, pods in self._kinds.items():
            one = self._movable[pods[0]]
            falls = np.where(self._room.fits(one), self._coming[kind], _NEVER)
            top = int(falls.max(initial=_NEVER))
            if top == _NEVER:
                continue
            ranked: list[int] | None = None
            for pod in sorted(pods, key=lambda pod: (-self._leaving[pod], pod)):
                hoped = self._leaving[pod] + top
                if hoped <= price * kind.cost or (found and hoped * cost < most * kind.cost):
                    break
                moved = pod in self._room.targets
                if (moved and not again) or (stopped and not moved):
                    continue
                if not moved and not self._room.may_move([self._movable[pod]]):
                    continue
                if ranked is None:
                    ranked = np.lexsort((np.arange(len(falls)), -falls)).tolist()
                target = self._first(pod, ranked, falls)
                if target is None:
                    continue
                gain = self._leaving[pod] + int(falls[self._room.row[target]])
                better = gain * cost - most * kind.cost
                if gain > price * kind.cost and (
                    found is None or better > 0 or (better == 0 and (pod, target) < found)
                ):
                    found, most, cost = (pod, target), gain, kind.cost
        return found

    def _first(self, pod: PodKey, ranked: Sequence[int], falls: NDArray[np.int64]) -> str | None:
        for row in ranked:
            if falls[row] == _NEVER:
                return None
            name = self._problem.hosts[row].name
            home = self._movable[pod].node
            if name not in (self._at[pod], home) and self._problem.allows(pod, name):
                return name
        return None

    def _move(self, pod: PodKey, target: str) -> None:
        one, demand, source = self._movable[pod], self._aim.demands[pod], self._at[pod]
        if pod in self._room.targets:
            self._room.move(one, source, -1)
        self._room.move(one, target)
        self._nodes[source] = self._nodes[source].give_back(demand, self._slots[pod])
        self._slots[pod] = self._best_slots(self._nodes[target], demand)
        self._given[pod, target] = self._slots[pod]
        self._nodes[target] = self._nodes[target].take(demand, self._slots[pod])
        self._at[pod] = target
        self._on[source].discard(pod)
        self._on.setdefault(target, set()).add(pod)
        for name in (source, target):
            row = self._room.row[name]
            for kind, falls in self._coming.items():
                falls[row] = self._fall_with(name, kind.demand)
            for other in self._on[name]:
                self._leaving[other] = self._fall_without(other)

    def objective(self, targets: Mapping[PodKey, str]) -> tuple[int, ...]:
        """Fragments after the moves and the price of these; then the number of moves."""
        nodes = self._carried_out(targets, targets)
        cost = sum(self._movable[pod].cost for pod in targets)
        price = self._aim.worth * self._aim.mix.kept * cost
        return sum(self.measure.weighted(node) for node in nodes) + price, len(targets)

    def gains(self, moves: Sequence[Move]) -> tuple[int, tuple[int, ...]]:
        """Fragmented card milli at first, and what is won after each wave."""
        milli = []
        for wave in range(-1, max((move.arrives for move in moves), default=-1) + 1):
            gone = [move.pod for move in moves if move.leaves <= wave]
            there = {move.pod: move.target for move in moves if move.arrives <= wave}
            nodes = self._carried_out(gone, there)
            milli.append(sum(self.measure.weighted(node) for node in nodes) // self._aim.mix.kept)
        return milli[0], tuple(milli[0] - now for now in milli[1:])

    def _carried_out(self, gone: Iterable[PodKey], there: Mapping[PodKey, str]) -> Iterable[GpuNode]:
        """Give the nodes once some pods have left and some of these are at their targets."""
        nodes = {node.name: node for node in self._aim.nodes}
        for pod in gone:
            source, demand = self._movable[pod].node, self._aim.demands[pod]
            nodes[source] = nodes[source].give_back(demand, self._aim.slots[pod])
        for pod, target in there.items():
            demand = self._aim.demands[pod]
            # What the program placed are whole cards, of which any will do.
            slots = self._given.get((pod, target)) if demand.shared else None
            nodes[target] = nodes[target].take(demand, slots or self._best_slots(nodes[target], demand))
        return nodes.values()


def _taken(node: GpuNode, demand: GpuDemand) -> Iterator[tuple[int, ...]]:
    """Idle shares in descending order once a demand has come, for each card that it could get."""
    if not demand.shared:
        yield node.ordered[demand.gpus :] + (0,) * demand.gpus
        return
    for left in dict.fromkeys(node.ordered):
        if left >= demand.milli:
            yield without(node.ordered, left, demand.milli)


def _by_program(
    problem: MoveProblem,
    aim: Fragments,
    search: _Search,
    start: Mapping[PodKey, str],
    limits: Limits,
) -> tuple[dict[PodKey, str], tuple[int, ...]] | None:
    """Decide exactly where cards are idle or taken as wholes and the problem is small."""
    receiving = [host.name for host in problem.hosts if host.receives]
    steps = sorted({shape.cpu for shape, _ in aim.mix.shapes})
    states = sum((len(node.cards) + 1) * (len(steps) + 1) for node in aim.nodes)
    if len(problem.movable) * len(receiving) > _WHOLE or states > _MOST_STATES:
        return None
    if any(left not in (0, CARD) for node in aim.nodes for left in node.cards):
        return None
    if any(aim.demands[one.pod].shared for one in problem.movable):
        return None
    program = Program()
    pairs = add_pairs(program, problem, problem.movable, receiving)
    bind_amounts(program, problem, problem.movable, pairs)
    if aim.most is not None:
        program.require([(variable, 1) for variable in pairs.values()], at_most=aim.most)
    movable = {one.pod: one for one in problem.movable}
    leaving: dict[str, list[tuple[PodKey, int]]] = {}
    coming: dict[str, list[tuple[PodKey, int]]] = {}
    for (pod, target), variable in pairs.items():
        leaving.setdefault(movable[pod].node, []).append((pod, variable))
        coming.setdefault(target, []).append((pod, variable))
    price = aim.worth * aim.mix.kept
    fragments: list[tuple[int, int]] = []
    for node in aim.nodes:
        out, into = leaving.get(node.name, []), coming.get(node.name, [])
        fragments += _bind_state(program, aim, search.measure, node, out, into, steps)
    priced = [(variable, price * movable[pod].cost) for (pod, _), variable in pairs.items()]
    stages = (Stage([*fragments, *priced]), Stage([(variable, 1) for variable in pairs.values()]))
    outcome = solve(program, stages, limits=limits)
    if not outcome.solved:
        return None
    targets = {pod: target for (pod, target), variable in pairs.items() if outcome.values[variable]}
    if search.objective(targets) >= search.objective(start):
        targets = dict(start)
    return targets, outcome.bound


def _bind_state(
    program: Program,
    aim: Fragments,
    measure: FragmentationMeasure,
    node: GpuNode,
    out: Sequence[tuple[PodKey, int]],
    into: Sequence[tuple[PodKey, int]],
    steps: Sequence[int],
) -> list[tuple[int, int]]:
    """Choose the state that a node ends in: free cards, and how many CPU requests of the mix still fit."""
    free = node.cards.count(CARD)
    size = len(node.cards)
    cards = [(variable, aim.demands[pod].gpus) for pod, variable in out]
    cards += [(variable, -aim.demands[pod].gpus) for pod, variable in into]
    cpus = [(variable, aim.demands[pod].cpu) for pod, variable in out]
    cpus += [(variable, -aim.demands[pod].cpu) for pod, variable in into]
    least, greatest = program.span(cpus, node.cpu)
    lower = [least, *steps]
    upper = [*(step - 1 for step in steps), greatest]
    chosen: list[tuple[int, int, int]] = []
    for count in range(size + 1):
        for step in range(len(steps) + 1):
            if lower[step] <= greatest and upper[step] >= least:
                chosen.append((program.boolean(), count, step))
    program.require([(variable, 1) for variable, _, _ in chosen], equal=1)
    program.require(
        [*cards, *((variable, -count) for variable, count, _ in chosen)],
        equal=-free,
    )
    program.require(
        [*cpus, *((variable, -max(least, lower[step])) for variable, _, step in chosen)],
        at_least=-node.cpu,
    )
    program.require(
        [*cpus, *((variable, -min(greatest, upper[step])) for variable, _, step in chosen)],
        at_most=-node.cpu,
    )
    return [
        (
            variable,
            measure.of_state((CARD,) * count + (0,) * (size - count), step, node.model)[1],
        )
        for variable, count, step in chosen
    ]
