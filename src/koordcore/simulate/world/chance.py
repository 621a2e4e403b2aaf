"""Draws: a stream of numbers that follows from a seed and a name, the same on every machine."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")
_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF
_STEP: Final = 0x9E37_79B9_7F4A_7C15


class Chance:
    """A stream of draws (splitmix64, after Steele, Lea and Flood 2014); streams of other names are apart."""

    __slots__ = ("_state",)

    def __init__(self, seed: int, name: str) -> None:
        self._state = (seed * _STEP ^ zlib.crc32(name.encode()) << 21) & _WORD

    def below(self, bound: int) -> int:
        """Draw from 0 up to ``bound`` - 1; 0 where ``bound`` is not positive."""
        self._state = state = (self._state + _STEP) & _WORD
        state = (state ^ state >> 30) * 0xBF58_476D_1CE4_E5B9 & _WORD
        state = (state ^ state >> 27) * 0x94D0_49BB_1331_11EB & _WORD
        return (state ^ state >> 31) * max(bound, 0) >> 64

    def between(self, low: int, high: int) -> int:
        """Draw from ``low`` up to and including ``high``."""
        return low + self.below(high - low + 1)

    def happens(self, share: int) -> bool:
        """Draw something that happens so many times in a thousand."""
        return share > 0 and self.below(1000) < share

    def gap(self, mean: int) -> int:
        """Draw the time to the next of things that come by themselves: nearly exponential, at least 1."""
        # The sum of ln 2 for each tail that a coin shows, and a part of one: whole numbers only.
        halves = 0
        while self.below(2):
            halves += 1
        return 1 + mean * (halves * 693 + self.below(693)) // 1000

    def one_of(self, some: Sequence[T]) -> T:
        """Draw one of several."""
        return some[self.below(len(some))]
