"""What is fixed about the devices of a node, compiled once and shared by all nodes of the same build.

Two nodes have the same :class:`DeviceShape` when nothing but the names of their devices (UUIDs, bus ids)
differs. Amounts are tuples of ints in the order of ``names``; a resource that a device does not report
counts as 0, so a request for it does not fit (ruling 2).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Final, TypeAlias, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore._record import record
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
    VirtualFunction,
)
from koordcore.topology.devices import DeviceLayout, Location

T = TypeVar("T")

Amounts: TypeAlias = tuple[int, ...]
"""Amounts of one device, in the order of :attr:`TypeShape.names`."""

_KNOWN_NAMES: Final = {
    DeviceType.GPU: (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, NPU_CORE, NPU_CPU, NPU_DVPP),
    DeviceType.RDMA: (RDMA,),
    DeviceType.FPGA: (FPGA,),
}


@record
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


@record(eq=False, kw_only=True)
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


@record(eq=False, kw_only=True)
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
    extra = tuple(sorted(ghosts))
    build = (
        tuple(_anonymous(device) for device in inventory.devices),
        extra,
        inventory.partitions,
        inventory.honor,
        inventory.vendor,
        inventory.model,
        inventory.isolation_provider,
        inventory.well_planned,
    )
    return _compiled(_Build(build, inventory, extra))


@record
class _Build:
    """All that tells builds apart, with an inventory of that build."""

    key: Hashable
    inventory: DeviceInventory = attrs.field(eq=False)
    ghosts: tuple[tuple[DeviceType, int], ...] = attrs.field(eq=False)


def _pairs(mapping: Mapping[str, T]) -> tuple[tuple[str, T], ...]:
    return tuple(sorted(mapping.items())) if mapping else ()


def _anonymous(device: Device) -> Hashable:
    """Name a device without what tells it from its twin in another node: plain tuples, quick to compare."""
    topology = device.topology
    vfs: Hashable = tuple((_pairs(group.labels), len(group.vfs)) for group in device.vf_groups if group.vfs)
    if len(device.vf_groups) > 1:
        # VFs are taken in the order of their bus ids, so with several groups the order tells builds apart.
        vfs = tuple(_pairs(labels) for _, labels in sorted_vfs(device))
    return (
        device.type,
        device.minor,
        device.health,
        _pairs(device.labels),
        _pairs(device.resources),
        None if topology is None else (topology.node_id, topology.pcie_id),
        vfs,
    )


# A fleet has few builds; the cache holds them so that equal nodes share one shape and its derived tables.
@lru_cache(maxsize=512)
def _compiled(build: _Build) -> DeviceShape:
    inventory = build.inventory
    types = {}
    for kind in DeviceType:
        own = [device for device in inventory.devices if device.type is kind]
        extra = [minor for ghost, minor in build.ghosts if ghost is kind]
        if own or extra:
            types[kind] = _type_shape(kind, own, extra)
    partitions = inventory.partitions
    return DeviceShape(
        types=immutabledict(types),
        partitions=None if partitions is None else _grouped(partitions),
        honor=inventory.honor,
        vendor=inventory.vendor,
        model=inventory.model,
        isolation_provider=inventory.isolation_provider,
        well_planned=inventory.well_planned,
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
            # What is no set of so many cards cannot serve who asks for so many.
            if one.minors and one.is_of(size):
                entry = Partition(order, one.minors, one.mask, one.allocation_score, one.ring_bus_bandwidth)
                groups.setdefault(one.allocation_score, []).append(entry)
        if groups:
            sizes[size] = tuple(tuple(groups[score]) for score in sorted(groups, reverse=True))
    return immutabledict(sizes)
