"""Parts of the reference's preemption inside one quota that the library has elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from koordcore.model.pods import PreemptionPolicy
from koordcore.model.quotas import QuotaPod
from koordcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources, total
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.preempt import (
    _NEVER_MESSAGE,
    _TERMINATING_MESSAGE,
    NodeFilter,
)


def eligible_to_preempt(
    ledger: QuotaLedger,
    pod: QuotaPod,
    *,
    policy: PreemptionPolicy = PreemptionPolicy.PREEMPT_LOWER_PRIORITY,
    nominated: Iterable[QuotaPod] = (),
) -> str:
    """Say why a pod may not preempt; empty where it may.

    Parameters
    ----------
    nominated
        Pods on the node that was nominated for it earlier. None where there is no such node, or where that
        node cannot be mended by evictions.
    """
    if policy is PreemptionPolicy.NEVER:
        return _NEVER_MESSAGE
    quota = ledger.resolve(pod)
    for other in nominated:
        if other.terminating and other.priority < pod.priority and ledger.resolve(other) == quota:
            return _TERMINATING_MESSAGE
    return ""


def resource_filter(allocatable: Resources, pod: QuotaPod) -> NodeFilter:
    """Make a node filter that looks at resources only: the sum of requests, and the number of pods."""
    order = {PODS: 0, CPU: 1, MEMORY: 2, EPHEMERAL_STORAGE: 3}
    asked = sorted(
        (name for name, amount in pod.request.items() if amount > 0),
        key=lambda name: (order.get(name, 4), name),
    )

    def refuse(others: Collection[QuotaPod]) -> str:
        taken = total(other.request for other in others)
        reasons = ["Too many pods"] if len(others) + 1 > allocatable.get(PODS, 0) else []
        reasons += [
            f"Insufficient {name}"
            for name in asked
            if name != PODS and taken.get(name, 0) + pod.request[name] > allocatable.get(name, 0)
        ]
        return ", ".join(reasons)

    return refuse
