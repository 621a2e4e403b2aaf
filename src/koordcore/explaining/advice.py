"""What becomes of pods that wait, in the queue and in their gang: who is before them, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

import attrs

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.explaining.attempts import Attempts, named
from koordcore.explaining.claim_remedies import never_by_claims
from koordcore.explaining.groups import job_of
from koordcore.explaining.incomplete_gangs import completing
from koordcore.explaining.network import used_domains
from koordcore.explaining.quota_remedies import never_by_quota, quota_remedies
from koordcore.explaining.remedies import QUESTIONS, never
from koordcore.explaining.remedy import Remedy, RemedyKind
from koordcore.framework.sampling import nodes_to_find
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import Reservation
from koordcore.protocol.reservation_status import made_available
from koordcore.result import ScheduleResult
from koordcore.scheduling.cycle import waiting_pods
from koordcore.scheduling.fewest import fewest
from koordcore.scheduling.gang_groups import Job
from koordcore.scheduling.serving import QueuedStart, queue_units
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded

_NAMED = 4
_REPLAYED = 64
"""Pods that wait before and are decided about anew with each remedy."""
_SERVED = 32
"""Pods that get their nodes before, for as many of which that is done where nobody before is refused."""
_TRIES = 64
"""Calls that are spent on finding out who of those before stand in the way."""


@record(kw_only=True)
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


@record(kw_only=True)
class Advice:
    """What becomes of a pod or of a gang, and what would help.

    Parameters
    ----------
    members
        Who is decided together.
    place, queue
        Their turn, from 1, and how many turns there are: a gang has one. 0 for other schedulers' pods.
    settled
        They get their nodes.
    summary
        A sentence or several: where they go, or why not.
    ahead
        Who takes their nodes before their turn; they would fit if these did not wait.
    never
        What no node ever has, and what a quota never gives.
    remedies
        What would help, each tried out, with those before them served first; what costs least comes first.
        Where nothing does while these wait, what would help the members alone, and each text says so.
    aside
        How many of those who wait before them for a node were left aside, where very many do.
    at_turn
        The cluster when their turn comes, nobody waiting but them.
    attempts
        How it is tried out what would help.
    """

    members: tuple[PodKey, ...]
    place: int
    queue: int
    settled: bool
    summary: tuple[str, ...]
    ahead: tuple[Ahead, ...] = ()
    never: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    aside: int = 0
    at_turn: ClusterSnapshot = attrs.field(repr=False)
    attempts: Attempts = attrs.field(repr=False)


def advise(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    pod: Pod | PodKey | str,
    *,
    now: datetime | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] = lambda _, __: None,
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
    progress
        Called after each kind of help that has been tried out, with how many were and how many there are.

    Raises
    ------
    ModelError
        When the pod is not among those that were decided about.
    """
    key = pod.key if isinstance(pod, Pod) else PodKey.of(pod)
    asked = snapshot.pod(key)
    if asked is None or key in snapshot.location:
        raise ModelError(f"{key} does not wait")
    job = job_of(snapshot, asked, result.policy)
    members = (asked,) if job is None else job.pods
    own = {one.key for one in members}
    queue = queue_units(snapshot, result.policy)
    place = next((turn for turn, unit in enumerate(queue, 1) if own.intersection(unit.pods)), 0)
    before = _before(result, own)
    at_turn = _at_turn(snapshot, result, before, own)
    decisions = [one for one in result.decisions if one.pod in own]
    needed = () if job is None else (job.gangs[name] for name in job.own if name not in job.free)
    least = max(1, sum(gang.min_available for gang in needed))
    tried = _placed(snapshot, result, before) if snapshot.of(ElasticQuota) else at_turn
    refused, served, aside = _replayed(snapshot, result.policy, queue[: max(0, place - 1)], before)
    attempts = Attempts(
        tried,
        members,
        min(least, len(members)),
        result.policy,
        now,
        limits,
        refused=refused,
        served=served,
        queue=snapshot if len(queue) > 1 else None,
    )
    settled = bool(attempts.places(result))
    why = _reasons_of(result, job, asked, decisions)
    advice = Advice(
        members=tuple(one.key for one in members),
        place=place,
        queue=len(queue),
        settled=settled,
        summary=why,
        aside=aside,
        at_turn=at_turn,
        attempts=attempts,
    )
    if settled or all(isinstance(one, NotOurs | Waiting) for one in decisions):
        return advice  # nodes have nothing to do with other schedulers and gates
    if job is not None and job.stopped:
        return attrs.evolve(advice, remedies=tuple(completing(job)))
    ahead = _ahead(attempts, snapshot, before)
    helps: list[Remedy] = []
    for number, question in enumerate((quota_remedies, *QUESTIONS), 1):
        helps += question(attempts)
        progress(number, 1 + len(QUESTIONS))
    if not helps and refused:
        helps = [_not_while(one, refused) for one in _remedies(attempts.alone())]
    ranked = sorted(helps, key=lambda one: list(RemedyKind).index(one.kind))
    return attrs.evolve(
        advice,
        ahead=ahead,
        never=(*never(attempts), *never_by_claims(attempts), *never_by_quota(attempts)),
        remedies=tuple(ranked),
    )


def _remedies(attempts: Attempts) -> Iterator[Remedy]:
    for question in (quota_remedies, *QUESTIONS):
        yield from question(attempts)


def _not_while(remedy: Remedy, refused: Sequence[Pod]) -> Remedy:
    """Say of what helps the members alone that it does not while those before them wait."""
    wait = (
        f"the {len(refused)} pods before it wait"
        if len(refused) > 1
        else f"{named(refused[0])} waits before it"
    )
    return attrs.evolve(remedy, text=f"{remedy.text}; not while {wait} in the queue")


def _replayed(
    snapshot: ClusterSnapshot,
    policy: Policy,
    units: Sequence[QueuedStart],
    before: Sequence[PodDecision],
) -> tuple[tuple[Pod, ...], tuple[Pod, ...], int]:
    """Choose whom of those before to decide about anew with whatever is tried out.

    Reservations that wait are among them, each as the pod that stands for it.

    Parameters
    ----------
    units
        Who has a turn before, in order.

    Returns
    -------
    tuple
        Those without a node, nearest turn first kept where there are very many; those with one, where there
        are few; how many of the former were left aside.
    """
    waiting = {one.key: one for one in waiting_pods(snapshot, policy)}
    pods = {one.key for one in snapshot.pending}
    refused = {one.pod for one in before if isinstance(one, Unschedulable)} & waiting.keys()
    served = {one.pod for one in before if isinstance(one, Bound)} & pods
    chosen: list[PodKey] = []
    for unit in reversed(units):
        own = [key for key in unit.pods if key in refused]
        if len(chosen) + len(own) > _REPLAYED:
            break
        chosen += own
    few = len(chosen) + len(served) <= (_REPLAYED if chosen else _SERVED)
    kept = [waiting[one.pod] for one in before if one.pod in served] if few else []
    return tuple(waiting[key] for key in reversed(chosen)), tuple(kept), len(refused) - len(chosen)


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
    kept = {one.pod for one in before if isinstance(one, Bound)}
    alone = snapshot.apply(*(PodEnded(key) for key in others if key not in kept))
    return _placed(alone, result, before)


def _placed(
    snapshot: ClusterSnapshot, result: ScheduleResult, before: Sequence[PodDecision]
) -> ClusterSnapshot:
    """Let those before have their nodes; what the others ask for counts in quotas while they wait."""
    placed = [
        after
        for one in before
        if isinstance(one, Bound)
        and (after := result.snapshot.pod(one.pod)) is not None
        and after.node_name is not None
    ]
    stands = {one.pod: one.node for one in before if isinstance(one, Bound)}
    held = [
        attrs.evolve(written, status=made_available(one, stands[one.pod_key], None).status)
        for one in snapshot.of(Reservation)
        if one.pending
        and one.pod_key in stands
        and (written := result.snapshot.find(Reservation, one.name)) is not None
    ]
    there = snapshot.assume(*placed)
    return there.with_records(*held) if held else there


def _reasons_of(
    result: ScheduleResult, job: Job | None, asked: Pod, decisions: Sequence[PodDecision]
) -> tuple[str, ...]:
    if job is not None:
        return _job_reasons(result, job)
    (decision,) = decisions
    match decision:
        case Bound() as bound if asked.nominated_node == bound.node:
            return (f"goes to {bound.node} in its turn, the node that it is nominated for",)
        case Bound() as bound:
            why = f", the best of {_of_which(result, asked, bound)} can take it" if bound.feasible > 1 else ""
            only = ", the only node that can take it" if bound.feasible == 1 else ""
            held = f" (reservation {bound.reservation})" if bound.reservation else ""
            return (f"goes to {bound.node}{held} in its turn{why}{only}",)
        case Nominated() as nominated:
            return (f"is nominated for {nominated.node}",)
        case Waiting() as waiting:
            return (f"waits: {waiting.reason}",)
        case NotOurs() as other:
            return (f"waits for the scheduler {other.scheduler_name}, which no profile of the policy names",)
        case Unschedulable() as refused:
            return (f"gets no node in its turn: {refused.message}",)


def _of_which(result: ScheduleResult, asked: Pod, bound: Bound) -> str:
    """Count the nodes of which one is the best; the search may have ended before it came to all."""
    profile = result.policy.profile_of(asked.scheduler_name) or result.policy
    enough = nodes_to_find(len(result.snapshot.nodes), profile.percentage_of_nodes)
    ended = bound.feasible == enough < len(result.snapshot.nodes)
    return f"the first {bound.feasible} nodes found that" if ended else f"{bound.feasible} that"


def _job_reasons(result: ScheduleResult, job: Job) -> tuple[str, ...]:
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
        # That all are placed the numbers say already.
        known = None if plan.only_counted else plan.certificate
        proven = f", {known.status.text}" if known else ""
        where = f": chosen together, {', '.join(over)}{proven}" if over else proven
        return (f"{plan.placed} of {plan.members} members get nodes{where}",)
    why = [one for one in (plan.detail, plan.message) if one]
    return (f"none of {plan.members} members starts, at least {plan.least} have to: {why[0] if why else ''}",)


def _ahead(asked: Attempts, snapshot: ClusterSnapshot, before: Sequence[PodDecision]) -> tuple[Ahead, ...]:
    """Name the fewest before them without whom they would fit; empty where that does not help."""
    waiting = {one.key: one for one in snapshot.pending}
    placed = [
        Ahead(pod=one.pod, node=one.node, priority=waiting[one.pod].priority)
        for one in before
        if isinstance(one, Bound) and one.pod in waiting
    ]
    own, there, alone = {one.key for one in asked.members}, {one.pod for one in placed}, asked.alone()
    placed += [
        Ahead(pod=one.key, node=one.nominated_node, priority=one.priority, nominated=True)
        for one in snapshot.pending
        if one.nominated_node and one.key not in own and one.key not in there
    ]

    def fits_without(gone: Sequence[Ahead]) -> bool:
        return bool(asked.fits(snapshot=asked.snapshot.forget(*(one.pod for one in gone))))

    def fits_alone(gone: Sequence[Ahead]) -> bool:
        return bool(alone.fits(snapshot=asked.snapshot.forget(*(one.pod for one in gone))))

    if not placed or not fits_without(placed):
        return ()
    # Whoever was refused before them may take what these leave; that is asked once where it does not.
    found = fewest(placed, fits_alone, _TRIES)
    return tuple(found if fits_without(found) else fewest(placed, fits_without, _TRIES))
