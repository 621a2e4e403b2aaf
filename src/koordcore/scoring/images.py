"""ImageLocality: nodes that hold the pod's images already.

The rule is that of Kubernetes 1.35 (``plugins/imagelocality``): an image counts with its size on the node
times the share of nodes that hold it, so that one node is not preferred for an image that is everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from koordcore._arrays import IntVector
from koordcore._moved_rows import moved_rows
from koordcore._vector import Splice
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod

_MEBI: Final = 1024 * 1024
LOWEST: Final = 23 * _MEBI
"""Bytes below which an image makes no difference."""
HIGHEST: Final = 1000 * _MEBI
"""Bytes per container beyond which more makes no difference."""
_MOST: Final = 64
"""Images whose bytes are kept by row: eight bytes a node each."""
_MOST_LEFT: Final = 1000
"""Nodes that have left after which the index is made anew."""


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


class ImageIndex:
    """Which nodes hold which image, followed as nodes change.

    Parameters
    ----------
    nodes
        All nodes, by row.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        # Bytes by name of the node, for each image, and all of a node; some of those that left are there yet.
        self._held: dict[str, dict[str, int]] = {}
        self._of: dict[str, Mapping[str, int]] = {}
        # ``(N,)``: bytes by row, -1 where a node does not hold it; of those that were asked for lately.
        self._sizes: dict[str, IntVector] = {}
        self._left = 0
        for node in nodes:
            self._put(node)

    def _put(self, node: Node) -> None:
        self._of[node.name] = node.images
        for image, size in node.images.items():
            self._held.setdefault(image, {})[node.name] = size

    def has(self, image: str) -> bool:
        """Tell whether a node may hold an image."""
        return image in self._held

    def sizes(self, image: str, names: Sequence[str]) -> IntVector:
        """Give an image's bytes on each node, ``(N,)``, to be read only; -1 where it is not held.

        Parameters
        ----------
        names
            Of the nodes, by row.
        """
        held = self._held.get(image)
        if held is None:
            return np.full(len(names), -1, np.int64)
        found = self._sizes.pop(image, None)
        if found is None:
            found = np.array([held.get(name, -1) for name in names], np.int64)
            if len(self._sizes) >= _MOST:
                del self._sizes[next(iter(self._sizes))]
        self._sizes[image] = found
        return found

    def moved(self, edits: Sequence[Splice]) -> bool:
        """Let nodes join and leave; ``False`` where so many have left that it is better made anew.

        What those that joined hold is to be said by :meth:`replace`.
        """
        self._left += sum(gone for _, gone, _ in edits)
        self._sizes = {image: moved_rows(sizes, edits) for image, sizes in self._sizes.items()}
        return self._left <= _MOST_LEFT

    def replace(self, nodes: Mapping[int, Node]) -> None:
        """Take in what nodes hold that were replaced, or joined, by row."""
        for row, node in nodes.items():
            before = self._of.get(node.name, {})
            if before != node.images:
                for image in before:
                    holders = self._held[image]
                    del holders[node.name]
                    if not holders:
                        del self._held[image]
                self._put(node)
            for image, sizes in self._sizes.items():
                sizes[row] = node.images.get(image, -1)


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
