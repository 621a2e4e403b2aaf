"""Gangs and devices are one plan: a gang whose members find devices together starts, and no other does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, schedule, verify
from koordcore.manifests import snapshot_from_objects
from tests.property.test_joint_laws import Batch, batches
from tests.reference.joint_brute import best_batch
from tests.scheduling.test_numa import node as numa_node, pod as numa_pod

GANG = "gang.scheduling.koordinator.sh/"
AMOUNTS = {
    "cpu": "64",
    "memory": "1Ti",
    "pods": "99",
    **{
        f"koordinator.sh/{name}": "9999"
        for name in ("gpu", "gpu-core", "gpu-memory-ratio", "gpu.shared", "rdma")
    },
    "koordinator.sh/gpu-memory": "99Ti",
}


DIALECTS = pytest.mark.parametrize("dialect", ["koordinator", "kubernetes"])


def joined(pods: Sequence[dict[str, Any]], dialect: str) -> list[dict[str, Any]]:
    """The pods as one gang of which all are needed: of Koordinator's kind or of Kubernetes' own."""
    if dialect == "koordinator":
        marks = {f"{GANG}name": "g", f"{GANG}min-available": str(len(pods))}
        for pod in pods:
            pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **marks}
        return [*pods]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": pods[0]["metadata"].get("namespace", "default")},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": len(pods)}},
            "priority": pods[0]["spec"].get("priority", 0),
        },
    }
    return [group, *pods]


def cluster_of(
    nodes: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]], dialect: str
) -> ClusterSnapshot:
    """The nodes with their devices and holders, and the pods as one gang."""
    objects: list[dict[str, Any]] = []
    for number, case in enumerate(nodes):
        name = f"n{number}"
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "status": {"allocatable": AMOUNTS},
            }
        )
        meta = {**case["device"]["metadata"], "name": name}
        objects.append(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": meta,
                "spec": case["device"]["spec"],
            }
        )
        for pod in case["pods"]:
            held = {**pod["metadata"], "name": f"{name}-{pod['metadata']['name']}"}
            spec = {"nodeName": name, "containers": [{"name": "c"}]}
            objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": held, "spec": spec})
    pods: list[dict[str, Any]] = []
    for number, pod in enumerate(wanted):
        spec = {"containers": [{"name": "c", **pod["spec"]["containers"][0]}]}
        meta = {"name": f"p{number}", "annotations": dict(pod["metadata"]["annotations"])}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    objects += joined(pods, dialect)
    return snapshot_from_objects(json.loads(json.dumps(objects))).snapshot


@pytest.mark.solver
@DIALECTS
@settings(max_examples=10, deadline=None)
@given(batch=batches(most_devices=5, most_pods=4, most_nodes=2))
def test_a_gang_starts_exactly_where_its_members_find_devices_together(dialect: str, batch: Batch) -> None:
    """Compared with trying everything."""
    nodes, wanted = batch
    snapshot = cluster_of(nodes, wanted, dialect)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    fits = best_batch(nodes, wanted)[0] == 0
    assert len(result.bound) == (len(wanted) if fits else 0)


@pytest.mark.solver
@DIALECTS
@settings(max_examples=10, deadline=None)
@given(
    cards=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    wanted=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=2, max_size=5),
)
def test_a_gang_starts_exactly_where_its_members_find_numa_nodes_together(
    dialect: str, cards: tuple[int, int], wanted: list[tuple[int, int]]
) -> None:
    """Four CPUs and some cards on each of two NUMA nodes, one of which has to serve a member."""
    minors = (*(0 for _ in range(cards[0])), *(1 for _ in range(cards[1])))
    members = [
        numa_pod(f"p{number}", cpu, gpus=gpus, bound=False) for number, (cpu, gpus) in enumerate(wanted)
    ]
    nodes = numa_node("n", policy="SingleNUMANode", cards=minors)
    snapshot = snapshot_from_objects([*nodes, *joined(members, dialect)]).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    fits = any(
        all(
            sum(cpu for (cpu, _), at in zip(wanted, places, strict=True) if at == zone) <= 4
            and sum(gpus for (_, gpus), at in zip(wanted, places, strict=True) if at == zone) <= cards[zone]
            for zone in range(2)
        )
        for places in product(range(2), repeat=len(wanted))
    )
    assert len(result.bound) == (len(wanted) if fits else 0)
