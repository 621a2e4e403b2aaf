"""The library's own plugins keep the contract that it asks of others."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from attrs import evolve

from koordcore import ClusterSnapshot, Pod
from koordcore.framework.registry import PLUGINS
from koordcore.manifests import snapshot_from_objects
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from koordcore.model.selectors import LabelSelector
from koordcore.testing import check_plugin, varied_snapshots
from koordcore.testing.violation import Clause

WEB: Final = LabelSelector(match_labels={"app": "web"})
SILENT: Final = {
    "NodeName",  # pods that wait name no node
    "NodeDeclaredFeatures",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "DynamicResources",
    "SchedulingHint",
    "Coscheduling",
    "ElasticQuota",
    "Reservation",
}
"""Nothing in these clusters concerns them."""
GPU: Final = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


def neighbours() -> ClusterSnapshot:
    """Pods that want to be near others, away from them, or spread."""
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm(topology_key="zone", selector=WEB),)))
    away = Affinity(anti=PodAffinity(required=(PodAffinityTerm(topology_key="zone", selector=WEB),)))
    spread = (TopologySpreadConstraint(max_skew=1, topology_key="zone", selector=WEB),)
    pods = [
        Pod(name="near", requests={"cpu": 100}, affinity=near),
        Pod(name="away", requests={"cpu": 100}, affinity=away, labels={"app": "web"}),
        Pod(name="spread-1", requests={"cpu": 100}, spread_constraints=spread, labels={"app": "web"}),
        Pod(name="spread-2", requests={"cpu": 100}, spread_constraints=spread, labels={"app": "web"}),
        Pod(name="plain", requests={"cpu": 100}, labels={"app": "web"}),
    ]
    return evolve(varied_snapshots()[1], pending=pods)


def numa_node(name: str, policy: str, cards: tuple[int, ...]) -> list[dict[str, Any]]:
    """Eight CPUs on two NUMA nodes, and a GPU on the NUMA node that each number names."""
    detail = [{"id": cpu, "core": cpu // 2, "node": cpu // 4, "socket": 0} for cpu in range(8)]
    zone = [
        {"name": key, "capacity": amount, "allocatable": amount, "available": amount}
        for key, amount in (("cpu", "4"), ("memory", "16Gi"))
    ]
    number = str(100 * len(cards))
    room = {"cpu": "8", "memory": "32Gi", "pods": "110"} | dict.fromkeys(GPU, number)
    labels = {"node.koordinator.sh/numa-topology-policy": policy}
    told = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"GPU-{minor}",
            "health": True,
            "topology": {"nodeID": numa, "socketID": 0, "pcieID": str(minor)},
            "resources": {**GPU, "koordinator.sh/gpu-memory": "80Gi"},
        }
        for minor, numa in enumerate(cards)
    ]
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": room},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {"name": name, "annotations": told},
            "topologyPolicies": ["None"],
            "zones": [{"name": f"node-{number}", "type": "Node", "resources": zone} for number in range(2)],
        },
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name},
            "spec": {"devices": devices},
        },
    ]


def exact_pod(name: str, cpu: int, gpus: int, *, cores: bool) -> dict[str, Any]:
    requests = {"cpu": str(cpu), "memory": "1Gi"} | {key: str(100 * gpus) for key in GPU if gpus}
    labels = {"koordinator.sh/qosClass": "LSR"} if cores else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": labels},
        "spec": {
            "priority": 9500,
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
        },
    }


def exact() -> ClusterSnapshot:
    """Pods that want CPUs and cards of nodes with and without alignment."""
    objects = [
        *numa_node("aligned", "SingleNUMANode", (0, 0, 1)),
        *numa_node("loose", "BestEffort", (0, 1)),
        exact_pod("cores", 2, 0, cores=True),
        exact_pod("cards", 2, 2, cores=True),
        exact_pod("card", 1, 1, cores=False),
        exact_pod("wide", 6, 0, cores=True),
    ]
    return snapshot_from_objects(objects).snapshot


@pytest.mark.parametrize("name", sorted(PLUGINS))
def test_the_librarys_plugins_keep_the_contract(name: str) -> None:
    found = check_plugin(name, snapshots=[neighbours(), exact()])
    if name in SILENT:
        assert [one.clause for one in found] == [Clause.CONCERN]
    else:
        assert found == ()
