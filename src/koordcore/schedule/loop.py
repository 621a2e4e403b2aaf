"""The loop: queue order, admit, filter, score, allocate, assume; one pod after another."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from koordcore._workspace import Workspace
from koordcore.errors import ModelError
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.decisions import Bound, JobPlan, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.schedule.classes import FeatureSet
from koordcore.schedule.place import place_pod
from koordcore.snapshot import ClusterSnapshot, ScheduleResult

__all__ = ["open_workspace", "queue_order", "schedule"]

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
    limits: Limits = DEFAULT_LIMITS,
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
    limits
        Budget and seed of the solver, where a job needs one.

    Returns
    -------
    ScheduleResult
        One decision per pod in queue order, one plan per job, the cluster afterwards, and counts. The members
        of a gang take their turn together, when the first of them would. The same arguments give the same
        bytes. Ties between nodes go to the first name.

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
    # Only who has reservations pays for reading what they need; likewise gangs below.
    reserving = policy.feature("Reservation") is not None
    asked = queue_order(_everybody(snapshot, reserving) if pods is None else pods)
    known = _take_in(snapshot, asked)
    workspace = open_workspace(known, policy, now)
    snapshot = workspace.snapshot
    features = FeatureSet(workspace, policy)
    # Gangs bring the solver's adapter and more; an import of the library alone should not pay for them.
    from koordcore.schedule.gangs import place_job
    from koordcore.schedule.jobs import JobTable

    decisions: list[PodDecision] = []
    plans: list[JobPlan] = []
    for turn in JobTable(snapshot).turns(asked):
        if isinstance(turn, Pod):
            decisions.append(place_pod(workspace, features, turn))
        else:
            members, plan = place_job(workspace, features, turn, limits)
            decisions += members
            plans.append(plan)
    end = workspace.freeze()
    if reserving:
        from koordcore.schedule.reserved import without_holders

        end = without_holders(known, end, decisions, now)
    counts = {
        "pods": len(decisions),
        "bound": sum(isinstance(one, Bound) for one in decisions),
        "unschedulable": sum(isinstance(one, Unschedulable) for one in decisions),
        "waiting": sum(isinstance(one, Waiting) for one in decisions),
        "nodes": len(workspace.layout.names),
    }
    return ScheduleResult(
        decisions=tuple(decisions),
        snapshot=end,
        jobs=tuple(plans),
        policy=policy,
        stats=counts,
    )


def _everybody(snapshot: ClusterSnapshot, reserving: bool) -> Iterable[Pod]:
    """Give the pods that wait, and those that stand for reservations which wait."""
    if not reserving:
        return snapshot.pending
    from koordcore.schedule.reserved import pending_reserve_pods

    return [*snapshot.pending, *pending_reserve_pods(snapshot)]


def open_workspace(snapshot: ClusterSnapshot, policy: Policy, now: datetime | None = None) -> Workspace:
    """Make a workspace in which reservations hold their room where the policy knows of them."""
    if policy.feature("Reservation") is None:
        return Workspace(snapshot, now)
    from koordcore.schedule.reserved import with_holders

    return Workspace(snapshot.once(with_holders), now)


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
