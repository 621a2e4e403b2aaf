"""What admitted Workloads use of their queues, and whom Kueue would evict so that another gets its quota.

The reference's rule without fair sharing: whoever may go is taken off in a fixed order until the quota is
there; then, from the last, everybody is put back who need not go. Nobody is evicted here: it is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from koordcore._record import record
from koordcore.model.kueue import ClusterQueue, Cohort, KueueWorkload, QueuePreemption
from koordcore.quota.kueue import QueueLedger, open_queues
from koordcore.snapshot import ClusterSnapshot

_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)


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
    """

    queues: Mapping[str, ClusterQueue]
    roots: Mapping[str, str]
    holders: tuple[KueueWorkload, ...]

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
        # Those of other queues first, then the less important, then who came last.
        able.sort(key=lambda one: one.key)
        able.sort(key=lambda one: one.created or _EARLIEST, reverse=True)
        able.sort(key=lambda one: (one.admitted_by == queue.name, one.priority))
        mine = [one for one in able if one.admitted_by == queue.name]
        # Quota of others is taken back only up to what is the queue's own.
        if len(mine) < len(able) and all(used.get(name, 0) < own.get(name, 0) for name in lacking):
            found = _fewest(workload, queue, amounts, ledger, able, lacking, borrowing=False)
            if found:
                return found
        return _fewest(workload, queue, amounts, ledger, mine, lacking, borrowing=True)

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
    return QuotaTargets(queues=queues, roots=roots, holders=tuple(admitted(snapshot, ledger)))


def _beyond(ledger: QueueLedger, queue: str, names: Iterable[str]) -> bool:
    """Tell whether a queue uses more than its own of something."""
    used, own = ledger.used(queue), ledger.nominal[queue]
    return any(used.get(name, 0) > own.get(name, 0) for name in names)


def _fewest(
    workload: KueueWorkload,
    queue: ClusterQueue,
    amounts: Mapping[str, int],
    ledger: QueueLedger,
    able: Sequence[KueueWorkload],
    lacking: Iterable[str],
    *,
    borrowing: bool,
) -> tuple[KueueWorkload, ...]:
    """Take off in order until the quota is there, then put back from the last who need not go."""

    def fits(left: QueueLedger) -> bool:
        if not borrowing and left.borrows(queue.name, amounts):
            return False
        return isinstance(left.admit(workload.key, queue.name, amounts), QueueLedger)

    found: list[KueueWorkload] = []
    for one in able:
        if one.admitted_by != queue.name and not _beyond(ledger, one.admitted_by, lacking):
            continue
        ledger = without(ledger, (one,))
        found.append(one)
        if fits(ledger):
            break
    else:
        return ()
    for one in reversed(found[:-1]):
        back = ledger.with_usage(one.key, one.admitted_by, usage_of(one))
        if fits(back):
            ledger = back
            found.remove(one)
    return tuple(found)
