"""One node drawn as text: NUMA nodes, switches, cards with their fill, NICs, partitions, CPUs, holders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from koordcore.allocators.device import NodeDevices
from koordcore.allocators.numa_state import NUMAState
from koordcore.cli.tables import amount
from koordcore.model.devices import Device, DeviceInventory, DeviceObject, DeviceType
from koordcore.model.nodes import NodeState
from koordcore.protocol.device_object import inventory_of
from koordcore.schedule.features.devices import device_state
from koordcore.schedule.features.numa import numa_state
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.cpu import format_cpulist

__all__ = ["draw_node"]

_BAR = 10
_UNKNOWN_NUMA = -1


def draw_node(snapshot: ClusterSnapshot, state: NodeState) -> str:
    """Draw a node as a few lines of text."""
    lines = [*_head(snapshot, state)]
    found = snapshot.find(DeviceObject, state.name)
    devices = device_state(snapshot, state)
    if found is not None and devices is not None:
        inventory = inventory_of(found, state.node.labels)
        lines += ["", "devices", *_device_lines(inventory, devices)]
        lines += _partition_lines(inventory, devices)
    numa = numa_state(snapshot, state)
    if numa.node.topology.cpus:
        lines += ["", "CPUs", *_cpu_lines(numa)]
    if state.pods:
        lines += ["", "pods", *(f"  {pod.key}" for pod in state.pods)]
    return "\n".join(lines)


def _head(snapshot: ClusterSnapshot, state: NodeState) -> Iterator[str]:
    yield f"{state.name}: {len(state.pods)} pods"
    row = snapshot.layout.row_of[state.name]
    for number, name in enumerate(snapshot.layout.resources):
        whole = int(snapshot.layout.allocatable[number, row])
        used = int(snapshot.columns.requested[number, row])
        if whole or used:
            share = used / whole if whole else 1.0
            yield f"  {_bar(share)} {name}: {amount(name, used)} of {amount(name, whole)}"
    for taint in state.node.taints:
        yield f"  taint {taint} {taint.effect}"
    if state.node.unschedulable:
        yield "  cordoned"


def _bar(share: float) -> str:
    full = min(_BAR, max(0, round(share * _BAR)))
    return "█" * full + "·" * (_BAR - full)


def _device_lines(inventory: DeviceInventory, devices: NodeDevices) -> Iterator[str]:
    places: dict[tuple[int, str], list[Device]] = defaultdict(list)
    for device in inventory.devices:
        place = device.topology
        numa = place.node_id if place is not None else _UNKNOWN_NUMA
        places[numa, place.pcie_id if place is not None else ""].append(device)
    shown: int | None = None
    for (numa, pcie), members in sorted(places.items()):
        if numa != shown:
            yield f"  NUMA {numa}" if numa != _UNKNOWN_NUMA else "  NUMA unknown"
            shown = numa
        yield f"    PCIe {pcie or 'unknown'}"
        for device in sorted(members, key=lambda one: (one.type, one.minor)):
            yield "      " + _device_line(device, devices)


def _device_line(device: Device, devices: NodeDevices) -> str:
    name = f"{device.type} {device.minor}"
    if not device.health:
        return f"{name:<8} broken"
    shape = devices.shape.types[device.type]
    used = devices.use(device.type).used[shape.position[device.minor]]
    total = shape.totals[device.minor]
    share = max((mine / whole for mine, whole in zip(used, total, strict=True) if whole), default=0.0)
    holders = ", ".join(devices.holders(device.type, device.minor)) or "free"
    text = f"{name:<8} {_bar(share)} {round(share * 100):>3}%  {holders}"
    vfs = sum(len(group.vfs) for group in device.vf_groups)
    if vfs:
        taken = devices.use(device.type).vfs[shape.position[device.minor]].bit_count()
        text += f"  ({taken} of {vfs} VFs)"
    return text


def _partition_lines(inventory: DeviceInventory, devices: NodeDevices) -> Iterator[str]:
    """Say for each size which partitions are free as a whole."""
    if not inventory.partitions:
        return
    healthy = {one.minor for one in inventory.devices if one.type is DeviceType.GPU and one.health}
    busy = devices.busy.get(DeviceType.GPU, 0)
    policy = "honoured" if inventory.honor else "preferred"
    yield f"  partitions ({policy}, from the {inventory.source})"
    for size, partitions in sorted(inventory.partitions.items()):
        free = [
            "{" + ",".join(map(str, one.minors)) + "}"
            for one in partitions
            if all(minor in healthy and not busy >> minor & 1 for minor in one.minors)
        ]
        yield f"    of {size}: {len(free)} of {len(partitions)} free  {' '.join(free)}".rstrip()


def _cpu_lines(state: NUMAState) -> Iterator[str]:
    """Say for each NUMA node who holds which CPUs, core by core where a core has several holders."""
    node = state.node
    for numa in sorted({cpu.numa for cpu in node.topology.cpus}):
        here = node.cpus_on(numa)
        held = 0
        yield f"  NUMA {numa}: cpus {format_cpulist(here)}"
        for allocation in sorted(state.allocations, key=lambda one: (one.namespace, one.name, one.uid)):
            mine = allocation.cpuset & here
            if mine:
                held |= mine
                name = f"{allocation.namespace}/{allocation.name}" if allocation.name else allocation.uid
                yield f"    {format_cpulist(mine):<12} {name}"
        reserved = node.reserved_cpus & here
        if reserved:
            yield f"    {format_cpulist(reserved):<12} reserved"
        free = here & ~held & ~reserved
        yield f"    {format_cpulist(free) or 'none':<12} free"
