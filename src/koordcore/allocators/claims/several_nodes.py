"""Devices for claims on several nodes at once, some of which reach more than one of these nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from koordcore.allocators.claims.allocate import choose_forms, read_for
from koordcore.allocators.claims.cluster import ClusterDevices
from koordcore.allocators.claims.outcome import ClaimError, ClaimsRefused
from koordcore.allocators.claims.pools import NodePools, NodeView, Pool, PoolDevice, PoolKey
from koordcore.allocators.claims.requests import ClaimForms, Form
from koordcore.allocators.claims.results import Choice, Taken
from koordcore.allocators.claims.room import make_room
from koordcore.allocators.claims.states import DevicesHeld, use_of
from koordcore.allocators.claims.table import DeviceTable, bits
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.claims import AllocationMode, ResourceClaim
from koordcore.model.device_slices import DeviceId


def choose_on_nodes(
    devices: ClusterDevices,
    held: DevicesHeld,
    claims: Sequence[tuple[int, ResourceClaim]],
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Choice, ...] | ClaimsRefused | ClaimError | None:
    """Choose the devices of claims on several nodes, all together.

    Parameters
    ----------
    devices, held
        Those of the cluster, and what is held of them.
    claims
        Each with the row of its node.
    limits
        Budget of the exact search.

    Returns
    -------
    tuple of Choice, ClaimsRefused, ClaimError or None
        One choice for each claim, by the places on its node. ``None`` where a device is not the same on all
        nodes that know it.
    """
    rows = sorted({row for row, _ in claims})
    pools = _pools_of(devices, rows)
    if pools is None:
        return None
    table = DeviceTable(pools, devices.compiler)
    places: dict[PoolKey, dict[str, int]] = {}
    for place, one in enumerate(pools.devices):
        places.setdefault((one.id.driver, one.id.pool), {})[one.id.device] = place
    use = use_of(pools.pools, places, held)
    room = make_room(table, use.whole, use.shared, use.consumed, use.elsewhere)
    moves = {row: [table.index[one.id] for one in devices.pools[row].devices] for row in rows}
    own: list[ClaimForms] = []
    for row, claim in claims:
        read = read_for(devices.table(devices.shape[row]), [claim], devices.classes, AllocationMode.EXACT)
        if isinstance(read, ClaimError):
            return read
        own += read
    forms = [
        _moved(one, number, moves[row])
        for number, (one, (row, _)) in enumerate(zip(own, claims, strict=True))
    ]
    chosen = choose_forms(room, tuple(forms), limits=limits)
    if isinstance(chosen, ClaimsRefused | ClaimError):
        return chosen
    back = {row: {there: place for place, there in enumerate(move)} for row, move in moves.items()}
    return tuple(
        _back(choice, one, back[row]) for choice, one, (row, _) in zip(chosen, own, claims, strict=True)
    )


def _pools_of(devices: ClusterDevices, rows: Sequence[int]) -> NodePools | None:
    """Put together what some nodes see; nothing of it is of one node."""
    seen: dict[PoolKey, Pool] = {}
    known: dict[DeviceId, PoolDevice] = {}
    for row in rows:
        for pool in devices.pools[row].pools:
            if not pool.usable:
                continue
            for one in (*pool.devices, *pool.consumers):
                if known.setdefault(one.id, one).device is not one.device:
                    return None
            key = (pool.driver, pool.name)
            before = seen.setdefault(key, pool)
            if before is not pool:
                seen[key] = attrs.evolve(
                    before,
                    devices=_once(before.devices, pool.devices),
                    consumers=_once(before.consumers, pool.consumers),
                )
    pools = tuple(seen.values())
    offered = tuple(one for pool in pools for one in pool.devices)
    return NodePools(NodeView(""), pools, offered, devices.features)


def _once(some: Sequence[PoolDevice], more: Sequence[PoolDevice]) -> tuple[PoolDevice, ...]:
    return tuple({one.id: one for one in (*more, *some)}.values()) if more else tuple(some)


def _moved(claim: ClaimForms, number: int, move: Sequence[int]) -> ClaimForms:
    """Give a claim as it was read on its node in the places of all nodes together."""

    def mask(devices: int) -> int:
        return sum(1 << move[place] for place in bits(devices))

    def form(one: Form) -> Form:
        return attrs.evolve(
            one,
            claim=number,
            selectable=mask(one.selectable),
            candidates=mask(one.candidates),
            faults={move[place]: fault for place, fault in one.faults.items()},
            amounts={move[place]: amounts for place, amounts in one.amounts.items()},
        )

    return attrs.evolve(claim, requests=tuple(tuple(map(form, forms)) for forms in claim.requests))


def _back(choice: Choice, own: ClaimForms, back: Mapping[int, int]) -> Choice:
    """Give a choice in the places of its node."""

    def form(one: Form) -> Form:
        return own.requests[one.request][one.index]

    taken = tuple(Taken(form(one.form), back[one.device]) for one in choice.taken)
    return Choice(own, tuple(map(form, choice.forms)), taken)
