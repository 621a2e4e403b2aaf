"""A batch queue as a value: submit, start, finish, preempt, backfill.

A job is a gang: all its pods start together or none does. Every function takes a queue and gives another one,
and time is a number that the caller brings. Where pods go is koordcore's business; the queue says who tries.
"""

from __future__ import annotations

from enum import StrEnum

import attrs

from koordcore import ClusterSnapshot, ModelError, Pod, PodKey, Unschedulable, schedule, verify
from koordcore.model import Resources, make_resources
from koordcore.protocol import ANNOTATION_GANG_NAME, ANNOTATION_MIN_AVAILABLE


@attrs.frozen(kw_only=True)
class Job:
    """What a user submits: ``width`` equal pods that start together and run for at most ``limit`` seconds."""

    name: str
    submitted: int
    limit: int
    width: int = 1
    priority: int = 0
    requests: Resources = attrs.field(converter=make_resources)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The job as the scheduler sees it."""
        gang = {ANNOTATION_GANG_NAME: self.name, ANNOTATION_MIN_AVAILABLE: str(self.width)}
        return tuple(
            Pod(name=f"{self.name}-{rank}", requests=self.requests, priority=self.priority, annotations=gang)
            for rank in range(self.width)
        )

    @property
    def keys(self) -> tuple[PodKey, ...]:
        """Names of its pods."""
        return tuple(pod.key for pod in self.pods)


@attrs.frozen
class Run:
    """A job that has its nodes; at ``ends`` its time is up."""

    job: Job
    started: int
    ends: int


class What(StrEnum):
    """What can happen to a job."""

    STARTED = "started"
    BACKFILLED = "backfilled"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@attrs.frozen
class Event:
    """One line of the queue's diary."""

    at: int
    what: What
    job: str


@attrs.frozen(kw_only=True)
class Queue:
    """The cluster with all that runs on it, who runs, who waits, and what happened so far."""

    cluster: ClusterSnapshot
    running: tuple[Run, ...] = ()
    waiting: tuple[Job, ...] = ()
    diary: tuple[Event, ...] = ()


def submit(queue: Queue, job: Job) -> Queue | Unschedulable:
    """Let a job wait; one that even the empty cluster could not take is refused with the reason."""
    if job.name in {one.name for one in (*queue.waiting, *(run.job for run in queue.running))}:
        raise ModelError(f"job {job.name} stands twice")
    empty = _without(queue.cluster, queue.running)
    if _place(empty, job) is None:
        refusals = schedule(empty, job.pods).decisions
        return next(one for one in refusals if isinstance(one, Unschedulable))
    return attrs.evolve(queue, waiting=(*queue.waiting, job))


def finish(queue: Queue, name: str, now: int) -> Queue:
    """Take a job off its nodes, because it has ended or its time is up."""
    for run in queue.running:
        if run.job.name == name:
            return _stop(queue, run, What.FINISHED, now)
    raise ModelError(f"no job {name} is running")


def dispatch(queue: Queue, now: int) -> Queue:
    """Start whoever can start now: by priority, then age, then name.

    The first job that finds no room preempts jobs of lower priority if that helps. If it does not, the job is
    promised the moment at which the limits of running jobs make room for it, and later jobs may start only
    where they leave that promise alone (EASY backfill).
    """
    blocked: tuple[Job, int] | None = None
    todo = sorted(queue.waiting, key=_turn)
    while todo:
        job = todo.pop(0)
        placed = _place(queue.cluster, job)
        if blocked is not None:
            if placed is not None and _keeps_promise(queue, placed, job, *blocked, now=now):
                queue = _start(queue, placed, job, What.BACKFILLED, now)
        elif placed is not None:
            queue = _start(queue, placed, job, What.STARTED, now)
        elif victims := _victims(queue, job):
            for run in victims:
                queue = _stop(queue, run, What.PREEMPTED, now)
            todo = sorted((job, *todo, *(run.job for run in victims)), key=_turn)
        elif (promised := _promise(queue, job)) is not None:
            blocked = (job, promised)
    return queue


def _turn(job: Job) -> tuple[int, int, str]:
    return (-job.priority, job.submitted, job.name)


def _place(cluster: ClusterSnapshot, job: Job) -> ClusterSnapshot | None:
    """Give the cluster with the whole job on it, or ``None``; nobody acts on a plan that was not checked."""
    result = schedule(cluster, job.pods)
    if broken := verify(cluster, result):
        raise RuntimeError(f"{job.name}: {broken[0]}")
    return result.snapshot if len(result.bound) == job.width else None


def _without(cluster: ClusterSnapshot, runs: tuple[Run, ...]) -> ClusterSnapshot:
    return cluster.forget(*(key for run in runs for key in run.job.keys))


def _start(queue: Queue, placed: ClusterSnapshot, job: Job, what: What, now: int) -> Queue:
    return attrs.evolve(
        queue,
        cluster=placed,
        running=(*queue.running, Run(job, now, now + job.limit)),
        waiting=tuple(one for one in queue.waiting if one.name != job.name),
        diary=(*queue.diary, Event(now, what, job.name)),
    )


def _stop(queue: Queue, run: Run, what: What, now: int) -> Queue:
    return attrs.evolve(
        queue,
        cluster=_without(queue.cluster, (run,)),
        running=tuple(one for one in queue.running if one != run),
        waiting=(*queue.waiting, run.job) if what is What.PREEMPTED else queue.waiting,
        diary=(*queue.diary, Event(now, what, run.job.name)),
    )


def _victims(queue: Queue, job: Job) -> tuple[Run, ...]:
    """Take all of lower priority away; if that helps, put back whoever is not in the way, best first."""
    lower = tuple(run for run in queue.running if run.job.priority < job.priority)
    cluster = _without(queue.cluster, lower)
    if not lower or _place(cluster, job) is None:
        return ()
    victims: list[Run] = []
    for run in sorted(lower, key=lambda one: (-one.job.priority, one.started, one.job.name)):
        pods = [pod for key in run.job.keys if (pod := queue.cluster.pod(key)) is not None]
        spared = cluster.assume(*pods)
        if _place(spared, job) is None:
            victims.append(run)
        else:
            cluster = spared
    return tuple(victims)


def _promise(queue: Queue, job: Job) -> int | None:
    """Find the first moment at which the job fits, if everybody takes the time allowed.

    ``None`` where it would not even then, because a node has gone since it was submitted.
    """
    cluster = queue.cluster
    for run in sorted(queue.running, key=lambda one: (one.ends, one.job.name)):
        cluster = _without(cluster, (run,))
        if _place(cluster, job) is not None:
            return run.ends
    return None


def _keeps_promise(
    queue: Queue, placed: ClusterSnapshot, job: Job, head: Job, promised: int, *, now: int
) -> bool:
    """A job that is gone by then keeps the promise, and so does one that leaves room for both."""
    if now + job.limit <= promised:
        return True
    gone = tuple(run for run in queue.running if run.ends <= promised)
    return _place(_without(placed, gone), head) is not None
