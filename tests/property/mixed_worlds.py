"""A small cluster in which every plugin has something to say, as manifests."""

from __future__ import annotations

import json
import random
from typing import Any

from koordcore import ClusterSnapshot
from koordcore.manifests import snapshot_from_objects

__all__ = ["NOW", "cluster"]

NOW = "2026-03-01T12:00:00Z"
KOORD = "scheduling.koordinator.sh/"
CARD = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


def _node(name: str, zone: str, policy: str, cards: int, cpu: int = 8) -> list[dict[str, Any]]:
    labels = {"kubernetes.io/hostname": name, "zone": zone}
    if policy:
        labels["node.koordinator.sh/numa-topology-policy"] = policy
    allocatable = {"cpu": str(cpu), "memory": "32Gi", "pods": "20"}
    allocatable |= {key: str(100 * cards) for key in CARD if cards}
    detail = [{"id": one, "core": one // 2, "node": one * 2 // cpu, "socket": 0} for one in range(cpu)]
    half = {"cpu": str(cpu // 2), "memory": "16Gi"}
    resources = [
        {"name": key, "capacity": amount, "allocatable": amount, "available": amount}
        for key, amount in half.items()
    ]
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": allocatable},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
            },
            "topologyPolicies": ["None"],
            "zones": [{"name": f"node-{one}", "type": "Node", "resources": resources} for one in range(2)],
        },
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": name},
            "spec": {},
            "status": {
                "updateTime": "2026-03-01T11:59:30Z",
                "nodeMetric": {"nodeUsage": {"resources": {"cpu": f"{cpu * 150}m", "memory": "6Gi"}}},
            },
        },
    ]
    if cards:
        devices = [
            {
                "type": "gpu",
                "minor": minor,
                "id": f"GPU-{minor}",
                "health": True,
                "topology": {"nodeID": minor * 2 // cards, "socketID": 0, "pcieID": str(minor // 2)},
                "resources": {**CARD, "koordinator.sh/gpu-memory": "80Gi"},
            }
            for minor in range(cards)
        ]
        found.append(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {"name": name},
                "spec": {"devices": devices},
            }
        )
    return found


def _pod(name: str, cpu: str, cards: float = 0, **spec: Any) -> dict[str, Any]:
    requests = {"cpu": cpu, "memory": "2Gi"}
    if cards:
        requests |= {key: str(int(100 * cards)) for key in CARD}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"u-{name}",
            "labels": spec.pop("labels", {}),
            "annotations": spec.pop("annotations", {}),
        },
        "spec": {
            "schedulerName": "koord-scheduler",
            "priority": 9500,
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
            **spec,
        },
    }


def _reservation(chance: random.Random) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "4Gi"}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u-r"},
        "spec": {
            "allocateOnce": False,
            "allocatePolicy": chance.choice(("Aligned", "Restricted")),
            "owners": [{"labelSelector": {"matchLabels": {"team": "a"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}},
            "ttl": "24h",
        },
        "status": {"phase": "Available", "nodeName": "n2", "allocatable": amounts},
    }


def _quota() -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"max": {"cpu": "6", "memory": "64Gi"}, "min": {"cpu": "2", "memory": "8Gi"}},
    }


def cluster(seed: int) -> ClusterSnapshot:
    """Four nodes under several NUMA policies, with cards, load, a reservation and a quota; nine pods wait."""
    chance = random.Random(seed)
    policies = ["Restricted", "SingleNUMANode", "BestEffort", ""]
    chance.shuffle(policies)
    objects = [
        *_node("n1", "z1", policies[0], cards=4),
        *_node("n2", "z1", policies[1], cards=2),
        *_node("n3", "z2", policies[2], cards=0),
        *_node("n4", "z2", policies[3], cards=chance.choice((0, 2)), cpu=12),
        _reservation(chance),
        _quota(),
    ]
    term = {"labelSelector": {"matchLabels": {"app": "w"}}, "topologyKey": "zone"}
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
        "labelSelector": {"matchLabels": {"app": "w"}},
    }
    near = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 20, "podAffinityTerm": term}]}
    gang = {"pod-group.scheduling.sigs.k8s.io": "g"}
    bound = {"koordinator.sh/qosClass": "LSR"}
    objects += [
        _pod("runs", "1", labels={"app": "w"}, nodeName="n4", affinity={"podAffinity": near}),
        _pod("share", "1", 0.5),
        _pod("cards", "2", 2, labels=bound),
        _pod("cpus", chance.choice(("2", "4")), labels=bound),
        _pod("owner", "2", labels={"team": "a"}),
        _pod("quota", "3", labels={"quota.scheduling.koordinator.sh/name": "q"}),
        _pod("w1", "500m", labels={"app": "w"}, topologySpreadConstraints=[spread]),
        _pod("w2", "1500m", labels={"app": "w"}, affinity={"podAffinity": near}),
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": 2},
        },
        _pod("g-0", "1", 1, labels=gang),
        _pod("g-1", "1", 1, labels=gang),
    ]
    nominated = _pod("late", "1", 1, priority=9600)
    nominated["status"] = {"nominatedNodeName": chance.choice(("n1", "n2"))}
    return snapshot_from_objects([*objects, nominated]).snapshot
