"""Who leaves a node without being evicted: pods that terminate, or that an earlier plan told to go."""

from __future__ import annotations

from typing import Final

from koordcore.model.pods import PodKey
from koordcore.snapshot import ClusterSnapshot

PROTECTING: Final = (
    ("scheduling.koordinator.sh/disable-preemptible", "true"),
    ("quota.scheduling.koordinator.sh/preemptible", "false"),
)


def leaving_anyhow(snapshot: ClusterSnapshot, least: int) -> frozenset[PodKey]:
    """Give the pods that leave and that whoever comes could have evicted: their room may be counted on.

    So may that of all who go for some job, whatever their priority: their quotas had borrowed, or the job is
    more important.

    Parameters
    ----------
    least
        Least priority of those who come.
    """
    return frozenset(
        pod.key
        for pod in snapshot.bound_pods()
        if pod.leaving
        and (pod.priority < least or pod.preempted_by)
        and not (pod.static or pod.unreadable)
        and not any(pod.labels.get(key) == value for key, value in PROTECTING)
    )
