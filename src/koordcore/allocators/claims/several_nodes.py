"""Devices for claims on several nodes at once, some of which reach more than one of these nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_

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
    claims: Sequence[tuple[Sequence[int], ResourceClaim]],
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Mapping[int, Choice], ...] | ClaimsRefused | ClaimError | None:
    """Choose the devices of claims on several nodes, all together.

    Parameters
    ----------
    devices, held
        Those of the cluster, and what is held of them.
    claims
        Each with the rows of the nodes of those who use it: it is allocated once, with what reaches them all.
    limits
        Budget of the exact search.

    Returns
    -------
    tuple of mappings, ClaimsRefused, ClaimError or None
        For each claim the one choice, by the places on each of its nodes on which it may be made. ``None``
        where a device is not the same on all nodes that know it, or where it is not known what reaches all
        nodes of a claim.
    """
    rows = sorted({row for some, _ in claims for row in some})
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
    own: list[dict[int, ClaimForms]] = []
    forms: list[ClaimForms] = []
    reaches: list[_Reach] = []
    for number, (some, claim) in enumerate(claims):
        known: dict[int, ClaimForms] = {}
        of_shape: dict[int, ClaimForms] = {}
        for row in some:
            shape = devices.shape[row]
            if shape not in of_shape:
                read = read_for(devices.table(shape), [claim], devices.classes, AllocationMode.EXACT)
                if isinstance(read, ClaimError):
                    return read
                of_shape[shape] = read[0]
            known[row] = of_shape[shape]
        if len(known) > 1 and claim.extended:
            return None  # each node says anew which of its requests devices serve
        own.append(known)
        seen = [_moved(one, number, moves[row]) for row, one in known.items()]
        reach = _Reach(pools.devices, {row: devices.pools[row].node for row in known})
        reaches.append(reach)
        forms.append(reach.of_all(seen))
    chosen = choose_forms(room, tuple(forms), limits=limits)
    if isinstance(chosen, ClaimsRefused):
        return chosen if all(reach.known for reach in reaches) else None
    if isinstance(chosen, ClaimError):
        return chosen
    back = {row: {there: place for place, there in enumerate(move)} for row, move in moves.items()}
    found = tuple(
        {row: _back(choice, known[row], back[row]) for row in reach.homes(choice)}
        for choice, known, reach in zip(chosen, own, reaches, strict=True)
    )
    return found if all(found) else None


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


class _Reach:
    """Reads a claim that is used on several nodes: a device serves if all of these may use it.

    Parameters
    ----------
    devices
        Those of all nodes.
    nodes
        The nodes of the claim, by row.

    Attributes
    ----------
    known
        Nothing was left out that might serve: no node is reached by a device that it does not offer.
    """

    def __init__(self, devices: Sequence[PoolDevice], nodes: Mapping[int, NodeView]) -> None:
        self._devices, self._nodes = devices, nodes
        self._homes: dict[tuple[int, int], set[int]] = {}
        self.known = True

    def of_all(self, seen: Sequence[ClaimForms]) -> ClaimForms:
        """Give a claim as all its nodes see it, each of which has read it."""
        if len(seen) == 1:
            return seen[0]
        requests = tuple(
            tuple(map(self._form, zip(*forms, strict=True)))
            for forms in zip(*(claim.requests for claim in seen), strict=True)
        )
        return attrs.evolve(seen[0], requests=requests)

    def homes(self, choice: Choice) -> list[int]:
        """Give the rows on which a choice may be made: what are all devices elsewhere may be others."""
        homes = [self._homes.get((form.request, form.index)) for form in choice.forms]
        return [row for row in self._nodes if all(some is None or row in some for some in homes)]

    def _form(self, seen: Sequence[Form]) -> Form:
        unsettled = [one for one in seen if one.unsettled is not None]
        if unsettled:
            self.known = self.known and len(unsettled) == len(seen)
            return unsettled[0]
        somewhere = self._reaching(reduce(or_, (one.candidates for one in seen)))
        candidates = somewhere & reduce(and_, (one.candidates for one in seen))
        self.known = self.known and somewhere == candidates
        form = attrs.evolve(
            seen[0],
            candidates=candidates,
            faults=reduce(or_, (dict(one.faults) for one in seen)),
            amounts=reduce(or_, (dict(one.amounts) for one in seen)),
        )
        if not form.every:
            return attrs.evolve(form, selectable=candidates)
        # All devices of a node where others have more: they follow once those are allocated.
        least = reduce(and_, (one.selectable for one in seen))
        homes = {row for row, one in zip(self._nodes, seen, strict=True) if one.selectable == least}
        self._homes[form.request, form.index] = homes
        if homes:
            return attrs.evolve(form, selectable=least, count=least.bit_count())
        every = reduce(or_, (one.selectable for one in seen))
        return attrs.evolve(form, selectable=every, count=every.bit_count(), candidates=0)

    def _reaching(self, devices: int) -> int:
        """Give those of some devices that can be used on all nodes once they are allocated."""
        nodes = self._nodes.values()
        return sum(
            1 << place for place in bits(devices) if all(_usable(self._devices[place], one) for one in nodes)
        )


def _usable(one: PoolDevice, node: NodeView) -> bool:
    place = one.device if one.slice.per_device_node_selection else one.slice
    if place.node_name or one.device.binds_to_node:
        return False  # on its own node alone, and nodes come in several
    selector = place.node_selector
    return bool(place.all_nodes) or (selector is not None and selector.matches(node.name, node.labels))
