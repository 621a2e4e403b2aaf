"""Whose job a failed pod is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.pods import Pod
from koordcore.protocol.gang_names import gang_name


def _always(nodes: Mapping[str, str]) -> bool:
    return True


@record(kw_only=True)
class PreemptingJob:
    """The job for which room is made.

    Parameters
    ----------
    preemptor
        Ids of its gangs, sorted and joined by commas; the pod's key for a bare pod.
    trigger
        The member that failed.
    pending, waiting
        Members without a node, and members that hold one at Permit.
    parts
        Pending members by gang, and how many of them each gang still needs.
    serves
        Whether it could start with members on these nodes, by ``namespace/name``.
    partly
        Room is made for the others apart: a place for which nobody has to leave will do as well.
    """

    preemptor: str
    trigger: Pod
    pending: tuple[Pod, ...]
    waiting: tuple[Pod, ...] = ()
    parts: immutabledict[str, tuple[tuple[Pod, ...], int]]
    serves: Callable[[Mapping[str, str]], bool] = _always
    partly: bool = False


def triggering(pods: Sequence[Pod], other: Pod | None = None) -> Pod:
    """Give the member that counts least, what it may evict, all of them may; of none that other pod."""
    found = min(pods, key=attrgetter("priority", "key"), default=other)
    assert found is not None  # somebody has failed
    return found


def at_least(job: PreemptingJob) -> PreemptingJob:
    """Give a job with the members alone that its gangs need, or one of each that needs nobody."""
    parts = {name: (pods[: max(1, least)], least) for name, (pods, least) in job.parts.items()}
    pending = tuple(pod for pods, _ in parts.values() for pod in pods)
    trigger = triggering(pending) if pending else job.trigger
    return attrs.evolve(job, trigger=trigger, pending=pending, parts=immutabledict(parts))


def identify_job(
    trigger: Pod,
    *,
    group: Sequence[str] = (),
    pending: Iterable[Pod] = (),
    waiting: Iterable[Pod] = (),
    minimums: Mapping[str, int] = immutabledict(),
) -> PreemptingJob:
    """Find out whose job a failing pod is (``preempt.go: fetchAllPendingPods``).

    Parameters
    ----------
    trigger
        The pod that failed.
    group
        Ids of the gangs that go together with its own; none for a bare pod, or one whose gang has started and
        lets its members come one by one.
    pending, waiting
        Pods without a node, and pods that hold one at Permit; those of other jobs are left out.
    minimums
        Minimum of each gang, by id. Members that wait at Permit count towards it.
    """
    key = str(trigger.key)
    if not group:
        parts = immutabledict({key: ((trigger,), 1)})
        return PreemptingJob(preemptor=key, trigger=trigger, pending=(trigger,), parts=parts)

    def members(pods: Iterable[Pod]) -> dict[str, tuple[Pod, ...]]:
        found: dict[str, list[Pod]] = {gang: [] for gang in group}
        for pod in pods:
            gang = f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}"
            if gang in found:
                found[gang].append(pod)
        return {gang: tuple(ones) for gang, ones in found.items()}

    open_, held = members(pending), members(waiting)
    needed = {gang: max(0, minimums.get(gang, 0) - len(held[gang])) for gang in open_}
    return PreemptingJob(
        preemptor=",".join(sorted(group)),
        trigger=trigger,
        pending=tuple(pod for ones in open_.values() for pod in ones),
        waiting=tuple(pod for ones in held.values() for pod in ones),
        parts=immutabledict({gang: (ones, needed[gang]) for gang, ones in open_.items()}),
    )
