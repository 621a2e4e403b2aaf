"""Fragments of whole cards, counted the slow way, and the best of all sets of moves."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.descheduling.fragments import Fragments
from koordcore.descheduling.moves import MoveProblem
from koordcore.model.pods import PodKey
from koordcore.scoring.gpu_share import CARD
from tests.reference.rebalance_moves import assignments


def fragmented(aim: Fragments, moved: Mapping[PodKey, str], origin: Mapping[PodKey, str]) -> int | None:
    """Sum over nodes and expected tasks what of the idle cards such a task could not use; whole cards only.

    ``None`` where a node holds more cards than it has.
    """
    total = 0
    for node in aim.nodes:
        free = node.cards.count(CARD)
        cpu = node.cpu
        for pod, target in moved.items():
            demand = aim.demands[pod]
            if origin[pod] == node.name:
                free, cpu = free + demand.gpus, cpu + demand.cpu
            if target == node.name:
                free, cpu = free - demand.gpus, cpu - demand.cpu
        if free < 0:
            return None
        for shape, count in aim.mix.shapes:
            usable = (
                shape.gpus
                and shape.gpus <= free
                and shape.cpu <= cpu
                and (not shape.models or node.model in shape.models)
            )
            total += 0 if usable else count * free * CARD
    return total


def least_fragments(problem: MoveProblem, aim: Fragments) -> tuple[int, int]:
    """Give the least sum of fragments and price of the moves, and the fewest moves that reach it."""
    costs = {one.pod: one.cost for one in problem.movable}
    origin = {one.pod: one.node for one in problem.movable}
    best = []
    for moved in assignments(problem):
        total = fragmented(aim, moved, origin)
        if total is not None and (aim.most is None or len(moved) <= aim.most):
            price = aim.worth * aim.mix.kept * sum(costs[pod] for pod in moved)
            best.append((total + price, len(moved)))
    return min(best)
