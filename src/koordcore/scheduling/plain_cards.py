"""Cards of nodes that say only how many they have: plain device plugins, without Device objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.model.devices import (
    AMD_GPU,
    DCU_GPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    MOST_CARDS,
    NVIDIA_GPU,
)
from koordcore.model.nodes import NodeState
from koordcore.scoring.gpu_share import CARD

WHOLE: Final[Mapping[str, int]] = {
    NVIDIA_GPU: CARD,
    AMD_GPU: CARD,
    DCU_GPU: CARD,
    GPU: CARD // 100,
}
"""Names of whole cards with the thousandths of a card that one of them is."""
CARD_NAMES: Final = frozenset({*WHOLE, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED})
"""Names under which nodes count the same cards."""


def plain_cards(state: NodeState) -> tuple[int, ...]:
    """Give the idle thousandths of each card of a node; nobody knows which cards are held, so the first are.

    The same cards under several names count once. Of more than
    :data:`~koordcore.model.devices.MOST_CARDS` the first ones are told.

    Examples
    --------
    >>> from koordcore import Node, Pod
    >>> node = Node(name="n1", allocatable={"nvidia.com/gpu": 4})
    >>> plain_cards(NodeState(node, (Pod(name="p", requests={"nvidia.com/gpu": 3}, node_name="n1"),)))
    (0, 0, 0, 1000)
    """
    there = state.node.allocatable
    number = max((there.get(name, 0) * milli // CARD for name, milli in WHOLE.items()), default=0)
    held = sum(pod.requests.get(name, 0) * milli for pod in state.pods for name, milli in WHOLE.items())
    idle = []
    for _ in range(min(number, MOST_CARDS)):
        taken = min(CARD, held)
        idle.append(CARD - taken)
        held -= taken
    return tuple(idle)
