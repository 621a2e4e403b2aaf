"""Foresight: our node score for shared cards, in integers and without random ties.

FGD asks what the *next* task of the mix could still use. Foresight adds what it cannot see:

* the rest of a card after it has been filled up with tasks of the mix, not with one: a free card is worth
  less than it seems where most tasks leave a stub that nothing fits;
* cards that will starve because the node's CPU cannot keep up with what the mix asks for per card;
* nodes that some tasks depend on, by model or by size, so that others leave them alone.

Everything is counted in nano-cards, rounded down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from koordcore.scoring.fragmentation import FragmentationMeasure, WorkloadMix, without
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode, first_free_slots

MILLI: Final = 1_000_000
"""Nano-cards in a milli of a card."""
SPARE_CPU: Final = MILLI // 2560
"""Preference for nodes with less CPU left, in nano-cards per milli-CPU: a milli of a card for 2.56 cores."""


def filled_waste(mix: WorkloadMix) -> tuple[int, ...]:
    """Give what is left for good of a card with 0..1000 milli idle, as an expectation, in nano-cards.

    Tasks of the mix come at random, and each that fits is put there, until none fits: ``W(l) = l`` where no
    shape fits, else the mean of ``W(l - milli)`` over the shapes that do.
    """
    counts: dict[int, int] = {}
    for shape, count in mix.shapes:
        if shape.gpus:
            counts[shape.milli] = counts.get(shape.milli, 0) + count
    waste: list[int] = []
    for left in range(CARD + 1):
        fitting = [(milli, count) for milli, count in counts.items() if milli <= left]
        total = sum(count * waste[left - milli] for milli, count in fitting)
        waste.append(total // sum(count for _, count in fitting) if fitting else left * MILLI)
    return tuple(waste)


def starved_cards(idle: int, cpu: int, mix: WorkloadMix) -> int:
    """Give how much idle card milli finds no CPU at the mix's mean rate, in nano-cards.

    Parameters
    ----------
    idle
        Card milli that are idle on the node.
    cpu
        Milli-CPU that are free there.
    mix
        What is expected to come.
    """
    cards, cpus = _rate(mix)
    return max(0, idle * MILLI - cpu * cards * MILLI // cpus) if cpus else 0


def _rate(mix: WorkloadMix) -> tuple[int, int]:
    """Card milli and milli-CPU of the mix's tasks with cards."""
    cards = sum(count * shape.total for shape, count in mix.shapes)
    return cards, sum(count * shape.cpu for shape, count in mix.shapes if shape.gpus)


def node_pressure(mix: WorkloadMix, nodes: Iterable[GpuNode]) -> dict[str, int]:
    """Give the share of each node's cards that tasks with little choice will ask for, times ``MILLI``.

    The mix is scaled to ask for the whole cluster. The tasks of a shape spread, by cards, over the nodes that
    could hold one if they were empty: those of its models, with cards and CPU enough. Nodes that many shapes
    depend on come out high; what every node can hold raises all alike.

    Parameters
    ----------
    mix
        All the work to be expected, rare shapes too: these are the ones with little choice.
    nodes
        The cluster, empty.
    """
    groups: dict[tuple[str, int, int], list[str]] = {}
    for node in nodes:
        groups.setdefault((node.model, len(node.cards), node.cpu), []).append(node.name)
    room = {group: len(names) * group[1] * CARD for group, names in groups.items()}
    cluster, asked = sum(room.values()), _rate(mix)[0]
    pressure = dict.fromkeys(groups, 0)
    for shape, count in mix.shapes:
        if not shape.gpus:
            continue
        able = [
            (model, cards, cpu)
            for model, cards, cpu in groups
            if cards >= shape.gpus and cpu >= shape.cpu and (not shape.models or model in shape.models)
        ]
        total = sum(room[group] for group in able)
        for group in able:
            pressure[group] += MILLI * count * shape.total * cluster // (asked * total)
    return {name: pressure[group] for group, names in groups.items() for name in names}


def largest_aligned_block(cards: Sequence[int]) -> int:
    """Give the size of the largest aligned block of whole free cards: by halves, as 0..7, 0..3, 4..7 or 2..3.

    A job that wants its cards under one switch, or a partition of them, gets no more than that, however many
    cards are free in all.

    Examples
    --------
    >>> largest_aligned_block([0, 1000, 1000, 0, 1000, 1000, 0, 0])
    2
    >>> largest_aligned_block([0, 1000, 1000, 0])
    1
    """
    free = [left == CARD for left in cards]
    size = 1 << (len(free).bit_length() - 1) if free else 0
    while size:
        if any(all(free[start : start + size]) for start in range(0, len(free) - size + 1, size)):
            return size
        size //= 2
    return 0


class Foresight:
    """Score nodes by how little of the cluster's cards a placement costs in the long run.

    Parameters
    ----------
    mix
        All the work to be expected, rare shapes too.
    nodes
        The whole cluster, empty, for the pressure on nodes; without it no node counts as wanted.
    """

    def __init__(self, mix: WorkloadMix, nodes: Iterable[GpuNode] = ()) -> None:
        self.measure = FragmentationMeasure(mix.typical())
        self.pressure: Mapping[str, int] = node_pressure(mix, nodes)
        self._waste = filled_waste(self.measure.mix)
        self._cards, self._cpus = _rate(self.measure.mix)
        self._memo: dict[tuple[tuple[int, ...], int, int, int, int, int], tuple[int, int]] = {}

    def score(self, node: GpuNode, demand: GpuDemand) -> int:
        """Give minus the cost of a placement that fits, in nano-cards; not bounded to 0..100."""
        gain, _ = self._gain(node, demand)
        cpu, idle = node.cpu - demand.cpu, node.idle - demand.total
        starved = self._starved(idle, cpu) - self._starved(node.idle, node.cpu)
        # Weights found by search over the traces of the experiment; anything near them does as well. A task
        # without cards has to go somewhere, and cards that starve for it count for less.
        cost = starved * 3 // 2 if demand.gpus else starved // 8
        return gain - cost - self.pressure.get(node.name, 0) * demand.total - SPARE_CPU * cpu

    def slots(self, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        """The best card for a share, the lowest minor among equals; whole cards by minor."""
        if not demand.shared:
            return first_free_slots(node, demand)
        return (node.cards.index(-self._gain(node, demand)[1]),)

    def _starved(self, idle: int, cpu: int) -> int:
        if not self._cpus:
            return 0
        return max(0, idle * MILLI - cpu * self._cards * MILLI // self._cpus)

    def _gain(self, node: GpuNode, demand: GpuDemand) -> tuple[int, int]:
        """Fall of fragmentation and of waste, and minus what the best card for a share has left."""
        step = self.measure.cpu_step
        before, after = step(node.cpu), step(node.cpu - demand.cpu)
        key = (node.ordered, before, after, self.measure.model_class(node.model), demand.milli, demand.gpus)
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = self._compute(node, demand, before, after)
        return known

    def _compute(self, node: GpuNode, demand: GpuDemand, before: int, after: int) -> tuple[int, int]:
        now = self._loss(node.ordered, before, node.model)
        if not demand.shared:
            rest = node.ordered[demand.gpus :] + (0,) * demand.gpus
            return now - self._loss(rest, after, node.model), 0
        return max(
            (now - self._loss(without(node.ordered, left, demand.milli), after, node.model), -left)
            for left in dict.fromkeys(node.ordered)
            if left >= demand.milli
        )

    def _loss(self, ordered: tuple[int, ...], cpu_step: int, model: str) -> int:
        _, weighted = self.measure.of_state(ordered, cpu_step, model)
        waste = self._waste
        return weighted * MILLI // self.measure.mix.kept + sum(waste[left] for left in ordered) // 2
