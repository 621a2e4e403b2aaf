"""Nodes with devices, and pods that ask for them, as a stranger writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from koordcore import Bound, ScheduleResult, Unschedulable, schedule, verify
from koordcore.manifests import Loaded, snapshot_from_objects

__all__ = [
    "ALLOCATED",
    "ASCEND",
    "GPU",
    "HALF",
    "KOORD",
    "NPU",
    "NPU_CARD",
    "QUARTER",
    "TEMPLATES",
    "Objects",
    "asks",
    "bound",
    "card",
    "config_map",
    "given",
    "nic",
    "node",
    "pod",
    "refusal",
    "run",
]

Objects = list[dict[str, Any]]
KOORD = "koordinator.sh/"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
GPU = {KOORD + "gpu-core": "100", KOORD + "gpu-memory": "80Gi", KOORD + "gpu-memory-ratio": "100"}


def card(minor: int, amounts: Mapping[str, str] = GPU, *, numa: int = 0, pcie: str = "0") -> dict[str, Any]:
    return {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": True,
        "resources": dict(amounts),
        "topology": {"nodeID": numa, "pcieID": pcie, "busID": f"0000:{minor:02}:00.0"},
    }


def nic(minor: int, *, numa: int = 0, pcie: str = "0", vfs: int = 0) -> dict[str, Any]:
    group = {"vfs": [{"minor": -1, "busID": f"0000:1{minor}:00.{number + 1}"} for number in range(vfs)]}
    return {
        "type": "rdma",
        "minor": minor,
        "id": f"0000:1{minor}:00.0",
        "health": True,
        "resources": {KOORD + "rdma": "100"},
        "topology": {"nodeID": numa, "pcieID": pcie},
        **({"vfGroups": [group]} if vfs else {}),
    }


def node(
    name: str,
    *devices: dict[str, Any],
    labels: Mapping[str, str] | None = None,
    of_device: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    amounts: Mapping[str, str] | None = None,
) -> Objects:
    """A Node and its Device; ``of_device`` and ``annotations`` stand on the latter."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", **(amounts or {})}
    metadata = {"name": name, "labels": dict(labels or {})}
    found: Objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": amounts}}
    ]
    if devices:
        found.append(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {
                    "name": name,
                    "labels": dict(of_device or {}),
                    "annotations": dict(annotations or {}),
                },
                "spec": {"devices": list(devices)},
            }
        )
    return found


def pod(
    name: str,
    requests: Mapping[str, str],
    annotations: Mapping[str, Any] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    on: str = "",
) -> Objects:
    """A pod, pending or running ``on`` a node; annotations that are no texts are written as JSON."""
    texts = {
        key: one if isinstance(one, str) else json.dumps(one) for key, one in (annotations or {}).items()
    }
    amounts = {"requests": dict(requests), "limits": dict(requests)}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": texts, "labels": dict(labels or {})},
            "spec": {
                "containers": [{"name": "main", "resources": amounts}],
                **({"nodeName": on} if on else {}),
            },
        }
    ]


def run(*objects: Objects, **settings: Any) -> tuple[Loaded, ScheduleResult]:
    """Load, schedule, and have the plan checked."""
    loaded = snapshot_from_objects([one for each in objects for one in each])
    result = schedule(loaded.snapshot, **settings)
    assert verify(loaded.snapshot, result) == ()
    return loaded, result


def bound(result: ScheduleResult, name: str) -> Bound:
    """The decision about a pod that is placed."""
    (found,) = [one for one in result.decisions if one.pod.name == name]
    assert isinstance(found, Bound), found
    return found


def given(result: ScheduleResult, name: str) -> dict[str, list[int]]:
    """The minors of each type that a pod was given."""
    held = json.loads(bound(result, name).annotations.get(ALLOCATED, "{}"))
    return {kind: sorted(one["minor"] for one in entries) for kind, entries in held.items()}


def refusal(result: ScheduleResult, name: str) -> str:
    """The text with which a pod is refused."""
    (found,) = [one for one in result.decisions if one.pod.name == name]
    assert isinstance(found, Unschedulable), found
    return found.message


# --- virtual cards of Ascend ------------------------------------------------------------

NPU = "huawei.com/npu-"
ASCEND = {"node.koordinator.sh/gpu-vendor": "huawei", "node.koordinator.sh/gpu-model": "Ascend-910B"}
NPU_CARD = {
    NPU + "core": "20",
    NPU + "cpu": "14",
    NPU + "dvpp": "100",
    KOORD + "gpu-memory": "32Gi",
    KOORD + "gpu-memory-ratio": "100",
}
QUARTER = {NPU + "core": "5", NPU + "cpu": "3", NPU + "dvpp": "25", KOORD + "gpu-memory": "8Gi"}
HALF = {NPU + "core": "10", NPU + "cpu": "6", KOORD + "gpu-memory": "16Gi"}
TEMPLATES = {"huawei-Ascend-910B": {"vir05": QUARTER, "vir10": HALF}, "huawei-Other": {"vir05": HALF}}


def config_map(data: Any = TEMPLATES, **metadata: str) -> Objects:
    written = {"name": "gpu-shared-resource-templates", "namespace": "koordinator-system", **metadata}
    text = data if isinstance(data, str) else json.dumps(data)
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": written, "data": {"data.yaml": text}}]


def asks(name: str, amounts: dict[str, str]) -> Objects:
    return pod(name, {KOORD + "gpu.shared": "1", **amounts})
