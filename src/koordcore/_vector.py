"""A sequence that shares with others what it has in common with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)

_BITS: Final = 6
_CHUNK: Final = 1 << _BITS


class Vector(Sequence[T_co]):
    """A frozen sequence in chunks: replacing an item copies its chunk and the list of chunks.

    To copy a tuple of 8000 objects touches each of them, which costs more than all else that a small change
    does.
    """

    __slots__ = ("_chunks", "_number")

    def __init__(self, items: Iterable[T_co] = ()) -> None:
        found = tuple(items)
        self._chunks = [found[at : at + _CHUNK] for at in range(0, len(found), _CHUNK)]
        self._number = len(found)

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, place: int) -> T_co: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[T_co, ...]: ...

    def __getitem__(self, place: int | slice) -> T_co | tuple[T_co, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        if place < 0:
            place += self._number
        return self._chunks[place >> _BITS][place & (_CHUNK - 1)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self._number == other._number and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __reduce__(self) -> tuple[type[Vector[T_co]], tuple[tuple[T_co, ...]]]:
        return Vector, (tuple(self),)

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self._chunks)

    def apart(self, other: Vector[T_co]) -> tuple[list[T_co], list[T_co]]:
        """Give the items that are not the same objects as those in their places in another one, and those.

        Both are of one length. Chunks that they share are not looked into.
        """
        mine: list[T_co] = []
        theirs: list[T_co] = []
        for one, two in zip(self._chunks, other._chunks, strict=True):
            if one is not two:
                for left, right in zip(one, two, strict=True):
                    if left is not right:
                        mine.append(left)
                        theirs.append(right)
        return mine, theirs

    def changed(self, items: Mapping[int, T_co]) -> Vector[T_co]:
        """Give the sequence with other items in some places."""
        made: Vector[T_co] = Vector()
        made._chunks, made._number = list(self._chunks), self._number
        for place, item in items.items():
            chunk, at = list(made._chunks[place >> _BITS]), place & (_CHUNK - 1)
            chunk[at] = item
            made._chunks[place >> _BITS] = tuple(chunk)
        return made

    def spliced(self, edits: Iterable[tuple[slice, int]], items: Mapping[int, T_co]) -> Vector[T_co]:
        """Give the sequence with some items taken out and others put in.

        Parameters
        ----------
        edits
            One after another: what is taken out, and how many come in there.
        items
            What stands in some places afterwards, all that came in among them.
        """
        found: list[T_co | None] = list(self)
        for gone, number in edits:
            found[gone] = [None] * number
        for place, item in items.items():
            found[place] = item
        made: Vector[T_co] = Vector(found)  # type: ignore[arg-type]  # what came in is written over
        return made
