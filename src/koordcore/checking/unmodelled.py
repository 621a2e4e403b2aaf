"""Nobody is placed who asks for what the checks of a plan do not look at."""

from __future__ import annotations

from collections.abc import Iterator

from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.pods import Pod
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_unmodelled(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """Every pod that gets a node stays, can be read, as can all pods there, and asks for what is checked."""
    placed = {one.pod for one in result.decisions if isinstance(one, Bound | Nominated)}
    claims = result.policy.filters("DynamicResources")
    known = [*snapshot.pending, *result.snapshot.pending]
    known += (pod for state in result.snapshot.nodes for pod in state.pods)
    for pod in known:
        wish = _wish(pod, claims) if pod.key in placed else ""
        if wish:
            yield Violation(ViolationKind.UNMODELLED, str(pod.key), f"is placed, and {wish} is not modelled")
        if pod.deleted is not None and pod.key in placed:
            yield Violation(ViolationKind.DELETED, str(pod.key), "is placed, and is being deleted")
        if pod.unreadable and pod.key in placed:
            yield Violation(ViolationKind.UNREADABLE, str(pod.key), f"is placed, and says {pod.unreadable}")
    yield from _beside_unreadable(snapshot, result)


def _beside_unreadable(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    closed = {state.name: pod.key for state in snapshot.nodes for pod in state.pods if pod.conceals}
    for one in result.decisions:
        if isinstance(one, Bound | Nominated) and one.node in closed:
            message = f"is put on {one.node} beside {closed[one.node]}, which cannot be read"
            yield Violation(ViolationKind.UNREADABLE, str(one.pod), message)


def _wish(pod: Pod, claims: bool) -> str:
    """Name the field by which a pod asks for what is not checked; empty for none."""
    if pod.resource_claims and not claims:
        return "spec.resourceClaims"
    return ""
