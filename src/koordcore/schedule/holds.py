"""Room that is promised: a pod that is nominated, or that moves, counts on its node before it is there."""

from __future__ import annotations

from typing import Final

import attrs

from koordcore._workspace import Workspace
from koordcore.model.pods import Pod, PodPhase
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.protocol.numa import ANNOTATION_RESOURCE_STATUS
from koordcore.protocol.reservation import RESERVATION_ALLOCATED
from koordcore.schedule.classes import FeatureSet

__all__ = ["hold", "let_go", "unbound"]

_HOLDINGS: Final = frozenset(
    {
        DEVICE_ALLOCATED,
        ANNOTATION_RESOURCE_STATUS,
        RESERVATION_ALLOCATED,
        "alibabacloud.com/gpu-index",
    }
)


def hold(workspace: Workspace, features: FeatureSet, pod: Pod, node: str) -> Pod:
    """Count a pod on a node as if it ran there, ports, neighbours and quota included; cards are not chosen.

    The node may be overcommitted by it: whoever has to leave is still there.
    """
    held = pod.at(node)
    row = workspace.layout.row_of[node]
    workspace.bind(held, row)
    for feature in features.features:
        feature.promised(held, row)
    return held


def let_go(workspace: Workspace, features: FeatureSet, held: Pod) -> None:
    """Take back what :func:`hold` did; the pod still asks for its quota."""
    row = workspace.layout.row_of[str(held.node_name)]
    workspace.evict(held.key, row)
    for feature in features.features:
        feature.withdrawn(held, row)


def unbound(pod: Pod) -> Pod:
    """Give the pod that its owner makes anew: without node and without what it held there."""
    kept = {name: text for name, text in pod.annotations.items() if name not in _HOLDINGS}
    return attrs.evolve(
        pod, node_name=None, phase=PodPhase.PENDING, annotations=kept, ready=False, deleted=None
    )
