"""ImageLocality: nodes that need not pull the pod's images."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

from koordcore._arrays import IntVector
from koordcore.framework.evaluator import Evaluator
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.model.pods import Pod
from koordcore.scoring.images import ImageIndex, pod_images, score_images
from koordcore.snapshot.following import ClusterChanges


class ImageEvaluator(Evaluator):
    """Score of one set of images."""

    def __init__(self, plugin: ImageLocality, images: Sequence[str]) -> None:
        self._plugin, self._images = plugin, images

    def moved(self) -> bool:
        self.__dict__.pop("_scores", None)
        return True

    @property
    def alike(self) -> tuple[bool, int | None] | None:
        return None if any(map(self._plugin.index.has, self._images)) else (True, 0)

    @cached_property
    def _scores(self) -> IntVector:
        index, names = self._plugin.index, self._plugin.workspace.layout.names
        return score_images([index.sizes(image, names) for image in self._images], len(names))

    def scores(self, view: NodeView) -> IntVector:
        return self._scores[view.rows]


class ImageLocality(Plugin):
    """Images that are there already."""

    name = "ImageLocality"
    by_template = True
    follows_pods = False
    reads = frozenset[type]()
    looks_at = frozenset(("images",))
    _index: ImageIndex | None = None

    @property
    def index(self) -> ImageIndex:
        """The images of all nodes, as they are now."""
        if self._index is None:
            self._index = ImageIndex(self.workspace.layout.nodes)
        return self._index

    def moved(self, moves: NodeMoves) -> bool:
        if self._index is not None and not self._index.moved(moves.edits):
            self._index = None
        return True

    def follow(self, changes: ClusterChanges) -> bool:
        if self._index is not None:
            self._index.replace({row: after for row, (_, after) in changes.nodes.items()})
        return super().follow(changes)

    def request_of(self, pod: Pod) -> Hashable:
        return pod_images(pod)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return ImageEvaluator(self, request)
