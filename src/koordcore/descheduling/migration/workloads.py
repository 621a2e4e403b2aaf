"""From a pod to the workload that counts for it, and to the other pods of that workload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from koordcore._record import record
from koordcore.model.cluster import Workload
from koordcore.model.pods import OwnerReference, Pod

_SCALED: Final = frozenset({"ReplicaSet", "Deployment", "StatefulSet", "ReplicationController", "CloneSet"})


@record
class UnknownScale:
    """The pod's controller is of a kind that has no number of replicas to look up."""

    kind: str


class Workloads:
    """Workloads by name, and pods by controller; built once per call."""

    def __init__(self, workloads: Iterable[Workload], pods: Iterable[Pod]) -> None:
        self._by_name: dict[tuple[str, str, str], Workload] = {}
        for workload in workloads:
            self._by_name[workload.kind, workload.namespace, workload.name] = workload
        self._pods: dict[tuple[str, str], list[Pod]] = {}
        for pod in pods:
            if pod.controller is not None:
                self._pods.setdefault((pod.namespace, pod.controller.uid), []).append(pod)
        self._children: dict[str, list[str]] = {}
        for (kind, _, _), workload in sorted(self._by_name.items()):
            parent = _controller(workload)
            if kind == "ReplicaSet" and parent is not None:
                self._children.setdefault(parent.uid, []).append(workload.uid)

    def of(self, pod: Pod) -> Workload | UnknownScale | None:
        """Find the workload of a pod; the pods of a ReplicaSet count with the Deployment that made it.

        Returns
        -------
        Workload or UnknownScale or None
            ``None`` when there is no such workload (any more), or no controller at all.
        """
        owner = pod.controller
        if owner is None:
            return None
        found = self._find(owner, pod.namespace)
        if found is None:
            return None if owner.kind in _SCALED else UnknownScale(owner.kind)
        if found.kind not in _SCALED and (found.kind == "Job" or found.replicas is None):
            return UnknownScale(found.kind)
        parent = _controller(found)
        if found.kind == "ReplicaSet" and parent is not None and parent.kind == "Deployment":
            return self._find(parent, pod.namespace) or found
        return found

    def _find(self, owner: OwnerReference, namespace: str) -> Workload | None:
        found = self._by_name.get((owner.kind, namespace, owner.name))
        return found if found is not None and found.uid == owner.uid else None

    def pods_of(self, pod: Pod) -> tuple[Pod, ...]:
        """List the pods of the whole workload: of a Deployment those of all its ReplicaSets."""
        owner, workload = pod.controller, self.of(pod)
        if owner is None:
            return ()
        uids = [owner.uid]
        if isinstance(workload, Workload) and workload.kind == "Deployment":
            uids = list(dict.fromkeys([*self._children.get(workload.uid, []), owner.uid]))
        return tuple(one for uid in uids for one in self._pods.get((pod.namespace, uid), ()))

    def siblings(self, pod: Pod) -> tuple[Pod, ...]:
        """List the pods of the same controller, without going up to a Deployment."""
        owner = pod.controller
        return () if owner is None else tuple(self._pods.get((pod.namespace, owner.uid), ()))


def _controller(workload: Workload) -> OwnerReference | None:
    return next((owner for owner in workload.owners if owner.controller), None)
