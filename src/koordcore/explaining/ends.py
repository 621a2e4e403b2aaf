"""What running pods say of their ends, and the moment of a dump."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from koordcore.errors import ManifestError
from koordcore.model.cluster import Workload
from koordcore.model.pods import PodKey
from koordcore.protocol.expectations import expected_duration, expected_end
from koordcore.snapshot import ClusterSnapshot


def expectations(
    snapshot: ClusterSnapshot, now: datetime | None
) -> tuple[dict[PodKey, datetime], dict[PodKey, timedelta]]:
    """Give when running pods will be gone, and how long those that wait will run.

    A pod whose annotation cannot be read says nothing; the loader warns of it.

    Parameters
    ----------
    now
        When pods start that have a node and have not started; ``None``: nobody knows when they end.
    """
    jobs = {
        (one.namespace, one.name): one
        for one in snapshot.of(Workload)
        if one.kind == "Job" and one.active_deadline is not None
    }
    ends: dict[PodKey, datetime] = {}
    durations: dict[PodKey, timedelta] = {}
    for pod in (*snapshot.bound_pods(), *snapshot.pending):
        owner = pod.controller
        job = jobs.get((pod.namespace, owner.name)) if owner is not None and owner.kind == "Job" else None
        with suppress(ManifestError):
            if pod.node_name is None:
                duration = expected_duration(pod, job)
                if duration is not None:
                    durations[pod.key] = duration
            elif (end := expected_end(pod, job, now)) is not None:
                ends[pod.key] = end
    return ends, durations


def newest_start(snapshot: ClusterSnapshot) -> datetime | None:
    """Give the moment of a dump: the newest start of a running pod, else when its newest pod was made."""
    times = (pod.started or pod.scheduled for pod in snapshot.bound_pods())
    found = max((one for one in times if one is not None), default=None)
    if found is not None:
        return found
    made = (pod.created for pod in (*snapshot.pending, *snapshot.bound_pods()))
    return max((one for one in made if one is not None), default=None)
