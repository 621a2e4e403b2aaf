"""A sequence that shares with others what it has in common with them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple, TypeVar, overload

T_co = TypeVar("T_co", covariant=True)

_BITS: Final = 6
_CHUNK: Final = 1 << _BITS
_LARGEST: Final = 2 * _CHUNK
"""Items of a chunk after which it is parted."""


class Splice(NamedTuple):
    """Items that stand one after another are taken out of a sequence, and others put in there.

    Parameters
    ----------
    at
        Place of the first.
    gone, come
        How many are taken out and put in.
    """

    at: int
    gone: int
    come: int


class Vector(Sequence[T_co]):
    """A frozen sequence in chunks: replacing an item copies its chunk and the list of chunks.

    To copy a tuple of 8000 objects touches each of them, which costs more than all else that a small change
    does.
    """

    __slots__ = ("_chunks", "_number", "_starts")

    def __init__(self, items: Iterable[T_co] = ()) -> None:
        found = tuple(items)
        self._chunks = [found[at : at + _CHUNK] for at in range(0, len(found), _CHUNK)]
        self._number = len(found)
        # Where each chunk begins; not needed before chunks are of several lengths.
        self._starts: list[int] | None = None

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
        if self._starts is None:
            return self._chunks[place >> _BITS][place & (_CHUNK - 1)]
        chunk, at = self._find(place)
        return self._chunks[chunk][at]

    def _find(self, place: int) -> tuple[int, int]:
        """Give the chunk in which an item stands, and its place there."""
        if self._starts is None:
            return place >> _BITS, place & (_CHUNK - 1)
        chunk = bisect_right(self._starts, place) - 1
        return chunk, place - self._starts[chunk]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vector) or self._number != other._number:
            return False
        if self._starts == other._starts:
            return self._chunks == other._chunks
        return tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __reduce__(self) -> tuple[type[Vector[T_co]], tuple[tuple[T_co, ...]]]:
        return Vector, (tuple(self),)

    def __iter__(self) -> Iterator[T_co]:
        return chain.from_iterable(self._chunks)

    @property
    def chunks(self) -> Sequence[tuple[T_co, ...]]:
        """The items in parts, none of them empty."""
        return self._chunks

    def apart(self, other: Vector[T_co]) -> tuple[list[T_co], list[T_co]]:
        """Give the items that are not the same objects as those in their places in another one, and those.

        Both are of one length. Chunks that they share are not looked into.
        """
        mine: list[T_co] = []
        theirs: list[T_co] = []
        aligned = self._starts == other._starts
        pairs = zip(self._chunks, other._chunks, strict=True) if aligned else [(tuple(self), tuple(other))]
        for one, two in pairs:
            if one is not two:
                for left, right in zip(one, two, strict=True):
                    if left is not right:
                        mine.append(left)
                        theirs.append(right)
        return mine, theirs

    def changed(self, items: Mapping[int, T_co]) -> Vector[T_co]:
        """Give the sequence with other items in some places."""
        made: Vector[T_co] = Vector()
        made._chunks, made._number, made._starts = list(self._chunks), self._number, self._starts
        for place, item in items.items():
            number, at = self._find(place)
            chunk = list(made._chunks[number])
            chunk[at] = item
            made._chunks[number] = tuple(chunk)
        return made

    def spliced(self, edits: Iterable[Splice], items: Mapping[int, T_co]) -> Vector[T_co]:
        """Give the sequence with some items taken out and others put in.

        Parameters
        ----------
        edits
            One after another.
        items
            What stands in some places afterwards, all that came in among them.
        """
        made: Vector[T_co | None] = Vector()
        made._chunks, made._number, made._starts = list(self._chunks), self._number, self._starts
        for edit in edits:
            made._splice(edit)
        return made.changed(items)  # type: ignore[return-value]  # what came in is written over

    def _splice(self: Vector[T_co | None], edit: Splice) -> None:
        """Splice in place, ``None`` for what comes in."""
        if edit.gone != edit.come:
            self._starts = self._starts or [number << _BITS for number in range(len(self._chunks))]
        if not self._chunks:
            self._chunks, self._starts = [()], [0]
        # Behind the last item is the end of the last chunk.
        number, at = self._find(edit.at)
        if number == len(self._chunks):
            number, at = number - 1, len(self._chunks[-1])
        last, gone = number, edit.gone + at
        while gone > len(self._chunks[last]):
            gone -= len(self._chunks[last])
            last += 1
        there = (*self._chunks[number][:at], *(None,) * edit.come, *self._chunks[last][gone:])
        size = len(there) if len(there) <= _LARGEST else _CHUNK
        self._chunks[number : last + 1] = [there[a : a + size] for a in range(0, len(there), size or 1)]
        self._number += edit.come - edit.gone
        self._starts = [0, *accumulate(map(len, self._chunks[:-1]))] if self._chunks else None
