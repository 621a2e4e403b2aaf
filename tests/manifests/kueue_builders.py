"""Kueue's objects and a small cluster with racks and two kinds of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]
RACK = "cloud/rack"
GPU = "nvidia.com/gpu"


def made(kind: str, name: str, spec: Object, version: str = "v1beta2", **meta: Any) -> Object:
    """An object of Kueue."""
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name, **meta},
        "spec": spec,
    }


def node(name: str, rack: str, flavor: str = "a100", cards: int = 8) -> Object:
    """A node with cards; no rack for an empty one."""
    labels = {"gpu": flavor, "kubernetes.io/hostname": name, **({RACK: rack} if rack else {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(cards)}},
    }


def running(name: str, where: str, cards: int) -> Object:
    """A pod that holds cards."""
    spec = {"nodeName": where, **template(cards)["spec"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": spec,
    }


def template(cards: int, **notes: str) -> Object:
    """A pod template."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {GPU: cards}}}]}
    return {"metadata": {"annotations": notes}, "spec": spec} if notes else {"spec": spec}


def flavor(name: str, topology: str = "dc", **spec: Any) -> Object:
    """A ResourceFlavor of the nodes with that label."""
    labels = {"nodeLabels": {"gpu": name}}
    return made(
        "ResourceFlavor", name, {**labels, **({"topologyName": topology} if topology else {}), **spec}
    )


TOPOLOGY = made("Topology", "dc", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]})


def queue(name: str, quotas: Mapping[str, int], cohort: str = "", **spec: Any) -> Object:
    """A ClusterQueue with cards of some flavors; ``limits`` are further fields of each quota."""
    limits = spec.pop("limits", {})
    flavors = [
        {"name": one, "resources": [{"name": GPU, "nominalQuota": amount, **limits}]}
        for one, amount in quotas.items()
    ]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    shared = {"cohortName": cohort} if cohort else {}
    return made("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups, **shared, **spec})


def local(name: str, cluster_queue: str, **spec: Any) -> Object:
    """A LocalQueue in the namespace ml."""
    return made("LocalQueue", name, {"clusterQueue": cluster_queue, **spec}, namespace="ml")


def pod_set(name: str, count: int, cards: int, least: int | None = None, **request: Any) -> Object:
    """One pod set."""
    found: Object = {"name": name, "count": count, "template": template(cards)}
    if least is not None:
        found["minCount"] = least
    return found | ({"topologyRequest": request} if request else {})


def workload(name: str, *sets: Object, into: str = "q", hour: int = 0, **spec: Any) -> Object:
    """A Workload that waits."""
    created = f"2026-01-01T{hour:02}:00:00Z"
    return made(
        "Workload",
        name,
        {"queueName": into, "podSets": list(sets), **spec},
        namespace="ml",
        creationTimestamp=created,
    )


def admitted(raw: Object, cluster_queue: str, flavors: Mapping[str, str], usage: int, **more: Any) -> Object:
    """The Workload as Kueue has admitted it."""
    given = {
        "name": raw["spec"]["podSets"][0]["name"],
        "flavors": dict(flavors),
        "resourceUsage": {GPU: usage},
        **more,
    }
    return {**raw, "status": {"admission": {"clusterQueue": cluster_queue, "podSetAssignments": [given]}}}
