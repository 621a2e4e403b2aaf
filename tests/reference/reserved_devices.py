"""Devices of one pod on a node with reservations, one after another as upstream's DeviceShare tries them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from koordcore.allocators.device import allocate_devices
from koordcore.allocators.device.reservations import DeviceReservation, terms_for
from koordcore.allocators.device.state import NodeDevices
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import DeviceRequest
from koordcore.model.devices import DeviceAllocation, DeviceShortfall

_POLICIES: Final = ("", "Default", "Aligned", "Restricted")


def allocate_reserved(
    state: NodeDevices | None,
    request: DeviceRequest,
    reservations: Sequence[DeviceReservation] = (),
    *,
    nominated: str | None = None,
    victims: Collection[str] = (),
    numa_mask: int | None = None,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
) -> DeviceAllocation | DeviceShortfall:
    """Choose devices on a node that has reservations, or as if victims had left.

    The nominated reservation serves the pod where it can; otherwise the node does, with what matched
    reservations have left. A pod that must sit in a reservation is refused where no matched one that holds
    devices can serve it.

    Parameters
    ----------
    state
        Devices of the node; ``None`` where it has no Device object.
    request
        What the pod asks for.
    numa_mask
        NUMA nodes that may serve, bit by bit; ``None`` for all.
    policy
        Arguments of DeviceShare.
    nominated
        Holder name of the reservation that was chosen for the pod.
    victims
        Holders that are taken to be gone.

    Returns
    -------
    DeviceAllocation or DeviceShortfall
        A shortfall of reservations has one reason per reservation, each with the prefix ``Reservation(s)``.
    """
    if state is None or not (reservations or victims):
        return allocate_devices(state, request, numa_mask, policy=policy)
    for victim in victims:
        state = state.forget(victim)
    there = state
    reservations = [
        attrs.evolve(one, consumers=tuple(name for name in one.consumers if name not in victims))
        for one in reservations
    ]

    def attempt(source: DeviceReservation | None) -> DeviceAllocation | DeviceShortfall:
        terms = terms_for(there, reservations, source=source)
        return allocate_devices(there, request, numa_mask, policy=policy, terms=terms)

    if request.loans_ignored:
        return attempt(None)
    reasons: list[str] = []
    served: dict[str, DeviceAllocation] = {}
    candidates = [one for one in reservations if one.matched and one.holder in state.holdings]
    for one in candidates:
        if one.policy not in _POLICIES:
            continue
        found = attempt(one)
        if isinstance(found, DeviceAllocation):
            served[one.holder] = found
        else:
            reasons.extend(f"Reservation(s) {reason}" for reason in found.reasons)
    if nominated in served:
        return served[nominated]
    if candidates and request.loan_required and not served:
        return DeviceShortfall(reasons=tuple(reasons))
    return attempt(None)
