"""Which domain of a label a group of Kubernetes would take: the one that holds most, then the fullest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from koordcore._arrays import IntMatrix, IntVector
from koordcore._record import record
from koordcore.framework.node_view import REQUESTED
from koordcore.framework.workspace import Workspace
from koordcore.model.resources import CPU, MEMORY
from koordcore.preemption.problem import Domains
from koordcore.scheduling.gang_input import PlanningInput
from koordcore.scheduling.key_domains import KeyDomains


@record(eq=False, kw_only=True, slots=False)
class DomainChoice:
    """The domains of one label as the members of a group see them.

    Parameters
    ----------
    workspace
        The state of the call.
    domains
        The label's.
    inputs, offers
        The members over all nodes, and how many of each shape every node takes, shape (shapes, nodes).
    sizes
        Members of each shape.
    least
        Fewest members that have to be placed.
    fixed
        Domain of the running members, -1 for none.
    """

    workspace: Workspace
    domains: KeyDomains
    inputs: PlanningInput
    offers: IntMatrix
    sizes: IntVector
    least: int
    fixed: int

    @cached_property
    def _per_shape(self) -> list[IntVector]:
        """Members of each shape that every domain takes at most."""
        sizes = self.sizes.tolist()
        return [
            np.minimum(self.domains.sums(row), size) for row, size in zip(self.offers, sizes, strict=True)
        ]

    @cached_property
    def _most(self) -> IntVector:
        """Members of all shapes that every domain takes at most."""
        each = self._per_shape
        most: IntVector = each[0] if len(each) == 1 else np.sum(each, axis=0)
        return most

    def order(self) -> list[tuple[int, int]]:
        """List the domains that may do, most promising first: members at most, and the domain's number."""
        most = self._most
        full = self.fullest(self._per_shape)
        able = np.flatnonzero(most >= self.least)
        if self.fixed >= 0:
            able = able[able == self.fixed]
        # Keys weigh more the later they come.
        best = able[np.lexsort((able, -full[able], -most[able]))]
        return list(zip(most[best].tolist(), best.tolist(), strict=True))

    def preferred(self) -> Domains:
        """Give the domains that may do, the one that would be taken first first."""
        order = self.order()
        rank = np.full(len(self.domains.names) + 1, -1, dtype=np.int64)
        for position, (_, number) in enumerate(order):
            rank[number] = position
        return Domains(rank[self.domains.home], len(order))

    def nearest(self) -> str:
        """Say what the domain lacks that comes nearest to what is needed."""
        most = self._most
        best = int(most.argmax()) if self.fixed < 0 else self.fixed
        which = "the best" if self.fixed < 0 else "the running members'"
        name = self.domains.names[best]
        has = f"{which} {self.domains.key}, {name}, has {most[best]} of {self.least} slots"
        return f"{has}; {self.least - int(most[best])} more would do"

    def fullest(self, placed: Sequence[IntVector] = ()) -> IntVector:
        """Score every domain by how full it is, 0..100, as upstream does: cpu and memory, whatever is there.

        ``placed`` has the members of each shape that come to every domain.
        """
        layout, domains = self.workspace.layout, self.domains
        score, counted = np.zeros(len(domains.names)), np.zeros(len(domains.names), np.int64)
        for name in (CPU, MEMORY):
            row = layout.index.get(name)
            if row is None:
                continue
            whole, there = domains.whole(name, layout.allocatable[row])
            used = domains.sums(self.workspace.amounts[REQUESTED, row])
            for number, one in zip(placed, self.inputs.classes, strict=bool(placed)):
                used = used + number * one.pod.requests.get(name, 0)
            score += 100 * used / whole * there
            counted += there
        full: IntVector = (score / np.maximum(1, counted)).astype(np.int64)
        return full
