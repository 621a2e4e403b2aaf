"""ImageLocality: nodes that hold the pod's images already.

The rule is that of Kubernetes 1.35 (``plugins/imagelocality``): an image counts with its size on the node
times the share of nodes that hold it, so that one node is not preferred for an image that is everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from koordcore._arrays import IntVector
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod

_MEBI: Final = 1024 * 1024
LOWEST: Final = 23 * _MEBI
"""Bytes below which an image makes no difference."""
HIGHEST: Final = 1000 * _MEBI
"""Bytes per container beyond which more makes no difference."""
_MOST: Final = 64
"""Images whose bytes are kept by row: eight bytes a node each."""


def image_name(name: str) -> str:
    """Add ``:latest`` to an image without tag.

    Examples
    --------
    >>> [image_name(name) for name in ("reg:5000/a", "a:1")]
    ['reg:5000/a:latest', 'a:1']
    """
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


def pod_images(pod: Pod) -> tuple[str, ...]:
    """Give the images of a pod's containers, init containers first; one entry per container."""
    return tuple([image_name(one.image) for one in (*pod.init_containers, *pod.containers)])


class ImageSizes:
    """How large images are on each node, for those that somebody asked about lately."""

    def __init__(self) -> None:
        # ``(N,)``: bytes by row; less than 0 where a node does not hold it.
        self._of: dict[str, IntVector] = {}

    def of(self, name: str, nodes: Sequence[Node]) -> IntVector:
        """Give an image's bytes on each node, ``(N,)``, to be read only; -1 where it is not held."""
        found = self._of.pop(name, None)
        if found is None:
            found = np.array([node.images.get(name, -1) for node in nodes], np.int64)
            if len(self._of) >= _MOST:
                del self._of[next(iter(self._of))]
        self._of[name] = found
        return found

    def move(self, by_row: Callable[[IntVector], IntVector]) -> None:
        """Let nodes join and leave; what those that joined hold is to be said by :meth:`put`."""
        self._of = {name: by_row(sizes) for name, sizes in self._of.items()}

    def put(self, nodes: Mapping[int, Node]) -> None:
        """Take in what some nodes hold now, by row."""
        for name, sizes in self._of.items():
            for row, node in nodes.items():
                sizes[row] = node.images.get(name, -1)


def score_images(sizes: Sequence[IntVector], number: int) -> IntVector:
    """Score 0..100 for each node by the images that it holds.

    Parameters
    ----------
    sizes
        For each container ``(N,)``: its image's bytes on each node, -1 where that does not hold it.
    number
        ``N``, how many nodes there are.
    """
    total = np.zeros(number, np.int64)
    highest = HIGHEST * len(sizes)
    if highest <= LOWEST or not any((one >= 0).any() for one in sizes):
        return total
    for one in sizes:
        held = one >= 0
        share = float(np.count_nonzero(held)) / float(number)
        total[held] += np.trunc(one[held] * share).astype(np.int64)
    return 100 * (np.clip(total, LOWEST, highest) - LOWEST) // (highest - LOWEST)
