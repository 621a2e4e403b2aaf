"""What preemption says of a pod that no eviction helps: the end of the FailedScheduling event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from koordcore.explain.cycle import Cycle, explain_cycle
from koordcore.model.pods import Pod, PreemptionPolicy
from koordcore.model.policy import Policy
from koordcore.protocol.quota import quota_pod_of
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.preempt import can_preempt
from koordcore.snapshot import ClusterSnapshot

__all__ = ["preemption_refusals"]

_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_HOPELESS: Final = "Preemption is not helpful for scheduling"
_NOBODY_OF_QUOTA: Final = "No victims found on node {} for preemptor pod {}"
_NOBODY: Final = "No preemption victims found for incoming pod"


def preemption_refusals(
    snapshot: ClusterSnapshot,
    pod: Pod,
    cycle: Cycle,
    *,
    policy: Policy = Policy(),
    now: datetime | None = None,
) -> tuple[str, ...]:
    """Say why neither preemption inside the quota nor that by priority helps.

    Parameters
    ----------
    snapshot
        The cluster in which the cycle ran.
    pod
        Who was refused.
    cycle
        What :func:`~koordcore.explain.cycle.explain_cycle` found for it.
    policy, now
        As for that cycle.

    Returns
    -------
    tuple of str
        Quota preemption first. Empty where the eviction of lower priorities from some node would help.

    Notes
    -----
    After ``elasticquota/preempt.go`` and Kubernetes' ``preemption.go``: only nodes whose refusal an eviction
    can mend are tried; all candidates leave at once, and the node's filters are asked again.
    """
    if pod.preemption_policy is PreemptionPolicy.NEVER:
        return (f"preemption: {_NEVER}",) * 2
    # Admission is not asked again after the evictions, the quota's least of all.
    filters_only = policy.without_feature("ElasticQuota")
    names = [state.name for state in snapshot.nodes]
    if cycle.admission.passed:
        tried = [name for name, one in cycle.filters.items() if not one.passed and one.resolvable]
    else:
        tried = names if cycle.admission.resolvable else []
    ledger = cluster_ledger(snapshot)
    mine = quota_pod_of(pod)
    rules: tuple[tuple[Callable[[Pod], bool], str], ...] = (
        (lambda other: can_preempt(ledger, mine, quota_pod_of(other)), _NOBODY_OF_QUOTA),
        (lambda other: other.priority < pod.priority, _NOBODY),
    )
    told = []
    for may_evict, nobody in rules:
        counts = Counter({_HOPELESS: len(names) - len(tried)})
        for name in tried:
            victims = [other for other in snapshot.node(name).pods if may_evict(other)]
            if not victims:
                counts[nobody.format(name, pod.name)] += 1
                continue
            after = explain_cycle(
                snapshot.forget(*(other.key for other in victims)), pod, policy=filters_only, now=now
            )
            verdict = after.filters[name]
            if verdict.passed:
                return ()
            counts.update(verdict.reasons)
        told.append(f"preemption: 0/{len(names)} nodes are available: {_listed(counts.items())}.")
    return tuple(told)


def _listed(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(sorted(f"{count} {reason}" for reason, count in counts if count))
