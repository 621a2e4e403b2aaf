"""Gangs and devices are one plan: a gang whose members find devices together starts, and no other does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from koordcore import ClusterSnapshot, schedule, verify
from koordcore.manifests import snapshot_from_objects
from tests.property.test_joint_laws import Batch, batches
from tests.reference.joint_brute import best_batch

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


def cluster_of(nodes: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> ClusterSnapshot:
    """The nodes with their devices and holders, and the pods as one gang of which all are needed."""
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
    for number, pod in enumerate(wanted):
        marks = {f"{GANG}name": "g", f"{GANG}min-available": str(len(wanted))}
        notes = {**pod["metadata"]["annotations"], **marks}
        spec = {"containers": [{"name": "c", **pod["spec"]["containers"][0]}]}
        meta = {"name": f"p{number}", "annotations": notes}
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return snapshot_from_objects(json.loads(json.dumps(objects))).snapshot


@pytest.mark.solver
@settings(max_examples=60, deadline=None)
@given(batches(most_devices=5, most_pods=4, most_nodes=2))
def test_a_gang_starts_exactly_where_its_members_find_devices_together(batch: Batch) -> None:
    """Compared with trying everything."""
    nodes, wanted = batch
    snapshot = cluster_of(nodes, wanted)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    fits = best_batch(nodes, wanted)[0] == 0
    assert len(result.bound) == (len(wanted) if fits else 0)
