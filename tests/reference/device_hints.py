"""What the device side tells the topology manager: on which sets of NUMA nodes a pod's devices exist."""

from __future__ import annotations

from itertools import combinations
from typing import TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore.allocators.device.allocate import allocate_devices
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import PLAIN_TERMS, Terms
from koordcore.allocators.device.wants import Wants, wants_of
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    DeviceType,
    StatusCode,
)
from koordcore.topology.devices import bits

__all__ = ["DeviceHints", "DeviceNUMAHint", "device_hints"]

_SAME_CARDS = 500
"""Score of a mask that gives the very cards which the whole node would give; it outweighs CPU scores."""
_NO_NUMA = "Designated Allocation Lack NUMA Node ID"


@attrs.frozen
class DeviceNUMAHint:
    """One set of NUMA nodes on which the devices exist.

    Parameters
    ----------
    mask
        Bit mask of NUMA ids.
    preferred
        No smaller set would do.
    score
        500 where the cards are those of the whole node, 0 elsewhere.
    """

    mask: int
    preferred: bool
    score: int

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA ids, ascending."""
        return tuple(bits(self.mask))


DeviceHints: TypeAlias = immutabledict[DeviceType, tuple[DeviceNUMAHint, ...]]


def device_hints(
    state: NodeDevices | None,
    request: DeviceRequest,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
) -> DeviceHints | DeviceShortfall | None:
    """List the sets of NUMA nodes inside which all devices of a pod exist together.

    Returns
    -------
    DeviceHints or DeviceShortfall or None
        ``None`` where devices have no say (no known devices, alignment switched off); an empty mapping
        where no device has a NUMA node; a shortfall where no set will do. Masks come with fewer bits first,
        then by value.
    """
    if state is None or not policy.align_numa:
        return None
    if request.designated is not None:
        return _designated(state, request, request.designated)
    wants = wants_of(state.shape, request, policy)
    if isinstance(wants, DeviceShortfall):
        return wants
    numas = tuple(bits(state.shape.numa_nodes))
    if not numas:
        return immutabledict()
    whole = sum(1 << numa for numa in numas)
    located = _located(wants, whole)
    if located is not None:
        return located
    full = allocate_devices(state, request, whole, policy=policy, terms=terms)
    if isinstance(full, DeviceShortfall):
        return full
    cards = frozenset(full.minors(DeviceType.GPU))
    found: list[DeviceNUMAHint] = []
    fewest = len(numas)
    for size in range(1, len(numas) + 1):
        for mask in sorted(sum(1 << numa for numa in chosen) for chosen in combinations(numas, size)):
            if _located(wants, mask) is not None:
                continue
            inside = (
                full if mask == whole else allocate_devices(state, request, mask, policy=policy, terms=terms)
            )
            if isinstance(inside, DeviceAllocation):
                fewest = min(fewest, size)
                same = frozenset(inside.minors(DeviceType.GPU)) == cards
                found.append(DeviceNUMAHint(mask, size == fewest, _SAME_CARDS if same else 0))
    return immutabledict({kind: tuple(found) for kind in request.types})


def _located(wants: Wants, mask: int) -> DeviceShortfall | None:
    """Refuse a set of NUMA nodes with too few devices of a type, whatever their use."""
    for kind, want in wants.items():
        layout = want.shape.layout
        inside = sum(
            group.bit_count() for numa, group in layout.numa_masks.items() if numa >= 0 and mask >> numa & 1
        )
        if 0 < inside < want.count:
            return DeviceShortfall(
                reasons=("Insufficient NUMA Scoped Devices",),
                code=StatusCode.UNRESOLVABLE,
                device_type=kind,
                requested=want.count,
                available=inside,
            )
    return None


def _designated(
    state: NodeDevices, request: DeviceRequest, allocation: DeviceAllocation
) -> DeviceHints | DeviceShortfall:
    """Give the NUMA nodes of designated devices as the only hint."""
    mask = 0
    for kind, holdings in allocation.devices.items():
        shape = state.shape.types.get(kind)
        for holding in holdings:
            own = shape.layout.numa_nodes(1 << holding.minor) if shape is not None else 0
            if not own:
                return DeviceShortfall(reasons=(_NO_NUMA,), device_type=kind)
            mask |= own
    hint = DeviceNUMAHint(mask, preferred=True, score=_SAME_CARDS)
    return immutabledict(dict.fromkeys(request.types, (hint,)))
