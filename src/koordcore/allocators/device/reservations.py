"""Devices that reservations hold, and devices that would come back from victims.

A reservation is a holder in the node's state like a pod; the pods that consume it are holders too, so what
they use is counted twice there. :func:`terms_for` tells what to lend back, after upstream's
``reservation_restore.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.allocators.device.shape import Amounts
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import Terms
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceHolding,
    DeviceType,
)

_RESTRICTED: Final = "Restricted"

Ledger: TypeAlias = dict[DeviceType, dict[int, Amounts]]
VFs: TypeAlias = dict[DeviceType, dict[int, int]]


@record(kw_only=True)
class DeviceReservation:
    """A reservation on the node, as far as devices go.

    Parameters
    ----------
    holder
        Its name among the holders of the node's state.
    policy
        ``allocatePolicy``: empty or ``Default`` is the same as ``Aligned``; an unknown word is passed over.
    consumers
        Pods (names of holders) that run in it.
    matched
        The pod in question may use it.
    """

    holder: str
    policy: str = ""
    consumers: tuple[str, ...] = ()
    matched: bool = False


def _held(state: NodeDevices, holder: str) -> Ledger:
    """Sum up what a holder has, per type and minor."""
    ledger: Ledger = {}
    allocation = state.holdings.get(holder, DeviceAllocation())
    for kind, holdings in allocation.devices.items():
        names = state.shape.types[kind].names
        own = ledger.setdefault(kind, {})
        for holding in holdings:
            amounts = tuple(holding.resources.get(name, 0) for name in names)
            before = own.get(holding.minor)
            own[holding.minor] = amounts if before is None else _plus(before, amounts)
    return ledger


def _plus(left: Amounts, right: Amounts) -> Amounts:
    return tuple(a + b for a, b in zip(left, right, strict=True))


def _combine(
    ledger: Ledger, other: Ledger, change: Callable[[int, int], int], only: Ledger | None = None
) -> None:
    """Change a ledger by another one, entry by entry; entries outside ``only`` are passed over."""
    for kind, minors in other.items():
        own = ledger.setdefault(kind, {})
        for minor, amounts in minors.items():
            if only is not None and minor not in only.get(kind, {}):
                continue
            before = own.get(minor, (0,) * len(amounts))
            own[minor] = tuple(change(a, b) for a, b in zip(before, amounts, strict=True))


def _add(ledger: Ledger, other: Ledger, only: Ledger | None = None) -> None:
    _combine(ledger, other, lambda a, b: a + b, only)


def _subtract(ledger: Ledger, other: Ledger) -> None:
    _combine(ledger, other, lambda a, b: a - b)


@attrs.define
class _Account:
    """One reservation: what it offers, what its consumers took of that, what is left."""

    offered: Ledger
    taken: Ledger
    left: Ledger


def _account(state: NodeDevices, reservation: DeviceReservation) -> _Account:
    offered = _held(state, reservation.holder)
    taken: Ledger = {}
    for consumer in reservation.consumers:
        _add(taken, _held(state, consumer), offered)
    left: Ledger = {}
    _add(left, offered)
    _subtract(left, taken)
    return _Account(offered, taken, left)


def _vfs(state: NodeDevices, holders: Iterable[str]) -> VFs:
    masks: VFs = {}
    for holder in holders:
        allocation = state.holdings.get(holder, DeviceAllocation())
        for kind, holdings in allocation.devices.items():
            for holding in holdings:
                if holding.vfs:
                    own = masks.setdefault(kind, {})
                    own[holding.minor] = own.get(holding.minor, 0) | state.vf_mask(kind, holding)
    return masks


def terms_for(
    state: NodeDevices,
    reservations: Sequence[DeviceReservation],
    *,
    source: DeviceReservation | None = None,
) -> Terms:
    """Say what a pod may use of a node that has reservations.

    Parameters
    ----------
    state
        Devices of the node.
    reservations
        All of the node.
    source
        The reservation out of which the pod is to be served; without one it is served by the node, and what
        matched reservations have left is free to it.
    """
    lent: Ledger = {}
    returned: set[str] = set()
    limits: Ledger = {}
    preferred: dict[DeviceType, int] = {}
    for one in reservations:
        account = _account(state, one)
        if not one.matched:
            # What consumers use of a reservation is counted twice: once is given back.
            twice: Ledger = {}
            _add(twice, account.offered)
            _combine(twice, account.left, lambda a, b: max(0, a - b))
            _add(lent, twice)
            continue
        _add(lent, account.taken)
        if source is None or one is source:
            _add(lent, account.left)
            returned.add(one.holder)
        if one is source:
            preferred = {
                kind: sum(1 << minor for minor in minors) for kind, minors in account.offered.items()
            }
            if one.policy == _RESTRICTED:
                limits = account.left
    held_on = (holder for holder in state.holdings if holder not in returned)
    return Terms(
        lent=lent,
        lent_vfs=_minus(_vfs(state, returned), _vfs(state, held_on)),
        limits=limits,
        preferred=preferred,
    )


def _minus(masks: VFs, others: VFs) -> VFs:
    return {
        kind: {minor: mask & ~others.get(kind, {}).get(minor, 0) for minor, mask in minors.items()}
        for kind, minors in masks.items()
    }


def remaining_devices(held: DeviceAllocation, used: Iterable[DeviceAllocation]) -> DeviceAllocation:
    """Give what a reservation still holds besides what its users took of it; a card used up is left out."""
    taken: dict[tuple[DeviceType, int], dict[str, int]] = {}
    vfs: set[tuple[DeviceType, int, str]] = set()
    for allocation in used:
        for kind, holdings in allocation.devices.items():
            for one in holdings:
                own = taken.setdefault((kind, one.minor), {})
                for name, amount in one.resources.items():
                    own[name] = own.get(name, 0) + amount
                vfs.update((kind, one.minor, vf.bus_id) for vf in one.vfs)
    left: dict[DeviceType, tuple[DeviceHolding, ...]] = {}
    for kind, holdings in held.devices.items():
        kept = []
        for one in holdings:
            gone = taken.get((kind, one.minor))
            if gone is None:
                kept.append(one)
                continue
            amounts = {name: max(0, amount - gone.get(name, 0)) for name, amount in one.resources.items()}
            if any(amounts.values()):
                free = tuple(vf for vf in one.vfs if (kind, one.minor, vf.bus_id) not in vfs)
                kept.append(attrs.evolve(one, resources=amounts, vfs=free))
        if kept:
            left[kind] = tuple(kept)
    return DeviceAllocation(left)
