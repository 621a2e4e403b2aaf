"""An allocation that the pod brings along: exactly these devices, or a refusal that names who holds them."""

from __future__ import annotations

from typing import Final

import attrs

from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import Terms
from koordcore.allocators.device.wants import Wants, fill_memory
from koordcore.model.devices import DeviceAllocation, DeviceShortfall, DeviceType, StatusCode
from koordcore.model.resources import make_resources

_UNHEALTHY: Final = (
    "fillGPUTotalMem failed: no healthy gpu device with minor {minor} of allocation, node: {node}"
)


def designated_terms(
    state: NodeDevices, allocation: DeviceAllocation, terms: Terms
) -> Terms | DeviceShortfall:
    """Limit the use of a node to designated devices.

    Returns
    -------
    Terms or DeviceShortfall
        An ``Error`` where a designated card is not on the node or is unhealthy, because its memory cannot
        be told.
    """
    limits = dict(terms.limits)
    only_vfs = dict(terms.only_vfs)
    for kind, holdings in allocation.devices.items():
        shape = state.shape.types.get(kind)
        if shape is None:
            continue
        allowed: dict[int, tuple[int, ...]] = {}
        ranks: dict[int, int] = {}
        for holding in holdings:
            totals = dict(zip(shape.names, shape.totals.get(holding.minor, shape.nothing), strict=True))
            # Who names a device without amounts means as much of it as is asked for.
            amounts = holding.resources or make_resources(totals)
            if kind is DeviceType.GPU:
                if not shape.healthy >> holding.minor & 1:
                    return DeviceShortfall(
                        reasons=(_UNHEALTHY.format(minor=holding.minor, node=state.node),),
                        code=StatusCode.ERROR,
                        device_type=kind,
                        detail=f"designated gpu {holding.minor} is not there or not healthy",
                    )
                amounts = fill_memory(amounts, totals)
            before = allowed.get(holding.minor, shape.nothing)
            own = tuple(amounts.get(name, 0) for name in shape.names)
            allowed[holding.minor] = tuple(a + b for a, b in zip(before, own, strict=True))
            if holding.vfs:
                ranks[holding.minor] = ranks.get(holding.minor, 0) | state.vf_mask(kind, holding)
        earlier = limits.get(kind)
        limits[kind] = {
            minor: own if earlier is None else tuple(map(min, own, earlier[minor]))
            for minor, own in allowed.items()
            if earlier is None or minor in earlier
        }
        only_vfs[kind] = ranks
    return attrs.evolve(terms, limits=limits, only_vfs=only_vfs)


def designated_otherwise(allocation: DeviceAllocation, wants: Wants) -> DeviceShortfall | None:
    """Refuse an allocation that is not what the pod asks for: another number of devices of a type.

    Virtual functions are not counted here: several may come from one device.
    """
    for kind, holdings in allocation.devices.items():
        want = wants.get(kind)
        named = sorted({holding.minor for holding in holdings})
        if want is not None and not want.by_vf and len(named) != want.count:
            minors = ",".join(map(str, named))
            reason = f"designated {kind} {minors} is not the {want.count} asked for"
            return DeviceShortfall(
                reasons=(reason,),
                code=StatusCode.UNRESOLVABLE,
                device_type=kind,
            )
    return None


def designated_nowhere(allocation: DeviceAllocation | None) -> DeviceShortfall | None:
    """Refuse devices by name on a node of whose devices nothing is known; ``None`` where none are named."""
    if allocation is None or not allocation.devices:
        return None
    return DeviceShortfall(
        reasons=tuple(f"Insufficient {kind} devices" for kind in allocation.devices),
        code=StatusCode.UNRESOLVABLE,
        detail="devices are designated, and the node has no Device object",
    )


def designated_holders(state: NodeDevices, allocation: DeviceAllocation) -> str:
    """Name who holds designated devices, for people; empty where nobody does."""
    conflicts = []
    for kind, holdings in allocation.devices.items():
        for holding in holdings:
            holders = state.holders(kind, holding.minor)
            if holders:
                conflicts.append(f"{kind} {holding.minor} is held by {', '.join(holders)}")
    return "; ".join(conflicts)
