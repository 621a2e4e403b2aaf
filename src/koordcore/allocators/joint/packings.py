"""What one node can take of a batch: how many pods of each kind together, and the best way to take them.

Pods that ask for the same are one kind, and only numbers of each kind count. Pods are put on the node kind by
kind in every way that differs (:mod:`koordcore.allocators.joint.ways`); states that differ only by
interchangeable devices are one. Pods that want one device and nothing beside it cost the same wherever they
go: they come last, and for them it is enough to count, device by device, how many fit.

So the answer is exact, and for nodes in use it is small. Where it is not, the search stops at a fixed amount
of work and says so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from operator import add
from typing import NamedTuple, TypeAlias

import attrs

from koordcore._record import record
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.joint.cells import Cell, Cells, Room, Share, Use
from koordcore.allocators.joint.ways import NOTHING, Way, Worth, ways_of
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceType,
)

Counts: TypeAlias = tuple[int, ...]
"""Pods of each kind."""


class Put(NamedTuple):
    """One pod of a packing: its kind, what it takes, and the order of its cards in a partition, if any."""

    which: int
    shares: tuple[Share, ...]
    order: tuple[int, ...] | None


class _Step(NamedTuple):
    """One pod put on the node, after the others."""

    before: _Step | None
    put: Put


class _Entry(NamedTuple):
    """One state that some pods can leave behind, reached in the best way."""

    worth: Worth
    cells: Cells
    last: _Step | None


@record(eq=False)
class Packing:
    """Pods that a node can take together.

    Parameters
    ----------
    counts
        How many of each kind.
    worth
        The best that these pods can have there.
    """

    counts: Counts
    worth: Worth
    _search: _Packer = attrs.field(repr=False)
    _entry: _Entry = attrs.field(repr=False)

    def pods(self) -> list[Put]:
        """Say what each of the pods takes, in an order in which they can be put there."""
        found = []
        step = self._entry.last
        while step is not None:
            found.append(step.put)
            step = step.before
        found.reverse()
        return [*found, *self._search.fill(self._entry.cells, self.counts)]


@attrs.define
class Work:
    """How many more ways to put a pod on a node may be looked at; shared by all nodes of a batch."""

    left: int


def packings_of(
    state: NodeDevices,
    requests: Sequence[DeviceRequest],
    demand: Sequence[int],
    policy: DevicePolicy,
    work: Work,
) -> list[Packing] | None:
    """Find every multiset of pods that the node can take, the empty one first.

    Parameters
    ----------
    requests, demand
        The kinds of pods and how many of each there are.
    work
        Is used up; ``None`` comes back where it does not suffice.
    """
    return _Packer(Room(state, requests, policy), demand, work).packings()


class _Packer:
    """One node and one batch."""

    def __init__(self, room: Room, demand: Sequence[int], work: Work) -> None:
        self._room = room
        self._demand = [most if room.wants[which] else 0 for which, most in enumerate(demand)]
        self._work = work
        self._plain = {
            which: worth
            for which, most in enumerate(self._demand)
            if most and (worth := _plain_worth(room, which)) is not None
        }
        self._plain_devices = sorted({index for which in self._plain for index in room.uses[which]})
        self._known: dict[tuple[Cells, int], list[tuple[Way, Hashable]]] = {}
        self._on_device: dict[tuple[int, Cell], dict[Counts, tuple[Put, ...]]] = {}
        self._sums: dict[Hashable, list[set[Counts]]] = {}

    def packings(self) -> list[Packing] | None:
        """See :func:`packings_of`."""
        table = self._states()
        if table is None:
            return None
        best: dict[Counts, tuple[Worth, _Entry]] = {}
        for counts, entries in table.items():
            for entry in sorted(entries.values(), key=lambda one: one.worth):
                for more in sorted(self._reach(entry.cells)[-1]):
                    worth = entry.worth
                    for which, number in enumerate(more):
                        if number:
                            worth = tuple(
                                own + number * each
                                for own, each in zip(worth, self._plain[which], strict=True)
                            )
                    total = tuple(map(add, counts, more))
                    if total not in best or worth < best[total][0]:
                        best[total] = worth, entry
                if self._work.left < 0:
                    return None
        return [Packing(counts, worth, self, entry) for counts, (worth, entry) in sorted(best.items())]

    # --- pods that care where they go -------------------------------------------------------------------

    def _states(self) -> dict[Counts, dict[Hashable, _Entry]] | None:
        """Every state that pods of the choosy kinds can leave behind, by how many of each there are."""
        start = self._room.start
        nothing: Counts = (0,) * len(self._demand)
        table: dict[Counts, dict[Hashable, _Entry]] = {
            nothing: {self._room.name_of(start): _Entry(NOTHING, start, None)}
        }
        for which, most in enumerate(self._demand):
            frontier = [] if which in self._plain else list(table)
            for _ in range(most):
                grown = []
                for counts in frontier:
                    entries: dict[Hashable, _Entry] = {}
                    for entry in table[counts].values():
                        self._put(entry, which, entries)
                        if self._work.left < 0:
                            return None
                    if entries:
                        more = (*counts[:which], counts[which] + 1, *counts[which + 1 :])
                        table[more] = entries
                        grown.append(more)
                frontier = grown
        return table

    def _put(self, entry: _Entry, which: int, entries: dict[Hashable, _Entry]) -> None:
        """Put one more pod on the node in every way."""
        for way, name in self._ways(entry.cells, which):
            worth = tuple(map(add, entry.worth, way.worth))
            known = entries.get(name)
            if known is None or worth < known.worth:
                step = _Step(entry.last, Put(which, way.shares, way.order))
                entries[name] = _Entry(worth, way.cells, step)

    def _ways(self, cells: Cells, which: int) -> list[tuple[Way, Hashable]]:
        """The best way into each state that one pod can leave behind, with the name of that state."""
        known = self._known.get((cells, which))
        if known is None:
            best: dict[Hashable, Way] = {}
            for way in ways_of(self._room, cells, which):
                self._work.left -= 1
                name = self._room.name_of(way.cells)
                if name not in best or way.worth < best[name].worth:
                    best[name] = way
                if self._work.left < 0:
                    break
            known = self._known[cells, which] = [(way, name) for name, way in best.items()]
        return known

    # --- pods of one device -----------------------------------------------------------------------------

    def fill(self, cells: Cells, counts: Counts) -> Iterator[Put]:
        """Put the pods of one device on what the others left; there is room, as :meth:`_reach` says."""
        left = tuple(number if which in self._plain else 0 for which, number in enumerate(counts))
        reached = self._reach(cells)
        for place, index in reversed(list(enumerate(self._plain_devices))):
            for here, puts in self._options(index, cells[index]).items():
                rest = tuple(own - taken for own, taken in zip(left, here, strict=True))
                if rest in reached[place]:
                    left = rest
                    yield from puts
                    break

    def _reach(self, cells: Cells) -> list[set[Counts]]:
        """How many pods of one device the first 0, 1, … of the devices that matter can take together."""
        key = tuple(cells[index] for index in self._plain_devices)
        known = self._sums.get(key)
        if known is None:
            nothing: Counts = (0,) * len(self._demand)
            known = [{nothing}]
            for index in self._plain_devices:
                options = self._options(index, cells[index])
                if len(options) == 1:
                    known.append(known[-1])
                    continue
                sums = {tuple(map(add, before, here)) for before in known[-1] for here in options}
                self._work.left -= len(known[-1])
                known.append({one for one in sums if all(map(int.__le__, one, self._demand))})
            self._sums[key] = known
        return known

    def _options(self, index: int, cell: Cell) -> dict[Counts, tuple[Put, ...]]:
        """Every number of pods of each kind of one device that a device can take, with how."""
        known = self._on_device.get((index, cell))
        if known is None:
            nothing: Counts = (0,) * len(self._demand)
            known = {nothing: ()}
            states: dict[tuple[Counts, Cell], tuple[Put, ...]] = {(nothing, cell): ()}
            for which in self._plain:
                use = self._room.uses[which].get(index)
                if use is not None:
                    for (counts, left), puts in list(states.items()):
                        self._stack(index, which, use, (counts, left, puts), states)
            for (counts, _), puts in states.items():
                known.setdefault(counts, puts)
            self._on_device[index, cell] = known
        return known

    def _stack(
        self,
        index: int,
        which: int,
        use: Use,
        start: tuple[Counts, Cell, tuple[Put, ...]],
        states: dict[tuple[Counts, Cell], tuple[Put, ...]],
    ) -> None:
        """Put more and more pods of one kind on a device."""
        frontier = [start]
        for number in range(1, self._demand[which] + 1):
            grown: dict[tuple[Counts, Cell], tuple[Put, ...]] = {}
            for counts, left, puts in frontier:
                if not use.slots(left):
                    continue
                more = (*counts[:which], start[0][which] + number, *counts[which + 1 :])
                for vfs in [()] if use.classes is None else [((place, 1),) for place in use.classes]:
                    if all(left[place] for place, _ in vfs):
                        put = Put(which, (self._room.share(index, 1, vfs),), None)
                        grown.setdefault((more, use.left(left, 1, vfs)), (*puts, put))
            for key, puts in grown.items():
                states.setdefault(key, puts)
            frontier = [(counts, left, puts) for (counts, left), puts in grown.items()]


def _plain_worth(room: Room, which: int) -> Worth | None:
    """What one pod of a kind costs that wants one device, whichever it is; ``None`` for choosy kinds."""
    wants = room.wants[which]
    ((kind, want), *rest) = wants.items()
    if rest or want.count != 1:
        return None
    if kind is not DeviceType.GPU:
        return NOTHING
    scope = room.requests[which].scope(kind)
    if scope is not None or (want.whole and room.shape.partitions is not None):
        return None
    places = {room.devices[index].pcie is not None for index in room.uses[which]}
    if len(places) != 1:
        return None
    near = int(places.pop())
    return 0, 0, near, 0, near
