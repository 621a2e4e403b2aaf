"""Steepest descent over fragments: the move, or the set of moves, that wins most for its cost."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.descheduling.cards import Fragments
from koordcore.descheduling.moves import MoveProblem
from koordcore.descheduling.placing import Room
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey
from koordcore.model.resources import Resources
from koordcore.scoring.fragmentation import FragmentationMeasure, without
from koordcore.scoring.gpu_share import GpuDemand, GpuNode, first_free_slots

_NEVER: Final = -(2**62)
_MOST_TOGETHER: Final = 4
"""Pods of one node that are tried together."""
_MOST_TRIES: Final = 64
"""Sets of pods that are tried before the search ends."""


@record
class _Kind:
    """What pods have in common that are alike to the planner."""

    demand: GpuDemand
    requests: Resources
    usage: Resources
    cost: int


class FragmentSearch:
    """Steepest descent over single moves; private to one call."""

    def __init__(self, problem: MoveProblem, aim: Fragments) -> None:
        self._problem, self._aim = problem, aim
        self.measure = FragmentationMeasure(aim.mix)
        self._movable = {one.pod: one for one in problem.movable}
        self._kinds: dict[_Kind, list[PodKey]] = {}
        for one in sorted(problem.movable, key=lambda one: one.pod):
            kind = _Kind(aim.demands[one.pod], one.requests, one.usage, one.cost)
            self._kinds.setdefault(kind, []).append(one.pod)
        self._kind_of = {pod: kind for kind, pods in self._kinds.items() for pod in pods}
        self._room = Room(problem)
        self._nodes = {node.name: node for node in aim.nodes}
        self._weights = {name: self.measure.weighted(node) for name, node in self._nodes.items()}
        self._total = sum(self._weights.values())
        self._slots = dict(aim.slots)
        self._given: dict[tuple[PodKey, str], tuple[int, ...]] = {}
        self._at = {one.pod: one.node for one in problem.movable}
        self._on: dict[str, set[PodKey]] = {}
        for pod, name in self._at.items():
            self._on.setdefault(name, set()).add(pod)
        self._leaving = {pod: self._fall_without(pod) for pod in self._movable}
        self._ranked = {kind: sorted(map(self._rank, pods)) for kind, pods in self._kinds.items()}
        self._falls: dict[tuple[object, ...], int] = {}
        names = [host.name for host in problem.hosts]
        self._coming = {
            kind: np.array([self._fall_with(name, kind.demand) for name in names], dtype=np.int64)
            for kind in self._kinds
        }

    def _rank(self, pod: PodKey) -> tuple[int, PodKey]:
        return -self._leaving[pod], pod

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

    def run(
        self, *, again: bool, progress: Callable[[int, int], None] = lambda _, __: None
    ) -> dict[PodKey, str]:
        """Move while a move is worth its price; with ``again`` also pods that moved before."""
        price = self._aim.worth * self._aim.mix.kept
        total = self._hopeful(price)
        while True:
            progress(max(0, total - self._hopeful(price)), total)
            stopped = self._aim.most is not None and len(self._room.targets) >= self._aim.most
            best = self._best(price, again=again, stopped=stopped)
            if best is not None:
                self._move(*best)
            elif not self._move_together(price):
                return dict(self._room.targets)

    def _hopeful(self, price: int) -> int:
        """Count the pods that would win more than their price at the best place for any like them."""
        count = 0
        for kind, ranked in self._ranked.items():
            top = int(self._coming[kind].max(initial=_NEVER))
            count += bisect_left(ranked, (top - price * kind.cost,))
        return count

    def _move_together(self, price: int) -> bool:
        """Move the most promising sets of pods of one node, those that are worth their price."""
        left = None if self._aim.most is None else self._aim.most - len(self._room.targets)
        worth, failed = False, 0
        for pods in self._promising(price, left):
            if failed == _MOST_TRIES or (worth and left is not None):
                break
            if self._try(pods, price):
                worth = True
            else:
                failed += 1
        return worth

    def _try(self, pods: Sequence[PodKey], price: int) -> bool:
        """Move all of these where they win more than their price, or none."""
        if any(pod in self._room.targets for pod in pods):
            return False
        before, done = self._total, []
        for pod in sorted(pods, key=lambda pod: (-self._aim.demands[pod].total, pod)):
            target = self._place_for(pod) if self._room.may_move([self._movable[pod]]) else None
            if target is None:
                break
            done.append((pod, self._move(pod, target)))
        cost = sum(self._movable[pod].cost for pod in pods)
        if len(done) == len(pods) and before - self._total > price * cost:
            return True
        for pod, slots in reversed(done):
            self._take_back(pod, slots)
        return False

    def _promising(self, price: int, left: int | None) -> list[tuple[PodKey, ...]]:
        """Sets whose nodes would win more than their price if each pod found the best place there is."""
        tops = {kind: int(falls.max(initial=_NEVER)) for kind, falls in self._coming.items()}
        found = []
        for name, here in sorted(self._on.items()):
            own = sorted(pod for pod in here if pod not in self._room.targets)
            most = min(len(own), _MOST_TOGETHER, len(own) if left is None else left)
            for size in range(2, most + 1):
                for pods in combinations(own[:_MOST_TOGETHER], size):
                    node = self._nodes[name]
                    for pod in pods:
                        node = node.give_back(self._aim.demands[pod], self._slots[pod])
                    won = self._weights[name] - self.measure.weighted(node)
                    won += sum(tops[self._kind_of[pod]] for pod in pods)
                    cost = sum(self._movable[pod].cost for pod in pods)
                    if won > price * cost:
                        found.append((-(won // cost), pods))
        return [pods for _, pods in sorted(found)]

    def _place_for(self, pod: PodKey) -> str | None:
        falls = np.where(self._room.fits(self._movable[pod]), self._coming[self._kind_of[pod]], _NEVER)
        ranked: list[int] = np.lexsort((np.arange(len(falls)), -falls)).tolist()
        return self._first(pod, ranked, falls)

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
            # Only who can win more than its price, and as much for its cost as the best so far.
            least = max(price * kind.cost + 1, -(-most * kind.cost // cost)) - top
            for fall, pod in self._ranked[kind]:
                if -fall < least or (top - fall) * cost < most * kind.cost:
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

    def _move(self, pod: PodKey, target: str) -> tuple[int, ...]:
        """Carry out a move; gives the cards that the pod held before."""
        one, demand, source, held = (
            self._movable[pod],
            self._aim.demands[pod],
            self._at[pod],
            self._slots[pod],
        )
        if pod in self._room.targets:
            self._room.move(one, source, -1)
        self._room.move(one, target)
        slots = self._given[pod, target] = self._best_slots(self._nodes[target], demand)
        self._shift(pod, target, slots)
        return held

    def _take_back(self, pod: PodKey, held: tuple[int, ...]) -> None:
        """Undo the first move of a pod."""
        one = self._movable[pod]
        self._room.move(one, self._at[pod], -1)
        self._shift(pod, one.node, held)

    def _shift(self, pod: PodKey, target: str, slots: tuple[int, ...]) -> None:
        demand, source = self._aim.demands[pod], self._at[pod]
        self._nodes[source] = self._nodes[source].give_back(demand, self._slots[pod])
        self._nodes[target] = self._nodes[target].take(demand, slots)
        self._slots[pod], self._at[pod] = slots, target
        self._on[source].discard(pod)
        self._on.setdefault(target, set()).add(pod)
        for name in (source, target):
            row, weight = self._room.row[name], self.measure.weighted(self._nodes[name])
            self._total += weight - self._weights[name]
            self._weights[name] = weight
            for kind, falls in self._coming.items():
                falls[row] = self._fall_with(name, kind.demand)
            for other in self._on[name]:
                ranked = self._ranked[self._kind_of[other]]
                del ranked[bisect_left(ranked, self._rank(other))]
                self._leaving[other] = self._fall_without(other)
                insort(ranked, self._rank(other))

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
