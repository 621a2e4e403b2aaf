"""What a choice of NUMA nodes leaves to claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from koordcore.allocators.claims.states import Answers, ClaimStates
from koordcore.allocators.claims.table import DeviceTable
from koordcore.allocators.numa_request import NUMARefusal
from koordcore.topology.numa import NUMAMask, mask_of

_SAME_DEVICES: Final = 500
"""Score of NUMA nodes that give the very devices that the whole node would give, as for Koordinator's."""
CLAIMED: Final = "claimed devices"


def nodes_of(table: DeviceTable, devices: Sequence[int]) -> tuple[NUMAMask, ...]:
    """Give for each of some devices that tell it which NUMA nodes it is near."""
    near = table.near_numa
    return tuple(
        mask_of(numa for numa, mine in near.by_node.items() if mine >> device & 1)
        for device in devices
        if not near.anywhere >> device & 1
    )


@attrs.define(eq=False)
class ClaimSide:
    """The claims of a pod on a node as the choice of NUMA nodes sees them.

    Parameters
    ----------
    states, number
        What is known of devices, and the state of this node's.
    answers
        What the claims get that are to be allocated; ``None`` where all of them are.
    settled
        By device that the pod has already and that tells it: the NUMA nodes that it is near.
    """

    states: ClaimStates
    number: int
    answers: Answers | None
    settled: tuple[NUMAMask, ...] = ()

    names: Sequence[str] = (CLAIMED,)

    @property
    def aligned(self) -> bool:
        """Whether NUMA nodes matter; where the node as a whole has too little, they do not."""
        return self.answers is None or self.answers.fits(self.number)

    def feasible(self, mask: NUMAMask) -> bool:
        """Tell whether the claims can be allocated near some NUMA nodes, and those allocated are near."""
        if not all(mine & mask for mine in self.settled):
            return False
        return self.answers is None or self.answers.fits(self.states.near(self.number, mask))

    def score(self, mask: NUMAMask) -> int:
        """Rate NUMA nodes: 500 where they give the devices that the whole node would give, else 0."""
        if self.answers is None:
            return 0
        inside = self._devices(self.states.near(self.number, mask))
        return _SAME_DEVICES if inside is not None and inside == self._devices(self.number) else 0

    def _devices(self, number: int) -> frozenset[int] | None:
        chosen = self.answers.at(number) if self.answers is not None else None
        if not isinstance(chosen, tuple):
            return None
        return frozenset(taken.device for choice in chosen for taken in choice.taken)

    def refusal(self) -> NUMARefusal | None:
        """Say nothing: what a node as a whole lacks, the filter of the claims says."""
        return None
