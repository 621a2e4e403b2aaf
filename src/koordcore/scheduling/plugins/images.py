"""ImageLocality: nodes that need not pull the pod's images."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

from koordcore._arrays import IntVector
from koordcore._vector import Vector
from koordcore.framework.evaluator import Evaluator
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.scoring.images import ImageIndex, pod_images, score_images
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_states, derived


def image_index(snapshot: ClusterSnapshot) -> ImageIndex:
    """Index the images of a snapshot's nodes, once for a line of snapshots."""
    return derived(snapshot, _index, _index_again, replaced=True)


def _index(snapshot: ClusterSnapshot) -> ImageIndex:
    return ImageIndex(snapshot.layout.nodes)


def _index_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], value: ImageIndex, snapshot: ClusterSnapshot
) -> ImageIndex:
    """Look only at nodes whose images are others."""
    del records
    states = changed_states(snapshot, nodes)
    pairs = [(None if old is None else old.node, None if new is None else new.node) for old, new in states]
    changed = [(old, new) for old, new in pairs if (old and old.images) != (new and new.images)]
    return value.changed(changed) if changed else value


class ImageEvaluator(Evaluator):
    """Score of one set of images."""

    def __init__(self, workspace: Workspace, images: Sequence[str]) -> None:
        self._index, self._layout = image_index(workspace.snapshot), workspace.layout
        self._images = images

    @property
    def alike(self) -> tuple[bool, int | None] | None:
        return None if any(map(self._index.has, self._images)) else (True, 0)

    @cached_property
    def _scores(self) -> IntVector:
        return score_images(self._index, self._images, self._layout)

    def scores(self, view: NodeView) -> IntVector:
        return self._scores[view.rows]


class ImageLocality(Plugin):
    """Images that are there already."""

    name = "ImageLocality"
    by_template = True
    reads = frozenset[type]()
    keeps_rows = False
    looks_at = frozenset(("images",))

    def request_of(self, pod: Pod) -> Hashable:
        return pod_images(pod)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return ImageEvaluator(self.workspace, request)
