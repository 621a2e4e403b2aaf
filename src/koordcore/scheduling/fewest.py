"""The fewest of some that are enough, found by leaving out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def fewest(known: Sequence[T], enough: Callable[[Sequence[T]], bool], tries: int) -> list[T]:
    """Leave out whoever is not needed, from the front, in ever smaller pieces.

    Nobody of the answer can be left out by himself, unless the tries are used up before that is known.

    Parameters
    ----------
    known
        Who is enough together.
    enough
        Whether some of them are; it is asked at most ``tries`` times, and never about nobody.
    """
    needed, size = list(known), max(1, len(known) // 2)
    while tries > 0:
        start, again = 0, False
        while start < len(needed) and tries > 0:
            fewer = needed[:start] + needed[start + size :]
            if not fewer:
                start += size
                continue
            tries -= 1
            if enough(fewer):
                needed, again = fewer, start > 0
            else:
                start += size
        if size == 1 and not again:
            break
        size = max(1, size // 2)
    return needed
