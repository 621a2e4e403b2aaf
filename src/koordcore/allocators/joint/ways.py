"""Every way to put one pod of a batch on a node, given what is left of its devices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

from koordcore.allocators.device.shape import Partition
from koordcore.allocators.joint.cells import Cells, Room, Share
from koordcore.model.device_requests import (
    PartitionAllocatePolicy,
)
from koordcore.model.devices import (
    DeviceType,
)
from koordcore.topology.devices import TopologyScope

Worth: TypeAlias = tuple[int, ...]
"""Loose pods, partition scores (negated), NUMA nodes, remote followers, switches; smaller is better."""

NOTHING: Worth = (0, 0, 0, 0, 0)

Shares: TypeAlias = tuple[tuple[int, int], ...]
"""Devices by index with how often each gives its share."""


class Way(NamedTuple):
    """One way to put a pod on the node."""

    worth: Worth
    cells: Cells
    shares: tuple[Share, ...]
    order: tuple[int, ...] | None


class _Cards(NamedTuple):
    """A set of cards for one pod."""

    worth: Worth
    cards: tuple[int, ...]
    switches: frozenset[str]
    order: tuple[int, ...] | None = None


def ways_of(room: Room, cells: Cells, which: int) -> Iterator[Way]:
    """Give every way to put a pod of one kind on the node, but for devices that nothing tells apart.

    Parameters
    ----------
    cells
        What is left of the devices.
    which
        The kind.
    """
    return _Search(room, cells, which).ways()


class _Search:
    """One question."""

    def __init__(self, room: Room, cells: Cells, which: int) -> None:
        self._room, self._cells = room, cells
        self._request, self._wants, self._uses = room.requests[which], room.wants[which], room.uses[which]
        self._slots = {index: most for index, use in self._uses.items() if (most := use.slots(cells[index]))}

    def ways(self) -> Iterator[Way]:
        """Combine cards with all that follows them."""
        leading: Iterable[_Cards] = (_Cards(NOTHING, (), frozenset()),)
        if DeviceType.GPU in self._wants:
            leading = self._cards()
        for found in leading:
            chosen: list[tuple[int, Shares]] = [(0, tuple((card, 1) for card in found.cards))]
            for kind in self._wants:
                if kind is not DeviceType.GPU:
                    more = list(self._followers(kind, found.switches))
                    chosen = [(remote + far, own + two) for remote, own in chosen for far, two in more]
            loose, score, numas, _, switches = found.worth
            for remote, shares in chosen:
                worth = loose, score, numas, remote, switches
                for taken in product(*(self._vfs(index, often) for index, often in shares)):
                    left = list(self._cells)
                    named = []
                    for (index, often), vfs in zip(shares, taken, strict=True):
                        left[index] = self._uses[index].left(left[index], often, vfs)
                        named.append(self._room.share(index, often, vfs))
                    yield Way(worth, tuple(left), tuple(named), found.order)

    def _vfs(self, index: int, often: int) -> Sequence[tuple[tuple[int, int], ...]]:
        """List the ways to take VFs out of the classes that would do: ``(place in the cell, number)``."""
        classes = self._uses[index].classes
        if classes is None:
            return ((),)
        cell = self._cells[index]
        return [
            tuple((place, number) for place, number in zip(classes, numbers, strict=True) if number)
            for numbers in divided(often, [cell[place] for place in classes])
        ]

    # --- cards ------------------------------------------------------------------------------------------

    def _cards(self) -> Iterator[_Cards]:
        """Every set of cards that a pod can have: partitions of the table, or any cards in its scope."""
        room, want = self._room, self._wants[DeviceType.GPU]
        usable = [index for index in self._slots if room.devices[index].kind is DeviceType.GPU]
        scope = self._request.scope(DeviceType.GPU)
        loose = 0
        if want.whole and room.shape.partitions is not None:
            for one in self._partitions(want.count):
                cards = tuple(room.card_of[minor] for minor in one.minors)
                if not all(map(self._idle, cards)) or not self._within(cards, scope):
                    continue
                _, switches = self._spread(cards)
                yield _Cards((0, -one.score, 0, 0, len(switches)), cards, switches, one.minors)
            if self._request.partition is not None or room.shape.honor:
                return
            loose = 1
        for cards in self._sets(usable, want.count):
            if self._within(cards, scope):
                numas, switches = self._spread(cards)
                yield _Cards((loose, 0, numas, 0, len(switches)), cards, switches)

    def _idle(self, card: int) -> bool:
        """Tell whether a card can serve and nobody holds any of it."""
        room = self._room
        return card in self._slots and not room.busy[card] and self._cells[card] == room.start[card]

    def _partitions(self, size: int) -> Iterator[Partition]:
        table = self._room.shape.partitions
        groups = () if table is None else table.get(size, ())
        spec = self._request.partition
        restricted = spec is not None and spec.policy is PartitionAllocatePolicy.RESTRICTED
        bandwidth = None if spec is None else spec.ring_bus_bandwidth
        for group in groups[:1] if restricted else groups:
            for one in group:
                known = all(minor in self._room.card_of for minor in one.minors)
                fast = bandwidth is None or (one.bandwidth is not None and one.bandwidth >= bandwidth)
                if known and fast:
                    yield one

    def _spread(self, cards: Sequence[int]) -> tuple[int, frozenset[str]]:
        """Count the NUMA nodes, and name the switches, that a set of cards touches."""
        places = [self._room.devices[card] for card in cards]
        numas = {one.numa for one in places if one.numa is not None}
        return len(numas), frozenset(one.pcie for one in places if one.pcie is not None)

    def _within(self, cards: Sequence[int], scope: TopologyScope | None) -> bool:
        mask = sum(1 << self._room.devices[card].minor for card in cards)
        layout = self._room.shape.types[DeviceType.GPU].layout
        return scope is None or layout.within(mask, scope)

    def _sets(self, usable: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
        """Every set of so many cards; of cards that nothing tells apart the first ones."""
        groups: dict[Hashable, list[int]] = {}
        for index in usable:
            one = self._room.devices[index]
            groups.setdefault((one.pcie, one.numa, one.alike, self._cells[index]), []).append(index)
        pools = list(groups.values())
        for numbers in divided(count, [len(pool) for pool in pools]):
            yield tuple(
                sorted(card for pool, number in zip(pools, numbers, strict=True) for card in pool[:number])
            )

    # --- what follows -----------------------------------------------------------------------------------

    def _followers(self, kind: DeviceType, switches: frozenset[str]) -> Iterator[tuple[int, Shares]]:
        """Every choice of devices of a following type beside some switches, with how many are remote."""
        joint, count = self._request.joint, self._wants[kind].count
        near = joint is not None and kind in joint.types and DeviceType.GPU in joint.types
        same = near and joint is not None and joint.same_pcie
        open_to = [index for index in self._slots if self._room.devices[index].kind is kind]
        if same:
            open_to = [
                index
                for index in open_to
                if (
                    self._room.devices[index].pcie in switches
                    if switches
                    else self._room.devices[index].pcie is None
                )
            ]
            if joint is not None and joint.types[0] is DeviceType.GPU:
                count = max(count, len(switches))
        groups: dict[Hashable, list[int]] = {}
        for index in open_to:
            one = self._room.devices[index]
            groups.setdefault((one.pcie, one.alike, self._cells[index]), []).append(index)
        ordered = [index for pool in groups.values() for index in pool]
        twin = [place > 0 for pool in groups.values() for place in range(len(pool))]
        for numbers in divided(count, [self._slots[index] for index in ordered], twin):
            shares = tuple((index, often) for index, often in zip(ordered, numbers, strict=True) if often)
            beside = [often for index, often in shares if self._room.devices[index].pcie in switches]
            if same:
                if switches - {self._room.devices[index].pcie for index, _ in shares}:
                    continue
                yield 0, shares
            else:
                yield (count - sum(beside)) if near else 0, shares


def divided(total: int, most: Sequence[int], twin: Sequence[bool] | None = None) -> Iterator[tuple[int, ...]]:
    """Divide a number into parts of bounded size, in every way.

    Parameters
    ----------
    twin
        Which parts must not exceed the one before, because the two are interchangeable.
    """
    behind = [0] * (len(most) + 1)
    for place in range(len(most) - 1, -1, -1):
        behind[place] = behind[place + 1] + most[place]
    parts = [0] * len(most)

    def fill(place: int, left: int) -> Iterator[tuple[int, ...]]:
        if left > behind[place]:
            return
        if place == len(most):
            yield tuple(parts)
            return
        top = min(left, most[place])
        if twin is not None and twin[place]:
            top = min(top, parts[place - 1])
        for part in range(top, -1, -1):
            parts[place] = part
            yield from fill(place + 1, left - part)

    return fill(0, total)
