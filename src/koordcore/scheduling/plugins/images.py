"""ImageLocality: nodes that need not pull the pod's images."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from koordcore._arrays import IntVector
from koordcore._vector import Vector
from koordcore.framework.evaluator import Evaluator
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.scoring.images import ImageSizes, pod_images, score_images
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, changed_states, derived

_MORE: Final = 1000
"""Names of images beside those that nodes hold that do no harm."""


class KnownImages(NamedTuple):
    """Names of images that nodes hold, and maybe of some that they held.

    Parameters
    ----------
    names
        These.
    most
        With more than so many they are looked up anew.
    """

    names: frozenset[str]
    most: int


def known_images(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Name the images that nodes of a snapshot hold, and maybe some that earlier ones of its line held."""
    return derived(snapshot, _known, _known_again, replaced=True).names


def _known(snapshot: ClusterSnapshot) -> KnownImages:
    names = frozenset().union(*(node.images for node in snapshot.layout.nodes))
    return KnownImages(names, 2 * len(names) + _MORE)


def _known_again(
    nodes: Vector[NodeState], _: Vector[ClusterRecord], value: KnownImages, snapshot: ClusterSnapshot
) -> KnownImages:
    """Look only at nodes that say something else."""
    new = {
        name
        for old, now in changed_states(snapshot, nodes)
        if now is not None and (old is None or old.node is not now.node)
        for name in now.node.images
        if name not in value.names
    }
    if not new:
        return value
    names = value.names | new
    return value._replace(names=names) if len(names) <= value.most else _known(snapshot)


class ImageEvaluator(Evaluator):
    """Score of one set of images."""

    def __init__(self, plugin: ImageLocality, images: Sequence[str]) -> None:
        self._plugin, self._images = plugin, images

    @property
    def alike(self) -> tuple[bool, int | None] | None:
        known = known_images(self._plugin.workspace.snapshot)
        return (True, 0) if known.isdisjoint(self._images) else None

    @cached_property
    def _scores(self) -> IntVector:
        layout, sizes = self._plugin.workspace.layout, self._plugin.sizes
        return score_images([sizes.of(name, layout.nodes) for name in self._images], len(layout.names))

    def scores(self, view: NodeView) -> IntVector:
        return self._scores[view.rows]


class ImageLocality(Plugin):
    """Images that are there already."""

    name = "ImageLocality"
    by_template = True
    reads = frozenset[type]()
    looks_at = frozenset(("images",))

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.sizes = ImageSizes()

    def moved(self, moves: NodeMoves) -> bool:
        self.sizes.move(moves.by_row)
        return True

    def follow(self, changes: ClusterChanges) -> bool:
        self.sizes.put({row: after for row, (_, after) in changes.nodes.items()})
        return super().follow(changes)

    def request_of(self, pod: Pod) -> Hashable:
        return pod_images(pod)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return ImageEvaluator(self, request)
