"""What admitted Workloads use of their queues, and whom Kueue would evict so that another gets its quota.

Whoever may go is taken off in a fixed order until the quota is there, or, where queues or cohorts state their
``fairSharing``, from who has the largest share; then, from the last, everybody is put back who need not go.
Nobody is evicted here: it is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
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


@record(kw_only=True, eq=False)
class QuotaTargets:
    """Whom Kueue could evict for quota.

    Parameters
    ----------
    queues
        The ClusterQueues by name.
    roots
        By ClusterQueue: the topmost cohort above it; itself where it shares with nobody.
    holders
        Admitted Workloads.
    fair
        Queues and cohorts with their weights, where any are stated; else ``None``.
    """

    queues: Mapping[str, ClusterQueue]
    roots: Mapping[str, str]
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
        used, own = ledger.used(queue.name), ledger.nominal[queue.name]
        lacking = {
            name
            for name, amount in amounts.items()
            if amount and not isinstance(ledger.admit(workload.key, queue.name, {name: amount}), QueueLedger)
        }
        able = [
            one
            for one in self.holders
            if one.key not in gone
            and any(usage_of(one).get(name) for name in lacking)
            and self._may_go(one, workload, queue, ledger, lacking)
        ]
        # Who is being evicted first, then those of other queues, the less important, and who got quota last;
        # whose quota has no time yet has got it just now.
        able.sort(key=lambda one: one.key)
        able.sort(key=lambda one: one.created or _EARLIEST, reverse=True)
        able.sort(key=lambda one: one.reserved or _LATEST, reverse=True)
        able.sort(key=lambda one: (not one.leaving, one.admitted_by == queue.name, one.priority))
        search = _Search(workload, queue, amounts, frozenset(lacking))
        if self.fair is not None:
            return search.fairly(ledger, able, self.fair)
        mine = [one for one in able if one.admitted_by == queue.name]
        if len(mine) == len(able):
            return search.fewest(ledger, mine, borrowing=True)
        within = all(used.get(name, 0) < own.get(name, 0) for name in lacking)
        if queue.borrow:
            # Who is less important than the bound goes even so that the queue may borrow.
            bound = _bound(workload, queue)
            some = able if within else [one for one in able if one in mine or one.priority < bound]
            return search.fewest(ledger, some, borrowing=True, below=bound)
        # Quota of others is taken back only up to what is the queue's own.
        found = search.fewest(ledger, able, borrowing=False) if within else ()
        return found or search.fewest(ledger, mine, borrowing=True)

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
        if self.roots[one.admitted_by] != self.roots[queue.name]:
            return False
        if not _beyond(ledger, one.admitted_by, lacking):
            return False
        lower = one.priority < workload.priority
        return queue.reclaim is QueuePreemption.ANY or (queue.reclaim is QueuePreemption.LOWER and lower)


def quota_targets(snapshot: ClusterSnapshot, ledger: QueueLedger) -> QuotaTargets:
    """Read from a cluster who holds quota, and who shares it with whom."""
    parents = {one.name: one.parent for one in snapshot.of(Cohort)}
    queues = {one.name: one for one in snapshot.of(ClusterQueue)}
    roots = {}
    for name, queue in queues.items():
        root, seen = queue.cohort, set[str]()
        while parents.get(root) and root not in seen:
            seen.add(root)
            root = parents[root]
        roots[name] = f"Cohort {root}" if root else f"ClusterQueue {name}"
    tree = fair_tree(snapshot)
    return QuotaTargets(
        queues=queues,
        roots=roots,
        holders=tuple(admitted(snapshot, ledger)),
        fair=tree if tree.stated else None,
    )


def _beyond(ledger: QueueLedger, queue: str, names: Iterable[str]) -> bool:
    """Tell whether a queue uses more than its own of something."""
    used, own = ledger.used(queue), ledger.nominal[queue]
    return any(used.get(name, 0) > own.get(name, 0) for name in names)


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

    def fewest(
        self, ledger: QueueLedger, able: Iterable[KueueWorkload], *, borrowing: bool, below: int | None = None
    ) -> tuple[KueueWorkload, ...]:
        """Take off in order until the quota is there, then put back from the last who need not go.

        ``below``: once somebody of another queue goes who is that important, nothing may be borrowed.
        """
        found: list[KueueWorkload] = []
        for one in able:
            if one.admitted_by != self.queue.name:
                if not _beyond(ledger, one.admitted_by, self.lacking):
                    continue
                borrowing = borrowing and (below is None or one.priority < below)
            ledger = without(ledger, (one,))
            found.append(one)
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

        targets = FairTargets(tree, name, asked, able, lambda left, one: without(left, (one,)), fits)
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
