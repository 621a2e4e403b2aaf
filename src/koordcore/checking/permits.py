"""Members that kept a place from an earlier call and are decided about again: before, they wait."""

from __future__ import annotations

from typing import Final

import attrs

from koordcore.model.pods import Pod, PodPhase
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.protocol.holdings import HOLDINGS, without
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded, PodPending

_WRITTEN: Final = HOLDINGS | {WAITS_AT_PERMIT}


def as_waiting(snapshot: ClusterSnapshot, result: ScheduleResult) -> ClusterSnapshot:
    """Give the cluster before a result; who only kept a place in it and is decided about waits there."""
    found: dict[str, Pod] = {}
    for decision in result.decisions:
        # By its node: the table of all pods would be made anew for every snapshot.
        node = snapshot.location.get(decision.pod)
        there = () if node is None else snapshot.node(node).pods
        pod = next((one for one in there if one.key == decision.pod), None)
        if pod is not None and WAITS_AT_PERMIT in pod.annotations:
            found[str(pod.key)] = pod
    if not found:
        return snapshot
    waiting = (
        attrs.evolve(
            pod, node_name=None, phase=PodPhase.PENDING, annotations=without(pod.annotations, _WRITTEN)
        )
        for pod in found.values()
    )
    return snapshot.apply(*(PodEnded(pod.key) for pod in found.values()), *map(PodPending, waiting))
