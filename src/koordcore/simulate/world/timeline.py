"""The bottle's clock: what happens next, in the order of time and then of being planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

Deed: TypeAlias = Callable[..., None]


class Timeline:
    """What is going to happen; time counts milliseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.events = 0
        self.counts: Counter[str] = Counter()
        self._number = 0
        self._heap: list[tuple[int, int, str, Deed, tuple[Any, ...]]] = []

    def after(self, delay: int, what: str, deed: Deed, *details: Any) -> None:
        """Plan something; ``what`` is its name in counts."""
        self._number += 1
        heappush(self._heap, (self.now + max(delay, 0), self._number, what, deed, details))

    def step(self) -> bool:
        """Let the next thing happen; false where nothing is left."""
        if not self._heap:
            return False
        self.now, _, what, deed, details = heappop(self._heap)
        self.events += 1
        self.counts[what] += 1
        deed(*details)
        return True
