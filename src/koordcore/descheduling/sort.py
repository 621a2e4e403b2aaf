"""Who is evicted first, and which hot node is looked at first (``utils/sorter``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from koordcore.model.pods import Pod
from koordcore.protocol.migration import ANNOTATION_DELETION_COST, ANNOTATION_EVICTION_COST, cost_of
from koordcore.protocol.pod_class import kubernetes_qos, pod_priority_class, pod_qos_class
from koordcore.protocol.qos import KubernetesQoS, PriorityClass, QoSClass

_CLASS_RANK: Final = {
    PriorityClass.FREE: 0,
    PriorityClass.BATCH: 1,
    PriorityClass.MID: 2,
    PriorityClass.PROD: 3,
    PriorityClass.NONE: 4,
}
_KUBERNETES_RANK: Final = {
    KubernetesQoS.BEST_EFFORT: 0,
    KubernetesQoS.BURSTABLE: 1,
    KubernetesQoS.GUARANTEED: 2,
}
_QOS_RANK: Final = {
    QoSClass.BE: 0,
    QoSClass.LS: 1,
    QoSClass.LSR: 2,
    QoSClass.LSE: 3,
    QoSClass.SYSTEM: 3,
    QoSClass.NONE: 4,
}
_SCALE: Final = 1000


def pod_rank(pod: Pod) -> tuple[Any, ...]:
    """Rank a pod by class, priority, QoS and costs: the least comes first."""
    return (
        _CLASS_RANK[pod_priority_class(pod)],
        pod.priority,
        _KUBERNETES_RANK.get(KubernetesQoS(kubernetes_qos(pod)), 0),
        _QOS_RANK[pod_qos_class(pod)],
        cost_of(pod.annotations, ANNOTATION_DELETION_COST),
        cost_of(pod.annotations, ANNOTATION_EVICTION_COST),
    )


def _newest_first(pod: Pod) -> float:
    return 0.0 if pod.created is None else -pod.created.timestamp()


def pod_usage_score(usage: Mapping[str, int], excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Score how well a pod's usage covers what its node has too much of.

    A pod that covers the excess alone scores above 1, the smaller the better; one that does not scores the
    share that it covers.

    Parameters
    ----------
    usage
        What the pod uses (milli-CPU, bytes, counts).
    excess
        Used less threshold, for each resource that the node exceeds.
    weights
        Weight of each resource; one without a weight does not count.
    """
    score, total = 0.0, 0
    for name, amount in sorted(usage.items()):
        weight = weights.get(name, 0)
        total += weight
        over = excess.get(name, 0)
        if not weight or over == 0:
            continue
        share = amount / over
        score += weight * (1.0 / share + 1.0 if share >= 1.0 else share)
    return score / total if total else 0.0


def sort_pods(
    pods: Iterable[Pod],
    *,
    usage: Mapping[tuple[str, str], Mapping[str, int]] | None = None,
    excess: Mapping[str, int] | None = None,
    weights: Mapping[str, int] | None = None,
) -> tuple[Pod, ...]:
    """Put pods in the order of eviction.

    Class, priority, Kubernetes QoS, QoS, deletion cost and eviction cost come first; then the usage score,
    highest first and pods without metric last; then the newest. Equal pods keep their order.

    Parameters
    ----------
    pods
        In the order that equal pods keep.
    usage
        Namespace and name to what the pod uses; ``None`` leaves usage out.
    excess, weights
        As in :func:`pod_usage_score`.
    """
    over, weigh = excess or {}, weights or {}
    if usage is None:
        return tuple(sorted(pods, key=lambda pod: (pod_rank(pod), _newest_first(pod))))

    def key(pod: Pod) -> tuple[Any, ...]:
        used = usage.get((pod.namespace, pod.name))
        by_usage = (1, 0.0) if used is None else (0, -pod_usage_score(used, over, weigh))
        return (pod_rank(pod), by_usage, _newest_first(pod))

    return tuple(sorted(pods, key=key))


def node_usage_score(
    usage: Mapping[str, int], allocatable: Mapping[str, int], weights: Mapping[str, int]
) -> int:
    """Score a node's usage, 0..1000: the weighted mean of its shares, cut to whole thousandths twice.

    Parameters
    ----------
    usage, allocatable
        Amounts (milli-CPU, bytes, counts); usage above allocatable counts as all of it.
    weights
        Only resources that are in ``usage`` count.
    """
    score = total = 0
    for name, used in usage.items():
        weight = weights.get(name, 0)
        total += weight
        room = allocatable.get(name, 0)
        if room > 0 and weight:
            score += weight * (min(used, room) * _SCALE // room)
    return score // total if total else 0
