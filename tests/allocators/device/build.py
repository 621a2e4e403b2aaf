"""Small machines for tests, written as wire objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from koordcore.allocators.device import (
    DevicePolicy,
    NodeDevices,
    allocate_devices,
    device_request_of,
    node_devices,
)
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    DeviceType,
)
from koordcore.model.resources import parse_resources
from koordcore.protocol.device import DEVICE_ALLOCATED, parse_allocation
from koordcore.protocol.device_object import GPU_PARTITIONS, device_object_from_manifest, inventory_of

CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory": "80Gi",
    "koordinator.sh/gpu-memory-ratio": "100",
}


def card(minor: int, place: tuple[int, str] | None, **changes: Any) -> dict[str, Any]:
    """One GPU."""
    entry = {"type": "gpu", "minor": minor, "id": f"GPU-{minor}", "health": True, "resources": CARD}
    if place is not None:
        entry["topology"] = {"nodeID": place[0], "pcieID": place[1]}
    return {**entry, **changes}


def nic(minor: int, place: tuple[int, str] | None, vfs: int = 0, **changes: Any) -> dict[str, Any]:
    """One NIC with VFs named ``minor:rank``."""
    entry: dict[str, Any] = {"type": "rdma", "minor": minor, "id": f"nic-{minor}", "health": True}
    entry["resources"] = {"koordinator.sh/rdma": "100"}
    if place is not None:
        entry["topology"] = {"nodeID": place[0], "pcieID": place[1]}
    if vfs:
        entry["vfGroups"] = [{"vfs": [{"busID": f"{minor}:{rank}", "minor": -1} for rank in range(vfs)]}]
    return {**entry, **changes}


def std8(vfs: int = 2) -> list[dict[str, Any]]:
    """8 GPUs and 4 NICs on 4 switches and 2 NUMA nodes."""
    cards = [card(minor, (minor // 4, str(minor // 2))) for minor in range(8)]
    return cards + [nic(minor, ((minor - 1) // 2, str(minor - 1)), vfs) for minor in range(1, 5)]


def machine(
    devices: Sequence[Mapping[str, Any]],
    held: Mapping[str, Any] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    node_labels: Mapping[str, str] | None = None,
    table: Any = None,
) -> NodeDevices:
    """Make the state of a node; ``held`` maps a pod to the JSON of what it holds."""
    annotations = {} if table is None else {GPU_PARTITIONS: json.dumps(table)}
    device = {
        "metadata": {"name": "n", "labels": dict(labels or {}), "annotations": annotations},
        "spec": {"devices": list(devices)},
    }
    inventory = inventory_of(device_object_from_manifest(device), node_labels or {})
    holders = {pod: read(parts) for pod, parts in (held or {}).items()}
    state = node_devices(inventory, holders, node="n")
    assert state is not None
    return state


def read(parts: Any) -> DeviceAllocation:
    """Read an allocation from its JSON."""
    allocation = parse_allocation({DEVICE_ALLOCATED: json.dumps(parts)})
    assert allocation is not None
    return allocation


def cards(*minors: int, percent: int = 100) -> dict[str, Any]:
    """The JSON of cards of 80Gi held to a percentage."""
    amounts = {
        "koordinator.sh/gpu-core": str(percent),
        "koordinator.sh/gpu-memory": str(80 * 2**30 * percent // 100),
        "koordinator.sh/gpu-memory-ratio": str(percent),
    }
    return {"gpu": [{"minor": minor, "resources": amounts} for minor in minors]}


def nics(*minors: int, percent: int = 100) -> dict[str, Any]:
    """The JSON of NICs held to a percentage."""
    return {
        "rdma": [{"minor": minor, "resources": {"koordinator.sh/rdma": str(percent)}} for minor in minors]
    }


def want(amounts: Mapping[str, str], **annotations: Any) -> DeviceRequest:
    """Make a request; annotation names have ``_`` for ``-``, values are JSON."""
    written = {
        "scheduling.koordinator.sh/" + name.replace("_", "-"): json.dumps(value)
        for name, value in annotations.items()
    }
    request = device_request_of(parse_resources(amounts), annotations=written)
    assert isinstance(request, DeviceRequest), request
    return request


def gpus(count: int, **annotations: Any) -> DeviceRequest:
    """Ask for whole cards."""
    return want({"nvidia.com/gpu": str(count)}, **annotations)


def take(state: NodeDevices, request: DeviceRequest, **options: Any) -> dict[str, list[int]]:
    """Allocate and give the minors per type."""
    found = allocate_devices(state, request, **options)
    assert isinstance(found, DeviceAllocation), found
    return {str(kind): list(found.minors(kind)) for kind in found.devices}


def reason(state: NodeDevices, request: DeviceRequest, policy: DevicePolicy | None = None) -> str:
    """Give the only reason of a refusal."""
    found = allocate_devices(state, request, policy=policy or DevicePolicy())
    assert isinstance(found, DeviceShortfall), found
    assert len(found.reasons) == 1
    return found.reasons[0]


GPU = DeviceType.GPU
RDMA = DeviceType.RDMA
