"""What one entity can give at once.

An entity is what cannot be judged device by device: a card whose partitions draw on the same counters, or a
device that several claims share. It is described without names (:class:`Shape`), so that equal cards are
enumerated once, whatever they are called; what it can give are *options*: how many devices of each type of
demand, at most, with the devices that show it.

A state of the enumeration is one integer: a field for what is left of each counter, token and cap, each with
a guard bit above it. Taking a device subtracts one number, and a guard bit that is lost says that something
ran out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Final, TypeAlias

from koordcore._record import record

MAX_STATES: Final = 6000
MAX_OPTIONS: Final = 400

Vector: TypeAlias = tuple[int, ...]


class TooMany(Exception):  # noqa: N818 - counting is not the way for this one, which is no fault
    """There are more states than are worth listing."""


@record(cache_hash=True)
class Part:
    """One device of an entity.

    Parameters
    ----------
    types
        Types of demand that it can serve.
    draws
        Place and amount of each counter that it consumes.
    groups
        Place of each counter set with its compatibility groups there.
    tokens
        By type: what it uses up of values that devices may not have in common.
    shared
        Several demands may have it; it draws on counters once.
    room
        Of a shared device: what is left of each capacity.
    amounts
        Of a shared device: what each of ``types`` takes of each capacity.
    conditional
        It has binding conditions.
    """

    types: Vector
    draws: tuple[tuple[int, int], ...] = ()
    groups: tuple[tuple[int, frozenset[str]], ...] = ()
    tokens: tuple[frozenset[int], ...] = ()
    shared: bool = False
    room: Vector = ()
    amounts: tuple[Vector, ...] = ()
    conditional: bool = False


@record(cache_hash=True)
class Shape:
    """An entity without names.

    Parameters
    ----------
    parts
        Its devices.
    left
        What is left of its counters.
    groups
        Compatibility groups in use on its counter sets; ``None`` where none is in use.
    caps
        By type: more than this is never wanted of one entity.
    most
        By type: how often one shared device can serve it.
    order
        By type: place of its claim and whether it has admin access; empty where no type has.
    """

    parts: tuple[Part, ...]
    left: Vector
    groups: tuple[frozenset[str] | None, ...]
    caps: Vector
    most: Vector
    order: tuple[tuple[int, bool], ...] = ()


@record
class Option:
    """What an entity can give at once.

    Parameters
    ----------
    vector
        Devices by type.
    picks
        Type and place of the device in the shape, once for each.
    conditional
        Devices with binding conditions among them.
    """

    vector: Vector
    picks: tuple[tuple[int, int], ...]
    conditional: int


@lru_cache(maxsize=4096)
def options_of(shape: Shape) -> tuple[Option, ...]:
    """List what an entity can give: every option that no other one covers, the most devices first.

    Raises
    ------
    TooMany
        When there are more states than are worth listing.
    """
    options: list[Option] = []
    for places in _agreeing(shape):
        options += _Enumeration(shape, places).options()
    options.sort(key=lambda option: (-sum(option.vector), option.conditional, [-n for n in option.vector]))
    kept: list[Option] = []
    for option in options:
        if not any(_covers(other.vector, option.vector) for other in kept):
            kept.append(option)
    if len(kept) > MAX_OPTIONS:
        raise TooMany
    return tuple(kept)


def _covers(one: Vector, other: Vector) -> bool:
    return all(a >= b for a, b in zip(one, other, strict=True))


def _agreeing(shape: Shape) -> list[list[int]]:
    """List the devices that can be in use together as far as compatibility groups go.

    Devices agree where they have one group in common, so each choice of one group a set is tried.
    """
    everyone = list(range(len(shape.parts)))
    choices: list[list[str]] = []
    for number, known in enumerate(shape.groups):
        mine = {groups for part in shape.parts for place, groups in part.groups if place == number}
        if known is None and len(mine) <= 1:
            choices.append([""])
            continue
        names: frozenset[str] = frozenset().union(*mine)
        choices.append(sorted(names if known is None else names & known))
    if all(len(names) == 1 and known is None for names, known in zip(choices, shape.groups, strict=True)):
        return [everyone]
    if len(choices) > 8 or _size(choices) > 64:
        raise TooMany
    plain = [
        known is None and len({g for part in shape.parts for place, g in part.groups if place == n}) <= 1
        for n, known in enumerate(shape.groups)
    ]
    found = []
    for chosen in product(*choices):
        found.append(
            [
                place
                for place in everyone
                if all(
                    plain[number] or chosen[number] in groups for number, groups in shape.parts[place].groups
                )
            ]
        )
    return found


def _size(choices: Iterable[list[str]]) -> int:
    size = 1
    for names in choices:
        size *= len(names)
    return size


class _Enumeration:
    """All states of some devices of a shape."""

    def __init__(self, shape: Shape, places: list[int]) -> None:
        self._shape = shape
        self._places = places
        self._shift: list[int] = []
        self._start = 0
        self._guards = 0
        self._bits = 0
        shared = sum(shape.parts[place].shared for place in places)
        self._limits = [
            cap + (shared * most if shared else 0) for cap, most in zip(shape.caps, shape.most, strict=True)
        ]
        for limit in self._limits:
            self._field(limit)
        self._vector_mask = (1 << self._bits) - 1
        self._counters = self._counter_fields()
        tokens = {token for place in places for mine in shape.parts[place].tokens for token in mine}
        self._tokens = {token: 1 << self._field(1) for token in sorted(tokens)}
        self._parents: dict[int, tuple[int, int, Vector] | None] = {self._start: None}

    def _field(self, amount: int) -> int:
        """Add a field; returns where it starts."""
        shift = self._bits
        width = amount.bit_length() + 1
        self._start |= amount << shift
        self._guards |= 1 << (shift + width)
        self._shift.append(shift)
        self._bits += width + 1
        return shift

    def _counter_fields(self) -> dict[int, tuple[int, int]]:
        """Give place and unit of each counter that can run out."""
        amounts: dict[int, list[int]] = {}
        for place in self._places:
            part = self._shape.parts[place]
            times = 1 if part.shared else max(1, len(part.types) if self._shape.order else 1)
            for counter, amount in part.draws:
                amounts.setdefault(counter, []).extend([amount] * times)
        fields = {}
        for counter, mine in sorted(amounts.items()):
            left = self._shape.left[counter]
            if sum(mine) <= left:
                continue
            unit = gcd(*mine)
            fields[counter] = (self._field(left // unit), unit)
        return fields

    def options(self) -> list[Option]:
        """Walk through the states, device by device, and keep what is not covered."""
        parents = self._parents
        guards = self._guards
        for place in self._places:
            part = self._shape.parts[place]
            priced = [(self._price(part, load), load) for load in _loads(self._shape, part)]
            loads = [(price, load) for price, load in priced if price is not None]
            for state in tuple(parents):
                for price, load in loads:
                    after = (state | guards) - price
                    if after & guards == guards:
                        after ^= guards
                        if after not in parents:
                            parents[after] = (state, place, load)
            if len(parents) > MAX_STATES:
                raise TooMany
        return [self._option(state) for state in self._greatest()]

    def _price(self, part: Part, load: Vector) -> int | None:
        """Give what a load subtracts; ``None`` where no state could bear it."""
        price = 0
        tokens: set[int] = set()
        for kind in load:
            price += 1 << self._shift[kind]
            if part.tokens:
                mine = part.tokens[part.types.index(kind)]
                if tokens & mine:
                    return None
                tokens |= mine
        for token in tokens:
            price += self._tokens[token]
        times = 1 if part.shared else len(load)
        for counter, amount in part.draws:
            if amount * times > self._shape.left[counter]:
                return None
            if counter in self._counters:
                shift, unit = self._counters[counter]
                price += amount * times // unit << shift
        return price

    def _greatest(self) -> list[int]:
        """Give a state for each vector that no other vector covers."""
        first: dict[int, int] = {}
        for state in self._parents:
            first.setdefault(state & self._vector_mask, state)
        guards = self._guards & self._vector_mask
        kept: list[int] = []
        for rest in sorted(first, key=self._remaining):
            # One vector covers another if nowhere more of the cap remains.
            if not any(((rest | guards) - other) & guards == guards for other in kept):
                kept.append(rest)
        return [first[rest] for rest in kept]

    def _remaining(self, rest: int) -> tuple[int, int]:
        total = 0
        for shift, limit in zip(self._shift, self._limits, strict=False):
            total += rest >> shift & ((1 << limit.bit_length() + 1) - 1)
        return total, rest

    def _option(self, state: int) -> Option:
        picks: list[tuple[int, int]] = []
        conditional = 0
        vector = [0] * len(self._limits)
        walked = state
        while (step := self._parents[walked]) is not None:
            walked, place, load = step
            picks += [(kind, place) for kind in load]
            conditional += len(load) if self._shape.parts[place].conditional else 0
            for kind in load:
                vector[kind] += 1
        clipped = tuple(min(count, cap) for count, cap in zip(vector, self._shape.caps, strict=True))
        return Option(clipped, tuple(reversed(picks)), conditional)


def _loads(shape: Shape, part: Part) -> list[Vector]:
    """List what one device can serve at once, as types; a shared one only in full loads."""
    if part.shared:
        return _full_loads(shape, part)
    if not shape.order:
        return [(kind,) for kind in part.types]
    return [load for load in _admin_loads(shape, sorted(part.types, key=lambda k: shape.order[k])) if load]


def _admin_loads(shape: Shape, kinds: list[int], last: int = -1) -> Iterator[Vector]:
    """List the types that may have one device one behind the other: ordinary access only as the first."""
    yield ()
    for place, kind in enumerate(kinds):
        claim, admin = shape.order[kind]
        if claim == last or (last >= 0 and not admin):
            continue
        for rest in _admin_loads(shape, kinds[place + 1 :], claim):
            yield (kind, *rest)


def _full_loads(shape: Shape, part: Part) -> list[Vector]:
    """List the loads of a shared device to which nothing can be added."""
    found: list[Vector] = []
    seen = 0

    def extend(place: int, room: Vector, load: Vector) -> None:
        nonlocal seen
        seen += 1
        if seen > MAX_STATES:
            raise TooMany
        if place == len(part.types):
            found.append(load)
            return
        kind = part.types[place]
        fits = min(shape.caps[kind], shape.most[kind])
        for have, amount in zip(room, part.amounts[place], strict=True):
            if amount:
                fits = min(fits, have // amount)
        for count in range(fits, -1, -1):
            rest = tuple(
                have - count * amount for have, amount in zip(room, part.amounts[place], strict=True)
            )
            extend(place + 1, rest, load + (kind,) * count)

    extend(0, part.room, ())
    found = sorted((load for load in found if load), key=lambda load: (-len(load), load))
    if part.tokens:
        # Demands that may have nothing in common do not share a device, so smaller loads count as well.
        return found
    kept: list[tuple[Vector, Vector]] = []
    for load in found:
        counts = tuple(load.count(kind) for kind in part.types)
        if not any(_covers(other, counts) for other, _ in kept):
            kept.append((counts, load))
    return [load for _, load in kept]
