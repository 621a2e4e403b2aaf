"""Names in order, and where each of them stands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from koordcore._vector import Splice, Vector


class Names(Mapping[str, int]):
    """Sorted names that stand once each, as a mapping from name to place.

    Another one with few changes shares with it what is the same: nothing is written down for names that only
    move up or down.
    """

    __slots__ = ("_firsts", "_starts", "order")

    def __init__(self, order: Vector[str]) -> None:
        self.order = order
        self._firsts = [chunk[0] for chunk in order.chunks]
        self._starts: list[int] = []
        start = 0
        for chunk in order.chunks:
            self._starts.append(start)
            start += len(chunk)

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Take names in order."""
        return cls(Vector(names))

    def place(self, name: str) -> int:
        """Give the place of a name, or where it would stand."""
        number = bisect_right(self._firsts, name) - 1
        return 0 if number < 0 else self._starts[number] + bisect_left(self.order.chunks[number], name)

    def find(self, name: str) -> int:
        """Give the place of a name, -1 where it is not there."""
        number = bisect_right(self._firsts, name) - 1
        if number < 0:
            return -1
        chunk = self.order.chunks[number]
        at = bisect_left(chunk, name)
        return self._starts[number] + at if at < len(chunk) and chunk[at] == name else -1

    def spliced(self, edits: Iterable[Splice], items: Mapping[int, str]) -> Names:
        """Give the names after some came and went; see :meth:`Vector.spliced`."""
        return Names(self.order.spliced(edits, items))

    def __getitem__(self, name: str) -> int:
        place = self.find(name)
        if place < 0:
            raise KeyError(name)
        return place

    def get(self, name: str, default: Any = None) -> Any:
        """Give the place of a name, or the default."""
        place = self.find(name)
        return default if place < 0 else place

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)
