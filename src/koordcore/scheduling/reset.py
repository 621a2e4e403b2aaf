"""A pod that moves is made anew: what it held where it was is not what it gets."""

from __future__ import annotations

from typing import Final

import attrs

from koordcore.model.pods import Pod, PodPhase
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.protocol.numa import ANNOTATION_RESOURCE_STATUS
from koordcore.protocol.reservation import RESERVATION_ALLOCATED

__all__ = ["unbound"]

_HOLDINGS: Final = frozenset(
    {
        DEVICE_ALLOCATED,
        ANNOTATION_RESOURCE_STATUS,
        RESERVATION_ALLOCATED,
        "alibabacloud.com/gpu-index",
    }
)


def unbound(pod: Pod) -> Pod:
    """Give the pod that its owner makes anew: without node and without what it held there."""
    kept = {name: text for name, text in pod.annotations.items() if name not in _HOLDINGS}
    return attrs.evolve(
        pod,
        node_name=None,
        phase=PodPhase.PENDING,
        annotations=kept,
        ready=False,
        deleted=None,
        disruption="",
        preempted_by="",
    )
