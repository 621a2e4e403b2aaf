"""The loop: queue order, admit, filter, score, allocate, assume; one pod after another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import attrs

from koordcore.errors import ModelError
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import Bound, JobPlan, Nominated, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import GangTurns, Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.reservations import ReservationArgs, ReservationMatching
from koordcore.result import ScheduleResult
from koordcore.scheduling.nominated import hold, let_go
from koordcore.scheduling.one_pod import place_pod
from koordcore.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from koordcore.scheduling.gang_groups import Job
    from koordcore.scheduling.joint_matching import ReservationPlan

__all__ = ["open_workspace", "queue_order", "run"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def queue_order(pods: Iterable[Pod]) -> list[Pod]:
    """Sort pods as the queue does: higher priority first, then older, then by namespace and name.

    A pod without a creation time counts as older than any that has one.
    """
    ordered = sorted(pods, key=attrgetter("key"))
    ordered.sort(key=_age)
    ordered.sort(key=attrgetter("priority"), reverse=True)  # keeps the order of equals
    return ordered


def _age(pod: Pod) -> datetime:
    return pod.created or _EPOCH


def run(
    snapshot: ClusterSnapshot,
    pods: Iterable[Pod] | None,
    policy: Policy,
    now: datetime | None,
    limits: Limits,
    preempt: PreemptionRules | None,
) -> ScheduleResult:
    """Do what :func:`koordcore.schedule` promises."""
    # Only who has reservations pays for reading what they need; likewise gangs below.
    reserving = policy.plugin("Reservation") is not None
    asked = queue_order(_everybody(snapshot, reserving) if pods is None else pods)
    known = _take_in(snapshot, asked)
    result = _decide(known, asked, policy, now, limits, preempt)
    if _joins(policy):
        from koordcore.scheduling.joint_matching import better_of, plan_reservations

        plugins = PluginSet(open_workspace(known, policy, now), policy)
        plan = plan_reservations(plugins, asked, limits)
        if plan.meant:
            joint = _decide(known, plan.order(asked), policy, now, limits, preempt, plan)
            result = better_of(result, joint, asked)
    return result


def _joins(policy: Policy) -> bool:
    """Tell whether the policy wants pods and the reservations that stand already matched all together."""
    setting = policy.plugin("Reservation")
    args = None if setting is None else setting.args
    return isinstance(args, ReservationArgs) and args.matching is ReservationMatching.JOINT


def _decide(
    known: ClusterSnapshot,
    asked: Sequence[Pod],
    policy: Policy,
    now: datetime | None,
    limits: Limits,
    preempt: PreemptionRules | None,
    matched: ReservationPlan | None = None,
) -> ScheduleResult:
    """Decide about pods in the order given; ``matched`` tells what reservations some should try first."""
    reserving = policy.plugin("Reservation") is not None
    workspace = open_workspace(known, policy, now)
    snapshot = workspace.snapshot
    plugins = PluginSet(workspace, policy)
    if matched is not None:
        from koordcore.scheduling.joint_matching import follow

        follow(plugins, matched)
    from koordcore.scheduling.gang_groups import JobTable

    decisions: list[PodDecision] = []
    plans: list[JobPlan] = []
    table = JobTable(snapshot)
    preemptor = None
    if preempt is not None:
        from koordcore.scheduling.preempt import Preemptor

        preemptor = Preemptor(workspace, plugins, table, preempt, limits)
    turns: Iterable[Pod | Job] = table.turns(asked)
    together = None
    if policy.gangs is GangTurns.TOGETHER:
        from koordcore.scheduling.gang_queue import JointTurns

        together = JointTurns(workspace, plugins, limits, evicting=preempt is not None)
        turns = together.turns(turns)
    held: list[Pod] = []
    for turn in turns:
        if isinstance(turn, Pod):
            decision = place_pod(workspace, plugins, turn)
            workspace.commit()
            if isinstance(decision, Bound):
                decisions.append(decision)
                continue
            members: list[PodDecision] = [decision]
            if preemptor is not None and isinstance(decision, Unschedulable):
                members = list(preemptor.for_pod(turn) or members)
        else:
            # Gangs bring the solver's adapter and more; a call without any should not pay for them.
            from koordcore.scheduling.gang import place_job

            settled = None if together is None else together.settled(turn)
            members, plan = settled or place_job(workspace, plugins, turn, limits)
            if preemptor is not None and not plan.placed and not plan.held and not turn.refusal:
                members = _with_nominations(members, preemptor.for_job(turn))
            plans.append(plan)
        held += _hold(workspace, plugins, (turn,) if isinstance(turn, Pod) else turn.pods, members)
        decisions += members
    for pod in held:
        let_go(workspace, plugins, pod)
    if preemptor is not None:
        preemptor.release()
    end = _nominate(workspace.freeze(), decisions)
    if reserving:
        from koordcore.reservations.cache import without_holders

        end = without_holders(known, end, decisions, now)
    kinds = Counter(map(type, decisions))
    counts = {
        "pods": len(decisions),
        "bound": kinds[Bound],
        "unschedulable": kinds[Unschedulable],
        **({"nominated": kinds[Nominated]} if preemptor else {}),
        "waiting": kinds[Waiting],
        "nodes": len(workspace.layout.names),
    }
    return ScheduleResult(
        decisions=tuple(decisions),
        snapshot=end,
        jobs=tuple(plans),
        together=() if together is None else tuple(together.plans),
        preemptions=tuple(preemptor.plans) if preemptor is not None else (),
        policy=policy,
        stats=counts,
    )


def _with_nominations(members: list[PodDecision], nominated: Sequence[Nominated] | None) -> list[PodDecision]:
    """Replace the decisions of those who are nominated."""
    known = {one.pod: one for one in nominated or ()}
    return [known.get(one.pod, one) for one in members]


def _hold(
    workspace: Workspace, plugins: PluginSet, pods: Iterable[Pod], decisions: Iterable[PodDecision]
) -> list[Pod]:
    """Keep the room of pods that were nominated earlier and cannot come yet: later ones are less important.

    Gives the pods as they were put on their nodes; the caller takes them off in the end.
    """
    failed = {one.pod for one in decisions if isinstance(one, Unschedulable)}
    held = []
    for pod in pods:
        row = workspace.layout.row_of.get(pod.nominated_node or "")
        if pod.key in failed and row is not None:
            held.append(hold(workspace, plugins, pod, str(pod.nominated_node)))
    return held


def _nominate(end: ClusterSnapshot, decisions: Iterable[PodDecision]) -> ClusterSnapshot:
    """Write the nominations on the pods that wait."""
    nodes = {one.pod: one.node for one in decisions if isinstance(one, Nominated)}
    if not nodes:
        return end
    pods = [pod for pod in end.pending if pod.key in nodes]
    return end.with_pending(*(attrs.evolve(pod, nominated_node=nodes[pod.key]) for pod in pods))


def _everybody(snapshot: ClusterSnapshot, reserving: bool) -> Iterable[Pod]:
    """Give the pods that wait, and those that stand for reservations which wait."""
    if not reserving:
        return snapshot.pending
    from koordcore.reservations.cache import pending_reserve_pods

    return [*snapshot.pending, *pending_reserve_pods(snapshot)]


def open_workspace(snapshot: ClusterSnapshot, policy: Policy, now: datetime | None = None) -> Workspace:
    """Make a workspace in which reservations hold their room where the policy knows of them."""
    if policy.plugin("Reservation") is None:
        return Workspace(snapshot, now)
    from koordcore.reservations.cache import with_holders

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
