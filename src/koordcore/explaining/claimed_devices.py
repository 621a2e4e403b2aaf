"""Devices of Kubernetes' drivers as they stand: who holds them, what is left, what still fits.

A *card* here is a set of devices that draw on the same counters: the partitions of one physical device.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.claims.cards import kind_of
from koordcore.allocators.claims.pools import NodeView, Pool, SliceIndex, gather_pools, with_taint_rules
from koordcore.allocators.claims.room import Room, room_of
from koordcore.allocators.claims.selectors import CelCompiler
from koordcore.allocators.claims.state import DevicesInUse, devices_in_use
from koordcore.allocators.claims.table import DeviceTable, bits
from koordcore.model.claims import (
    ClaimAllocation,
    DeviceClass,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    DeviceId,
    DeviceTaintRule,
    ResourceSlice,
)
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import NodeState
from koordcore.model.quantity import NANO
from koordcore.model.reservations import Reservation
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once

_MOST_STEPS: Final = 2000


@record
class DeviceHolder:
    """Who has a device: a claim, and the pods that use it, or the reservation that holds it for pods."""

    claim: str
    pods: tuple[str, ...] = ()
    consumed: immutabledict[str, int] = EMPTY
    shared: bool = False


@record
class HeldDevice:
    """A device with who has it; nobody where it is free.

    Parameters
    ----------
    kind
        Its profile or type, as its driver says; empty where it says nothing.
    left
        Of a shared device: what is left of each capacity, and what there is.
    taints
        Keys of the taints that bar it.
    """

    name: str
    kind: str
    holders: tuple[DeviceHolder, ...]
    left: tuple[CounterLeft, ...] = ()
    taints: tuple[str, ...] = ()


@record
class CounterLeft:
    """What is left of an amount, in billionths; counters of one unit each are added up."""

    name: str
    left: int
    total: int
    binary: bool = False


@record
class CardView:
    """Devices that draw on the same counters.

    Parameters
    ----------
    name
        Of the counter sets.
    held
        Those in use.
    fits
        By kind of partition: how many more could be had together, if nothing else were.
    strip
        Numbered counters of one unit each, such as memory slices, in their order: the place in ``held`` of
        who draws on it, ``None`` where it is free, -1 where nobody known does.
    """

    name: str
    counters: tuple[CounterLeft, ...]
    held: tuple[HeldDevice, ...]
    fits: tuple[tuple[str, int], ...]
    strip: tuple[int | None, ...] = ()


@record
class PoolView:
    """A pool as a node sees it; ``problem`` says why it offers nothing."""

    driver: str
    name: str
    devices: int
    cards: tuple[CardView, ...] = ()
    plain: tuple[HeldDevice, ...] = ()
    problem: str = ""


@record
class ClassView:
    """What the cluster has of a DeviceClass.

    Parameters
    ----------
    devices, held
        Devices that the class selects, and those of them in use.
    fits
        How many more could be had together without tolerations, if nothing else were.
    nodes
        Nodes on which at least one could be had.
    most
        The most on one node.
    problem
        What is wrong with a selector; empty if all is well.
    """

    name: str
    devices: int
    held: int
    fits: int
    nodes: int
    most: int
    problem: str = ""


# --- the state of a node ------------------------------------------------------------------------------


def _index(snapshot: ClusterSnapshot) -> SliceIndex:
    rules = snapshot.of(DeviceTaintRule)
    return SliceIndex(with_taint_rules(snapshot.of(ResourceSlice), rules))


def _held_claims(snapshot: ClusterSnapshot) -> Iterator[tuple[str, tuple[str, ...], ClaimAllocation]]:
    """Give what is allocated, with name and users: by claims, by reservations, by claims still to be made."""
    for claim in snapshot.of(ResourceClaim):
        if claim.allocation is not None:
            pods = tuple(f"{claim.namespace}/{one.name}" for one in claim.reserved_for)
            yield f"{claim.namespace}/{claim.name}", pods, claim.allocation
    for one in snapshot.of(Reservation):
        for held in one.claims if one.active else ():
            yield held.name, (f"reservation/{one.name}",), held.allocation
    for pod in (pod for state in snapshot.nodes for pod in state.pods):
        for held in pod.held_claims:
            if held.planned and held.fresh:
                yield f"{pod.namespace}/{held.name}", (str(pod.key),), held.allocation


def _holders(snapshot: ClusterSnapshot) -> Mapping[DeviceId, tuple[DeviceHolder, ...]]:
    found: defaultdict[DeviceId, list[DeviceHolder]] = defaultdict(list)
    for claim, pods, allocation in _held_claims(snapshot):
        for result in allocation.results:
            if not result.admin_access:
                shared = result.share_id is not None
                found[result.id].append(DeviceHolder(claim, pods, result.consumed_capacity, shared))
    return {device: tuple(holders) for device, holders in found.items()}


def _compiler(_: ClusterSnapshot) -> CelCompiler:
    return CelCompiler()


def _in_use(snapshot: ClusterSnapshot) -> DevicesInUse:
    return devices_in_use(allocation for _, _, allocation in _held_claims(snapshot))


def node_room(snapshot: ClusterSnapshot, state: NodeState) -> Room:
    """What is left of the devices that a node can use."""
    return once(snapshot, _node_room, state.name)


def _node_room(snapshot: ClusterSnapshot, name: str) -> Room:
    pools = gather_pools(once(snapshot, _index), NodeView(name, snapshot.node(name).node.labels))
    return room_of(DeviceTable(pools, once(snapshot, _compiler)), once(snapshot, _in_use))


def broken_pools(snapshot: ClusterSnapshot) -> tuple[PoolView, ...]:
    """The pools that some node sees and that offer nothing, by driver and name."""
    found = {
        (view.driver, view.name): view
        for state in snapshot.nodes
        for pool in node_room(snapshot, state).table.pools.pools
        if not pool.usable
        for view in (_broken(pool),)
    }
    return tuple(found[key] for key in sorted(found))


def _broken(pool: Pool) -> PoolView:
    problem = "incomplete: slices are missing" if pool.incomplete else pool.invalid
    return PoolView(pool.driver, pool.name, 0, problem=problem)


def pool_views(snapshot: ClusterSnapshot, state: NodeState) -> tuple[PoolView, ...]:
    """The pools that a node sees, with who holds their devices and what still fits."""
    room = node_room(snapshot, state)
    holders = once(snapshot, _holders)
    return tuple(_pool_view(room, pool, holders) for pool in room.table.pools.pools)


def _pool_view(room: Room, pool: Pool, holders: Mapping[DeviceId, tuple[DeviceHolder, ...]]) -> PoolView:
    if not pool.usable:
        return _broken(pool)
    table = room.table
    places = [table.index[one.id] for one in pool.devices]
    cards: dict[int, list[int]] = {}
    plain: list[HeldDevice] = []
    for place in places:
        if table.draws[place]:
            cards.setdefault(table.kin[place], []).append(place)
        else:
            plain.append(_held(room, place, holders))
    return PoolView(
        pool.driver,
        pool.name,
        len(places),
        cards=tuple(_card(room, members, holders) for members in cards.values()),
        plain=tuple(plain),
    )


def _held(room: Room, place: int, holders: Mapping[DeviceId, tuple[DeviceHolder, ...]]) -> HeldDevice:
    one = room.table.devices[place]
    taken = room.consumed.get(place, {})
    left: tuple[CounterLeft, ...] = ()
    if room.table.shareable >> place & 1:
        left = tuple(
            CounterLeft(name, capacity.value - taken.get(name, 0), capacity.value, capacity.binary)
            for name, capacity in one.device.capacity.items()
        )
    barring = tuple(taint.key for taint in one.device.taints if taint.effect in {"NoSchedule", "NoExecute"})
    return HeldDevice(one.id.device, kind_of(one), holders.get(one.id, ()), left, barring)


def _card(
    room: Room, places: Sequence[int], holders: Mapping[DeviceId, tuple[DeviceHolder, ...]]
) -> CardView:
    table = room.table
    names = sorted({entry.counter_set for p in places for entry in table.devices[p].device.consumes_counters})
    used = [place for place in places if table.devices[place].id in holders]
    held = tuple(_held(room, place, holders) for place in used)
    kinds: dict[str, int] = {}
    for place in places:
        kind = kind_of(table.devices[place]) or table.devices[place].id.device
        kinds[kind] = kinds.get(kind, 0) | 1 << place
    fits = ((kind, together(room, mask & table.reaching)) for kind, mask in kinds.items())
    return CardView(
        name=", ".join(names),
        counters=tuple(_counters(room, places)),
        held=held,
        fits=tuple((kind, n) for kind, n in fits if n),
        strip=tuple(_strip(room, places, used)),
    )


def _strip(room: Room, places: Iterable[int], used: Sequence[int]) -> Iterator[int | None]:
    table = room.table
    mine = {counter for place in places for counter, _ in table.draws[place]}
    numbered: list[tuple[str, int, int]] = []
    for (_, _, _, name), counter in table.counter_numbers.items():
        stem = name.rstrip("0123456789")
        if counter in mine and stem != name and table.counters[counter] == NANO:
            numbered.append((stem, int(name[len(stem) :]), counter))
    drawn = {counter: number for number, place in enumerate(used) for counter, _ in table.draws[place]}
    for _, _, counter in sorted(numbered):
        yield drawn.get(counter, None if room.left[counter] > 0 else -1)


def _counters(room: Room, places: Iterable[int]) -> Iterator[CounterLeft]:
    table = room.table
    mine = {counter for place in places for counter, _ in table.draws[place]}
    sums: dict[str, list[int]] = {}
    for (_, _, _, name), number in table.counter_numbers.items():
        if number in mine:
            # memory-slice-0 to memory-slice-7 are one line.
            known = sums.setdefault(name.rstrip("0123456789").rstrip("-_") or name, [0, 0])
            known[0] += room.left[number]
            known[1] += table.counters[number]
    for name, (left, total) in sums.items():
        yield CounterLeft(name, left, total, binary=total % (2**30 * NANO) == 0)


# --- what still fits ----------------------------------------------------------------------------------


def together(room: Room, mask: int) -> int:
    """How many devices of a mask can still be had at once; a shared device counts once.

    Devices that draw on counters are counted card by card. Where a card has very many ways, the number is
    one that can be had, and may not be the largest.
    """
    table = room.table
    mask &= ~room.held & ~room.overdrawn & table.offered & table.reaching
    total = 0
    while mask:
        place = (mask & -mask).bit_length() - 1
        kin = mask & (table.kin[place] | 1 << place)
        mask &= ~kin
        members = [one for one in bits(kin) if not room.charged >> one & 1]
        total += kin.bit_count() - len(members) + _most(members, table, list(room.left))
    return total


def _most(members: Sequence[int], table: DeviceTable, left: list[int]) -> int:
    """The largest number of devices whose draws fit together."""
    best = 0
    steps = 0

    def search(start: int, taken: int) -> None:
        nonlocal best, steps
        best = max(best, taken)
        steps += 1
        for number in range(start, len(members)):
            if taken + len(members) - number <= best or steps > _MOST_STEPS:
                return
            draws = table.draws[members[number]]
            if any(left[counter] < amount for counter, amount in draws):
                continue
            for counter, amount in draws:
                left[counter] -= amount
            search(number + 1, taken + 1)
            for counter, amount in draws:
                left[counter] += amount

    search(0, 0)
    return best


# --- classes ------------------------------------------------------------------------------------------


def class_views(snapshot: ClusterSnapshot) -> tuple[ClassView, ...]:
    """What the cluster has of each DeviceClass, by name."""
    classes = snapshot.of(DeviceClass)
    if not classes:
        return ()
    rooms = [node_room(snapshot, state) for state in snapshot.nodes]
    return tuple(_class_view(one, rooms) for one in classes)


def _class_view(one: DeviceClass, rooms: Sequence[Room]) -> ClassView:
    seen: set[DeviceId] = set()
    held: set[DeviceId] = set()
    counts: list[int] = []
    problem, first = "", ""
    failing: set[DeviceId] = set()
    for room in rooms:
        mask = room.table.everything
        for selector in one.selectors:
            if selector is None:
                problem, mask = "a selector is not CEL", 0
                break
            found = room.table.selected(selector)
            # A device that an earlier selector leaves out is not asked about.
            errs = [place for place, fault in found.faults.items() if fault.compiles and mask >> place & 1]
            failing.update(room.table.devices[place].id for place in errs)
            first = first or next((found.faults[place].text for place in errs), "")
            mask &= found.mask
            problem = problem or next(
                (fault.text for fault in found.faults.values() if not fault.compiles), ""
            )
        for place in bits(mask):
            device = room.table.devices[place].id
            seen.add(device)
            if (room.held >> place | room.charged >> place) & 1 or place in room.consumed:
                held.add(device)
        counts.append(together(room, mask & room.table.tolerated(())))
    if failing and not problem:
        more = "s" * (len(failing) != 1)
        problem = f"a selector errs on {len(failing)} device{more}: {first.partition('. consider')[0]}"
    return ClassView(
        one.name,
        devices=len(seen),
        held=len(held),
        fits=sum(counts),
        nodes=sum(count > 0 for count in counts),
        most=max(counts, default=0),
        problem=problem,
    )
