"""What moving a pod costs, where nobody says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.migration import ANNOTATION_EVICTION_COST, cost_of
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.qos import PriorityClass

_BY_CLASS: Final[Mapping[PriorityClass, int]] = {
    PriorityClass.FREE: 1,
    PriorityClass.BATCH: 2,
    PriorityClass.MID: 3,
    PriorityClass.PROD: 4,
}


def moving_costs(pods: Iterable[Pod]) -> dict[PodKey, int]:
    """Price pods by class, free 1 to prod 4, and by what their eviction is said to cost beyond that.

    Among plans of as many moves this spares the pods that the reference, too, would evict last.

    Parameters
    ----------
    pods
        Running pods.
    """
    costs = {}
    for pod in pods:
        extra = cost_of(pod.annotations, ANNOTATION_EVICTION_COST) if pod.annotations else 0
        costs[pod.key] = _BY_CLASS.get(pod_priority_class(pod), 4) + max(0, extra)
    return costs
