"""When can it start: the earliest start of a job, room reserved for it, and what may run before.

Given when running pods will be gone, the first moment is found at which the job fits. Other jobs may start
before, where they do not push that moment back: those that are gone by then, and those that leave the job
room. Each is accepted only after the job has been placed again in the future that includes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey, keyed
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.protocol.expectations import end_after
from koordcore.reservations.lifecycle import after_ends, known_ends, lenders_leave
from koordcore.result import ScheduleResult
from koordcore.scheduling.cycle import queue_order
from koordcore.scheduling.entry import schedule
from koordcore.scheduling.fewest import fewest
from koordcore.scheduling.gaining import gains_only
from koordcore.scheduling.gang_groups import JobTable
from koordcore.snapshot import ClusterSnapshot

_TRIES: Final = 64
"""Calls that are spent on finding out whose ends a start needs."""


@record(kw_only=True)
class EarliestStart:
    """The first moment at which a job fits.

    Parameters
    ----------
    pods
        Who starts.
    start
        When; the ``now`` of the question where it fits at once.
    nodes
        Where each pod would go then; members of a gang beyond its minimum may be missing.
    waits_for
        Running pods that have to be gone, by end and key: when they have left and everybody else stays, the
        job fits, and it does not when one of them stays, too. Where others would do as well, those that end
        last are named; of very many, some may be among them that could stay.
    expired
        Reservations on these nodes whose time is up by then, by name.
    too_early
        The last moment before ``start`` at which anything changes, and at which the job was shown not to
        fit; ``None`` where it fits at once.
    probes
        How many moments were looked at.
    proven
        No earlier moment can do: the job only gains when others leave. Where its pods look for neighbours or
        spread, members of its own leave, it is several pods that differ, or a plugin is not the library's,
        every moment was looked at instead.
    """

    pods: tuple[Pod, ...]
    start: datetime
    nodes: immutabledict[PodKey, str] = attrs.field(converter=immutabledict)
    waits_for: tuple[PodKey, ...] = ()
    expired: tuple[str, ...] = ()
    too_early: datetime | None = None
    probes: int = 0
    proven: bool = True


@record(kw_only=True)
class NoStart:
    """The job does not fit even when every pod and reservation whose end is known has gone.

    Parameters
    ----------
    message
        Why not, of the first pod that fails.
    """

    pods: tuple[Pod, ...]
    message: str
    probes: int = 0


@record(kw_only=True)
class BackfilledJob:
    """A job that may start now.

    Parameters
    ----------
    pods
        Where each of its pods goes.
    end
        When it will be gone; ``None`` where that is not known.
    """

    pods: immutabledict[PodKey, str] = attrs.field(converter=immutabledict)
    end: datetime | None


@record(kw_only=True)
class BackfillPlan:
    """Which jobs may start now without pushing a reserved start back.

    Parameters
    ----------
    jobs
        In queue order.
    held_back
        Pods of jobs that would fit now and would delay the start wherever they were tried.
    without_room
        Pods of jobs that do not fit now in any case.
    recomputed
        The earliest start with all of them running: the proof that it has not moved.
    """

    jobs: tuple[BackfilledJob, ...]
    held_back: tuple[PodKey, ...]
    without_room: tuple[PodKey, ...]
    recomputed: datetime


def ends_after(
    snapshot: ClusterSnapshot, ends: Mapping[PodKey, datetime], moment: datetime
) -> list[datetime]:
    """Give when running pods and reservations end, each time once and later than a moment, sorted."""
    pods = (end for key, end in ends.items() if key in snapshot.location)
    return sorted({end for end in (*pods, *known_ends(snapshot).values()) if end > moment})


def cluster_after(
    snapshot: ClusterSnapshot, ends: Mapping[PodKey, datetime], moment: datetime
) -> ClusterSnapshot:
    """Give the cluster at a moment: whoever has ended by then is gone, reservations like pods."""
    gone = [key for key in sorted(ends) if ends[key] <= moment and key in snapshot.location]
    return after_ends(snapshot.forget(*gone) if gone else snapshot, moment)


def _placed(result: ScheduleResult) -> bool:
    """Tell whether everybody got a node, or every job at least its minimum and whoever is in none his own."""
    alone = len(result.decisions) - sum(plan.members for plan in result.jobs)
    if len(result.bound) - sum(plan.placed for plan in result.jobs) < alone:
        return False
    everybody = len(result.bound) == len(result.decisions)
    return everybody or all(plan.placed >= max(1, plan.least) for plan in result.jobs)


class _Search:
    """One job on one cluster, at any moment."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        pods: Sequence[Pod],
        ends: Mapping[PodKey, datetime],
        policy: Policy,
        now: datetime,
        limits: Limits,
    ) -> None:
        # The others wait on: what they ask for counts in quotas, and what they are promised is kept.
        self._snapshot = snapshot
        self._pods = pods
        self._ends = ends
        self._policy = policy
        self._limits = limits
        self.now = now
        self.moments = ends_after(snapshot, ends, now)
        # Owners lose what others win.
        self.gains = all(end <= now for end in known_ends(snapshot).values())
        self.known: dict[datetime, ScheduleResult] = {}

    def at(self, moment: datetime) -> ScheduleResult:
        """Place the job at a moment; metrics of today say nothing about it and are left to their age."""
        if moment not in self.known:
            there = cluster_after(self._snapshot, self._ends, moment)
            self.known[moment] = schedule(
                there, self._pods, policy=self._policy, now=self.now, limits=self._limits
            )
        return self.known[moment]

    def needed(self, start: datetime) -> list[PodKey]:
        """Give few pods whose ends the start needs, by end: those on the nodes of the job where they do."""
        location, used = self._snapshot.location, {one.node for one in self.at(start).bound}
        over = {key: end for key, end in self._ends.items() if end <= self.now}
        ended = sorted(
            (end, key) for key, end in self._ends.items() if self.now < end <= start and key in location
        )

        def enough(gone: Sequence[PodKey]) -> bool:
            there = cluster_after(self._snapshot, {**over, **dict.fromkeys(gone, start)}, start)
            return _placed(
                schedule(there, self._pods, policy=self._policy, now=self.now, limits=self._limits)
            )

        everybody = [key for _, key in ended]
        near = [key for key in everybody if location[key] in used]
        if not everybody or enough(()):
            return []
        return fewest(near if near and enough(near) else everybody, enough, _TRIES)

    def fits(self, moment: datetime) -> bool:
        """Tell whether the job fits then."""
        return _placed(self.at(moment))

    def first(self) -> datetime | None:
        """Give the first moment at which the job fits; ``None`` where there is none."""
        if self.fits(self.now):
            return self.now
        lost = lenders_leave(self._snapshot, self._ends)
        if lost or not (self.gains and gains_only(self._snapshot, self._pods, self._ends, self._policy)):
            return next((moment for moment in self.moments if self.fits(moment)), None)
        if not self.moments or not self.fits(self.moments[-1]):
            return None
        low, high = -1, len(self.moments) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.fits(self.moments[middle]) else (middle, high)
        return self.moments[high]


def earliest_start(
    snapshot: ClusterSnapshot,
    pods: Sequence[Pod | PodKey | str],
    ends: Mapping[PodKey, datetime] | Mapping[str, datetime],
    *,
    now: datetime,
    policy: Policy = Policy(),
    limits: Limits = DEFAULT_LIMITS,
) -> EarliestStart | NoStart:
    """Find the first moment at which a pod or a whole gang can start.

    Parameters
    ----------
    snapshot
        The cluster now; other pods that wait are taken to keep waiting.
    pods
        Who wants to start together; text is ``namespace/name``.
    ends
        When running pods will be gone, by key or ``namespace/name``; one that is not named stays for ever.
    now, policy, limits
        As for :func:`koordcore.schedule`.

    Raises
    ------
    ModelError
        When no pod is asked about, one is not in the cluster, or one of them runs already.
    """
    if not pods:
        raise ModelError("no pod is asked about")
    if isinstance(pods, str | PodKey):
        raise ModelError(f"pods: expected several of them, such as [{str(pods)!r}]")
    asked, known = tuple(queue_order(_asked(snapshot, one) for one in pods)), keyed(ends)
    search = _Search(snapshot, asked, known, policy, now, limits)
    start = search.first()
    if start is None:
        last = search.at(search.moments[-1] if search.moments else now)
        failed = next((one for one in last.decisions if not isinstance(one, Bound)), None)
        messages = [getattr(failed, "message", "") or getattr(failed, "reason", "")]
        messages += [text for plan in last.jobs for text in (plan.message, plan.detail)]
        message = next(filter(None, messages), "")
        return NoStart(pods=asked, message=message, probes=len(search.known))
    place = search.moments.index(start) if start in search.moments else -1
    too_early = None if place < 0 else (search.moments[place - 1] if place else now)
    used, held = {one.node for one in search.at(start).bound}, known_ends(snapshot)
    return EarliestStart(
        pods=asked,
        start=start,
        nodes={one.pod: one.node for one in search.at(start).bound},
        waits_for=tuple(search.needed(start)) if start > now else (),
        expired=tuple(
            sorted(
                one.name
                for one in snapshot.of(Reservation)
                if one.status.node_name in used and one.name in held and now < held[one.name] <= start
            )
        ),
        too_early=too_early,
        probes=len(search.known),
    )


def _asked(snapshot: ClusterSnapshot, pod: Pod | PodKey | str) -> Pod:
    if isinstance(pod, Pod):
        return pod
    found = snapshot.pod(pod)
    if found is None:
        raise ModelError(f"no pod {pod} in the cluster")
    return found


def backfill(
    snapshot: ClusterSnapshot,
    plan: EarliestStart,
    ends: Mapping[PodKey, datetime] | Mapping[str, datetime],
    durations: Mapping[PodKey, timedelta] | Mapping[str, timedelta],
    *,
    now: datetime,
    policy: Policy = Policy(),
    limits: Limits = DEFAULT_LIMITS,
) -> BackfillPlan:
    """Choose jobs that may start now and leave a reserved start where it is.

    Jobs of the policy's own pods are taken in queue order. One that ends before the start is tried anywhere;
    one that does not, or does not say, off the nodes of the plan first and then anywhere. Each is accepted
    when the planned job still fits at its start with all accepted jobs in the way, and with what they leave
    behind: reservations that are used up.

    Parameters
    ----------
    ends
        When pods that run end, with a zone, by key or ``namespace/name``.
    now
        The clock, with a zone.
    snapshot, policy, limits
        As in :func:`koordcore.schedule`.
    plan
        From :func:`earliest_start` with the same arguments.
    durations
        How long pods that wait will run, by key or ``namespace/name``.
    """
    planned = {pod.key for pod in plan.pods}
    current, known, lasting = snapshot, keyed(ends), keyed(durations)
    jobs: list[BackfilledJob] = []
    held_back: list[PodKey] = []
    without_room: list[PodKey] = []
    ours = [
        pod
        for pod in snapshot.pending
        if pod.key not in planned and policy.profile_of(pod.scheduler_name) is not None
    ]
    turns = [
        (turn,) if isinstance(turn, Pod) else turn.pods
        for turn in JobTable(snapshot, policy).turns(queue_order(ours))
    ]
    for pods in turns:
        spans = [lasting.get(pod.key) for pod in pods]
        end = None if None in spans else end_after(now, max(one for one in spans if one is not None))
        fitted = False
        closings = _Closings(current, plan, end)
        for closed in closings:
            result = schedule(_closing(current, closed), pods, policy=policy, now=now, limits=limits)
            if not _placed(result):
                continue
            fitted = True
            after = _as_in(current, result.snapshot, closed)
            later = {**known, **({one.pod: end for one in result.bound} if end is not None else {})}
            if _Search(after, plan.pods, later, policy, now, limits).fits(plan.start):
                current, known = after, later
                jobs.append(BackfilledJob(pods={one.pod: one.node for one in result.bound}, end=end))
                break
            closings.delayed(closed, {one.node for one in result.bound})
        else:
            (held_back if fitted else without_room).extend(pod.key for pod in pods)
    again = _Search(current, plan.pods, known, policy, now, limits).first()
    if again is None or again > plan.start:
        raise AssertionError("a job that was accepted delays the planned start")
    return BackfillPlan(
        jobs=tuple(jobs),
        held_back=tuple(held_back),
        without_room=tuple(without_room),
        recomputed=again,
    )


_MOST_TRIALS: Final = 32


class _Closings:
    """The nodes that are closed whenever a job is tried.

    The planned nodes first where it stays too long, then none; then, while it finds room and delays the plan
    there, the nodes where it did: all of them, and each by itself.
    """

    def __init__(self, current: ClusterSnapshot, plan: EarliestStart, end: datetime | None) -> None:
        self._nodes = len(current.nodes)
        planned = frozenset(plan.nodes.values())
        long = end is None or end > plan.start
        self._planned = planned if long and len(planned) < self._nodes else frozenset()
        self._next = deque(dict.fromkeys((self._planned, frozenset[str]())))
        self._known = set(self._next)

    def __iter__(self) -> Iterator[Sequence[str]]:
        for _ in range(_MOST_TRIALS):
            if not self._next:
                return
            yield sorted(self._next.popleft())

    def delayed(self, closed: Sequence[str], used: Collection[str]) -> None:
        """Take in where a job was in the way of the plan."""
        before = frozenset(closed) - self._planned
        for more in (used, *([one] for one in sorted(used))):
            closing = before.union(more)
            if closing not in self._known and len(closing) < self._nodes:
                self._known.add(closing)
                self._next.append(closing)


def _closing(snapshot: ClusterSnapshot, closed: Sequence[str]) -> ClusterSnapshot:
    """Cordon nodes: who runs there stays, with its rules, and with what it uses of quotas and claims.

    Who tolerates that goes there all the same, as he may.
    """
    states = (snapshot.node(name) for name in closed)
    return snapshot.with_nodes(
        *(attrs.evolve(one, node=attrs.evolve(one.node, unschedulable=True)) for one in states)
    )


def _as_in(before: ClusterSnapshot, after: ClusterSnapshot, closed: Sequence[str]) -> ClusterSnapshot:
    """Open nodes again that were open."""
    return after.with_nodes(*(attrs.evolve(after.node(name), node=before.node(name).node) for name in closed))
