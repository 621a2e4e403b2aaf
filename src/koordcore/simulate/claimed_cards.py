"""How much of the cards is in use while a replay goes on: what claims hold of them, or what pods ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore._record import record
from koordcore.model.claims import ClaimAllocation, DeviceResult, ResourceClaim
from koordcore.model.device_slices import CounterSet, DeviceId, ResourceSlice, SliceDevice
from koordcore.model.devices import DeviceObject
from koordcore.model.nodes import NodeState
from koordcore.scheduling.plain_cards import plain_cards
from koordcore.scheduling.plugins.gpu_share import gpu_node
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import node_values, per_node

WHOLE: Final = 1000
"""A card in the unit in which use is told."""


@record
class PublishedCards:
    """What drivers publish, as far as use is told by it.

    Parameters
    ----------
    cards
        How many there are: counter sets, and devices that draw on none.
    shares
        By device: the thousandths of a card that it is, by the counter of which it takes most.
    devices
        By name; what a share of a device is, its capacity says.
    """

    cards: int
    shares: Mapping[DeviceId, int]
    devices: Mapping[DeviceId, SliceDevice]

    def in_use(self, snapshot: ClusterSnapshot) -> int:
        """Give what is allocated, in thousandths of a card."""
        whole: set[DeviceId] = set()
        shared = 0
        for result in _results(snapshot):
            if result.id not in self.shares or result.admin_access:
                continue
            if result.share_id is None:
                whole.add(result.id)
            else:
                shared += self._share(result)
        return shared + sum(self.shares[one] for one in whole)

    def _share(self, result: DeviceResult) -> int:
        capacity = self.devices[result.id].capacity
        parts = [
            WHOLE * taken // capacity[name].value
            for name, taken in result.consumed_capacity.items()
            if name in capacity and capacity[name].value > 0
        ]
        return max(parts, default=0)


@record
class CountedCards:
    """The cards of nodes for which no driver publishes devices.

    Parameters
    ----------
    cards
        How many there are at the start.
    """

    cards: int

    def in_use(self, snapshot: ClusterSnapshot) -> int:
        """Give what pods hold, in thousandths of a card."""
        return sum(held for _, held in node_values(snapshot, _cards_on))


@per_node(DeviceObject)
def _cards_on(snapshot: ClusterSnapshot, state: NodeState) -> tuple[int, int]:
    """Count the cards of a node, and the thousandths of one that its pods hold."""
    idle = gpu_node(snapshot, state).cards or plain_cards(state)
    return len(idle), WHOLE * len(idle) - sum(idle)


def counted_cards(snapshot: ClusterSnapshot) -> CountedCards:
    """Count the cards that nodes have at the start."""
    return CountedCards(sum(number for number, _ in node_values(snapshot, _cards_on)))


def published_cards(slices: Iterable[ResourceSlice]) -> PublishedCards:
    """Read what the newest generation of every pool publishes."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = {}
    for one in slices:
        known = pools.setdefault((one.driver, one.pool), [])
        if known and known[0].generation < one.generation:
            known.clear()
        if not known or known[0].generation == one.generation:
            known.append(one)
    cards = 0
    shares: dict[DeviceId, int] = {}
    devices: dict[DeviceId, SliceDevice] = {}
    for (driver, pool), mine in pools.items():
        sets = {counters.name: counters for one in mine for counters in one.shared_counters}
        cards += len(sets)
        for device in (device for one in mine for device in one.devices):
            name = DeviceId(driver, pool, device.name)
            devices[name] = device
            shares[name] = _share_of(device, sets)
            cards += not device.consumes_counters
    return PublishedCards(cards, shares, devices)


def _share_of(device: SliceDevice, sets: Mapping[str, CounterSet]) -> int:
    if not device.consumes_counters:
        return WHOLE
    parts = [0]
    for drawn in device.consumes_counters:
        totals = _by_stem(sets[drawn.counter_set].counters) if drawn.counter_set in sets else {}
        for stem, amount in _by_stem(drawn.counters).items():
            if totals.get(stem):
                parts.append(min(WHOLE, WHOLE * amount // totals[stem]))
    return max(parts)


def _by_stem(counters: Mapping[str, int]) -> Counter[str]:
    """Add up counters of one name but for a number at its end: the memory slices of a card are one amount."""
    found: Counter[str] = Counter()
    for name, amount in counters.items():
        found[name.rstrip("0123456789")] += amount
    return found


def _results(snapshot: ClusterSnapshot) -> Iterator[DeviceResult]:
    """Give what claims are allocated: those that are objects, and those that pods alone know of."""
    held: dict[tuple[str, str], ClaimAllocation] = {
        (one.namespace, one.name): one.allocation
        for one in snapshot.of(ResourceClaim)
        if one.allocation is not None
    }
    for pod in snapshot.bound_pods():
        for claim in pod.held_claims:
            held.setdefault((pod.namespace, claim.name), claim.allocation)
    for allocation in held.values():
        yield from allocation.results
