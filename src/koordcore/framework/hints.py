"""What could help: the kinds of changes that may lift a refusal.

A refused pod needs to be asked about again only after a change of a kind that one of the plugins which
refused it names in :attr:`~koordcore.framework.Plugin.helped_by`. Naming too many kinds costs time, naming
too few leaves pods waiting, so a plugin that names none is helped by any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final

from koordcore.model.cluster import Namespace, PodDisruptionBudget
from koordcore.model.decisions import Unschedulable
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import Pod, PreemptionPolicy
from koordcore.model.policy import Policy
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import Reservation
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.reservation import RESERVATION_ALLOCATED
from koordcore.snapshot.changes import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    PodUpdated,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)


class ChangeKind(StrEnum):
    """Kinds of changes; of a record it is the name of its class, such as ``NodeMetric``."""

    POD_BOUND = "pod bound"
    """A pod has come to a node."""
    POD_ENDED = "pod ended"
    """A pod has left the cluster."""
    POD_UPDATED = "pod updated"
    """A bound pod says something else: its labels, or that it leaves."""
    POD_PENDING = "pod pending"
    """A pod has begun to wait, or a waiting one says something else."""
    POD_WITHDRAWN = "pod withdrawn"
    """A pod that waited is gone without a node, or asks for other things: it leaves a share, and no room."""
    PROMISE_RELABELED = "promise relabeled"
    """A nominated pod, which counts as there already, has other labels."""
    NODE_ADDED = "node added"
    NODE_CHANGED = "node changed"
    NODE_REMOVED = "node removed"


CANNOT_BE_READ: Final = "the pod cannot be read"
"""How the refusal of a pod begins whose object cannot be read."""
NODES: Final = frozenset({ChangeKind.NODE_ADDED, ChangeKind.NODE_CHANGED})
"""A node may serve that did not before."""
EVICTIONS: Final = frozenset(
    kind.__name__ for kind in (ElasticQuota, PodDisruptionBudget, PodGroup, SchedulingPodGroup)
)
"""Somebody may be told to go who was not before."""
NEIGHBOURS: Final = frozenset(
    {
        ChangeKind.POD_BOUND,
        ChangeKind.PROMISE_RELABELED,
        ChangeKind.NODE_REMOVED,
        Namespace.__name__,
    }
)
"""Somebody may have come near, or be near no more."""
ROOM: Final = NODES | {ChangeKind.POD_ENDED, ChangeKind.POD_UPDATED, Reservation.__name__}
"""There may be more room on a node, or somebody else may have a claim on it."""

_OFFERS: Final = frozenset(
    {"DeviceObject", "DeviceTaintRule", "NodeResourceTopology", "ResourceSlice", "SharedTemplates"}
)
"""What says what a node has beside its amounts; it may have kept a pod off whoever leaves."""
_VOLUMES: Final = frozenset({"CSINode", "PersistentVolume", "PersistentVolumeClaim", "StorageClass"})

_KINDS: Final = {
    PodBound: ChangeKind.POD_BOUND,
    PodEnded: ChangeKind.POD_ENDED,
    PodUpdated: ChangeKind.POD_UPDATED,
    PodPending: ChangeKind.POD_PENDING,
    NodeAdded: ChangeKind.NODE_ADDED,
    NodeReplaced: ChangeKind.NODE_CHANGED,
    NodeRemoved: ChangeKind.NODE_REMOVED,
}


def kind_of(change: Change) -> str:
    """Give the kind of a change."""
    if isinstance(change, RecordAdded | RecordReplaced | RecordRemoved):
        return type(change.record).__name__
    return _KINDS[type(change)]


def kinds_of(change: Change) -> frozenset[str]:
    """Give the kind of a change with those that it brings about.

    What is left of a reservation that serves one pod is free once that pod is there.
    """
    if isinstance(change, PodBound) and RESERVATION_ALLOCATED in change.pod.annotations:
        return frozenset((kind_of(change), Reservation.__name__))
    return frozenset((kind_of(change),))


def kinds_of_promise(before: Pod | None, after: Pod) -> frozenset[str]:
    """Give the kinds that it amounts to for others when a nominated pod says something else.

    Parameters
    ----------
    before
        The pod as it was; ``None`` for one that is new.
    after
        The pod as it is.
    """
    if before is None or not before.nominated_node:
        return frozenset()
    if before.nominated_node != after.nominated_node:
        return frozenset({ChangeKind.POD_ENDED})  # the room that it was promised is free
    kinds: set[str] = set()
    if before.labels != after.labels:
        kinds.add(ChangeKind.PROMISE_RELABELED)
    if before.requests != after.requests:
        kinds.add(ChangeKind.POD_UPDATED)
    return frozenset(kinds)


def could_help(decision: Unschedulable, policy: Policy, pod: Pod) -> frozenset[str] | None:
    """Give the kinds of changes that may lift the refusal of a pod; ``None`` for any.

    Each node was refused by one of the plugins that the refusal names, or all of them by one, so nothing
    changes before one of these is helped, or others may be evicted whom something has kept. To evict others
    helps once the neighbours are right and the node has the devices, CPUs and volumes, of which nothing is
    said where another plugin had refused before. Metrics come all the time: where the load had kept a pod off
    as well, which nothing says, it waits until the queue asks about everybody again.
    """
    if decision.refusal.startswith(CANNOT_BE_READ):
        return frozenset()  # but for what the pod itself says
    if decision.refusal:
        names = [decision.refused_by] if decision.refused_by else []
    else:
        names = list(dict.fromkeys(one.plugin for one in decision.rejections))
    if not names:
        return None
    mended = bool(decision.refusal) or any(one.resolvable for one in decision.rejections)
    kinds: set[str] = {*EVICTIONS} if mended else set()
    affinity = pod.affinity
    if mended and (pod.spread_constraints or (affinity is not None and (affinity.pod or affinity.anti))):
        kinds |= NEIGHBOURS
    if mended and pod.preemption_policy is not PreemptionPolicy.NEVER:
        kinds |= _OFFERS
        if pod.claims or pod.ephemeral_claims:
            kinds |= _VOLUMES
    for helped in _helped_by(policy, names):
        if helped is None:
            return None
        kinds |= helped
    return frozenset(kinds)


def _helped_by(policy: Policy, names: Iterable[str]) -> Iterator[frozenset[str] | None]:
    from koordcore.framework.registry import plugin_of  # brings the plugins' own modules

    for name in names:
        setting = policy.plugin(name)
        yield None if setting is None else plugin_of(setting).helped_with(setting.args)
