"""What is left of a node's devices: the table less what claims hold (sections 2, 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.claims.pools import PoolDevice
from koordcore.allocators.claims.state import DevicesInUse
from koordcore.allocators.claims.table import NO_GROUPS, DeviceTable, bits


@record(eq=False)
class Room:
    """The state of a node's devices before an attempt.

    Parameters
    ----------
    held
        Devices that a claim holds whole.
    charged
        Devices whose counters are charged already: another share charges nothing.
    left
        What is left of each counter; negative where a driver lowered it below what is allocated.
    overdrawn
        Devices that cannot be had because some counter of their pool is in the red.
    groups
        By counter set in use: the compatibility groups that its devices have in common.
    consumed
        By device: what shares take, by capacity.
    """

    table: DeviceTable
    held: int
    charged: int
    left: tuple[int, ...]
    overdrawn: int
    groups: Mapping[int, frozenset[str]]
    consumed: Mapping[int, Mapping[str, int]]

    def suffices(self, requested: immutabledict[str, int]) -> int:
        """Give the devices that have the amounts asked for beside what is consumed."""
        column = self.table.capacity(requested)
        mask = column.mask
        for place, taken in self.consumed.items():
            amounts = column.amounts.get(place)
            if amounts is None:
                continue
            capacity = self.table.devices[place].device.capacity
            if any(amount + taken.get(name, 0) > capacity[name].value for name, amount in amounts.items()):
                mask &= ~(1 << place)
        return mask


def room_of(table: DeviceTable, in_use: DevicesInUse) -> Room:
    """Subtract what is held, by name, from what is published."""
    index = table.index
    held = sum(1 << index[device] for device in in_use.dedicated if device in index)
    shared = {index[device] for device in (*in_use.shares, *in_use.consumed) if device in index}
    consumed = {index[device]: amounts for device, amounts in in_use.consumed.items() if device in index}
    elsewhere = [
        one
        for pool in table.pools.pools
        for one in pool.consumers
        if one.id not in index and in_use.charges(one.id)
    ]
    return make_room(table, held, shared, consumed, elsewhere)


def make_room(
    table: DeviceTable,
    held: int,
    shared: Iterable[int],
    consumed: Mapping[int, Mapping[str, int]],
    elsewhere: Iterable[PoolDevice] = (),
) -> Room:
    """Subtract what is held, by place, from what is published.

    Parameters
    ----------
    table
        The node's devices.
    held
        Devices that one claim holds whole.
    shared
        Devices of which there are shares.
    consumed
        What shares take of a device, by capacity.
    elsewhere
        Devices in use that are not offered to the node and draw on counters of its pools.
    """
    in_shares = sum(1 << place for place in shared)
    left = list(table.counters)
    groups: dict[int, frozenset[str]] = {}
    for place in bits(held | in_shares):
        for counter, amount in table.draws[place]:
            left[counter] -= amount
        for number, mine in table.sets[place]:
            _fold(groups, number, mine)
    for one in elsewhere:
        for counter, amount in table.draws_of(one):
            left[counter] -= amount
        for number, mine in table.sets_of(one):
            _fold(groups, number, mine)
    charged = table.drawing & in_shares & table.shareable
    overdrawn = 0
    red = {counter for counter, amount in enumerate(left) if amount < 0}
    if red:
        for place in bits(table.drawing & ~charged):
            if any(counter in red for counter in table.pool_counters[place]):
                overdrawn |= 1 << place
    return Room(table, held, charged, tuple(left), overdrawn, groups, consumed)


def _fold(groups: dict[int, frozenset[str]], number: int, mine: frozenset[str]) -> None:
    """Add a device that is in use already: slices may have changed since, so nothing is refused."""
    nobody = frozenset(NO_GROUPS)
    known = groups.get(number)
    if known is None:
        groups[number] = mine
    elif nobody not in (known, mine):
        groups[number] = known & mine
