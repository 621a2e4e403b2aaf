"""A mapping that shares with others what it has in common with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_FEWEST: Final = 16
"""Parts of the smallest table; always a power of two."""


class Table(Mapping[K, V], Generic[K, V]):
    """A frozen mapping in parts: another one with few changes copies the parts that they fall into.

    Parts are told apart by the keys' hashes, so nothing may be decided in the order of a walk.
    """

    __slots__ = ("_number", "_parts")

    def __init__(self, items: Mapping[K, V]) -> None:
        # A change copies the list of parts, and one part for each key: more parts than items of each, because
        # items lie about in memory and parts do not.
        parts = _FEWEST
        while parts * parts < 4 * len(items):
            parts *= 2
        self._parts: list[dict[K, V]] = [{} for _ in range(parts)]
        for key, value in items.items():
            self._parts[hash(key) & (parts - 1)][key] = value
        self._number = len(items)

    def changed(self, gone: Collection[K], new: Mapping[K, V]) -> Table[K, V]:
        """Give a table without some keys and with others."""
        made: Table[K, V] = object.__new__(Table)
        made._parts = parts = list(self._parts)
        last = len(parts) - 1
        owned: set[int] = set()
        number = self._number
        for key in gone:
            place = hash(key) & last
            if key in parts[place]:
                if place not in owned:
                    owned.add(place)
                    parts[place] = dict(parts[place])
                del parts[place][key]
                number -= 1
        for key, value in new.items():
            place = hash(key) & last
            if place not in owned:
                owned.add(place)
                parts[place] = dict(parts[place])
            number += key not in parts[place]
            parts[place][key] = value
        made._number = number
        # A table that has grown a lot is spread over more parts.
        return Table(dict(made.items())) if number > 4 * len(parts) * len(parts) else made

    def __getitem__(self, key: K) -> V:
        return self._parts[hash(key) & (len(self._parts) - 1)][key]

    def get(self, key: K, default: Any = None) -> Any:
        """Give the value of a key, or the default."""
        return self._parts[hash(key) & (len(self._parts) - 1)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._parts[hash(key) & (len(self._parts) - 1)]

    def __iter__(self) -> Iterator[K]:
        for part in self._parts:
            yield from part

    def __len__(self) -> int:
        return self._number

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[dict[K, V]]]:
        return Table, (dict(self.items()),)
