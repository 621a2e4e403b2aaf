"""With how many pods a Workload may start on which flavors, as far as quota goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from koordcore._record import record
from koordcore.controlplane.flavors import MOST, FlavorChoice, PodSetFlavors, combined
from koordcore.controlplane.waiting_workloads import Entry
from koordcore.quota.kueue import QueueLedger, QueueShortfall

_STEPS: Final = 16
"""Beginnings of assignments that are looked at for each that is tried."""
_EVICTING: Final = 4
"""The same where each asks who would have to go, which takes far longer."""


@record(eq=False)
class Offer:
    """Quota for some pods of each pod set, on flavors that are tried at that place of their order."""

    number: int
    choice: FlavorChoice
    counts: Mapping[str, int]

    @property
    def pods(self) -> int:
        """How many pods it is for."""
        return sum(self.counts.values())

    @property
    def on(self) -> str:
        """Name its flavors at the head of a message."""
        flavors = self.choice.flavors.values()
        named = ", ".join(sorted({one.name for given in flavors for one in given}))
        return f"on {named}: " if named else ""


class Offers:
    """What quota there is for one Workload.

    Parameters
    ----------
    entry
        The Workload with its queue.
    ledger
        What is used.
    """

    def __init__(self, entry: Entry, ledger: QueueLedger) -> None:
        self._entry, self._ledger, self._counts = entry, ledger, entry.counts()
        self._short: list[int] = []
        self.choices = (*entry.choices, *self._farther(self._counts))
        """In the order in which they are tried."""
        if entry.queue.next_for_borrowing:
            self.choices = tuple(sorted(self.choices, key=self._height))
        self.whys: dict[int, str] = {}
        """By their number why flavors are not taken."""

    def stop(self, goes: Callable[[FlavorChoice], bool]) -> FlavorChoice | None:
        """Give the flavors at which Kueue evicts before it looks at the next; ``None`` for none.

        ``goes`` tells of flavors without quota whether Kueue stops there.
        """
        for choice in self._entry.choices:
            if self._lacks(choice, self._counts) is not None:
                if goes(choice):
                    return choice
            elif not (self._entry.queue.next_for_borrowing and self._height(choice)):
                break
        return None

    def with_evictions(self, goes: Callable[[FlavorChoice], bool]) -> Iterator[FlavorChoice]:
        """Give the first flavors, and those of all others for which there is quota, or would be.

        ``goes`` tells of flavors without quota whether anybody's going makes it.
        """
        yield from self._entry.choices
        yield from self._beyond(lambda choice: not goes(choice), self._counts, _EVICTING)

    def whole(self) -> Iterator[Offer]:
        """Give the flavors that have quota for all pods."""
        for number, choice in enumerate(self.choices):
            lacks = self._lacks(choice, self._counts)
            if lacks is None:
                yield Offer(number, choice, self._counts)
            else:
                self.whys[number] = lacks.message
                self._short.append(number)

    def fewer(self) -> list[Offer]:
        """Give the others where they have quota for enough pods, those for the most pods first.

        At most one pod set starts with fewer than all.
        """
        sets = self._entry.workload.pod_sets
        elastic = next((one for one in sets if one.least < self._counts[one.name]), None)
        if elastic is None:
            return []
        fewest = {**self._counts, elastic.name: elastic.least}
        farther = [one for one in self._farther(fewest) if self._lacks(one, self._counts)]
        if self._entry.queue.next_for_borrowing:
            farther.sort(key=self._height)
        self._short += range(len(self.choices), len(self.choices) + len(farther))
        self.choices += tuple(farther)
        found = []
        for number in self._short:
            choice, low, high = self.choices[number], elastic.least, self._counts[elastic.name] - 1
            lacks = self._lacks(choice, fewest)
            if lacks is not None:
                self.whys[number] = lacks.message
                continue
            while low < high:
                middle = (low + high + 1) // 2
                fits = self._lacks(choice, {**self._counts, elastic.name: middle}) is None
                low, high = (middle, high) if fits else (low, middle - 1)
            found.append(Offer(number, choice, {**self._counts, elastic.name: low}))
        return sorted(found, key=lambda one: -one.pods)

    def passed(self, before: int | None = None) -> tuple[str, ...]:
        """Say in their order why flavors were not taken; those before some number alone."""
        return tuple(self.whys[each] for each in sorted(self.whys) if before is None or each < before)

    def _farther(self, counts: Mapping[str, int]) -> Iterator[FlavorChoice]:
        """Give those of all assignments beyond the first that have quota for so many pods, in their order."""
        return self._beyond(lambda _: True, counts, _STEPS)

    def _beyond(
        self, out: Callable[[FlavorChoice], bool], counts: Mapping[str, int], steps: int
    ) -> Iterator[FlavorChoice]:
        """Give assignments beyond the first in their order, but for those without quota that are out.

        Where some pod sets are out together, nobody looks at what the others would be given.
        """
        options = self._entry.options
        alike = [math.prod(map(len, options[place:])) for place in range(len(options) + 1)]
        if not options or alike[0] <= MOST:
            return
        begun: list[tuple[int, tuple[Mapping[str, PodSetFlavors], ...]]] = [(0, ())]
        steps, left = MOST * steps, MOST
        while begun and steps and left:
            steps -= 1
            number, parts = begun.pop()
            # All that begin so are among the first.
            if number + alike[len(parts)] <= MOST:
                continue
            if parts and self._lacks(begin := combined(parts), counts) and out(begin):
                continue
            if len(parts) == len(options):
                left -= 1
                yield combined(parts)
                continue
            one = alike[len(parts) + 1]
            more = [(number + one * at, (*parts, part)) for at, part in enumerate(options[len(parts)])]
            begun += reversed(more)

    def _height(self, choice: FlavorChoice) -> int:
        amounts = choice.amounts(self._entry.asked, self._counts)
        return self._ledger.height(self._entry.queue.name, amounts)

    def _lacks(self, choice: FlavorChoice, counts: Mapping[str, int]) -> QueueShortfall | None:
        amounts = choice.amounts(self._entry.asked, counts)
        found = self._ledger.admit(self._entry.workload.key, self._entry.queue.name, amounts)
        return found if isinstance(found, QueueShortfall) else None
