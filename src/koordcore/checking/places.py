"""Where a pod's cards sit: in a partition of the node's table, and inside the scope that the pod requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore.checking.devices import ALLOCATED, HINT, RATIO, WHOLE, asked_of, folded
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import KoordcoreError
from koordcore.model.decisions import Bound
from koordcore.model.devices import DeviceInventory, DeviceObject, GPUPartition
from koordcore.model.pods import Pod
from koordcore.model.quantity import parse_quantity
from koordcore.protocol.device_object import inventory_of
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

SPEC: Final = "scheduling.koordinator.sh/gpu-partition-spec"


def check_device_places(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """Whole cards of new pods are a partition where one is demanded, and no card is out of scope."""
    if not result.policy.filters("DeviceShare"):
        return
    objects = {device.name: device for device in snapshot.of(DeviceObject)}
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    for state in result.snapshot.nodes:
        fresh = [pod for pod in state.pods if pod.key in new and ALLOCATED in pod.annotations]
        device = objects.get(state.name)
        if device is None or not fresh:
            continue
        inventory = inventory_of(device, state.node.labels)
        for pod in fresh:
            minors = _minors(pod)
            if minors:
                yield from _check_partition(pod, minors, inventory)
                yield from _check_scope(pod, minors, inventory)


def _minors(pod: Pod) -> frozenset[int]:
    """Cards that a pod holds; what cannot be read is another check's."""
    held = folded(pod, ALLOCATED) or {}
    try:
        return frozenset(int(entry.get("minor", 0)) for entry in held.get("gpu") or ())
    except (TypeError, ValueError, AttributeError):
        return frozenset()


def _check_partition(pod: Pod, minors: frozenset[int], inventory: DeviceInventory) -> Iterator[Violation]:
    spec = folded(pod, SPEC)
    whole = asked_of(pod).get(RATIO, 0) >= WHOLE * len(minors)
    if not whole or (spec is None and not inventory.honor):
        return
    shown = "{" + ", ".join(map(str, sorted(minors))) + "}"
    table = inventory.partitions
    size = len(minors)
    listed = () if table is None else table.get(size, ())
    groups = [one for one in listed if len(one.minors) == len(set(one.minors)) == size]
    found = [one for one in groups if frozenset(one.minors) == minors]
    if not found:
        yield _broken(pod, f"cards {shown} are no partition of the node")
        return
    best = max(one.allocation_score for one in groups)
    if (spec or {}).get("allocatepolicy") == "Restricted":
        found = [one for one in found if one.allocation_score == best]
        if not found:
            yield _broken(pod, f"partition {shown} is not of the best score {best}")
            return
    if not any(_fast(one, (spec or {}).get("ringbusbandwidth")) for one in found):
        yield _broken(pod, f"partition {shown} has too little bandwidth")


def _fast(one: GPUPartition, bandwidth: object) -> bool:
    if bandwidth is None:
        return True
    try:
        return one.ring_bus_bandwidth is not None and one.ring_bus_bandwidth >= parse_quantity(str(bandwidth))
    except KoordcoreError:
        return True


def _check_scope(pod: Pod, minors: frozenset[int], inventory: DeviceInventory) -> Iterator[Violation]:
    wish = (folded(pod, HINT) or {}).get("gpu")
    said = {str(name).lower(): value for name, value in wish.items()} if isinstance(wish, Mapping) else {}
    scope = said.get("requiredtopologyscope")
    if scope not in ("Device", "PCIe", "NUMANode"):
        return
    places = [one.topology for one in inventory.devices if str(one.type) == "gpu" and one.minor in minors]
    if scope == "Device":
        apart = len(minors) > 1
    elif scope == "PCIe":
        apart = len({None if one is None else (one.node_id, one.pcie_id) for one in places}) > 1
    else:
        apart = len({None if one is None else one.node_id for one in places}) > 1
    if apart or (scope != "Device" and None in places):
        yield _broken(pod, f"cards {', '.join(map(str, sorted(minors)))} are not inside one {scope}")


def _broken(pod: Pod, message: str) -> Violation:
    return Violation(ViolationKind.DEVICE, str(pod.key), message)
