"""A pod that moves is made anew: what it held where it was is not what it gets."""

from __future__ import annotations

import attrs

from koordcore.model.pods import Pod, PodPhase
from koordcore.protocol.holdings import HOLDINGS, without


def unbound(pod: Pod) -> Pod:
    """Give the pod that its owner makes anew: without node and without what it held there."""
    kept = without(pod.annotations, HOLDINGS)
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
