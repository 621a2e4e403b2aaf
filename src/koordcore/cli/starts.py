"""When everybody who waits can start, by what running pods say of their ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from koordcore.explaining.ends import expectations, newest_start
from koordcore.model.decisions import Unschedulable, Waiting
from koordcore.model.pods import PodKey
from koordcore.result import ScheduleResult
from koordcore.scheduling.serving import queue_starts
from koordcore.snapshot import ClusterSnapshot

_ROUNDS: Final = 64
"""Ends that the page looks at; it is to be there soon."""


def known_starts(
    before: ClusterSnapshot,
    result: ScheduleResult,
    now: datetime | None,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> dict[PodKey, datetime | None]:
    """Say when each pod that waits starts, as ``koordcore when --all`` does.

    Parameters
    ----------
    before
        The cluster in which the pods still wait.
    now
        The moment; the newest start of a running pod when left out.
    progress
        Called with how many moments have been looked at, and how many will be at most.

    Returns
    -------
    dict
        For whoever the result leaves waiting; empty where nobody says when it ends. Without those who do not
        start within the ends that are looked at; ``None`` for a pod whose start is not in sight.
    """
    moment = now or newest_start(before)
    ends, durations = expectations(before, moment)
    if moment is None or not (ends or durations):
        return {}
    most = min(_ROUNDS, 1 + len(set(ends.values())))
    units = queue_starts(
        before,
        ends,
        durations,
        now=moment,
        policy=result.policy,
        rounds=_ROUNDS,
        progress=lambda done: progress(done, most),
    )
    left = {one.pod for one in result.decisions if isinstance(one, Unschedulable | Waiting)}
    known = (unit for unit in units if unit.not_before is None)
    return {key: unit.start for unit in known for key in unit.pods if key in left}
