"""Demands without bonds of agreement, packed into what there is: by flow, and by options of entities.

Demands that no device connects are packed apart. Where every device of a part stands for itself, the part is
a flow. Otherwise entities (:mod:`koordcore.allocators.claims.exact.entities`) are tried one after the other:
the state is what is still wanted, so equal states are decided once, and a bound on what the rest can give
ends what is hopeless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from koordcore._record import record
from koordcore.allocators.claims.exact.entities import Part, Shape
from koordcore.allocators.claims.exact.fill import Entity, Filling, fill_entities
from koordcore.allocators.claims.exact.plain import PlainType, place_plain
from koordcore.allocators.claims.exact.question import Question, Wish
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import Element, bits

Vector: TypeAlias = tuple[int, ...]


@record(eq=False)
class Demand:
    """A wish that must be served, from some of its devices.

    Parameters
    ----------
    claim
        Place of its claim.
    mask
        Devices that are still considered.
    apart
        Bonds by which its devices must differ.
    """

    wish: Wish
    claim: int
    mask: int
    apart: tuple[int, ...]

    @property
    def count(self) -> int:
        """Devices wanted."""
        return self.wish.count


def pack(question: Question, demands: Sequence[Demand]) -> dict[int, tuple[int, ...]] | None:
    """Give every demand its devices.

    Returns
    -------
    dict of int to tuple of int, or None
        Devices by place of the demand; ``None`` where it is proven that they do not fit.

    Raises
    ------
    TooMany
        When this is no counting problem of reasonable size.
    """
    found: dict[int, tuple[int, ...]] = {}
    for demand in demands:
        if demand.mask.bit_count() < demand.count:
            return None
    for part in _connected(question.room, demands):
        packed = _Part(question, {place: demands[place] for place in part}).pack()
        if packed is None:
            return None
        found |= packed
    return found


def _connected(room: Room, demands: Sequence[Demand]) -> list[list[int]]:
    """Split the demands into parts that no device, counter or bond connects."""
    parts: list[tuple[int, set[int], list[int]]] = []
    for place, demand in enumerate(demands):
        reach = room.table.kin_of(demand.mask)
        apart = set(demand.apart)
        mine = [place]
        apart_from: list[tuple[int, set[int], list[int]]] = []
        for part in parts:
            if part[0] & reach or part[1] & apart:
                reach |= part[0]
                apart |= part[1]
                mine += part[2]
            else:
                apart_from.append(part)
        parts = [*apart_from, (reach, apart, mine)]
    return [sorted(places) for _, _, places in parts]


class _Part:
    """Demands that compete with each other."""

    def __init__(self, question: Question, demands: Mapping[int, Demand]) -> None:
        self._question = question
        self._room = question.room
        self._table = question.room.table
        self._demands = demands
        self._mask = 0
        for demand in demands.values():
            self._mask |= demand.mask
        self._admin = any(demand.wish.admin for demand in demands.values())
        self._shared = bool(self._mask & self._table.shareable)
        self._types: list[list[int]] = []
        keys: dict[object, int] = {}
        for place, demand in demands.items():
            key = self._key(place, demand)
            if key not in keys:
                keys[key] = len(self._types)
                self._types.append([])
            self._types[keys[key]].append(place)
        self._first = [self._demands[places[0]] for places in self._types]
        self._wanted = tuple(sum(demands[place].count for place in places) for places in self._types)

    def _key(self, place: int, demand: Demand) -> object:
        """Demands of equal keys are one: whatever serves the one could serve the other."""
        return (
            demand.mask,
            demand.apart,
            # What a form derives is its own: one device has other values under another form.
            demand.wish.form.spec.derived_attributes if demand.apart else None,
            (demand.claim, demand.wish.admin) if self._admin else None,
            id(demand.wish.form.amounts) if self._shared else None,
            # A shared device serves one request once, so that who asks for several is told apart.
            place if self._shared and demand.count > 1 else None,
        )

    def pack(self) -> dict[int, tuple[int, ...]] | None:
        """Serve the demands; ``None`` where that is impossible."""
        entities = [self._entity(mask) for mask in self._entity_masks()]
        plain = self._mask & ~sum(entity.mask for entity in entities)
        if entities:
            placed = fill_entities(
                Filling(
                    tuple(entities),
                    tuple(first.mask & plain for first in self._first),
                    self._wanted,
                    self._weights(entities),
                )
            )
        else:
            types = [
                PlainType(first.mask, wanted, self._element_of(first))
                for first, wanted in zip(self._first, self._wanted, strict=True)
            ]
            placed = place_plain(types, self._table.conditional)
        return None if placed is None else self._hand_out(placed)

    def _weights(self, entities: Sequence[Entity]) -> tuple[Vector, ...]:
        """Weigh the types by what each draws at least, by name of the counter: cards count alike by it."""
        names = self._table.counter_names
        in_entities = sum(entity.mask for entity in entities)
        weights: dict[str, list[int]] = {}
        counts = []
        for kind, first in enumerate(self._first):
            least: dict[str, int] = {}
            drawn = []
            for place, device in enumerate(bits(first.mask)):
                draws = (
                    self._table.draws[device]
                    if in_entities >> device & 1
                    and not (self._room.charged | self._table.shareable) >> device & 1
                    else ()
                )
                drawn.append(len(draws))
                mine = {names[counter]: amount for counter, amount in draws}
                least = {
                    name: min(amount, least.get(name, amount if place == 0 else 0))
                    for name, amount in mine.items()
                }
            for name, amount in least.items():
                weights.setdefault(name, [0] * len(self._first))[kind] = amount
            counts.append(min(drawn, default=0))
        return tuple(map(tuple, (counts, *weights.values())))

    def _element_of(self, demand: Demand) -> Mapping[int, Element] | None:
        if not demand.apart:
            return None
        values = demand.wish.values[demand.apart[0]]
        return {device: next(iter(values[device])) for device in bits(demand.mask)}

    def _flows(self) -> bool:
        """Tell whether every device stands for itself, and bonds are simple enough for a flow."""
        if self._admin or self._shared:
            return False
        if any(self._table.kin[device] & self._mask != 1 << device for device in bits(self._mask)):
            return False
        bonds = [number for first in self._first for number in first.apart]
        return len(set(bonds)) == len(bonds) and all(
            len(first.apart) <= 1
            and all(
                len(first.wish.values[n][device]) == 1 for n in first.apart for device in bits(first.mask)
            )
            for first in self._first
        )

    def _entity_masks(self) -> list[int]:
        """Gather the devices that cannot be judged one by one: by counters, shares, or values of bonds."""
        if self._flows():
            return []
        table = self._table
        groups: list[int] = []
        for device in bits(self._mask):
            kin = table.kin[device] & self._mask
            if self._admin or kin != 1 << device or table.shareable >> device & 1:
                groups.append(kin)
        by_element: dict[tuple[int, Element], int] = {}
        for first in self._first:
            for number in first.apart:
                for device in bits(first.mask):
                    for element in first.wish.values[number][device]:
                        key = (number, element)
                        by_element[key] = by_element.get(key, 0) | 1 << device
        groups += by_element.values()
        merged: list[int] = []
        for group in groups:
            mine = group
            others = []
            for other in merged:
                if other & mine:
                    mine |= other
                else:
                    others.append(other)
            merged = [*others, mine]
        return sorted(merged, key=lambda mask: mask & -mask)

    def _entity(self, mask: int) -> Entity:
        table, room = self._table, self._room
        devices = list(bits(mask))
        counters: dict[int, int] = {}
        sets: dict[int, int] = {}
        numbers: dict[tuple[int, Element], int] = {}
        parts = []
        for device in devices:
            kinds = tuple(kind for kind, first in enumerate(self._first) if first.mask >> device & 1)
            charged = room.charged >> device & 1
            draws = () if charged else table.draws[device]
            groups = () if charged else table.sets[device]
            shared = bool(table.shareable >> device & 1)
            names = sorted(table.devices[device].device.capacity) if shared else []
            consumed = room.consumed.get(device, {})
            parts.append(
                Part(
                    kinds,
                    tuple((counters.setdefault(c, len(counters)), amount) for c, amount in draws),
                    tuple((sets.setdefault(number, len(sets)), mine) for number, mine in groups),
                    self._tokens(device, kinds, numbers),
                    shared,
                    tuple(
                        table.devices[device].device.capacity[name].value - consumed.get(name, 0)
                        for name in names
                    ),
                    tuple(
                        tuple(self._first[kind].wish.form.amounts[device][name] for name in names)
                        for kind in kinds
                    )
                    if shared
                    else (),
                    bool(table.conditional >> device & 1),
                )
            )
        order = tuple((first.claim, first.wish.admin) for first in self._first) if self._admin else ()
        shape = Shape(
            tuple(parts),
            tuple(room.left[counter] for counter in counters),
            tuple(room.groups.get(number) for number in sets),
            self._wanted,
            tuple(
                1 if first.count > 1 else wanted
                for first, wanted in zip(self._first, self._wanted, strict=True)
            ),
            order,
        )
        return Entity(mask, tuple(devices), shape)

    def _tokens(
        self, device: int, kinds: Iterable[int], numbers: dict[tuple[int, Element], int]
    ) -> tuple[frozenset[int], ...]:
        if not any(self._first[kind].apart for kind in kinds):
            return ()
        return tuple(
            frozenset(
                numbers.setdefault((number, element), len(numbers))
                for number in self._first[kind].apart
                for element in sorted(self._first[kind].wish.values[number][device], key=repr)
            )
            for kind in kinds
        )

    def _hand_out(self, placed: Sequence[Sequence[int]]) -> dict[int, tuple[int, ...]]:
        """Give what the types got to their demands."""
        found: dict[int, tuple[int, ...]] = {}
        for places, devices in zip(self._types, placed, strict=True):
            start = 0
            ordered = sorted(devices)
            for place in places:
                count = self._demands[place].count
                found[place] = tuple(ordered[start : start + count])
                start += count
        return found
