"""What is fixed about the devices of a node, compiled once and shared by all nodes of the same build.

Two nodes have the same :class:`DeviceShape` when nothing but the names of their devices (UUIDs, bus ids)
differs. Amounts are tuples of ints in the order of ``names``; a resource that a device does not report
counts as 0, so a request for it does not fit (ruling 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore.model.devices import (
    FPGA,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    RDMA,
    Device,
    DeviceInventory,
    DeviceType,
    PartitionTable,
    TableSource,
    VFGroup,
    VirtualFunction,
)
from koordcore.topology.devices import DeviceLayout, Location, TopologyScope

__all__ = ["Amounts", "DeviceShape", "Partition", "TypeShape", "shape_of"]

Amounts: TypeAlias = tuple[int, ...]
"""Amounts of one device, in the order of :attr:`TypeShape.names`."""

_KNOWN_NAMES: Final = {
    DeviceType.GPU: (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, NPU_CORE, NPU_CPU, NPU_DVPP),
    DeviceType.RDMA: (RDMA,),
    DeviceType.FPGA: (FPGA,),
}


@attrs.frozen
class Partition:
    """A GPU partition as the search reads it.

    Parameters
    ----------
    order
        Position in the table among those of its size.
    minors, mask
        Its cards: in the order of the table, and as a set.
    """

    order: int
    minors: tuple[int, ...]
    mask: int
    score: int
    bandwidth: int | None


@attrs.frozen(eq=False, kw_only=True)
class TypeShape:
    """All devices of one type.

    Parameters
    ----------
    names
        Resource names; the order of every amounts tuple.
    minors
        Ascending.
    totals
        Capacity per minor; all zero for an unhealthy device.
    healthy
        Minors with any capacity.
    reported
        Minors that the Device object holds; the others are known only because some pod holds them.
    labels
        Per minor.
    vf_labels
        Per minor the labels of each VF, in the order of bus ids (the order in which VFs are taken).
    layout
        Where the devices sit.
    """

    kind: DeviceType
    names: tuple[str, ...]
    minors: tuple[int, ...]
    totals: dict[int, Amounts]
    healthy: int
    reported: int
    labels: dict[int, immutabledict[str, str]]
    vf_labels: dict[int, tuple[immutabledict[str, str], ...]]
    layout: DeviceLayout

    @cached_property
    def column(self) -> dict[str, int]:
        """Place of each resource name in an amounts tuple."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def position(self) -> dict[int, int]:
        """Place of each minor in ``minors``."""
        return {minor: index for index, minor in enumerate(self.minors)}

    @cached_property
    def has_vfs(self) -> bool:
        """Any device of the type has a virtual function."""
        return any(self.vf_labels.values())

    @cached_property
    def nothing(self) -> Amounts:
        """No amount of anything."""
        return (0,) * len(self.names)


@attrs.frozen(eq=False, kw_only=True)
class DeviceShape:
    """All that is fixed about the devices of a node.

    Parameters
    ----------
    types
        The known types; a type without devices is absent.
    partitions
        Size to partitions grouped by score, best group first (ruling 1); ``None`` without a table.
    honor, vendor, model, isolation_provider, well_planned
        See :class:`~koordcore.model.devices.DeviceInventory`.
    """

    types: immutabledict[DeviceType, TypeShape]
    partitions: immutabledict[int, tuple[tuple[Partition, ...], ...]] | None
    honor: bool
    vendor: str
    model: str
    isolation_provider: str
    well_planned: bool

    @cached_property
    def numa_nodes(self) -> int:
        """Bit mask of the NUMA ids that have devices."""
        found = 0
        for kind in self.types.values():
            found |= kind.layout.numa_nodes(-1)
        return found


def sorted_vfs(device: Device) -> tuple[tuple[VirtualFunction, immutabledict[str, str]], ...]:
    """List the VFs of a device by bus id (as text), each with the labels of its group."""
    found = [(vf, group.labels) for group in device.vf_groups for vf in group.vfs]
    return tuple(sorted(found, key=lambda one: (one[0].bus_id, one[0].minor)))


def shape_of(inventory: DeviceInventory, ghosts: Iterable[tuple[DeviceType, int]] = ()) -> DeviceShape:
    """Compile the fixed part of a node's devices; equal builds give the very same object.

    Parameters
    ----------
    inventory
        As the node reports it.
    ghosts
        Devices that pods hold although the node does not report them.
    """
    anonymous = tuple(_anonymous(device) for device in inventory.devices)
    return _compiled(
        anonymous,
        tuple(sorted(ghosts)),
        inventory.partitions,
        attrs.evolve(inventory, devices=(), partitions=None, warnings=(), source=TableSource.NONE),
    )


def _anonymous(device: Device) -> Device:
    """Strip what tells a device from its twin in another node, keeping the order of VFs."""
    groups = tuple(VFGroup(labels, (VirtualFunction(""),)) for _, labels in sorted_vfs(device))
    topology = device.topology
    if topology is not None:
        topology = attrs.evolve(topology, bus_id="", socket_id=-1)
    return attrs.evolve(device, id="", vf_groups=groups, topology=topology)


# A fleet has few builds; the cache holds them so that equal nodes share one shape and its derived tables.
@lru_cache(maxsize=512)
def _compiled(
    devices: tuple[Device, ...],
    ghosts: tuple[tuple[DeviceType, int], ...],
    partitions: PartitionTable | None,
    labels: DeviceInventory,
) -> DeviceShape:
    types = {}
    for kind in DeviceType:
        own = [device for device in devices if device.type is kind]
        extra = [minor for ghost, minor in ghosts if ghost is kind]
        if own or extra:
            types[kind] = _type_shape(kind, own, extra)
    return DeviceShape(
        types=immutabledict(types),
        partitions=None if partitions is None else _grouped(partitions),
        honor=labels.honor,
        vendor=labels.vendor,
        model=labels.model,
        isolation_provider=labels.isolation_provider,
        well_planned=labels.well_planned,
    )


def _type_shape(kind: DeviceType, devices: list[Device], ghosts: list[int]) -> TypeShape:
    reported = {name for device in devices for name in device.resources}
    names = tuple(sorted({*reported, *_KNOWN_NAMES[kind]}))
    totals = {minor: (0,) * len(names) for minor in ghosts}
    for device in devices:
        capacity = device.resources if device.health else {}
        totals[device.minor] = tuple(max(0, capacity.get(name, 0)) for name in names)
    minors = tuple(sorted(totals))
    places = {
        device.minor: (device.topology.node_id, device.topology.pcie_id)
        for device in devices
        if device.topology is not None
    }
    by_minor = {device.minor: device for device in devices}
    located: list[tuple[int, Location]] = [
        (minor, places.get(minor)) for minor in minors if minor in by_minor
    ]
    return TypeShape(
        kind=kind,
        names=names,
        minors=minors,
        totals={minor: totals[minor] for minor in minors},
        healthy=sum(1 << minor for minor in minors if any(totals[minor])),
        reported=sum(1 << minor for minor in by_minor),
        labels={minor: device.labels for minor, device in by_minor.items()},
        vf_labels={minor: tuple(labels for _, labels in sorted_vfs(one)) for minor, one in by_minor.items()},
        layout=DeviceLayout(located),
    )


def _grouped(table: PartitionTable) -> immutabledict[int, tuple[tuple[Partition, ...], ...]]:
    sizes = {}
    for size, partitions in table.items():
        groups: dict[int, list[Partition]] = {}
        for order, one in enumerate(partitions):
            if one.minors:
                entry = Partition(order, one.minors, one.mask, one.allocation_score, one.ring_bus_bandwidth)
                groups.setdefault(one.allocation_score, []).append(entry)
        if groups:
            sizes[size] = tuple(tuple(groups[score]) for score in sorted(groups, reverse=True))
    return immutabledict(sizes)


def scope_of(word: str) -> TopologyScope | None:
    """Read a required topology scope; ``None`` where none is required."""
    return TopologyScope.of(word) if word else None
