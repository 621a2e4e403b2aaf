"""ImageLocality: nodes that hold the pod's images already.

The rule is that of Kubernetes 1.35 (``plugins/imagelocality``): an image counts with its size on the node
times the share of nodes that hold it, so that one node is not preferred for an image that is everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from koordcore._arrays import ClusterLayout, IntVector
from koordcore.model.pods import Pod

__all__ = ["ImageIndex", "image_name", "pod_images", "score_images"]

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

    def __init__(self, layout: ClusterLayout) -> None:
        self.number = len(layout.names)
        self._holders: dict[str, tuple[list[int], list[int]]] = {}
        for row, node in enumerate(layout.nodes):
            for name, size in node.images.items():
                rows, sizes = self._holders.setdefault(name, ([], []))
                rows.append(row)
                sizes.append(size)

    def weighted_size(self, name: str) -> IntVector | None:
        """Give an image's size on each node times the share of nodes that hold it; ``None`` for nowhere."""
        found = self._holders.get(name)
        if found is None:
            return None
        rows, sizes = found
        weighted = np.zeros(self.number, np.int64)
        share = float(len(rows)) / float(self.number)
        weighted[rows] = np.trunc(np.array(sizes, np.float64) * share).astype(np.int64)
        return weighted


def score_images(index: ImageIndex, images: Sequence[str]) -> IntVector:
    """Score 0..100 for each node by the images that it holds.

    Parameters
    ----------
    index
        Images by node.
    images
        One complete name per container.
    """
    total = np.zeros(index.number, np.int64)
    for name in images:
        size = index.weighted_size(name)
        if size is not None:
            total += size
    highest = HIGHEST * len(images)
    if highest <= LOWEST:
        return np.zeros(index.number, np.int64)
    return 100 * (np.clip(total, LOWEST, highest) - LOWEST) // (highest - LOWEST)
