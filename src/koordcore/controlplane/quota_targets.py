"""What admitted Workloads use of their queues, and whom Kueue would evict so that another gets its quota.

Whoever may go is taken off in a fixed order until the quota is there, or, where queues or cohorts state their
``fairSharing``, from who has the largest share; then, from the last, everybody is put back who need not go.
Nobody is evicted here: it is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from koordcore._record import record
from koordcore.controlplane.fair_shares import FairTree, fair_tree
from koordcore.controlplane.fair_targets import FairTargets
from koordcore.model.kueue import ClusterQueue, Cohort, KueueWorkload, QueuePreemption
from koordcore.quota.kueue import QueueLedger, open_queues
from koordcore.snapshot import ClusterSnapshot

_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)


def opened(snapshot: ClusterSnapshot) -> QueueLedger:
    """Open the queues' ledger with what admitted Workloads use."""
    ledger = open_queues(snapshot.of(ClusterQueue), snapshot.of(Cohort))
    for one in admitted(snapshot, ledger):
        ledger = ledger.with_usage(one.key, one.admitted_by, usage_of(one))
    return ledger


def admitted(snapshot: ClusterSnapshot, ledger: QueueLedger) -> list[KueueWorkload]:
    """List the Workloads that hold quota of a queue that there is."""
    held = (one for one in snapshot.of(KueueWorkload) if one.admitted_by and not one.finished)
    return [one for one in held if one.admitted_by in ledger.nominal and one.admitted_by not in ledger.broken]


def usage_of(workload: KueueWorkload) -> dict[str, int]:
    """Add up what a Workload holds, by flavor and resource."""
    amounts: dict[str, int] = {}
    for given in workload.assignments:
        for resource, flavor in given.flavors.items():
            key = f"{flavor}/{resource}"
            amounts[key] = amounts.get(key, 0) + given.usage.get(resource, 0)
    return amounts


def without(ledger: QueueLedger, gone: Iterable[KueueWorkload]) -> QueueLedger:
    """Take out what some Workloads hold."""
    for one in gone:
        ledger = ledger.without_usage(one.key, one.admitted_by, usage_of(one))
    return ledger


def cost(
    ledger: QueueLedger, queue: str, gone: Iterable[KueueWorkload], amounts: Mapping[str, int]
) -> tuple[bool, int]:
    """Tell whether a queue evicts of its own, and from how far up it borrows then."""
    gone = tuple(gone)
    return any(one.admitted_by == queue for one in gone), without(ledger, gone).height(queue, amounts)


class _Rate(Enum):
    """How a Workload may go."""

    NEARER = 0
    """Who asks is nearer to the quota, whatever it borrows."""
    BACK = 1
    """Only where who asks then borrows nothing."""
    BORROWING = 2
    """Even where it borrows."""
    OWN = 3
    """It is of the queue that asks."""

    @property
    def order(self) -> int:
        """Who goes first: those whom who asks is nearer, other queues', its own."""
        return {_Rate.NEARER: 0, _Rate.OWN: 2}.get(self, 1)


@record(eq=False)
class _Able:
    """Who may go, with the nodes that have to be beyond their own then."""

    workload: KueueWorkload
    rate: _Rate
    path: tuple[str, ...]


@record(kw_only=True, eq=False)
class QuotaTargets:
    """Whom Kueue could evict for quota.

    Parameters
    ----------
    holders
        Admitted Workloads.
    fair
        Queues and cohorts with their weights, where any are stated; else ``None``.
    """

    holders: tuple[KueueWorkload, ...]
    fair: FairTree | None = None

    def evicted_for(
        self,
        workload: KueueWorkload,
        queue: ClusterQueue,
        amounts: Mapping[str, int],
        ledger: QueueLedger,
        gone: Collection[str],
    ) -> tuple[KueueWorkload, ...]:
        """Name who would go; nobody where that would not help, or where the queue evicts nobody.

        Parameters
        ----------
        workload, queue
            Who waits, and where.
        amounts
            What it asks for, by flavor and resource.
        ledger
            What is used without those that are gone.
        gone
            Keys of Workloads that would go for others before.
        """
        name = queue.name
        lacking = frozenset(
            each
            for each, amount in amounts.items()
            if amount and not isinstance(ledger.admit(workload.key, name, {each: amount}), QueueLedger)
        )
        if not all(self._may_ask(queue, ledger, each, amounts[each]) for each in lacking):
            return ()
        able = [
            self._rated(one, workload, queue, ledger, amounts)
            for one in self.holders
            if one.key not in gone
            and any(usage_of(one).get(each) for each in lacking)
            and self._may_go(one, workload, queue, ledger, lacking)
        ]
        # Who is being evicted first, then those who are farther from the quota than who asks, other queues'
        # before its own, the less important, and who got quota last; whose quota has no time yet has it just
        # now.
        able.sort(key=lambda one: one.workload.key)
        able.sort(key=lambda one: one.workload.created or _EARLIEST, reverse=True)
        able.sort(key=lambda one: one.workload.reserved or _LATEST, reverse=True)
        search = _Search(workload, queue, amounts, lacking)
        if self.fair is not None:
            able.sort(
                key=lambda one: (not one.workload.leaving, one.rate is _Rate.OWN, one.workload.priority)
            )
            return search.fairly(ledger, [one.workload for one in able], self.fair)
        able = [one for one in able if search.out_of_bounds(ledger, one)]
        able.sort(key=lambda one: (not one.workload.leaving, one.rate.order, one.workload.priority))
        rates = {one.rate for one in able}
        within = all(ledger.used(name).get(each, 0) < ledger.nominal[name].get(each, 0) for each in lacking)
        tries = [True, False]
        if rates <= {_Rate.OWN} or not (queue.borrow or within):
            tries = [True]
        elif not queue.borrow and _Rate.NEARER not in rates:
            # Quota of others is taken back up to what is the queue's own, before it borrows for its own.
            tries = [False, True]
        found = (search.fewest(ledger, able, borrowing=borrowing) for borrowing in tries)
        return next(filter(None, found), ())

    def _may_ask(self, queue: ClusterQueue, ledger: QueueLedger, name: str, amount: int) -> bool:
        """Tell whether anybody is evicted for what a queue lacks of something at all.

        That is so for what it could have of its own, or some cohort below the topmost, or where it may evict
        and borrow.
        """
        if amount <= ledger.nominal[queue.name].get(name, 0):
            return True
        if queue.borrow or (self.fair is not None and queue.reclaim is not QueuePreemption.NEVER):
            return True
        return ledger.source(queue.name, name, amount) != ledger.path(queue.name)[-1]

    def _may_go(
        self,
        one: KueueWorkload,
        workload: KueueWorkload,
        queue: ClusterQueue,
        ledger: QueueLedger,
        lacking: Iterable[str],
    ) -> bool:
        if one.admitted_by == queue.name:
            newer = (one.created or _EARLIEST) > (workload.created or _EARLIEST)
            same = queue.within is QueuePreemption.LOWER_OR_NEWER and one.priority == workload.priority
            lower = queue.within is not QueuePreemption.NEVER and one.priority < workload.priority
            return lower or (same and newer)
        if ledger.path(one.admitted_by)[-1] != ledger.path(queue.name)[-1]:
            return False
        if not ledger.beyond(ledger.path(one.admitted_by)[0], lacking):
            return False
        lower = one.priority < workload.priority
        return queue.reclaim is QueuePreemption.ANY or (queue.reclaim is QueuePreemption.LOWER and lower)

    def _rated(
        self,
        one: KueueWorkload,
        workload: KueueWorkload,
        queue: ClusterQueue,
        ledger: QueueLedger,
        amounts: Mapping[str, int],
    ) -> _Able:
        """Say how somebody may go, and up to which cohort everybody above has to be beyond its own."""
        if one.admitted_by == queue.name:
            return _Able(one, _Rate.OWN, ())
        mine, theirs = ledger.path(queue.name), ledger.path(one.admitted_by)
        above = next(node for node in mine if node in theirs)
        left = {name: amount for name, amount in amounts.items() if amount}
        nearer = False
        for node in mine[: mine.index(above)]:
            nearer = nearer or not any(ledger.beyond(node, (name,), left) for name in left)
            left = {name: max(0, each - ledger.idle(node).get(name, 0)) for name, each in left.items()}
        rate = _Rate.NEARER
        if not nearer:
            # Who is less important than the bound goes even so that the queue may borrow.
            low = queue.borrow and one.priority < _bound(workload, queue)
            rate = _Rate.BORROWING if low else _Rate.BACK
        return _Able(one, rate, theirs[: theirs.index(above)])


def quota_targets(snapshot: ClusterSnapshot, ledger: QueueLedger) -> QuotaTargets:
    """Read from a cluster who holds quota, and who shares it with whom."""
    tree = fair_tree(snapshot)
    return QuotaTargets(
        holders=tuple(admitted(snapshot, ledger)),
        fair=tree if tree.stated else None,
    )


def _bound(workload: KueueWorkload, queue: ClusterQueue) -> int:
    """Give the priority from which on nobody of another queue goes so that this one may borrow."""
    threshold = queue.borrow_threshold
    return workload.priority if threshold is None else min(workload.priority, threshold + 1)


@record(eq=False)
class _Search:
    """Whom to take off for one Workload.

    Parameters
    ----------
    workload, queue
        Who waits, and where.
    amounts
        What it asks for, by flavor and resource.
    lacking
        What of it its queue has not.
    """

    workload: KueueWorkload
    queue: ClusterQueue
    amounts: Mapping[str, int]
    lacking: frozenset[str]

    def fits(self, left: QueueLedger, *, borrowing: bool = True) -> bool:
        """Tell whether the quota is there; of its own alone, where it may not borrow."""
        if not borrowing and left.borrows(self.queue.name, self.amounts):
            return False
        return isinstance(left.admit(self.workload.key, self.queue.name, self.amounts), QueueLedger)

    def out_of_bounds(self, ledger: QueueLedger, one: _Able) -> bool:
        """Tell whether its queue, and all cohorts below the first that is shared, are beyond their own."""
        return all(ledger.beyond(node, self.lacking) for node in one.path)

    def fewest(
        self, ledger: QueueLedger, able: Iterable[_Able], *, borrowing: bool
    ) -> tuple[KueueWorkload, ...]:
        """Take off in order until the quota is there, then put back from the last who need not go."""
        found: list[KueueWorkload] = []
        for one in able:
            if (borrowing and one.rate is _Rate.BACK) or not self.out_of_bounds(ledger, one):
                continue
            ledger = without(ledger, (one.workload,))
            found.append(one.workload)
            if self.fits(ledger, borrowing=borrowing):
                return self._needed(ledger, found, borrowing=borrowing)
        return ()

    def fairly(
        self, ledger: QueueLedger, able: Sequence[KueueWorkload], tree: FairTree
    ) -> tuple[KueueWorkload, ...]:
        """Take off from who has the largest share, and put back who need not go."""
        key, name = self.workload.key, self.queue.name
        asked = ledger.with_usage(key, name, self.amounts)

        def fits(left: QueueLedger) -> bool:
            return self.fits(left.without_usage(key, name, self.amounts))

        own = not asked.beyond(asked.path(name)[0], self.lacking)
        targets = FairTargets(tree, name, asked, able, lambda left, one: without(left, (one,)), fits, own)
        if not targets.run():
            return ()
        return self._needed(without(ledger, targets.found), targets.found, borrowing=True)

    def _needed(
        self, ledger: QueueLedger, found: Sequence[KueueWorkload], *, borrowing: bool
    ) -> tuple[KueueWorkload, ...]:
        """Put back from the last but one who need not go."""
        kept = list(found)
        for one in reversed(found[:-1]):
            back = ledger.with_usage(one.key, one.admitted_by, usage_of(one))
            if self.fits(back, borrowing=borrowing):
                ledger = back
                kept.remove(one)
        return tuple(kept)
