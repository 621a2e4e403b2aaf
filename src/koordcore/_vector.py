"""A sequence, sorted names and a mapping that share with others what they have in common with them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, repeat
from operator import is_not, itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar, overload

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_BITS: Final = 6
_CHUNK: Final = 1 << _BITS
_LARGEST: Final = 2 * _CHUNK
"""Items of a chunk after which it is parted."""
_FIRST: Final = itemgetter(0)
_SHORT: Final = 32
"""Items of two sequences up to which sets of them are made sooner than their ends are compared."""


def gone_and_come(before: Sequence[T], after: Sequence[T]) -> tuple[list[T], list[T]]:
    """Give what is only in the one and only in the other of two sequences; what counts is the object.

    Where long ones begin and end alike nothing is done for single items.
    """
    if before is after:
        return [], []
    if len(before) + len(after) <= _SHORT:
        old, new = {*map(id, before)}, {*map(id, after)}
        gone = [] if old <= new else [one for one in before if id(one) not in new]
        return gone, [] if new <= old else [one for one in after if id(one) not in old]
    short = min(len(before), len(after))
    first = next(compress(range(short), map(is_not, before, after)), short)
    ends = map(is_not, reversed(before), reversed(after))
    last = next(compress(range(short - first), ends), short - first)
    left, came = before[first : len(before) - last], after[first : len(after) - last]
    stay = {*map(id, left)} & {*map(id, came)}
    return [one for one in left if id(one) not in stay], [one for one in came if id(one) not in stay]


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
            first, last, step = place.indices(self._number)
            return self._between(first, max(first, last)) if step == 1 else tuple(self)[place]
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

    def _between(self, first: int, last: int) -> tuple[T_co, ...]:
        """Give the items from one place up to another one, which is not among them."""
        if first == last:
            return ()
        (begin, at), (end, behind) = self._find(first), self._find(last - 1)
        if begin == end:
            return self._chunks[begin][at : behind + 1]
        whole = chain.from_iterable(self._chunks[begin + 1 : end])
        return (*self._chunks[begin][at:], *whole, *self._chunks[end][: behind + 1])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            return tuple(self) == other
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

    def beside(self, other: Vector[T_co]) -> tuple[list[T_co], list[T_co]]:
        """Give the items of those chunks that two do not share; some of them may be in both."""
        mine, theirs = self._chunks, other._chunks
        if len(mine) == len(theirs):
            differ = [*map(is_not, mine, theirs)]
            here, there = differ, differ
        else:
            shared = {*map(id, mine)} & {*map(id, theirs)}
            here, there = ([id(one) not in shared for one in chunks] for chunks in (mine, theirs))
        gone, come = compress(mine, here), compress(theirs, there)
        return [*chain.from_iterable(gone)], [*chain.from_iterable(come)]

    def changed(self, items: Mapping[int, T_co]) -> Vector[T_co]:
        """Give the sequence with other items in some places."""
        made: Vector[T_co] = self._copy()
        made._write(items)
        return made

    def _copy(self) -> Vector[T_co]:
        """Give the same with a list of chunks of its own."""
        made: Vector[T_co] = object.__new__(Vector)
        made._chunks, made._number, made._starts = self._chunks.copy(), self._number, self._starts
        return made

    def _write(self, items: Mapping[int, Any]) -> None:
        open_chunks: dict[int, list[Any]] = {}
        for place, item in items.items():
            number, at = self._find(place)
            if number not in open_chunks:
                open_chunks[number] = list(self._chunks[number])
            open_chunks[number][at] = item
        for number, chunk in open_chunks.items():
            self._chunks[number] = tuple(chunk)

    def spliced(
        self,
        edits: Iterable[Splice],
        items: Mapping[int, T_co],
        like: tuple[Vector[Any], Vector[Any]] | None = None,
    ) -> Vector[T_co]:
        """Give the sequence with some items taken out and others put in.

        Parameters
        ----------
        edits
            One after another.
        items
            What stands in some places afterwards, all that came in among them.
        like
            A sequence, and what these edits made of it.
        """
        made: Vector[T_co] = self._copy()
        edits = tuple(edits)
        if len(edits) == 1 and len(items) == edits[0].come:  # nothing but what comes in there
            came = map(items.__getitem__, range(edits[0].at, edits[0].at + len(items)))
            made._splice(edits[0], came, None if like is None else self._starts_like(*like))
            return made
        for edit in edits:
            made._splice(edit, repeat(None, edit.come))
        made._write(items)
        return made

    def _starts_like(self, before: Vector[Any], after: Vector[Any]) -> list[int] | None:
        """Give where chunks begin after what made one of two sequences of the other, if known."""
        alike = before._number == self._number and before._starts == self._starts
        return after._starts if alike else None

    def _splice(self, edit: Splice, items: Iterable[Any], starts: list[int] | None = None) -> None:
        """Splice in place; ``starts`` are those of the chunks afterwards, where they are known."""
        if self._starts is None:
            self._starts = [number << _BITS for number in range(len(self._chunks))]
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
        there = (*self._chunks[number][:at], *items, *self._chunks[last][gone:])
        size = len(there) if len(there) <= _LARGEST else _CHUNK
        self._chunks[number : last + 1] = [there[a : a + size] for a in range(0, len(there), size or 1)]
        self._number += edit.come - edit.gone
        if starts is not None:
            self._starts = starts
        elif last == number and 0 < len(there) <= _LARGEST:
            # To look at each chunk for its length takes longer than to count on.
            further = edit.come - edit.gone
            self._starts = self._starts[: number + 1] + [at + further for at in self._starts[number + 1 :]]
        else:
            self._starts = [0, *accumulate(map(len, self._chunks[:-1]))] if self._chunks else None

    def start_of(self, number: int) -> int:
        """Give the place of the first item of a chunk."""
        return number << _BITS if self._starts is None else self._starts[number]


class Names(Mapping[str, int]):
    """Sorted names that stand once each, as a mapping from name to place.

    Another one with few changes shares with it what is the same: nothing is written down for names that only
    move up or down.
    """

    __slots__ = ("order",)

    def __init__(self, order: Vector[str]) -> None:
        self.order = order

    @classmethod
    def of(cls, names: Iterable[str]) -> Names:
        """Take names in order."""
        return cls(Vector(names))

    def place(self, name: str) -> int:
        """Give the place of a name, or where it would stand."""
        chunks = self.order.chunks
        number = bisect_right(chunks, name, key=_FIRST) - 1
        return 0 if number < 0 else self.order.start_of(number) + bisect_left(chunks[number], name)

    def find(self, name: str) -> int:
        """Give the place of a name, -1 where it is not there."""
        chunks = self.order.chunks
        number = bisect_right(chunks, name, key=_FIRST) - 1
        if number < 0:
            return -1
        chunk = chunks[number]
        at = bisect_left(chunk, name)
        return self.order.start_of(number) + at if at < len(chunk) and chunk[at] == name else -1

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


K = TypeVar("K")
V = TypeVar("V")

_ITEMS: Final = 8
"""Items of a part, as a table is made; at most four times as many before it is spread out anew."""


class Table(Mapping[K, V], Generic[K, V]):
    """A frozen mapping in parts: another one with few changes copies the parts that they fall into.

    Parts are told apart by the keys' hashes, so nothing may be decided in the order of a walk.
    """

    __slots__ = ("_groups", "_number", "_parts")

    def __init__(self, items: Mapping[K, V]) -> None:
        # A change copies the list of groups, and one group and one part for each key. What a part holds lies
        # about in memory, and a copy touches all of it: parts are small.
        parts = 1
        while parts * _ITEMS < len(items):
            parts *= 2
        found: list[dict[K, V]] = [{} for _ in range(parts)]
        for key, value in items.items():
            found[hash(key) & (parts - 1)][key] = value
        self._groups = [found[at : at + _CHUNK] for at in range(0, parts, _CHUNK)]
        self._parts = parts
        self._number = len(items)

    def changed(self, gone: Collection[K], new: Mapping[K, V]) -> Table[K, V]:
        """Give a table without some keys and with others."""
        made: Table[K, V] = object.__new__(Table)
        made._groups, made._parts, made._number = list(self._groups), self._parts, self._number
        groups, last, number = made._groups, self._parts - 1, self._number
        open_groups: set[int] = set()
        owned: dict[int, dict[K, V]] = {}
        for key in chain(gone, new):
            place = hash(key) & last
            if place in owned:
                continue
            group = place >> _BITS
            if group not in open_groups:
                open_groups.add(group)
                groups[group] = list(groups[group])
            part = owned[place] = dict(groups[group][place & (_CHUNK - 1)])
            groups[group][place & (_CHUNK - 1)] = part
            number -= len(part)
        for key in gone:
            owned[hash(key) & last].pop(key, None)
        for key, value in new.items():
            owned[hash(key) & last][key] = value
        made._number = number + sum(map(len, owned.values()))
        # A table that has grown a lot is spread over more parts.
        return Table(dict(made.items())) if made._number > 4 * _ITEMS * self._parts else made

    def _part(self, place: int) -> dict[K, V]:
        return self._groups[place >> _BITS][place & (_CHUNK - 1)]

    def __getitem__(self, key: K) -> V:
        return self._part(hash(key) & (self._parts - 1))[key]

    def get(self, key: K, default: Any = None) -> Any:
        """Give the value of a key, or the default."""
        return self._part(hash(key) & (self._parts - 1)).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._part(hash(key) & (self._parts - 1))

    def __iter__(self) -> Iterator[K]:
        for group in self._groups:
            for part in group:
                yield from part

    def __len__(self) -> int:
        return self._number

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[dict[K, V]]]:
        return Table, (dict(self.items()),)
