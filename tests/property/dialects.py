"""Small clusters of Kubernetes' own groups, written as each served version writes them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from koordcore.model.pods import Pod
from koordcore.model.scheduling_groups import CompositePodGroup, DisruptionMode, SchedulingPodGroup

Object = dict[str, Any]
Record = CompositePodGroup | SchedulingPodGroup

K8S: Final = "scheduling.k8s.io/"
SIGS: Final = "scheduling.sigs.k8s.io/v1alpha1"
SIGS_LABEL: Final = "pod-group.scheduling.sigs.k8s.io"


@attrs.frozen
class Said:
    """One tree of groups, and how it is written.

    Parameters
    ----------
    dialect
        A served version of ``scheduling.k8s.io``, ``sigs`` for the older PodGroup, empty for a pod by itself.
    priority
        That of its groups, ``None`` where they have none.
    """

    dialect: str
    priority: int | None

    def objects(
        self, records: Sequence[Record], pods: Sequence[tuple[Pod, Mapping[str, Any]]]
    ) -> list[Object]:
        """Write groups, and pods with what else stands in their specifications."""
        return [*map(self._group, records), *(self._pod(pod, more) for pod, more in pods)]

    def _pod(self, pod: Pod, more: Mapping[str, Any]) -> Object:
        meta: Object = {"name": pod.name, "labels": dict(pod.labels)}
        requests = {"cpu": f"{pod.requests.get('cpu', 0)}m"}
        spec: Object = {"containers": [{"name": "c", "resources": {"requests": requests}}], **more}
        group = pod.scheduling_group.pod_group if pod.scheduling_group is not None else ""
        if pod.node_name:
            spec["nodeName"] = pod.node_name
        if self.dialect == "sigs":
            meta["labels"][SIGS_LABEL] = group
        elif self.dialect == "v1alpha1":
            spec["workloadRef"] = {"name": group, "podGroup": "workers", "podGroupReplicaKey": "0"}
        elif self.dialect and group:
            spec["schedulingGroup"] = {"podGroupName": group}
        status = {"status": {"phase": "Running"}} if pod.node_name else {}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, **status}

    def _group(self, one: Record) -> Object:
        if isinstance(one, CompositePodGroup):
            policy = {"basic": {}} if one.min_groups is None else {"gang": {"minGroupCount": one.min_groups}}
        else:
            policy = {"basic": {}} if one.min_count is None else {"gang": {"minCount": one.min_count}}
        meta = {"name": one.name}
        if self.dialect == "sigs":
            assert isinstance(one, SchedulingPodGroup)
            return {
                "apiVersion": SIGS,
                "kind": "PodGroup",
                "metadata": meta,
                "spec": {"minMember": one.min_count},
            }
        if self.dialect == "v1alpha1":
            spec: Object = {"podGroups": [{"name": "workers", "policy": policy}]}
            return {"apiVersion": f"{K8S}v1alpha1", "kind": "Workload", "metadata": meta, "spec": spec}
        spec = {"schedulingPolicy": policy, "disruptionMode": self._mode(one)}
        if self.priority is not None:
            spec["priority"] = self.priority
        if one.parent:
            spec["parentCompositePodGroupName"] = one.parent
        if one.parent or isinstance(one, CompositePodGroup):
            spec["workloadRef"] = {"workloadName": "w", "templateName": "t"}
        if one.topology_keys:
            spec["schedulingConstraints"] = {"topology": [{"key": key} for key in one.topology_keys]}
        kind = type(one).__name__.removeprefix("Scheduling")
        return {"apiVersion": K8S + self.dialect, "kind": kind, "metadata": meta, "spec": spec}

    def _mode(self, one: Record) -> Any:
        whole = one.disruption is DisruptionMode.ALL
        if self.dialect == "v1alpha2":
            return "PodGroup" if whole else "Pod"
        return {"all": {}} if whole else {"single": {}}


def dialect_of(rng: random.Random, root: Record, *, plain: bool) -> str:
    """Choose how a tree is written among those that can say it.

    Parameters
    ----------
    plain
        Nobody of it runs yet.
    """
    if isinstance(root, CompositePodGroup):
        return "v1alpha3"
    able = ["v1alpha2", "v1alpha3", "v1beta1"]
    if not root.topology_keys and root.disruption is DisruptionMode.SINGLE:
        able.append("v1alpha1")
        if plain and root.min_count is not None:
            able.append("sigs")
    return rng.choice(able)


def node(name: str, labels: Mapping[str, str], cpu: int) -> Object:
    """A node with so many whole cpu."""
    amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "99"}
    meta = {"name": name, "labels": dict(labels)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"allocatable": amounts}}
