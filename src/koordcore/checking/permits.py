"""Members that keep places while they wait for their gang: in a result, and from an earlier call."""

from __future__ import annotations

from typing import Final

import attrs

from koordcore.model.decisions import Waiting
from koordcore.model.pods import Pod, PodKey, PodPhase
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.protocol.holdings import HOLDINGS, without
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded, PodPending

_WRITTEN: Final = HOLDINGS | {WAITS_AT_PERMIT}


def as_placed(result: ScheduleResult) -> ScheduleResult:
    """Give the result with whoever keeps a place as one that is bound there."""
    if not any(isinstance(one, Waiting) and one.held for one in result.decisions):
        return result
    decisions = ((isinstance(one, Waiting) and one.held) or one for one in result.decisions)
    return attrs.evolve(result, decisions=tuple(decisions))


def as_waiting(
    snapshot: ClusterSnapshot, result: ScheduleResult
) -> tuple[ClusterSnapshot, frozenset[PodKey]]:
    """Give the cluster before a result; who only kept a place in it and is decided about waits there.

    Gives also who they are: they have their places again before anybody has a turn.
    """
    found: dict[str, Pod] = {}
    for decision in result.decisions:
        # By its node: the table of all pods would be made anew for every snapshot.
        node = snapshot.location.get(decision.pod)
        there = () if node is None else snapshot.node(node).pods
        pod = next((one for one in there if one.key == decision.pod), None)
        if pod is not None and WAITS_AT_PERMIT in pod.annotations:
            found[str(pod.key)] = pod
    kept = frozenset(pod.key for pod in found.values())
    if not found:
        return snapshot, kept
    waiting = (
        attrs.evolve(
            pod, node_name=None, phase=PodPhase.PENDING, annotations=without(pod.annotations, _WRITTEN)
        )
        for pod in found.values()
    )
    return snapshot.apply(*map(PodEnded, sorted(kept)), *map(PodPending, waiting)), kept
