"""The devices of one node with what is taken of them: an immutable ledger.

``assume`` and ``forget`` give new values. Two nodes whose devices are equal in build and in use have equal
:attr:`NodeDevices.signature`, so that whatever was worked out for one holds for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.device.shape import (
    Amounts,
    DeviceShape,
    TypeShape,
    shape_of,
    sorted_vfs,
)
from koordcore.errors import ModelError
from koordcore.model.devices import (
    Device,
    DeviceAllocation,
    DeviceHolding,
    DeviceInventory,
    DeviceType,
    VirtualFunction,
)

Used: TypeAlias = tuple[Amounts, ...]
Signature: TypeAlias = tuple[DeviceShape, tuple["TypeUse", ...]]


@record(cache_hash=True)
class TypeUse:
    """What is taken of the devices of one type.

    Parameters
    ----------
    used
        Per device, in the order of minors; may exceed the capacity.
    vfs
        Per device the bit mask of VFs taken, bit ``i`` for the VF of rank ``i`` by bus id.
    """

    used: Used
    vfs: tuple[int, ...]


@record
class DeviceConflict:
    """Something that running pods hold and cannot all hold.

    Parameters
    ----------
    kind, minor
        The device.
    message
        What is wrong, naming the pods.
    """

    kind: DeviceType
    minor: int
    message: str


@record(eq=False)
class _Names:
    """What tells one node's devices from another's, per type and minor; written out when asked."""

    devices: tuple[Device, ...]

    @cached_property
    def ids(self) -> dict[tuple[DeviceType, int], str]:
        """UUIDs and PCI addresses."""
        return {(device.type, device.minor): device.id for device in self.devices}

    @cached_property
    def vfs(self) -> dict[tuple[DeviceType, int], tuple[VirtualFunction, ...]]:
        """VFs in the order of bus ids, of the devices that have any."""
        return {
            (device.type, device.minor): tuple(vf for vf, _ in sorted_vfs(device))
            for device in self.devices
            if device.vf_groups
        }

    @cached_property
    def rank(self) -> dict[tuple[DeviceType, int, str], int]:
        """Rank of each VF on its device, by bus id."""
        return {
            (kind, minor, vf.bus_id): index
            for (kind, minor), found in self.vfs.items()
            for index, vf in enumerate(found)
        }


@record(eq=False)
class NodeDevices:
    """The devices of one node and their use.

    Parameters
    ----------
    shape
        The fixed part.
    uses
        Per type of ``shape.types``, in that order.
    holdings
        Pod (``namespace/name``) to what it holds.
    node
        Name of the node, for messages.
    """

    shape: DeviceShape
    uses: tuple[TypeUse, ...]
    holdings: immutabledict[str, DeviceAllocation]
    names: _Names
    node: str = ""

    @cached_property
    def signature(self) -> Signature:
        """Equal for two nodes whose devices are of the same build and equally used; hashable."""
        return self.shape, self.uses

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeDevices):
            return NotImplemented
        return (
            self.shape is other.shape
            and self.uses == other.uses
            and dict(self.holdings) == dict(other.holdings)
        )

    def __hash__(self) -> int:
        return hash(self.uses)

    def use(self, kind: DeviceType) -> TypeUse:
        """What is taken of one type."""
        return self.uses[_place(self.shape, kind)]

    @cached_property
    def free(self) -> dict[DeviceType, dict[int, Amounts]]:
        """Amounts left per type and minor, never negative."""
        return {
            kind: free_of(shape, use)
            for (kind, shape), use in zip(self.shape.types.items(), self.uses, strict=True)
        }

    @cached_property
    def busy(self) -> dict[DeviceType, int]:
        """Minors of which anything is taken."""
        return {
            kind: busy_of(shape, use)
            for (kind, shape), use in zip(self.shape.types.items(), self.uses, strict=True)
        }

    def holders(self, kind: DeviceType, minor: int) -> tuple[str, ...]:
        """Name the pods that hold something of a device."""
        return tuple(
            pod
            for pod, allocation in sorted(self.holdings.items())
            if any(holding.minor == minor for holding in allocation.devices.get(kind, ()))
        )

    def id_of(self, kind: DeviceType, minor: int) -> str:
        """Name of a device: a UUID or a PCI address."""
        return self.names.ids.get((kind, minor), "")

    def vf_of(self, kind: DeviceType, minor: int, rank: int) -> VirtualFunction:
        """The VF of a rank on its device.

        Parameters
        ----------
        kind, minor
            The device.
        rank
            Place of the VF among its VFs, from 0.
        """
        return self.names.vfs[kind, minor][rank]

    def vf_mask(self, kind: DeviceType, holding: DeviceHolding) -> int:
        """VFs of a holding as a bit mask over ranks; VFs that the device does not have leave no bit."""
        mask = 0
        for vf in holding.vfs:
            rank = self.names.rank.get((kind, holding.minor, vf.bus_id))
            mask |= 0 if rank is None else 1 << rank
        return mask

    def assume(
        self, pod: str, allocation: DeviceAllocation, uses: tuple[TypeUse, ...] | None = None
    ) -> NodeDevices:
        """Give the state with a pod's devices taken; the same pod with the same devices changes nothing.

        Parameters
        ----------
        pod, allocation
            Who gets what.
        uses
            What is taken afterwards, where that is known from a node in the same state.

        Raises
        ------
        ModelError
            When the pod already holds something else, or a device is not on the node.
        """
        held = self.holdings.get(pod)
        if held is not None:
            if held == allocation:
                return self
            raise ModelError(f"{pod}: holds other devices already")
        if uses is None:
            uses = self.with_taken(allocation)
        return NodeDevices(self.shape, uses, self.holdings.set(pod, allocation), self.names, self.node)

    def forget(self, pod: str) -> NodeDevices:
        """Give the state without a pod; a pod that holds nothing changes nothing."""
        held = self.holdings.get(pod)
        if held is None:
            return self
        rest = self.holdings.delete(pod)
        return NodeDevices(self.shape, self._changed(held, -1, rest), rest, self.names, self.node)

    def with_taken(self, allocation: DeviceAllocation) -> tuple[TypeUse, ...]:
        """Say what is taken of the devices once an allocation is.

        Raises
        ------
        ModelError
            When a device is not on the node.
        """
        return self._changed(allocation, 1)

    def _changed(
        self,
        allocation: DeviceAllocation,
        sign: int,
        rest: Mapping[str, DeviceAllocation] | None = None,
    ) -> tuple[TypeUse, ...]:
        uses = list(self.uses)
        for kind, holdings in allocation.devices.items():
            place = _place(self.shape, kind)
            shape = self.shape.types[kind]
            used, vfs = list(uses[place].used), list(uses[place].vfs)
            for holding in holdings:
                index = shape.position.get(holding.minor)
                if index is None:
                    raise ModelError(f"{kind} {holding.minor}: no such device on the node")
                used[index] = tuple(
                    max(0, amount + sign * holding.resources.get(name, 0))
                    for name, amount in zip(shape.names, used[index], strict=True)
                )
                mask = self.vf_mask(kind, holding)
                if mask:
                    vfs[index] = (
                        vfs[index] | mask if sign > 0 else self._vfs_held(kind, holding.minor, rest or {})
                    )
            uses[place] = TypeUse(tuple(used), tuple(vfs))
        return tuple(uses)

    def _vfs_held(self, kind: DeviceType, minor: int, holdings: Mapping[str, DeviceAllocation]) -> int:
        mask = 0
        for allocation in holdings.values():
            for holding in allocation.devices.get(kind, ()):
                if holding.minor == minor and holding.vfs:
                    mask |= self.vf_mask(kind, holding)
        return mask

    @property
    def conflicts(self) -> tuple[DeviceConflict, ...]:
        """What running pods hold together although no two can: too much of a device, or one VF twice."""
        found = []
        for kind, shape in self.shape.types.items():
            holders: dict[int, list[str]] = {}
            vf_holders: dict[tuple[int, str], list[str]] = {}
            for pod, allocation in sorted(self.holdings.items()):
                for holding in allocation.devices.get(kind, ()):
                    holders.setdefault(holding.minor, []).append(pod)
                    for vf in holding.vfs:
                        vf_holders.setdefault((holding.minor, vf.bus_id), []).append(pod)
            for minor, pods in sorted(holders.items()):
                names = ", ".join(dict.fromkeys(pods))
                if not shape.reported >> minor & 1:
                    found.append(DeviceConflict(kind, minor, f"not on the node, yet held by {names}"))
                    continue
                used = self.use(kind).used[shape.position[minor]]
                for name, amount, total in zip(shape.names, used, shape.totals[minor], strict=True):
                    if amount > total:
                        found.append(
                            DeviceConflict(kind, minor, f"{name}: {amount} of {total} held by {names}")
                        )
            for (minor, bus_id), pods in sorted(vf_holders.items()):
                if len(pods) > 1:
                    found.append(DeviceConflict(kind, minor, f"VF {bus_id} held by {', '.join(pods)}"))
        return tuple(found)


def _place(shape: DeviceShape, kind: DeviceType) -> int:
    for index, known in enumerate(shape.types):
        if known is kind:
            return index
    raise ModelError(f"{kind}: no device of this type on the node")


def free_of(shape: TypeShape, use: TypeUse) -> dict[int, Amounts]:
    """Subtract the use from the capacity, down to 0."""
    free = {}
    nothing = shape.nothing
    for minor, used in zip(shape.minors, use.used, strict=True):
        total = shape.totals[minor]
        if used == nothing:
            free[minor] = total
        elif used == total:
            free[minor] = nothing
        else:
            free[minor] = tuple([t - u if t > u else 0 for t, u in zip(total, used, strict=True)])
    return free


def busy_of(shape: TypeShape, use: TypeUse) -> int:
    """Find the devices of which anything is taken, as a bit mask of minors."""
    mask = 0
    nothing = shape.nothing
    for minor, used in zip(shape.minors, use.used, strict=True):
        if used != nothing:
            mask |= 1 << minor
    return mask


@lru_cache(maxsize=512)
def _unused(shape: DeviceShape) -> tuple[TypeUse, ...]:
    """Use of a node without holders, shared by all nodes of a build."""
    return tuple(
        TypeUse((kind.nothing,) * len(kind.minors), (0,) * len(kind.minors)) for kind in shape.types.values()
    )


_EMPTY: Final = DeviceInventory()
_NO_HOLDINGS: Final[Mapping[str, DeviceAllocation]] = immutabledict()


def node_devices(
    inventory: DeviceInventory | None,
    holdings: Mapping[str, DeviceAllocation] = _NO_HOLDINGS,
    *,
    node: str = "",
) -> NodeDevices | None:
    """Make the state of one node from its Device object and what its pods hold.

    Parameters
    ----------
    inventory
        ``None`` where the node has no Device object.
    holdings
        Holder to what it holds; what the node does not report is kept, with no capacity.
    node
        Name of the node, for messages.

    Returns
    -------
    NodeDevices or None
        ``None`` where the node has neither a Device object nor a holder: nothing is known about its devices.
    """
    if inventory is None and not holdings:
        return None
    inventory = inventory or _EMPTY
    ghosts: set[tuple[DeviceType, int]] = set()
    if holdings:
        held = (
            (kind, holding.minor)
            for allocation in holdings.values()
            for kind, parts in allocation.devices.items()
            for holding in parts
        )
        ghosts = set(held) - {(device.type, device.minor) for device in inventory.devices}
    shape = shape_of(inventory, ghosts)
    state = NodeDevices(shape, _unused(shape), immutabledict(), _Names(inventory.devices), node)
    for pod, allocation in sorted(holdings.items()):
        state = state.assume(pod, allocation)
    return state
