"""One node drawn as text: NUMA nodes, switches, cards with their fill, NICs, partitions, CPUs, holders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby

from koordcore.allocators.device import NodeDevices
from koordcore.allocators.numa_state import NUMAState
from koordcore.cli.claim_picture import draw_pools
from koordcore.cli.plan_tables import short_amount
from koordcore.cli.tables import amount
from koordcore.cli.words import many
from koordcore.explaining.kept_room import taken_room
from koordcore.explaining.node_states import cards_of, condition_of
from koordcore.model.devices import Device, DeviceInventory, DeviceObject, DeviceType
from koordcore.model.nodes import NodeState
from koordcore.model.numa import CPUAllocation
from koordcore.model.reservations import Reservation
from koordcore.protocol.device_object import inventory_of
from koordcore.protocol.reservation import allocated_reservation
from koordcore.scheduling.plain_cards import CARD_NAMES
from koordcore.scheduling.plugins.exact import device_state, numa_state
from koordcore.scoring.gpu_share import CARD
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.cpu import CPUSet, cpuset_of, format_cpulist
from koordcore.topology.devices import bits

_BAR = 10
_UNKNOWN_NUMA = -1


def draw_node(snapshot: ClusterSnapshot, state: NodeState) -> str:
    """Draw a node as a few lines of text."""
    lines = [*_head(snapshot, state)]
    found = snapshot.find(DeviceObject, state.name)
    devices = device_state(snapshot, state)
    numa = numa_state(snapshot, state)
    if found is not None and devices is not None:
        inventory = inventory_of(found, state.node.labels)
        sockets = {node.id: node.socket for node in numa.node.topology.nodes}
        lines += ["", "devices", *_device_lines(inventory, devices, sockets)]
        lines += _partition_lines(inventory, devices)
        lines += [f"  conflict: {one.kind} {one.minor}: {one.message}" for one in devices.conflicts]
    claimed = list(draw_pools(snapshot, state))
    if claimed:
        lines += ["", "devices of drivers", *claimed]
    if numa.node.topology.cpus:
        lines += ["", "CPUs", *_cpu_lines(numa)]
    if state.pods:
        lines += ["", "pods", *(f"  {pod.key}" for pod in state.pods)]
    return "\n".join(lines)


def _head(snapshot: ClusterSnapshot, state: NodeState) -> Iterator[str]:
    yield f"{state.name}: {condition_of(snapshot, state)}, {many(len(state.pods), 'pod')}"
    row = snapshot.layout.row_of[state.name]
    cards = cards_of(snapshot, state)
    if cards.total:
        left = max(0, sum(cards.idle) - sum(cards.kept.values()))
        share = 1 - left / CARD / cards.total
        text = f"{cards.held} of {cards.total} held"
        text += f", {cards.shared} shared" * bool(cards.shared) + f", {cards.broken} broken" * bool(
            cards.broken
        )
        text += "".join(f", {milli / CARD:g} kept by {name}" for name, milli in sorted(cards.kept.items()))
        yield f"  {_bar(share)} cards: {text}{f' ({cards.model})' * bool(cards.model)}"
    taken = taken_room(snapshot)
    for number, name in enumerate(snapshot.layout.resources):
        whole = int(snapshot.layout.allocatable[number, row])
        used, kept = int(taken.used[number, row]), int(taken.kept[number, row])
        if (whole or used or kept) and not (cards.total and name in CARD_NAMES):
            share = (used + kept) / whole if whole else 1.0
            more = f", {amount(name, kept)} kept" * bool(kept)
            yield f"  {_bar(share)} {name}: {amount(name, used)} of {amount(name, whole)}{more}"
    yield from _reservation_lines(snapshot, state)
    for taint in state.node.taints:
        yield f"  taint {taint} {taint.effect}"
    if state.node.unschedulable:
        yield "  cordoned"


def _reservation_lines(snapshot: ClusterSnapshot, state: NodeState) -> Iterator[str]:
    """Say what reservations were granted on a node, and how many of its pods say that they use them."""
    used = [allocated_reservation(pod.annotations) for pod in state.pods]
    for one in snapshot.of(Reservation):
        if one.active and one.status.node_name == state.name:
            room = (one.status.allocatable or {}).items()
            kept = ", ".join(short_amount(name, value) for name, value in room if value) or "no amounts"
            users = sum(each is not None and each.name == one.name for each in used)
            yield f"  reservation {one.name}: {kept}, used by {many(users, 'pod') if users else 'nobody'}"


def _bar(share: float) -> str:
    full = min(_BAR, max(0, round(share * _BAR)))
    return "█" * full + "·" * (_BAR - full)


def _device_lines(
    inventory: DeviceInventory, devices: NodeDevices, sockets: Mapping[int, int]
) -> Iterator[str]:
    """Say for each NUMA node and switch what sits there; the socket too, where CPUs or devices tell it."""
    places: dict[tuple[int, str], list[Device]] = defaultdict(list)
    for device in inventory.devices:
        place = device.topology
        numa = place.node_id if place is not None else _UNKNOWN_NUMA
        places[numa, place.pcie_id if place is not None else ""].append(device)
    shown: int | None = None
    for (numa, pcie), members in sorted(places.items()):
        if numa != shown:
            sockets_of = {one.topology.socket_id for one in members if one.topology is not None}
            socket = sockets.get(numa, max(sockets_of, default=_UNKNOWN_NUMA))
            where = f" (socket {socket})" if socket >= 0 else ""
            yield f"  NUMA {numa}{where}" if numa != _UNKNOWN_NUMA else "  NUMA unknown"
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
    for size, listed in sorted(inventory.partitions.items()):
        partitions = [one for one in listed if one.is_of(size)]
        free = [
            "{" + ",".join(map(str, one.minors)) + "}"
            for one in partitions
            if all(minor in healthy and not busy >> minor & 1 for minor in one.minors)
        ]
        yield f"    of {size}: {len(free)} of {len(partitions)} free  {' '.join(free)}".rstrip()


def _cpu_lines(state: NUMAState) -> Iterator[str]:
    """Say for each NUMA node who holds its CPUs, core by core; cores in the same hands share a line."""
    topology = state.node.topology
    holder = _cpu_holders(state)
    for node in topology.nodes:
        free = sum(1 for cpu in bits(node.cpus) if holder[cpu] == _FREE)
        yield (
            f"  NUMA {node.id} (socket {node.socket}): cpus {format_cpulist(node.cpus)},"
            f" {len(topology.cores_of_node[node.id])} cores, {free} cpus free"
        )
        cores = [(core.id & 0xFFFF, core.cpus & node.cpus) for core in topology.cores_of_node[node.id]]
        for names, run in groupby(cores, key=lambda core: _names_on(core[1], holder)):
            members = list(run)
            whole = len(set(names)) == 1
            for together in [members] if whole else [[one] for one in members]:
                ids = format_cpulist(cpuset_of(core for core, _ in together))
                cpus = format_cpulist(sum(mask for _, mask in together))
                text = (
                    names[0] if whole else ", ".join(f"{cpu} {holder[cpu]}" for cpu in bits(together[0][1]))
                )
                yield f"    core {ids:<8} cpu {cpus:<12} {text}"
    for allocation in state.allocations:
        foreign = allocation.cpuset & ~topology.all_cpus
        if foreign:
            yield f"  not on the node: cpu {format_cpulist(foreign)} {_holder_name(allocation)}"


_FREE = "free"


def _names_on(cpus: CPUSet, holder: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(holder[cpu] for cpu in bits(cpus))


def _holder_name(allocation: CPUAllocation) -> str:
    return f"{allocation.namespace}/{allocation.name}" if allocation.name else allocation.uid


def _cpu_holders(state: NUMAState) -> dict[int, str]:
    """Name who holds each CPU of the node."""
    names: dict[int, list[str]] = {cpu.cpu: [] for cpu in state.node.topology.cpus}
    for allocation in sorted(state.allocations, key=lambda one: (one.namespace, one.name, one.uid)):
        for cpu in bits(allocation.cpuset & state.node.topology.all_cpus):
            names[cpu].append(_holder_name(allocation))
    for cpu in bits(state.node.reserved_cpus & state.node.topology.all_cpus):
        names[cpu].append("reserved")
    return {cpu: " + ".join(held) or _FREE for cpu, held in names.items()}
