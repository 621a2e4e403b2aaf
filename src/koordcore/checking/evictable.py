"""Which pods may never be moved: those that nothing takes away, and those that the arguments leave alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.model.colocation import RawSelector
from koordcore.model.pods import Pod, PodPhase
from koordcore.model.rebalance import EvictionGate, EvictorArgs
from koordcore.protocol.migration import ANNOTATION_EVICT, ANNOTATION_EVICTION_COST, MAX_COST, cost_of

CRITICAL: Final = 2_000_000_000
"""Priorities from here on belong to the system."""


def why_it_stays(pod: Pod, args: EvictorArgs) -> str | None:
    """Say why a pod may not be evicted; ``None`` where it may.

    The evict annotation lets a pod go in spite of all rules, unless it cannot be read.

    Parameters
    ----------
    pod
        As it runs.
    args
        Which pods the descheduler may evict.
    """
    if pod.unreadable:
        return f"cannot be read: {pod.unreadable}"
    if ANNOTATION_EVICT in pod.annotations:
        return None
    return next(_by_itself(pod), None) or next(_by_arguments(pod, args), None)


def _by_itself(pod: Pod) -> Iterator[str]:
    """Whatever the descheduler is told."""
    if any(owner.kind == "DaemonSet" for owner in pod.owners):
        yield "belongs to a DaemonSet"
    if "kubernetes.io/config.mirror" in pod.annotations:
        yield "is a mirror pod"
    if pod.annotations.get("kubernetes.io/config.source", "api") != "api":
        yield "is a static pod"
    if pod.deleted is not None:
        yield "is terminating"
    if cost_of(pod.annotations, ANNOTATION_EVICTION_COST) == MAX_COST:
        yield "must not be evicted at any cost"


def _by_arguments(pod: Pod, args: EvictorArgs) -> Iterator[str]:
    """By rules that arguments switch on or off, and gates leave out."""

    def looked_at(gate: EvictionGate) -> bool:
        return gate not in args.skip_gates

    spaces = args.namespaces
    if spaces is not None and looked_at(EvictionGate.NAMESPACES):
        if spaces.include and pod.namespace not in spaces.include:
            yield f"namespaces do not include {pod.namespace}"
        if pod.namespace in spaces.exclude:
            yield f"namespaces exclude {pod.namespace}"
    spared = not (args.evict_failed_bare_pods and pod.phase is PodPhase.FAILED)
    if not pod.owners and spared and not args.evict_all_bare_pods and looked_at(EvictionGate.BARE_PODS):
        yield "has no owner that makes it again"
    # Whoever may evict pods of the system may evict pods of every priority.
    if not args.evict_system_critical_pods and looked_at(EvictionGate.SYSTEM_CRITICAL):
        if pod.priority >= CRITICAL:
            yield "is critical for the system"
        most = args.priority_threshold
        if most is not None and pod.priority >= most and looked_at(EvictionGate.PRIORITY_THRESHOLD):
            yield f"has priority {pod.priority}, from {most} on pods stay"
    if pod.local_storage and not args.evict_local_storage_pods and looked_at(EvictionGate.LOCAL_STORAGE):
        yield "has local storage"
    if pod.claims and args.ignore_pvc_pods and looked_at(EvictionGate.PVC):
        yield "has a PersistentVolumeClaim"
    wanted = args.label_selector
    if wanted is not None and looked_at(EvictionGate.LABEL_SELECTOR) and not _selects(wanted, pod.labels):
        yield "is not chosen by labelSelector"


def _selects(selector: RawSelector, labels: Mapping[str, str]) -> bool:
    """Tell whether labels satisfy a selector; one that cannot be understood selects nothing."""
    if any(labels.get(key) != value for key, value in (selector.match_labels or {}).items()):
        return False
    for one in selector.match_expressions or ():
        value = labels.get(one.key)
        holds = {
            "In": value is not None and value in one.values,
            "NotIn": value is None or value not in one.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds.get(one.operator, False):
            return False
    return True
