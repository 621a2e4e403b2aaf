"""The objects of the scenarios: nodes in blocks and spines, some with cards and NICs, and pods for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from examples.kubernetes.api import Object
from koordcore.controlplane import RESOURCES

__all__ = [
    "CARDS",
    "DRIVERS",
    "GPU",
    "GROUPS",
    "NIC",
    "cluster",
    "drivers",
    "gang",
    "group",
    "paired",
    "pod",
    "quota",
    "tree",
]

GROUPS: Final = "/apis/scheduling.k8s.io/v1beta1/podgroups"
"""Kubernetes' own."""
DRIVERS: Final = ("gpu.example.com", "nic.example.com")
CARDS: Final = 8
GPU: Final = "koordinator.sh/gpu"
NIC: Final = "koordinator.sh/rdma"
_SPINE: Final = "network.topology.nvidia.com/spine"
_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_BLOCK: Final = "network.topology.nvidia.com/block"


def cluster(nodes: int, gpu_nodes: int) -> Iterator[tuple[str, Object]]:
    """Give the collection and the object of everything that stands there before a pod comes.

    Eight nodes with cards make a block, eight blocks a spine; other nodes are by twenty in their blocks.
    """
    layers = [
        {"topologyLayer": "SpineLayer", "labelKey": [_SPINE]},
        {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": [_BLOCK]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
    ]
    topology = {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": layers}}
    yield _custom("ClusterNetworkTopology", topology)
    for name, value in (("high", 100_000), ("low", 1_000)):
        path = RESOURCES["PriorityClass"]
        yield path, {"metadata": {"name": name}, "value": value}
    for number in range(nodes):
        cards = number < gpu_nodes
        block = number // 8 if cards else 1000 + (number - gpu_nodes) // 20
        name = f"gpu-{number:03}" if cards else f"cpu-{number:03}"
        labels = {_SPINE: f"s{block // 8}", _BLOCK: f"b{block}", "kubernetes.io/hostname": name}
        room = {"cpu": "32", "memory": "128Gi", "pods": "110"}
        if cards:
            share = str(100 * CARDS)
            room |= {"cpu": "128", "memory": "2Ti", NIC: "400", GPU: share}
            room |= {f"{GPU}-core": share, f"{GPU}-memory-ratio": share, f"{GPU}-memory": f"{80 * CARDS}Gi"}
            yield _custom("Device", {"metadata": {"name": name}, "spec": {"devices": list(_devices())}})
        status = {"allocatable": room, "capacity": room}
        yield RESOURCES["Node"], {"metadata": {"name": name, "labels": labels}, "status": status}


def _devices() -> Iterator[Object]:
    """Eight cards and four NICs: two cards and one NIC on each PCIe switch, two switches to a NUMA node."""
    for minor in range(CARDS):
        amounts = {f"{GPU}-core": "100", f"{GPU}-memory-ratio": "100", f"{GPU}-memory": "80Gi"}
        yield _device("gpu", minor, f"GPU-{minor}", minor // 2, amounts)
    for minor in range(CARDS // 2):
        functions = [{"minor": -1, "busID": f"0000:{minor:02x}:00.{number}"} for number in range(2, 6)]
        one = _device("rdma", minor, f"0000:{minor:02x}:00.0", minor, {NIC: "100"})
        yield {**one, "vfGroups": [{"vfs": functions}]}


def _device(kind: str, minor: int, name: str, switch: int, amounts: Mapping[str, str]) -> Object:
    place = {"socketID": switch // 2, "nodeID": switch // 2, "pcieID": f"pcie-{switch}"}
    fixed = {"type": kind, "minor": minor, "id": name, "health": True}
    return {**fixed, "resources": dict(amounts), "topology": place}


def _custom(kind: str, item: Object) -> tuple[str, Object]:
    path = RESOURCES[kind]
    version = path.removeprefix("/apis/").rpartition("/")[0]
    if "namespace" in item["metadata"]:
        head, _, plural = path.rpartition("/")
        path = f"{head}/namespaces/{item['metadata']['namespace']}/{plural}"
    return path, {"apiVersion": version, "kind": kind, **item}


def pod(
    name: str,
    requests: Mapping[str, str],
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    priority: str = "low",
) -> tuple[str, Object]:
    """Make a pod; its name says to which scenario it belongs."""
    metadata: dict[str, Any] = {"name": name, "labels": dict(labels or {})}
    wishes = dict(annotations or {})
    if GPU in requests and NIC in requests:
        wishes["scheduling.koordinator.sh/device-joint-allocate"] = json.dumps(
            {"deviceTypes": ["gpu", "rdma"]}
        )
        wishes["scheduling.koordinator.sh/device-allocate-hint"] = json.dumps({"rdma": {"vfSelector": {}}})
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {**requests}, "limits": {**requests}},
    }
    spec = {"schedulerName": "koord-scheduler", "priorityClassName": priority, "containers": [container]}
    return "/api/v1/namespaces/default/pods", {"metadata": {**metadata, "annotations": wishes}, "spec": spec}


def gang(
    name: str,
    members: int,
    requests: Mapping[str, str],
    *,
    gather: str = "",
    priority: str = "low",
    labels: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, Object]]:
    """Make a PodGroup and its pods; ``gather`` names a layer of which the gang must not leave one domain."""
    wishes = {}
    if gather:
        rules = {"gatherStrategy": [{"layer": gather, "strategy": "MustGather"}]}
        wishes["gang.scheduling.koordinator.sh/network-topology-spec"] = json.dumps(rules)
    metadata = {"name": name, "namespace": "default", "annotations": wishes}
    yield _custom("PodGroup", {"metadata": metadata, "spec": {"minMember": members}})
    own = {"pod-group.scheduling.sigs.k8s.io": name, **(labels or {})}
    for number in range(members):
        yield pod(f"{name}-{number}", requests, labels=own, priority=priority)


def group(
    name: str, members: int, requests: Mapping[str, str], *, priority: str = "low", least: int = 0
) -> Iterator[tuple[str, Object]]:
    """Make a group of Kubernetes' own that must not leave its block and leaves whole, and its pods."""
    spec = {
        "schedulingPolicy": {"gang": {"minCount": least or members}},
        "schedulingConstraints": {"topology": [{"key": _BLOCK}]},
        "disruptionMode": {"all": {}},
        "priorityClassName": priority,
    }
    metadata = {"name": name, "namespace": "default"}
    item = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}
    yield GROUPS.replace("/podgroups", "/namespaces/default/podgroups"), item
    for number in range(members):
        path, one = pod(f"{name}-{number}", requests, priority=priority)
        one["spec"]["schedulingGroup"] = {"podGroupName": name}
        yield path, one


def tree(
    name: str, parts: Sequence[str], members: int, requests: Mapping[str, str]
) -> Iterator[tuple[str, Object]]:
    """Make a group of groups of which each has to start, in a block of its own choice, and their pods."""
    where = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/"
    version = {"apiVersion": "scheduling.k8s.io/v1alpha3"}
    named = {"workloadName": name, "templateName": name}
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minGroupCount": len(parts)}}, "workloadRef": named}
    spec["priorityClassName"] = "low"
    metadata = {"name": name, "namespace": "default"}
    whole = {**version, "kind": "CompositePodGroup", "metadata": metadata, "spec": spec}
    yield f"{where}compositepodgroups", whole
    for part in parts:
        for path, one in group(f"{name}-{part}", members, requests):
            if path.endswith("/pods"):
                yield path, one
                continue
            own = {**one["spec"], "parentCompositePodGroupName": name, "workloadRef": named}
            yield f"{where}podgroups", {**one, **version, "spec": own}


def drivers(nodes: int) -> Iterator[tuple[str, Object]]:
    """Play two drivers on the first nodes with cards: eight GPUs, four NICs, two GPUs and a NIC on each root.

    A template asks for a GPU and a NIC below one root.
    """
    head = "/apis/resource.k8s.io/v1"
    version = {"apiVersion": "resource.k8s.io/v1"}
    for name in DRIVERS:
        chosen = [{"cel": {"expression": f"device.driver == {name!r}"}}]
        yield f"{head}/deviceclasses", {**version, "metadata": {"name": name}, "spec": {"selectors": chosen}}
    asked = [
        {"name": one.partition(".")[0], "exactly": {"deviceClassName": one, "count": 1}} for one in DRIVERS
    ]
    names = [one["name"] for one in asked]
    devices = {"requests": asked, "constraints": [{"requests": names, "matchAttribute": _ROOT}]}
    template = {"metadata": {"name": "pair"}, "spec": {"spec": {"devices": devices}}}
    yield f"{head}/namespaces/default/resourceclaimtemplates", {**version, **template}
    for number in range(nodes):
        node = f"gpu-{number:03}"
        for driver, count, share in zip(DRIVERS, (CARDS, CARDS // 2), (2, 1), strict=True):
            listed = [
                {"name": f"dev-{one}", "attributes": {_ROOT: {"string": f"pci{one // share:04}:00"}}}
                for one in range(count)
            ]
            pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": listed}
            yield (
                f"{head}/resourceslices",
                {**version, "metadata": {"name": f"{node}-{driver}"}, "spec": spec},
            )


def paired(name: str) -> tuple[str, Object]:
    """Make a pod that asks for a GPU and a NIC by a claim."""
    path, one = pod(name, {"cpu": "1", "memory": "1Gi"})
    one["spec"]["resourceClaims"] = [{"name": "pair", "resourceClaimTemplateName": "pair"}]
    one["spec"]["containers"][0]["resources"]["claims"] = [{"name": "pair"}]
    return path, one


def quota(name: str, *, least: Mapping[str, str], most: Mapping[str, str]) -> tuple[str, Object]:
    """Make a quota below the root."""
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {"quota.scheduling.koordinator.sh/is-parent": "false"},
    }
    return _custom("ElasticQuota", {"metadata": metadata, "spec": {"min": dict(least), "max": dict(most)}})
