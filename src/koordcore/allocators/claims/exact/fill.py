"""Entities filled one after the other until everything is served, or it is proven that it cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.allocators.claims.exact.entities import Shape, options_of
from koordcore.allocators.claims.exact.mixture import mix
from koordcore.allocators.claims.exact.plain import PlainType, place_plain

MAX_VISITS: Final = 1500
"""States that are looked at before the solver is asked, which needs some milliseconds for anything."""

Vector: TypeAlias = tuple[int, ...]


@record(eq=False)
class Entity:
    """Devices that are judged together, in the order of the parts of their shape."""

    mask: int
    devices: tuple[int, ...]
    shape: Shape


@record(eq=False)
class Filling:
    """What is wanted of what.

    Parameters
    ----------
    entities
        Where the types compete.
    plain
        By type: devices that stand for themselves.
    wanted
        By type: how many devices.
    weights
        Ways to weigh the types: what the entities can give at most in such a weight bounds what fits.
    """

    entities: tuple[Entity, ...]
    plain: tuple[int, ...]
    wanted: Vector
    weights: tuple[Vector, ...]


class _Enough(Exception):  # noqa: N818 - the solver takes over
    pass


def fill_entities(filling: Filling) -> list[list[int]] | None:
    """Serve what is wanted of every type.

    Returns
    -------
    list of list of int, or None
        Devices by type; ``None`` where that is impossible.

    Raises
    ------
    TooMany
        When an entity has too many states to be listed.
    """
    search = _Fill(filling)
    try:
        return search.run()
    except _Enough:
        chosen = mix(search.options, filling.plain, filling.wanted)
        return None if chosen is None else search.devices(*chosen)


class _Fill:
    """The search: entities of one shape stand behind each other."""

    def __init__(self, filling: Filling) -> None:
        self._wanted = filling.wanted
        self._plain = filling.plain
        groups: dict[Shape, list[Entity]] = {}
        for entity in filling.entities:
            groups.setdefault(entity.shape, []).append(entity)
        self._entities = [entity for group in groups.values() for entity in group]
        self._equal = [place > 0 for group in groups.values() for place in range(len(group))]
        self.options = [options_of(entity.shape) for entity in self._entities]
        self._vectors = [[option.vector for option in options] for options in self.options]
        kinds = range(len(self._wanted))
        single = tuple(tuple(int(kind == one) for kind in kinds) for one in kinds)
        self._weights = [*dict.fromkeys((*filling.weights, (1,) * len(single), *single))]
        self._rest = self._suffix_bounds()
        self._failed: set[tuple[int, Vector, int]] = set()
        self._plain_known: dict[Vector, list[list[int]] | None] = {}
        self._visits = 0
        self._chosen: list[int] = []

    def run(self) -> list[list[int]] | None:
        rest = self._search(0, self._wanted, 0)
        return None if rest is None else self.devices(self._chosen, rest)

    def devices(self, chosen: Sequence[int], plain: Sequence[Sequence[int]]) -> list[list[int]]:
        """Turn the options chosen, and plain devices, into devices by type."""
        found = [list(devices) for devices in plain]
        for place, number in enumerate(chosen):
            for kind, part in self.options[place][number].picks:
                if len(found[kind]) < self._wanted[kind]:
                    found[kind].append(self._entities[place].devices[part])
        return found

    def _suffix_bounds(self) -> list[Vector]:
        """By weight: the most that the entities from each place on, and the plain devices, can give."""
        everything = 0
        for mask in self._plain:
            everything |= mask
        plain = [
            [kind for kind, mask in enumerate(self._plain) if mask >> device & 1]
            for device in range(everything.bit_length())
            if everything >> device & 1
        ]
        rest = tuple(sum(max(weight[kind] for kind in kinds) for kinds in plain) for weight in self._weights)
        bounds = [rest]
        best: Vector = ()
        for place in reversed(range(len(self._entities))):
            if place == len(self._entities) - 1 or not self._equal[place + 1]:
                vectors = self._vectors[place]
                best = tuple(max(_dot(weight, vector) for vector in vectors) for weight in self._weights)
            rest = tuple(map(int.__add__, rest, best))
            bounds.append(rest)
        return bounds[::-1]

    def _search(self, place: int, wanted: Vector, least: int) -> list[list[int]] | None:
        """Serve the rest from the entities at ``place`` and behind, then from plain devices."""
        if not any(wanted):
            return [[] for _ in wanted]
        for weight, bound in zip(self._weights, self._rest[place], strict=True):
            if _dot(weight, wanted) > bound:
                return None
        if place == len(self._entities):
            return self._place_plain(wanted)
        if not self._equal[place]:
            least = 0
        key = (place, wanted, least)
        if key in self._failed:
            return None
        self._visits += 1
        if self._visits > MAX_VISITS:
            raise _Enough
        for number, left in self._promising(self._vectors[place], wanted, least):
            self._chosen.append(number)
            found = self._search(place + 1, left, number)
            if found is not None:
                return found
            self._chosen.pop()
        self._failed.add(key)
        return None

    def _promising(self, vectors: Sequence[Vector], wanted: Vector, least: int) -> list[tuple[int, Vector]]:
        """Give options with what they leave to serve, those that serve most first.

        Equal entities take options in ascending order of number, since which of them takes which does not
        matter; of options that leave the same the first stands for all.
        """
        useful: dict[Vector, int] = {}
        for number in range(least, len(vectors)):
            gets = vectors[number]
            left = tuple([have - got if have > got else 0 for have, got in zip(wanted, gets, strict=True)])
            if left not in useful:
                useful[left] = number
        weight = self._weights[0]
        return sorted(
            ((number, left) for left, number in useful.items()),
            key=lambda one: (_dot(weight, one[1]), one[0]),
        )

    def _place_plain(self, wanted: Vector) -> list[list[int]] | None:
        if wanted not in self._plain_known:
            types = [PlainType(mask, count) for mask, count in zip(self._plain, wanted, strict=True)]
            self._plain_known[wanted] = place_plain(types, 0)
        return self._plain_known[wanted]


def _dot(weight: Vector, vector: Vector) -> int:
    return sum(map(int.__mul__, weight, vector))
