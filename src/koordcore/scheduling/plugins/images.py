"""ImageLocality: nodes that need not pull the pod's images."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from koordcore._arrays import IntVector
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Evaluator, Plugin
from koordcore.model.pods import Pod
from koordcore.scoring.images import ImageIndex, pod_images, score_images
from koordcore.snapshot import ClusterSnapshot

__all__ = ["ImageLocality"]


def image_index(snapshot: ClusterSnapshot) -> ImageIndex:
    """Index the images of a snapshot's nodes."""
    return ImageIndex(snapshot.layout)


class ImageEvaluator(Evaluator):
    """Score of one set of images."""

    def __init__(self, scores: IntVector) -> None:
        self._scores = scores

    def scores(self, view: NodeView) -> IntVector:
        return self._scores[view.rows]


class ImageLocality(Plugin):
    """Images that are there already."""

    name = "ImageLocality"
    reads = frozenset[type]()

    def request_of(self, pod: Pod) -> Hashable:
        return pod_images(pod)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return ImageEvaluator(score_images(self.workspace.snapshot.once(image_index), request))
