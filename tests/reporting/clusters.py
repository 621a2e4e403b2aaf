"""Clusters for pages: the example, one with quotas and a victim, and a large one."""

from __future__ import annotations

from functools import cache
from typing import Any

from koordcore import (
    ClusterSnapshot,
    ElasticQuota,
    Node,
    Pod,
    PreemptionRules,
    ScheduleResult,
    schedule,
    snapshot_from_objects,
)
from koordcore.model.pods import OwnerReference

QUOTA = "quota.scheduling.koordinator.sh/name"
HOSTILE = "</script><script>document.title='taken over'</script>"


@cache
def example() -> ScheduleResult:
    """Two blocks of two nodes with 8 cards and 2 NICs each, and a node without cards.

    A gang takes the second block, two notebooks share a card of the first one, a third has half of
    another one, and ``render-16`` asks for more than any node has.
    """
    objects: list[dict[str, Any]] = [network()]
    for block in (1, 2):
        for number in (1, 2):
            objects += gpu_node(f"gpu-b{block}-{number}", f"b{block}")
    objects.append(manifest("v1", "Node", "cpu-1", status={"allocatable": {"cpu": "64", "pods": "110"}}))
    part = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    gang = {
        "gang.scheduling.koordinator.sh/name": "pretrain",
        "gang.scheduling.koordinator.sh/min-available": "2",
    }
    gather = '{"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]}'
    gang["gang.scheduling.koordinator.sh/network-topology-spec"] = gather
    first = {"nodeSelector": {"block": "b1"}}
    objects += [pod(f"notebook-{number}", part, 9, spec=first) for number in range(3)]
    objects += [pod(f"pretrain-{number}", {"nvidia.com/gpu": "8"}, 8, gang) for number in range(2)]
    objects += [pod("render-16", {"nvidia.com/gpu": "16"}, 7), pod("web-0", {}, 6)]
    return schedule(snapshot_from_objects(objects).snapshot)


def manifest(version: str, kind: str, name: str, **rest: Any) -> dict[str, Any]:
    """Write an object; what pods say of themselves stands beside their names."""
    named = {"name": name, **rest.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": named, **rest}


def network() -> dict[str, Any]:
    layers = [
        {"topologyLayer": "BlockLayer", "labelKey": ["block"]},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
    ]
    kind = ("scheduling.koordinator.sh/v1alpha1", "ClusterNetworkTopology")
    return manifest(*kind, "default", spec={"networkTopologySpec": layers})


def gpu_node(name: str, block: str) -> list[dict[str, Any]]:
    """Write a node and its Device object: cards in pairs below a switch, four of them on each NUMA node."""
    room = {"cpu": "64", "pods": "110", "nvidia.com/gpu": "8", "koordinator.sh/gpu-core": "800"}
    room |= {"koordinator.sh/gpu-memory-ratio": "800", "koordinator.sh/gpu-memory": "640Gi"}
    card = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "health": True,
            "resources": {**card, "koordinator.sh/gpu-memory": "80Gi"},
        }
        | {"topology": {"socketID": minor // 4, "nodeID": minor // 4, "pcieID": f"pcie-{minor // 2}"}}
        for minor in range(8)
    ]
    devices += [
        {"type": "rdma", "minor": minor, "health": True, "resources": {"koordinator.sh/rdma": "100"}}
        for minor in range(2)
    ]
    return [
        manifest("v1", "Node", name, metadata={"labels": {"block": block}}, status={"allocatable": room}),
        manifest("scheduling.koordinator.sh/v1alpha1", "Device", name, spec={"devices": devices}),
    ]


def pod(
    name: str,
    asks: dict[str, str],
    priority: int,
    annotations: dict[str, str] | None = None,
    spec: dict[str, Any] | None = None,
) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1", **asks}, "limits": asks}}
    said = {"namespace": "default", "uid": name, "annotations": annotations or {}}
    given = {"priority": priority, "containers": [container], **(spec or {})}
    return manifest("v1", "Pod", name, metadata=said, spec=given, status={"phase": "Pending"})


@cache
def preempted() -> ScheduleResult:
    """One node full of a less important pod; a more important one waits. A quota has a hostile name."""
    room = {"cpu": 64_000, "pods": 110, "nvidia.com/gpu": 8}
    runs = Pod(
        name="old",
        requests={"nvidia.com/gpu": 8, "cpu": 1000},
        priority=1,
        node_name="n0",
        labels={QUOTA: "a"},
    )
    waits = Pod(name="new", requests={"nvidia.com/gpu": 4, "cpu": 1000}, priority=9, labels={QUOTA: HOSTILE})
    quotas = [
        ElasticQuota(
            name=name,
            namespace="kube-system",
            min={"cpu": 8000, "nvidia.com/gpu": 4},
            max={"cpu": 64_000, "nvidia.com/gpu": 8},
        )
        for name in ("a", HOSTILE)
    ]
    snapshot = ClusterSnapshot(nodes=[Node(name="n0", allocatable=room)], pending=[waits], records=quotas)
    return schedule(snapshot.assume(runs), preempt=PreemptionRules())


@cache
def scattered() -> ClusterSnapshot:
    """Three nodes of 8 cards, none of them free as a whole."""
    room = {"cpu": 64_000, "pods": 110, "nvidia.com/gpu": 8}
    nodes = [Node(name=f"n{number}", allocatable=room) for number in range(3)]
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="u", controller=True)
    pods = [
        Pod(name=f"p{one}", requests={"nvidia.com/gpu": 3}, node_name=f"n{one}", owners=(owner,))
        for one in range(3)
    ]
    return ClusterSnapshot(nodes=nodes).assume(*pods)


@cache
def large() -> ClusterSnapshot:
    """1000 nodes of 8 cards with 10,000 pods, 3000 of them with cards, in 100 workloads."""
    room = {"cpu": 128_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}
    nodes = [Node(name=f"node-{number:04}", allocatable=room) for number in range(1000)]
    owners = [
        OwnerReference(kind="ReplicaSet", name=f"app-{one}", uid=f"u{one}", controller=True)
        for one in range(100)
    ]
    pods = [
        Pod(
            name=f"app-{number % 100}-{number}",
            namespace=f"team-{number % 7}",
            node_name=f"node-{number // 10:04}",
            requests={"cpu": 2000, "memory": 8 << 30, **({"nvidia.com/gpu": 2} if number % 10 < 3 else {})},
            owners=(owners[number % 100],),
        )
        for number in range(10_000)
    ]
    return ClusterSnapshot(nodes=nodes).assume(*pods)
