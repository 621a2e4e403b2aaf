"""Who has a say in the NUMA nodes of a pod, across the plugins of one workspace.

One plugin chooses NUMA nodes; others give a pod devices that lie near some of them, and are asked what these
leave them before the choice is made. Neither knows the other: both are found here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.pods import Pod, PodKey
from koordcore.topology.numa import NUMAMask

if TYPE_CHECKING:
    # Few clusters have anything near NUMA nodes.
    from koordcore.allocators.numa_align import NUMAProvider


class ChoosesNUMANodes(Protocol):
    """A plugin that chooses the NUMA nodes of pods."""

    def holding(self, pod: Pod, rows: Rows) -> BoolVector | None:
        """Tell which nodes hold a pod to some of their NUMA nodes, ``(n,)``; ``None`` for none of them."""

    def states_for(self, pod: Pod) -> tuple[object, IntVector]:
        """Number what nodes have of what it chooses, ``(N,)``: equal numbers get equal answers.

        The numbers hold as long as the first thing is the same.
        """

    def lacking_beside(self, pod: Pod, row: int, side: NUMAProvider) -> tuple[Shortfall, ...]:
        """Say what is lacking of NUMA nodes that serve a side as well; empty where some do."""

    def lines_beside(self, pod: Pod, row: int, side: NUMAProvider) -> tuple[str, ...]:
        """Say what each NUMA node has, and has not, where none serves everything."""


class GivesNearby(Protocol):
    """A plugin that gives pods something near NUMA nodes."""

    def numa_side(self, pod: Pod, row: int) -> NUMAProvider | None:
        """Give what it needs of the NUMA nodes of a node; ``None`` where they do not matter to it."""


class NUMASides:
    """Those who choose NUMA nodes and those who give things near them; each enters itself.

    Attributes
    ----------
    chooser
        Who chooses; ``None`` where the policy has nobody.
    giving
        Who gives things, by name; empty while no pod has asked for any.
    given
        Row and NUMA nodes of pods that were placed beside some side, ``None`` where they do not matter.
    """

    def __init__(self, _: Workspace) -> None:
        self.chooser: ChoosesNUMANodes | None = None
        self.given: dict[PodKey, tuple[int, NUMAMask | None]] = {}
        self.giving: dict[str, GivesNearby] = {}

    def moved(self, moves: NodeMoves) -> bool:
        """Take note of whose rows are others now."""
        given = ((key, moves.row(row), mask) for key, (row, mask) in self.given.items())
        self.given = {key: (row, mask) for key, row, mask in given if row >= 0}
        return True

    def enter(self, name: str, plugin: GivesNearby) -> None:
        """Take note of a plugin that gives things; made anew, it takes the place of the one before."""
        self.giving[name] = plugin

    def of(self, pod: Pod, row: int) -> tuple[NUMAProvider, ...]:
        """Give all sides of a pod on a node."""
        sides = (one.numa_side(pod, row) for one in self.giving.values())
        return tuple(side for side in sides if side is not None)
