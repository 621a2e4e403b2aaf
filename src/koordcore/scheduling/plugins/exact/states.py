"""What every node has of CPUs, NUMA amounts and devices now, and who holds it: one state, one ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from koordcore._arrays import IntVector
from koordcore.allocators.device import NodeDevices, device_table, node_devices
from koordcore.allocators.device.answers import StateTable
from koordcore.allocators.device.reservations import remaining_devices
from koordcore.allocators.node import NodeAllocation, NodeOffer
from koordcore.allocators.node_batch import node_table
from koordcore.allocators.numa import NodeAmounts
from koordcore.allocators.numa_state import (
    NUMANode,
    NUMAState,
    allocation_of,
    exclusive_wish,
    numa_node_of,
    numa_state_of,
)
from koordcore.allocators.reservation_numa import remaining_cpus
from koordcore.errors import ManifestError
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.workspace import Workspace
from koordcore.model.devices import DeviceObject
from koordcore.model.nodes import NodeState
from koordcore.model.numa import CPUAllocation, NodeResourceTopology
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation
from koordcore.model.resources import make_resources
from koordcore.protocol.device import DEVICE_ALLOCATED, parse_allocation
from koordcore.protocol.device_object import GPU_VENDOR, inventory_of
from koordcore.protocol.device_plugins import LOCKS
from koordcore.protocol.numa import ANNOTATION_RESOURCE_STATUS
from koordcore.reservations.cache import concerns_reservations
from koordcore.reservations.holders import ended_holders, holders_by_user
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import per_node

_NO_NUMA: Final = NUMAState(NUMANode())
_UNREAD: Final[dict[type, frozenset[str]]] = {Reservation: frozenset({"status"})}
"""Who holds its room, and who uses it, the pods of the node say; it says whether one user is its end."""


def uid_of(pod: Pod) -> str:
    """Give the name under which a pod's CPUs and NUMA amounts are kept."""
    return pod.uid or str(pod.key)


@per_node(NodeResourceTopology, Reservation, unread=_UNREAD)
def numa_state(snapshot: ClusterSnapshot, state: NodeState) -> NUMAState:
    """Give the CPUs and NUMA nodes of one node with what its pods hold by their annotations."""
    topology = snapshot.find(NodeResourceTopology, state.name)
    known = numa_state_of(numa_node_of(state.node.labels, state.node.annotations, topology), state.pods)
    using = holders_by_user(state.pods) if known.allocations else {}
    if not using:
        return known
    # What users of a reservation took of it counts once, as theirs.
    by_uid = {one.uid: one for one in known.allocations}
    ended = ended_holders(snapshot, state.pods)
    for pod in state.pods:
        held = by_uid.get(uid_of(pod)) if pod.key in using else None
        if held is not None:
            users = (by_uid.get(uid_of(user)) for user in using[pod.key])
            by_uid[held.uid] = remaining_cpus(held, [one for one in users if one is not None])
            if pod.key in ended:
                del by_uid[held.uid]
    return NUMAState.of(known.node, by_uid.values())


@per_node(DeviceObject, Reservation, unread=_UNREAD)
def device_state(snapshot: ClusterSnapshot, state: NodeState) -> NodeDevices | None:
    """Give the devices of one node with what its pods hold by their annotations.

    An annotation that cannot be read holds nothing here: the loader closes the node of such a pod to others.
    """
    found = snapshot.find(DeviceObject, state.name)
    inventory = None if found is None else inventory_of(found, state.node.labels)
    holdings = {}
    for pod in state.pods:
        if DEVICE_ALLOCATED in pod.annotations:
            try:
                allocation = parse_allocation(pod.annotations)
            except ManifestError:
                continue
            if allocation is not None and allocation.devices:
                holdings[str(pod.key)] = allocation
    if not holdings:
        return node_devices(inventory, node=state.name)
    # What users of a reservation took of it counts once, as theirs.
    ended = ended_holders(snapshot, state.pods)
    for holder, users in holders_by_user(state.pods).items():
        held = holdings.pop(str(holder), None)
        if held is not None:
            left = remaining_devices(
                held, [holdings[str(user.key)] for user in users if str(user.key) in holdings]
            )
            if left.devices and holder not in ended:
                holdings[str(holder)] = left
    return node_devices(inventory, holdings, node=state.name)


class ExactStates:
    """CPUs, NUMA amounts and devices of every node of a workspace now.

    All that pods are given, and all that they give back, goes through here and through the workspace's log,
    so that one undo takes back everything. What nobody asks about is never worked out.

    Parameters
    ----------
    workspace
        The working state of the call.
    cpus, devices
        Whether the policy asks about them at all.
    """

    def __init__(self, workspace: Workspace, *, cpus: bool, devices: bool) -> None:
        self.workspace = workspace
        self._has_cpus, self._has_devices = cpus, devices
        self._tables: dict[tuple[bool, bool], StateTable[NodeOffer]] = {}
        self._device_tables: dict[bool, StateTable[NodeDevices | None]] = {}
        self._read = len(workspace.touched)

    @cached_property
    def numa(self) -> list[NUMAState]:
        """CPUs and NUMA nodes of every node, by row."""
        return self.workspace.values(numa_state)

    @cached_property
    def devices(self) -> list[NodeDevices | None]:
        """Devices of every node, by row."""
        return self.workspace.values(device_state)

    def relabel(self, *, said: bool) -> None:
        """Take note that nodes were replaced, and whether they say something else."""
        self.__dict__.pop("allocatable", None)
        if said:
            self.__dict__.pop("locking_rows", None)

    @cached_property
    def locking_rows(self) -> frozenset[int]:
        """Rows of the nodes whose vendor's plugin has conditions of its own."""
        vendors = self.workspace.layout.kinds.label(GPU_VENDOR)
        return frozenset(np.flatnonzero(vendors.judge(lambda vendor: vendor in LOCKS)).tolist())

    def locked(self) -> bool:
        """Tell whether a node carries the lock of a device plugin, which another time may end."""
        nodes, locks = self.workspace.layout.nodes, set(LOCKS.values())
        return any(not locks.isdisjoint(nodes[row].annotations) for row in self.locking_rows)

    def offer(self, row: int, *, with_devices: bool) -> NodeOffer:
        """Give what one node offers as it is; without devices where a pod asks for none."""
        numa = self.numa[row] if self._has_cpus else _NO_NUMA
        return NodeOffer(numa, self.devices[row] if with_devices else None)

    def node_of(self, row: int) -> NUMANode:
        """Give what a node tells of its CPUs and NUMA nodes, whoever holds them."""
        return (self.numa[row] if self._has_cpus else _NO_NUMA).node

    def table(self, *, with_devices: bool, by_name: bool = False) -> StateTable[NodeOffer]:
        """Give the numbered states of CPUs and NUMA nodes, with devices where asked for, up to date.

        ``by_name`` tells devices of different nodes apart, whatever they have in common: who designates a
        virtual function names it by its bus, and bus ids are a node's own.
        """
        self.update()
        found = self._tables.get((with_devices, by_name))
        if found is None:
            offers = (self.offer(row, with_devices=with_devices) for row in range(len(self.numa)))
            found = node_table(offers, by_name=by_name)
            self._tables[with_devices, by_name] = found
        return found

    def device_table(self, *, by_name: bool = False) -> StateTable[NodeDevices | None]:
        """Give the numbered states of devices alone, up to date; ``by_name`` as for :meth:`table`."""
        self.update()
        found = self._device_tables.get(by_name)
        if found is None:
            found = self._device_tables[by_name] = device_table(self.devices, by_name=by_name)
        return found

    def move(self, moves: NodeMoves) -> None:
        """Let nodes join and leave; the workspace's values have followed already."""
        touched = np.array(self.workspace.touched[self._read :], np.int64)
        self._read = len(self.workspace.touched)
        for name in ("allocatable", "requested", "locking_rows"):
            self.__dict__.pop(name, None)
        rows = {*moves.rows(touched).tolist()} - {-1, *moves.came}
        for (with_devices, _), table in self._tables.items():
            table.move(moves.edits, {row: self.offer(row, with_devices=with_devices) for row in moves.came})
        for devices in self._device_tables.values():
            devices.move(moves.edits, {row: self.devices[row] for row in moves.came})
        self._put(sorted(rows))

    def update(self) -> None:
        """Bring the tables up to the changes since the last look."""
        touched = self.workspace.touched
        if self._read == len(touched):
            return  # asked for several times a pod
        rows = sorted(set(touched[self._read :]))
        self._read = len(touched)
        self._put(rows)

    def _put(self, rows: Iterable[int]) -> None:
        """Bring the tables up to what some nodes have now."""
        for (with_devices, _), table in self._tables.items():
            for row in rows:
                table.put(row, self.offer(row, with_devices=with_devices))
        for devices in self._device_tables.values():
            for row in rows:
                devices.put(row, self.devices[row])

    @cached_property
    def allocatable(self) -> Mapping[str, IntVector]:
        """Amounts of the nodes as a whole, ``(N,)`` per resource."""
        layout = self.workspace.layout
        return {name: layout.allocatable[at] for name, at in layout.index.items()}

    @cached_property
    def requested(self) -> Mapping[str, IntVector]:
        """What pods request of them; views that follow every change, ``(N,)`` per resource."""
        return {name: self.workspace.requested[at] for name, at in self.workspace.layout.index.items()}

    def amounts(self, row: int, requested: IntVector) -> NodeAmounts:
        """Give the amounts of one node as a whole, of which so much, ``(R,)``, is requested."""
        layout = self.workspace.layout
        offered = layout.offers.at(row)
        return NodeAmounts(
            make_resources({name: int(offered[at]) for name, at in layout.index.items()}),
            make_resources({name: int(requested[at]) for name, at in layout.index.items()}),
        )

    # -- changes ---------------------------------------------------------------------------------------

    def take(self, pod: Pod, row: int, given: NodeAllocation, after: NodeDevices | None = None) -> None:
        """Record what a pod was given, as it will be read back from its annotations.

        Parameters
        ----------
        pod, row
            Who, and the node.
        given
            What it gets.
        after
            The devices of the node with the pod's taken, where that is known already.
        """
        uid, status = uid_of(pod), given.numa.status
        found: CPUAllocation | None = None
        if status.cpuset or status.numa_node_resources:
            found = CPUAllocation(
                uid=uid,
                cpuset=status.cpuset,
                exclusive=exclusive_wish(pod.annotations),
                numa_resources=status.numa_node_resources,
                namespace=pod.namespace,
                name=pod.name,
            )
        elif self._has_cpus and pod.annotations and not given.numa.written:
            found = allocation_of(uid, pod.annotations, namespace=pod.namespace, name=pod.name)
        if found is not None:
            self.workspace.put(self.numa, row, self.numa[row].adding(found))
        if given.devices is not None and given.devices.devices:
            state = self.devices[row]
            if state is not None:
                changed = state.assume(str(pod.key), given.devices) if after is None else after
                self.workspace.put(self.devices, row, changed)

    def placed(self, pod: Pod, row: int) -> None:
        """Take note of a pod on its node: a user of a reservation changes what its holder has left."""
        if concerns_reservations(pod):
            self._read_again(pod, row)

    def removed(self, pod: Pod, row: int) -> None:
        """Give back what a pod held."""
        if concerns_reservations(pod):
            self._read_again(pod, row)
            return
        # What nobody has asked about is worked out later, without the pod.
        if self._has_cpus and self.workspace.knows(numa_state):
            before = self.numa[row]
            left = before.removing(uid_of(pod))
            if left is not before:
                self.workspace.put(self.numa, row, left)
        if self._has_devices and self.workspace.knows(device_state):
            state = self.devices[row]
            if state is not None and str(pod.key) in state.holdings:
                self.workspace.put(self.devices, row, self._without(state, str(pod.key), row))

    def _without(self, state: NodeDevices, holder: str, row: int) -> NodeDevices | None:
        """Give the devices of a node without a holder; ``None`` where only holders told of them."""
        left, workspace = state.forget(holder), self.workspace
        known = workspace.snapshot.find(DeviceObject, workspace.layout.nodes[row].name) is not None
        return left if known or left.holdings else None

    def _read_again(self, pod: Pod, row: int) -> None:
        """Take in what the node's pods hold by their annotations.

        A pod that holds nothing changes what reservations hold, too: with the first user one for a single use
        is over.
        """
        workspace = self.workspace
        there = workspace.state_of(row)
        if self._has_cpus and (ANNOTATION_RESOURCE_STATUS in pod.annotations or self.numa[row].allocations):
            workspace.put(self.numa, row, numa_state(workspace.snapshot, there))
        state = self.devices[row] if self._has_devices else None
        held = state is not None and bool(state.holdings)
        if self._has_devices and (DEVICE_ALLOCATED in pod.annotations or held):
            workspace.put(self.devices, row, device_state(workspace.snapshot, there))
