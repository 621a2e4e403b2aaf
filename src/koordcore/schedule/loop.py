"""The loop: queue order, admit, filter, score, allocate, assume; one pod after another."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import numpy as np

from koordcore._workspace import Workspace
from koordcore.errors import ModelError
from koordcore.model.decisions import Bound, PodDecision, Shortfall, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.schedule.classes import FeatureSet, PodClass
from koordcore.schedule.feature import Refusal
from koordcore.snapshot import ClusterSnapshot, ScheduleResult, bind

__all__ = ["queue_order", "schedule"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def queue_order(pods: Iterable[Pod]) -> list[Pod]:
    """Sort pods as the queue does: higher priority first, then older, then by namespace and name.

    A pod without a creation time counts as older than any that has one.
    """
    return sorted(pods, key=lambda pod: (-pod.priority, pod.created or _EPOCH, pod.namespace, pod.name))


def schedule(
    snapshot: ClusterSnapshot,
    pods: Iterable[Pod] | None = None,
    *,
    policy: Policy = Policy(),
    now: datetime | None = None,
) -> ScheduleResult:
    """Decide about pods, one after another, each on the cluster as the earlier ones left it.

    Parameters
    ----------
    snapshot
        The cluster; it is not changed.
    pods
        Whom to place; the snapshot's pending pods when left out. Pods that the snapshot does not know are
        taken in.
    policy
        Which features decide, with weights and arguments.
    now
        The clock, for features that look at the age of things; left out, it is the moment of the newest
        metric.

    Returns
    -------
    ScheduleResult
        One decision per pod in queue order, the cluster afterwards, and counts. The same arguments give the
        same bytes. Ties between nodes go to the first name.

    Raises
    ------
    ModelError
        When a pod is bound already or stands twice, or the policy names an unknown feature.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot, Node, Pod, schedule
    >>> node = Node(name="n1", allocatable={"cpu": 4000, "memory": 2**33, "pods": 110})
    >>> result = schedule(ClusterSnapshot(nodes=[node]), [Pod(name="web", requests={"cpu": 1000})])
    >>> [(str(one.pod), one.node) for one in result.bound]
    [('default/web', 'n1')]
    """
    asked = queue_order(snapshot.pending if pods is None else pods)
    snapshot = _take_in(snapshot, asked)
    workspace = Workspace(snapshot, now)
    features = FeatureSet(workspace, policy)
    decisions = [_decide(workspace, features, pod) for pod in asked]
    counts = {
        "pods": len(decisions),
        "bound": sum(isinstance(one, Bound) for one in decisions),
        "unschedulable": sum(isinstance(one, Unschedulable) for one in decisions),
        "waiting": sum(isinstance(one, Waiting) for one in decisions),
        "nodes": len(workspace.layout.names),
    }
    return ScheduleResult(
        decisions=tuple(decisions), snapshot=workspace.freeze(), policy=policy, stats=counts
    )


def _take_in(snapshot: ClusterSnapshot, pods: list[Pod]) -> ClusterSnapshot:
    seen: set[PodKey] = set()
    pending = {pod.key: pod for pod in snapshot.pending}
    for pod in pods:
        key = pod.key
        if key in seen:
            raise ModelError(f"pod {key} stands twice")
        if pod.node_name is not None or key in snapshot.location:
            raise ModelError(f"pod {key} is bound to {pod.node_name or snapshot.location[key]} already")
        seen.add(key)
    strangers = [pod for pod in pods if (known := pending.get(pod.key)) is not pod and known != pod]
    return snapshot.with_pending(*strangers) if strangers else snapshot


def _decide(workspace: Workspace, features: FeatureSet, pod: Pod) -> PodDecision:
    if pod.gated:
        return Waiting(pod=pod.key, reason="Scheduling is blocked due to non-empty scheduling gates")
    number = len(workspace.layout.names)
    if not number:
        return Unschedulable(pod=pod.key, refusal="no nodes available to schedule pods")
    pod_class = features.class_of(pod)
    if isinstance(pod_class, Refusal):
        return Unschedulable(pod=pod.key, nodes=number, refusal=pod_class.reason)
    refused = pod_class.refuse()
    if refused is not None:
        return Unschedulable(pod=pod.key, nodes=number, refusal=refused[1].reason)
    return _place(workspace, features, pod_class, pod)


def _place(workspace: Workspace, features: FeatureSet, pod_class: PodClass, pod: Pod) -> PodDecision:
    feasible = pod_class.feasible()
    count = int(np.count_nonzero(feasible))
    if not count:
        return pod_class.failure(pod)
    totals = pod_class.totals(feasible)
    row = int(totals.argmax())  # the first of the best, and nodes are in the order of their names
    mark = workspace.checkpoint()
    decision = pod_class.decide(pod, row, int(totals[row]), count)
    if isinstance(decision, Shortfall):
        workspace.rollback(mark)
        node = workspace.layout.names[row]
        raise AssertionError(f"{pod.key} fits {node} but cannot be allocated there: {decision.reason}")
    bound = bind(pod, decision)
    workspace.bind(bound, row)
    features.placed(bound, row)
    return decision
