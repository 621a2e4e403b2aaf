"""Who leaves a node without being evicted: pods that terminate, or that an earlier plan told to go."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from koordcore.model.pods import Pod, PodKey
from koordcore.snapshot import ClusterSnapshot

PROTECTING: Final = (
    ("scheduling.koordinator.sh/disable-preemptible", "true"),
    ("quota.scheduling.koordinator.sh/preemptible", "false"),
)


def leaving_anyhow(
    snapshot: ClusterSnapshot, coming: Iterable[Pod], jobs: Collection[str] = ()
) -> frozenset[PodKey]:
    """Give the pods that leave and that whoever comes could have evicted: their room may be counted on.

    So may that of all who go for him or his job, whatever their priority: their quotas had borrowed; and of
    all who go for another job from where he is nominated beside it.
    """
    coming = list(coming)
    nodes = {pod.nominated_node for pod in coming}
    known = [(pod.priority, str(pod.key)) for pod in coming]
    least = min((priority for priority, _ in known), default=0)
    names = {*jobs, *(key for _, key in known)}
    return frozenset(
        pod.key
        for pod in snapshot.bound_pods()
        if pod.leaving
        and (
            pod.priority < least or pod.preempted_by in names or (pod.preempted_by and pod.node_name in nodes)
        )
        and not (pod.static or pod.unreadable)
        and not any(pod.labels.get(key) == value for key, value in PROTECTING)
    )
