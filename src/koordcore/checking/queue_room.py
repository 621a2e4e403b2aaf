"""What Kueue's queues may still use, counted anew from what they and their cohorts say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from koordcore.model.kueue import ClusterQueue, Cohort, KueueWorkload, ResourceGroup

_QUEUE: Final = "queue"
_COHORT: Final = "cohort"
Place: TypeAlias = tuple[str, str]
"""A queue or a cohort, and its name."""
Kind: TypeAlias = tuple[str, str]
"""A flavor, and a resource of it."""


class QueueRoom:
    """Queues below their cohorts, with what their Workloads use.

    Parameters
    ----------
    queues, cohorts
        All of the cluster.
    workloads
        Of which those that hold quota count.
    """

    def __init__(
        self,
        queues: Iterable[ClusterQueue],
        cohorts: Iterable[Cohort],
        workloads: Iterable[KueueWorkload],
    ) -> None:
        self._above: dict[Place, str] = {}
        self._below: dict[Place, list[Place]] = {}
        self._nominal: dict[Place, dict[Kind, int]] = {}
        self._lent: dict[Place, dict[Kind, int]] = {}
        self._borrowed: dict[Place, dict[Kind, int]] = {}
        self._used: dict[Place, Counter[Kind]] = {}
        for queue in queues:
            self._put((_QUEUE, queue.name), queue.cohort, queue.groups)
        for cohort in cohorts:
            self._put((_COHORT, cohort.name), cohort.parent, cohort.groups)
        for name in {above for above in self._above.values() if above}:
            if (_COHORT, name) not in self._above:
                self._put((_COHORT, name), "", ())
        for place, above in self._above.items():
            if above:
                self._below[_COHORT, above].append(place)
        for one in workloads:
            if one.finished or (_QUEUE, one.admitted_by) not in self._above:
                continue
            for part in one.assignments:
                amounts = {(name, each): part.usage.get(each, 0) for each, name in part.flavors.items()}
                self.use(one.admitted_by, amounts)

    def _put(self, place: Place, above: str, groups: Iterable[ResourceGroup]) -> None:
        quotas = [(one, group.resources) for group in groups for one in group.flavors]
        self._above[place], self._below[place], self._used[place] = above, [], Counter()
        self._nominal[place] = {
            (one.flavor, name): one.nominal.get(name, 0) for one, names in quotas for name in names
        }
        self._lent[place] = {
            (one.flavor, name): amount for one, _ in quotas for name, amount in one.lending.items()
        }
        self._borrowed[place] = {
            (one.flavor, name): amount for one, _ in quotas for name, amount in one.borrowing.items()
        }

    def use(self, queue: str, amounts: Mapping[Kind, int]) -> None:
        """Count what a Workload uses of a queue that there is."""
        self._used[_QUEUE, queue].update(amounts)

    def used(self, queue: str, kind: Kind) -> int:
        """Give what a queue uses."""
        return self._used[_QUEUE, queue][kind]

    def round_in_circles(self, queue: str) -> bool:
        """Tell whether one of the cohorts above a queue is above itself."""
        seen, name = set[str](), self._above[_QUEUE, queue]
        while name and name not in seen:
            seen.add(name)
            name = self._above[_COHORT, name]
        return bool(name)

    def left(self, queue: str, kind: Kind) -> int:
        """Give what a queue may still use; less than nothing where it uses more than it may."""
        return self._left((_QUEUE, queue), kind)

    def _left(self, place: Place, kind: Kind) -> int:
        above = self._above[place]
        has, use, kept = self._has(place, kind), self._use(place, kind), self._kept(place, kind)
        if not above:
            return has - use
        shared = self._left((_COHORT, above), kind)
        limit = self._borrowed[place].get(kind)
        if limit is not None:  # beyond what it keeps it has what it lends, and so much more
            shared = min(shared, has - kept + limit - max(0, use - kept))
        return max(0, kept - use) + shared

    def _has(self, place: Place, kind: Kind) -> int:
        """What is its own, and what those below it share."""
        below = sum(self._has(one, kind) - self._kept(one, kind) for one in self._below[place])
        return self._nominal[place].get(kind, 0) + below

    def _kept(self, place: Place, kind: Kind) -> int:
        """What of that it shares with nobody."""
        most = self._lent[place].get(kind)
        return 0 if most is None or not self._above[place] else max(0, self._has(place, kind) - most)

    def _use(self, place: Place, kind: Kind) -> int:
        """What it uses, and what those below it use beyond what they keep."""
        below = (max(0, self._use(one, kind) - self._kept(one, kind)) for one in self._below[place])
        return self._used[place][kind] + sum(below)
