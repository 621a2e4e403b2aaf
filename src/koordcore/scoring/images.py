"""ImageLocality: nodes that hold the pod's images already.

The rule is that of Kubernetes 1.35 (``plugins/imagelocality``): an image counts with its size on the node
times the share of nodes that hold it, so that one node is not preferred for an image that is everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from koordcore._arrays import ClusterLayout, IntVector
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod

_MEBI: Final = 1024 * 1024
LOWEST: Final = 23 * _MEBI
"""Bytes below which an image makes no difference."""
HIGHEST: Final = 1000 * _MEBI
"""Bytes per container beyond which more makes no difference."""


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
    """Which nodes hold which image, for one set of nodes."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        # The size on each node, by its name.
        self._holders: dict[str, dict[str, int]] = {}
        for node in nodes:
            for name, size in node.images.items():
                self._holders.setdefault(name, {})[node.name] = size

    def changed(self, nodes: Iterable[tuple[Node | None, Node | None]]) -> ImageIndex:
        """Give the index after some nodes were replaced, joined or left: before and after."""
        known = dict(self._holders)
        for before, after in nodes:
            old = {} if before is None else dict(before.images)
            new = {} if after is None else dict(after.images)
            node = before or after
            for name, _ in old.items() ^ new.items():
                assert node is not None  # it has images
                holders = dict(known.get(name, {}))
                holders.pop(node.name, None)
                if name in new:
                    holders[node.name] = new[name]
                known[name] = holders
                if not holders:
                    del known[name]
        made = ImageIndex(())
        made._holders = known
        return made

    def has(self, name: str) -> bool:
        """Tell whether any node holds an image."""
        return name in self._holders

    def weighted_size(self, name: str, layout: ClusterLayout) -> IntVector | None:
        """Give an image's size on each node times the share of nodes that hold it; ``None`` for nowhere."""
        found = self._holders.get(name)
        if found is None:
            return None
        weighted = np.zeros(len(layout.names), np.int64)
        share = float(len(found)) / float(len(layout.names))
        sizes = np.array([*found.values()], np.float64)
        weighted[[layout.row_of[node] for node in found]] = np.trunc(sizes * share).astype(np.int64)
        return weighted


def score_images(index: ImageIndex, images: Sequence[str], layout: ClusterLayout) -> IntVector:
    """Score 0..100 for each node by the images that it holds.

    Parameters
    ----------
    index
        Images by node.
    images
        One complete name per container.
    layout
        The nodes.
    """
    total = np.zeros(len(layout.names), np.int64)
    sizes = [index.weighted_size(name, layout) for name in images]
    highest = HIGHEST * len(images)
    if highest <= LOWEST or not any(size is not None for size in sizes):
        return total
    for size in sizes:
        if size is not None:
            total += size
    return 100 * (np.clip(total, LOWEST, highest) - LOWEST) // (highest - LOWEST)
