"""The objects of the scenarios: nodes in blocks and spines, some with cards and NICs, and pods for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from examples.kubernetes.api import Object
from koordcore.controlplane import RESOURCES

__all__ = ["CARDS", "GPU", "NIC", "cluster", "gang", "pod", "quota"]

CARDS: Final = 8
GPU: Final = "koordinator.sh/gpu"
NIC: Final = "koordinator.sh/rdma"
_SPINE: Final = "network.topology.nvidia.com/spine"
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


def quota(name: str, *, least: Mapping[str, str], most: Mapping[str, str]) -> tuple[str, Object]:
    """Make a quota below the root."""
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {"quota.scheduling.koordinator.sh/is-parent": "false"},
    }
    return _custom("ElasticQuota", {"metadata": metadata, "spec": {"min": dict(least), "max": dict(most)}})
