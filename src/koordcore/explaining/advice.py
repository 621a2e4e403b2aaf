"""What becomes of pods that wait, in the queue and in their gang: who is before them, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import attrs

from koordcore.errors import ModelError
from koordcore.explaining.attempts import Attempts
from koordcore.explaining.groups import turn_order
from koordcore.explaining.network import used_domains
from koordcore.explaining.remedies import Remedy, RemedyKind, never, remedies
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.snapshot import ClusterSnapshot

_QUOTA = "ElasticQuota"
_NAMED = 4
_TRIES = 64
"""Calls that are spent on finding out who of those before stand in the way."""


@attrs.frozen(kw_only=True)
class Ahead:
    """Somebody who takes a node before, on which the pods would go if they were alone.

    Parameters
    ----------
    nominated
        It does not run there yet: its room is kept for it.
    """

    pod: PodKey
    node: str
    priority: int
    nominated: bool = False


@attrs.frozen(kw_only=True)
class Advice:
    """What becomes of a pod or of a gang, and what would help.

    Parameters
    ----------
    members
        Who is decided together.
    place, queue
        The place of the first of them in the queue, from 1, and how many wait.
    settled
        They get their nodes.
    summary
        A sentence or several: where they go, or why not.
    ahead
        Who takes their nodes before their turn; they would fit if these did not wait.
    never
        What no node ever has.
    remedies
        What would help, each tried out; what costs least comes first.
    at_turn
        The cluster when their turn comes, nobody waiting but them.
    """

    members: tuple[PodKey, ...]
    place: int
    queue: int
    settled: bool
    summary: tuple[str, ...]
    ahead: tuple[Ahead, ...] = ()
    never: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    at_turn: ClusterSnapshot = attrs.field(repr=False)


def advise(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    pod: Pod | PodKey | str,
    *,
    now: datetime | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Advice:
    """Say what became of a pod that waits, or of its whole gang, and what would help.

    Parameters
    ----------
    snapshot
        The cluster before the call.
    result
        What :func:`koordcore.schedule` made of it, nobody left out.
    pod
        Who is asked about; for a member of a gang the answer is about the gang.
    now, limits
        As for the call.

    Raises
    ------
    ModelError
        When the pod is not among those that were decided about.
    """
    key = pod.key if isinstance(pod, Pod) else PodKey.of(pod)
    asked = snapshot.pod(key)
    if asked is None or key in snapshot.location:
        raise ModelError(f"{key} does not wait")
    job = _job_of(snapshot, asked, result.policy)
    members = (asked,) if job is None else job.pods
    own = {one.key for one in members}
    order = turn_order(snapshot, result.policy)
    place = next((number for number, one in enumerate(order, 1) if one.key in own), 0)
    before = _before(result, own)
    at_turn = _at_turn(snapshot, result, before, own)
    decisions = [one for one in result.decisions if one.pod in own]
    least = 1 if job is None else max(1, sum(gang.min_available for gang in job.gangs.values()))
    attempts = Attempts(at_turn, members, min(least, len(members)), result.policy, now, limits)
    settled = bool(attempts.places(_only(result, own)))
    told = _told(result, job, asked, decisions)
    advice = Advice(
        members=tuple(one.key for one in members),
        place=place,
        queue=len(order),
        settled=settled,
        summary=told,
        at_turn=at_turn,
    )
    if settled or _out_of_turn(decisions, job):
        return advice
    ahead = _ahead(attempts, snapshot, before)
    helps = (*_quota(attempts), *remedies(attempts))
    ranked = sorted(helps, key=lambda one: list(RemedyKind).index(one.kind))
    return attrs.evolve(advice, ahead=ahead, never=never(attempts), remedies=tuple(ranked))


def _job_of(snapshot: ClusterSnapshot, pod: Pod, policy: Policy) -> Job | None:
    for turn in JobTable(snapshot, policy).turns(snapshot.pending):
        if isinstance(turn, Job) and any(one.key == pod.key for one in turn.pods):
            return turn
    return None


def _before(result: ScheduleResult, own: set[PodKey]) -> list[PodDecision]:
    """Give the decisions before those of the members; members of other gangs in between count as well."""
    found = []
    for one in result.decisions:
        if one.pod in own:
            break
        found.append(one)
    return found


def _at_turn(
    snapshot: ClusterSnapshot, result: ScheduleResult, before: Sequence[PodDecision], own: set[PodKey]
) -> ClusterSnapshot:
    others = [one.key for one in snapshot.pending if one.key not in own and not one.nominated_node]
    placed = [
        after
        for one in before
        if isinstance(one, Bound)
        and (after := result.snapshot.pod(one.pod)) is not None
        and after.node_name is not None
    ]
    kept = {one.key for one in placed}
    alone = snapshot.forget(*(key for key in others if key not in kept))
    return alone.assume(*placed)


def _only(result: ScheduleResult, own: set[PodKey]) -> ScheduleResult:
    decisions = tuple(one for one in result.decisions if one.pod in own)
    jobs = tuple(one for one in result.jobs if _has(result, one.job, own))
    return attrs.evolve(result, decisions=decisions, jobs=jobs)


def _has(result: ScheduleResult, job: str, own: set[PodKey]) -> bool:
    ids = set(job.split(","))
    for key in own:
        pod = result.snapshot.pod(key)
        if pod is not None and f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}" in ids:
            return True
    return False


def _out_of_turn(decisions: Sequence[PodDecision], job: Job | None) -> bool:
    """Nodes have nothing to do with it: other schedulers, gates, gangs that are not complete."""
    return (job is not None and job.stopped) or all(isinstance(one, NotOurs | Waiting) for one in decisions)


def _told(
    result: ScheduleResult, job: Job | None, asked: Pod, decisions: Sequence[PodDecision]
) -> tuple[str, ...]:
    if job is not None:
        return _job_told(result, job)
    (decision,) = decisions
    match decision:
        case Bound() as bound if asked.nominated_node == bound.node:
            return (f"goes to {bound.node} in its turn, the node that it is nominated for",)
        case Bound() as bound:
            why = f", the best of {bound.feasible} that can take it" if bound.feasible > 1 else ""
            only = ", the only node that can take it" if bound.feasible == 1 else ""
            return (f"goes to {bound.node} in its turn{why}{only}",)
        case Nominated() as nominated:
            return (f"is nominated for {nominated.node}",)
        case Waiting() as waiting:
            return (f"waits: {waiting.reason}",)
        case NotOurs() as other:
            return (f"waits for the scheduler {other.scheduler_name}, which no profile of the policy names",)
        case Unschedulable() as refused:
            return (f"gets no node in its turn: {refused.message}",)


def _job_told(result: ScheduleResult, job: Job) -> tuple[str, ...]:
    plan = next((one for one in result.jobs if one.job == job.name), None)
    if job.stopped:
        return (f"is not tried: {job.refusal or job.waits_for}",)
    if plan is None:
        return ()
    if plan.placed:
        names = used_domains(result).get(plan.job, {})
        over = [
            f"{layer.removesuffix('Layer').lower()} {' '.join(names[layer])}"
            for layer in plan.domains
            if 0 < len(names.get(layer, ())) <= _NAMED
        ]
        proven = f", {plan.certificate.status.text}" if plan.certificate else ""
        where = f": chosen together, {', '.join(over)}{proven}" if over else proven
        return (f"{plan.placed} of {plan.members} members get nodes{where}",)
    told = [one for one in (plan.detail, plan.message) if one]
    return (
        f"none of {plan.members} members starts, at least {plan.least} have to: {told[0] if told else ''}",
    )


def _ahead(asked: Attempts, snapshot: ClusterSnapshot, before: Sequence[PodDecision]) -> tuple[Ahead, ...]:
    """Name the fewest before them without whom they would fit; empty where that does not help."""
    waiting = {one.key: one for one in snapshot.pending}
    placed = [
        Ahead(pod=one.pod, node=one.node, priority=waiting[one.pod].priority)
        for one in before
        if isinstance(one, Bound) and one.pod in waiting
    ]
    own, there = {one.key for one in asked.members}, {one.pod for one in placed}
    placed += [
        Ahead(pod=one.key, node=one.nominated_node, priority=one.priority, nominated=True)
        for one in snapshot.pending
        if one.nominated_node and one.key not in own and one.key not in there
    ]

    def fits_without(gone: Sequence[Ahead]) -> bool:
        return bool(asked.fits(snapshot=asked.snapshot.forget(*(one.pod for one in gone))))

    if not placed or not fits_without(placed):
        return ()
    return tuple(_fewest(placed, fits_without))


def _fewest(placed: list[Ahead], enough: Callable[[Sequence[Ahead]], bool]) -> list[Ahead]:
    """Leave out whoever is not needed, the first of the queue first, in ever smaller pieces."""
    needed, size, tries = placed, max(1, len(placed) // 2), 0
    while tries < _TRIES:
        start = 0
        while start < len(needed) and tries < _TRIES:
            fewer = needed[:start] + needed[start + size :]
            tries += 1
            if fewer and enough(fewer):
                needed = fewer
            else:
                start += size
        if size == 1:
            break
        size = max(1, size // 2)
    return needed


def _quota(asked: Attempts) -> list[Remedy]:
    """Say that the quota alone stands in the way, where that is so."""
    if asked.policy.plugin(_QUOTA) is None:
        return []
    plugins = tuple(one for one in asked.policy.plugins if one.name != _QUOTA)
    free = attrs.evolve(asked.policy, plugins=plugins)
    found = asked.fits(policy=free)
    if not found or asked.fits():
        return []
    node = min(found.values())
    text = f"only its quota is in the way: with more max, or once others of the quota end, it fits {node}"
    return [Remedy(kind=RemedyKind.QUOTA, text=text)]
