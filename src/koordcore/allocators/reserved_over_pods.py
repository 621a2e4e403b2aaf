"""What running pods hold in particular, for a reservation that is placed over them.

Such a reservation may hold more than its first owners, but what they hold of anything that it asks for has to
be part of it: their CPUs, their amounts on each NUMA node, their cards and virtual functions. What they hold
lends itself to the choice, and afterwards the choice is checked, and shifted where it may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from koordcore.allocators.device.reservations import DeviceReservation, terms_for
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import Terms
from koordcore.allocators.numa_align import NUMARoom, NUMATrial
from koordcore.allocators.numa_state import GiveBack, NUMAState
from koordcore.model.devices import DeviceAllocation, DeviceHolding, DeviceType
from koordcore.model.numa import CPUAllocation, NUMANodeResource
from koordcore.model.resources import CPU, make_resources
from koordcore.protocol.numa import ResourceStatus
from koordcore.topology.cpu import NO_CPUS, CPUSet
from koordcore.topology.numa import NUMAMask

_Amounts = dict[int, dict[str, int]]


# --- CPUs and NUMA nodes ------------------------------------------------------------------------------------


def _sums(held: Iterable[CPUAllocation]) -> tuple[CPUSet, _Amounts]:
    cpus, sums = NO_CPUS, _Amounts()
    for one in held:
        cpus |= one.cpuset
        for entry in one.numa_resources:
            here = sums.setdefault(entry.node, {})
            for name, amount in entry.resources.items():
                here[name] = here.get(name, 0) + amount
    return cpus, sums


def _entries(sums: Mapping[int, Mapping[str, int]]) -> tuple[NUMANodeResource, ...]:
    return tuple(NUMANodeResource(numa, make_resources(sums[numa])) for numa in sorted(sums))


def numa_room_over(held: Sequence[CPUAllocation]) -> NUMARoom:
    """Give where the reservation may find CPUs and amounts: on the node, and those of the pods first."""
    cpus, sums = _sums(held)
    lent = GiveBack(preferred_cpus=cpus, reusable=_entries(sums))
    return NUMARoom(trials=(NUMATrial(name="", give_back=lent),), fallback=None, scored=lent)


def numa_nodes_of(
    state: NUMAState, held: Iterable[CPUAllocation], devices: NodeDevices | None, holders: Iterable[str]
) -> NUMAMask:
    """Give the NUMA nodes on which pods hold anything, as a bit mask.

    Parameters
    ----------
    holders
        Names of the pods among the holders of ``devices``.
    """
    cpus, sums = _sums(held)
    mask = sum(1 << numa for numa in sums)
    for numa, there in state.node.topology.node_masks.items():
        if there & cpus:
            mask |= 1 << numa
    if devices is not None:
        for holder in holders:
            allocation = devices.holdings.get(holder, DeviceAllocation())
            for kind, holdings in allocation.devices.items():
                minors = sum({1 << one.minor for one in holdings})
                mask |= devices.shape.types[kind].layout.numa_nodes(minors)
    return mask


def including_numa(status: ResourceStatus, held: Sequence[CPUAllocation]) -> ResourceStatus | None:
    """Give what was chosen with all that the pods hold in it; ``None`` where that cannot be.

    Of what is chosen the CPUs must be there already. Amounts that no CPUs stand for move to the NUMA nodes on
    which the pods hold them, which have that room, from the others, the last first.
    """
    cpus, sums = _sums(held)
    if status.cpuset and cpus & ~status.cpuset:
        return None
    if not status.numa_node_resources:
        return status
    given = {entry.node: dict(entry.resources) for entry in status.numa_node_resources}
    names = {name for here in given.values() for name in here}
    for name in sorted(names):
        floor = {numa: here.get(name, 0) for numa, here in sums.items() if here.get(name, 0)}
        split = {numa: here.get(name, 0) for numa, here in given.items()}
        lacking = sum(max(0, amount - split.get(numa, 0)) for numa, amount in floor.items())
        if not lacking:
            continue
        if sum(floor.values()) > sum(split.values()) or (name == CPU and status.cpuset):
            return None
        for numa in sorted(split, reverse=True):
            moved = min(lacking, max(0, split[numa] - floor.get(numa, 0)))
            split[numa] -= moved
            lacking -= moved
        for numa, amount in floor.items():
            split[numa] = max(split.get(numa, 0), amount)
        for numa, amount in split.items():
            given.setdefault(numa, {})[name] = amount
    kept = {numa: {name: one for name, one in here.items() if one} for numa, here in given.items()}
    return attrs.evolve(
        status, numa_node_resources=_entries({numa: here for numa, here in kept.items() if here})
    )


# --- devices ------------------------------------------------------------------------------------------------


def device_terms_over(state: NodeDevices, holders: Iterable[str]) -> Terms:
    """Say what the reservation may use of a node's devices: what is free, and those of the pods first."""
    names = [holder for holder in holders if holder in state.holdings]
    terms = terms_for(state, [DeviceReservation(holder=name, matched=True) for name in names])
    preferred: dict[DeviceType, int] = {}
    for name in names:
        for kind, holdings in state.holdings[name].devices.items():
            for one in holdings:
                preferred[kind] = preferred.get(kind, 0) | 1 << one.minor
    return attrs.evolve(terms, preferred=preferred)


def including_devices(found: DeviceAllocation, held: Iterable[DeviceAllocation]) -> DeviceAllocation | None:
    """Give the devices that were chosen with all that the pods hold of their types; ``None`` where not.

    A virtual function that was chosen on a card makes room for one that a pod has there.
    """
    floor: dict[tuple[DeviceType, int], list[DeviceHolding]] = {}
    for allocation in held:
        for kind, holdings in allocation.devices.items():
            for one in holdings:
                if kind in found.devices:
                    floor.setdefault((kind, one.minor), []).append(one)
    chosen: dict[DeviceType, tuple[DeviceHolding, ...]] = {}
    for kind, holdings in found.devices.items():
        kept = []
        for one in holdings:
            below = floor.pop((kind, one.minor), [])
            for name, amount in one.resources.items():
                if sum(part.resources.get(name, 0) for part in below) > amount:
                    return None
            theirs = tuple(vf for part in below for vf in part.vfs)
            if len(theirs) > len(one.vfs):
                return None
            others = tuple(vf for vf in one.vfs if vf not in theirs)
            kept.append(attrs.evolve(one, vfs=(*theirs, *others)[: len(one.vfs)]))
        chosen[kind] = tuple(kept)
    return None if floor else DeviceAllocation(chosen)
