"""A shape that should fit."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.resources import Resources, make_resources


@names_its_fields
@record(kw_only=True)
class Wanted:
    """A shape that should fit.

    Parameters
    ----------
    requests
        One slot (milli-CPU, bytes, counts).
    count
        How many slots.
    per_node
        At most so many on one node; ``None`` for as many as fit.
    at_most
        Node to the most slots on it, where that is fewer.
    nodes
        Nodes that may serve, if they receive pods; ``None`` for all that do. A node that receives none
        serves none, named or not.
    blocks
        Node to block: all slots must lie in one block, and a node without a block serves none. Empty where
        there are no blocks.
    """

    requests: Resources = attrs.field(converter=make_resources)
    count: int = 1
    per_node: int | None = None
    at_most: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    nodes: tuple[str, ...] | None = None
    blocks: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)

    def __attrs_post_init__(self) -> None:
        if self.count < 1 or (self.per_node is not None and self.per_node < 1):
            raise ModelError("a shape needs at least one slot")
        for node, most in self.at_most.items():
            if most < 0:
                raise ModelError(f"{node} cannot serve {most} slots")
        if not any(amount > 0 for amount in self.requests.values()):
            raise ModelError("a shape must ask for something")

    def most_on(self, node: str) -> int:
        """Give how many slots a node may serve, whatever it has free."""
        most = self.count if self.per_node is None else min(self.count, self.per_node)
        return min(most, self.at_most.get(node, most))


def free_slots(free: Mapping[str, int], wanted: Wanted) -> int:
    """Count the slots that fit into what is free."""
    fits = min(max(0, free.get(name, 0)) // amount for name, amount in wanted.requests.items() if amount > 0)
    return fits if wanted.per_node is None else min(fits, wanted.per_node)
