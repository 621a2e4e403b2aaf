"""What trace replay and fragmentation look at: nodes as idle card shares, tasks as demands on them.

A card is worth 1000 milli. A task asks for whole cards, for a share of one card, or for none; shares of one
task never span cards (FGD experiment, Kubernetes' ``alibabacloud.com/gpu-milli`` convention).
"""

from __future__ import annotations

from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields

CARD: Final = 1000
"""Milli of one whole card."""


@names_its_fields
@record(kw_only=True)
class GpuDemand:
    """What one task asks for.

    Parameters
    ----------
    cpu, memory
        Milli-CPU and bytes.
    gpus
        Number of cards.
    milli
        Milli of each card; below 1000 only with ``gpus == 1``.
    models
        Card models that will do, as the task lists them; empty for any.

    Raises
    ------
    ModelError
        When an amount is negative or several cards are asked for in part.
    """

    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    milli: int = CARD
    models: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        if min(self.cpu, self.memory, self.gpus) < 0:
            raise ModelError(f"a demand cannot be negative: {self.cpu}, {self.memory}, {self.gpus}")
        if not self.gpus:
            object.__setattr__(self, "milli", 0)
        elif not 0 < self.milli <= CARD:
            raise ModelError(f"milli: expected 1..{CARD}, got {self.milli}")
        elif self.milli < CARD and self.gpus > 1:
            raise ModelError(f"{self.gpus} cards cannot be asked for in part ({self.milli} milli each)")

    @property
    def total(self) -> int:
        """Card milli in all."""
        return self.gpus * self.milli

    @property
    def shared(self) -> bool:
        """It takes part of one card."""
        return 0 < self.milli < CARD

    @property
    def kind(self) -> int:
        """0 for a share of a card, else the number of whole cards; -1 without cards."""
        if not self.gpus:
            return -1
        return 0 if self.shared else self.gpus


@names_its_fields
@record(kw_only=True)
class GpuNode:
    """What a node has left.

    Parameters
    ----------
    name
        The node's name.
    cpu, memory
        Idle milli-CPU and bytes.
    cards
        Idle milli of each card, by minor.
    model
        Card model.
    held
        Kinds of the card-using tasks on it with their counts (see :attr:`GpuDemand.kind`), sorted.

    Attributes
    ----------
    idle
        Idle card milli in all.
    ordered
        ``cards`` from the idlest to the fullest.
    """

    name: str
    cpu: int
    memory: int
    cards: tuple[int, ...]
    model: str = ""
    held: tuple[tuple[int, int], ...] = ()
    idle: int = attrs.field(init=False, eq=False, repr=False)
    ordered: tuple[int, ...] = attrs.field(init=False, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "idle", sum(self.cards))
        object.__setattr__(self, "ordered", tuple(sorted(self.cards, reverse=True)))

    def fits(self, demand: GpuDemand) -> bool:
        """Tell whether the node can take a task: CPU, memory, model, and enough cards with enough left."""
        gpus = demand.gpus
        return (
            self.cpu >= demand.cpu
            and self.memory >= demand.memory
            and (
                not gpus
                or (
                    gpus <= len(self.ordered)
                    and self.ordered[gpus - 1] >= demand.milli
                    and (not demand.models or self.model in demand.models)
                )
            )
        )

    def take(self, demand: GpuDemand, slots: tuple[int, ...]) -> GpuNode:
        """Give the node with the task on the cards of these minors."""
        return self._changed(demand, slots, 1)

    def give_back(self, demand: GpuDemand, slots: tuple[int, ...]) -> GpuNode:
        """Give the node without a task that was on these minors."""
        return self._changed(demand, slots, -1)

    def _changed(self, demand: GpuDemand, slots: tuple[int, ...], sign: int) -> GpuNode:
        if len(slots) != demand.gpus:
            raise ModelError(f"{demand.gpus} cards asked for, minors {slots} given")
        cards, held = self.cards, self.held
        if slots:
            left = list(cards)
            for slot in slots:
                left[slot] -= sign * demand.milli
            cards = tuple(left)
            counts = dict(held)
            counts[demand.kind] = counts.get(demand.kind, 0) + sign
            held = tuple(sorted((kind, count) for kind, count in counts.items() if count))
        return GpuNode(
            name=self.name,
            cpu=self.cpu - sign * demand.cpu,
            memory=self.memory - sign * demand.memory,
            cards=cards,
            model=self.model,
            held=held,
        )


def first_free_slots(node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
    """Choose the lowest minors with enough left, as the experiment does for whole cards."""
    fitting = [slot for slot, left in enumerate(node.cards) if left >= demand.milli]
    return tuple(fitting[: demand.gpus])


def fullest_slots(node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
    """Choose the card with the least left that suffices, lowest minor first; whole cards by minor."""
    if not demand.shared:
        return first_free_slots(node, demand)
    least = min(left for left in node.cards if left >= demand.milli)
    return (node.cards.index(least),)
