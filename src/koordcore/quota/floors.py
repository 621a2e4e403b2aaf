"""What quotas use beyond their floors, while pods leave them one after another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from koordcore._arrays import IntMatrix
from koordcore.model.quotas import QuotaPod
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.reclaim import kept_floor, lenders_below, path_of

Leaver = tuple[str, Sequence[int]]
"""The quota of a pod, and what it asks for of each resource that is looked at."""


_MOST: Final = 1 << 62
"""More than anybody can use: quotas may promise any number, and sums of pods are told in 64 bits."""


class _Use:
    """What one quota uses now, and what it keeps, of each resource that is looked at."""

    __slots__ = ("floor", "used")

    def __init__(self, ledger: QuotaLedger, name: str, wanted: Sequence[str]) -> None:
        used, floor = ledger.used_of(name), kept_floor(ledger, name)
        self.used, self.floor = ([min(one.get(key, 0), _MOST) for key in wanted] for one in (used, floor))


class Floors:
    """The quotas that pods of others may leave, with what is left of them.

    Under the usage guarantee nobody is beyond a floor, and otherwise floors hang on requests, which stay: so
    they are read once.

    Parameters
    ----------
    ledger
        Before anybody has left.
    reclaimers
        Who gets their room; the quotas that they share with the pods do not count.
    wanted
        Resources that are looked at.
    """

    def __init__(self, ledger: QuotaLedger, reclaimers: Iterable[QuotaPod], wanted: Sequence[str]) -> None:
        self._ledger, self._wanted = ledger, tuple(wanted)
        self._shared = {above for pod in reclaimers for above in path_of(ledger, ledger.resolve(pod) or "")}
        self._uses: dict[str, _Use] = {}
        self._known: dict[str, tuple[list[bool], list[_Use]]] = {}

    def _of(self, name: str) -> tuple[list[bool], list[_Use]]:
        """Tell which resources a quota names, and give what it and those above it use."""
        known = self._known.get(name)
        if known is None:
            ledger, limit = self._ledger, self._ledger.max_of(name)
            chain = lenders_below(ledger, name, self._shared)
            uses = [self._uses.setdefault(one, _Use(ledger, one, self._wanted)) for one in chain]
            known = self._known[name] = [key in limit for key in self._wanted], uses
        return known

    def lost(self, leaving: Sequence[Leaver]) -> dict[str, int]:
        """Tell how far the quotas of pods that leave together fall below their floors.

        Returns
        -------
        dict
            By resource that one of the pods asks for and that all of their quotas, and all above them below
            the common ancestor, use beyond their floors; zero where none of them falls below its floor.
        """
        if len(leaving) == 1:
            return self._lost_by(*leaving[0])
        goes: dict[int, list[int]] = {}
        for name, amounts in leaving:
            named, uses = self._of(name)
            for one in uses:
                gone = goes.setdefault(id(one), [0] * len(self._wanted))
                for at, amount in enumerate(amounts):
                    gone[at] += amount if named[at] else 0
        chains = [self._of(name) for name in sorted({name for name, _ in leaving})]
        found = {}
        for at, key in enumerate(self._wanted):
            if not any(amounts[at] for _, amounts in leaving):
                continue
            if all(named[at] and uses and _beyond(uses, at) for named, uses in chains):
                found[key] = sum(
                    max(max(0, one.floor[at] - one.used[at] + goes[id(one)][at]) for one in uses)
                    for _, uses in chains
                )
        return found

    def _lost_by(self, name: str, amounts: Sequence[int]) -> dict[str, int]:
        """Do the same for one pod, which is most of them."""
        named, uses = self._of(name)
        found = {}
        for at, amount in enumerate(amounts):
            if amount and named[at] and uses and _beyond(uses, at):
                found[self._wanted[at]] = max([max(0, one.floor[at] - one.used[at] + amount) for one in uses])
        return found

    def alone(self, name: str) -> bool:
        """Tell whether pods of other quotas may leave without a change of what those of this one lose."""
        return len(self._of(name)[1]) == 1

    def leave_freely(self, name: str, asked: IntMatrix) -> int:
        """Let pods of a quota that stands alone leave one after another, until one may not or costs a loss.

        Parameters
        ----------
        asked
            What each asks for of the resources that are looked at, shape (n, k).

        Returns
        -------
        int
            How many were gone through; those among them that ask for nothing of that stay.
        """
        named, (use,) = self._of(name)
        counted = asked * np.array(named, np.int64)
        floor, gone = np.array(use.floor, np.int64), counted.cumsum(axis=0)
        after = np.array(use.used, np.int64) - gone
        free = ((counted > 0) & (after + counted > floor) & (after >= floor)).any(axis=1)
        stays = (asked > 0).any(axis=1) & ~free
        number = int(stays.argmax()) if stays.any() else len(asked)
        if number:
            use.used = after[number - 1].tolist()
        return number

    def leave(self, leaving: Iterable[Leaver]) -> None:
        """Let pods leave."""
        for name, amounts in leaving:
            named, uses = self._of(name)
            for one in uses:
                used = one.used
                for at, amount in enumerate(amounts):
                    if amount and named[at]:
                        used[at] -= amount


def _beyond(uses: Sequence[_Use], at: int) -> bool:
    return all(one.used[at] > one.floor[at] for one in uses)


def amounts_in(request: Mapping[str, int], wanted: Sequence[str]) -> tuple[int, ...]:
    """Give what a request has of some resources."""
    return tuple(request.get(key, 0) for key in wanted)
