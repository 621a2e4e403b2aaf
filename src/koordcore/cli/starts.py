"""When pods that found no place can start: for the page, each job by itself."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from koordcore.errors import ManifestError
from koordcore.explaining.network import job_of
from koordcore.model.decisions import Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.expectations import expected_duration, expected_end
from koordcore.result import ScheduleResult
from koordcore.scheduling.backfilling import EarliestStart, earliest_start

MOST: Final = 20
"""Jobs whose start is looked for, in queue order; each costs some calls of ``schedule``."""


def known_starts(result: ScheduleResult, now: datetime | None) -> dict[PodKey, datetime | None]:
    """Say when the first jobs that found no place can start, others taken to keep waiting.

    Parameters
    ----------
    now
        The moment; the newest start of a running pod when left out.

    Returns
    -------
    dict
        Empty where nobody says when it ends; ``None`` for a pod whose start is not in sight.
    """
    running = list(result.snapshot.bound_pods())
    times = [moment for pod in running if (moment := pod.started or pod.scheduled) is not None]
    moment = now or max(times, default=None)
    if moment is None:
        return {}
    placed = {one.pod for one in result.bound}
    ends = {pod.key: end for pod in running if (end := _end(pod, pod.key in placed, moment)) is not None}
    if not ends:
        return {}
    starts: dict[PodKey, datetime | None] = {}
    for _, pods in zip(range(MOST), _jobs(result), strict=False):
        plan = earliest_start(result.snapshot, pods, ends, now=moment, policy=result.policy)
        found = plan.start if isinstance(plan, EarliestStart) else None
        starts |= {pod.key: found for pod in pods}
    return starts


def _end(pod: Pod, fresh: bool, now: datetime) -> datetime | None:
    """Give when a pod will be gone; one that was placed just now runs for as long as it says."""
    try:
        duration: timedelta | None = expected_duration(pod) if fresh else None
        return now + duration if duration is not None else expected_end(pod)
    except ManifestError:
        return None  # the page draws it all the same; `koordcore when` says what is wrong


def _jobs(result: ScheduleResult) -> Iterator[list[Pod]]:
    """Give the pods that found no place, members of a gang together, in queue order."""
    waiting = {pod.key: pod for pod in result.snapshot.pending}
    jobs: dict[str, list[Pod]] = {}
    for one in result.decisions:
        pod = waiting.get(one.pod)
        if pod is not None and isinstance(one, Unschedulable | Waiting):
            jobs.setdefault(job_of(pod) or f"pod {pod.key}", []).append(pod)
    yield from jobs.values()
