"""Who may be evicted so that a job gets back what its quota has lent: pods of quotas beyond their promises.

A job may reclaim that stays within its quota's floor (the scaled ``min``); where it would go beyond that of
a quota above, from quotas below that one alone. Then priorities do not count: what a quota is promised is its
own, whoever borrowed it. Pods of a quota leave, the least important first, only while it still uses more
than its floor, so that nobody who reclaims can be reclaimed from in turn (:mod:`koordcore.quota.reclaim`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from koordcore._arrays import BoolVector
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import BUILTIN_QUOTAS, QuotaPod
from koordcore.preemption.running import RunningPods, running_on
from koordcore.protocol.quota import quota_pod_of
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.preempt import importance
from koordcore.quota.reclaim import borrows, entitled_to_reclaim, have_to_give, is_below
from koordcore.snapshot import ClusterSnapshot


def reclaimable(snapshot: ClusterSnapshot, ledger: QuotaLedger, members: Sequence[Pod]) -> BoolVector | None:
    """Tell which running pods may leave so that all of some pods get what their quotas have lent.

    Returns
    -------
    ndarray of bool, shape (V,), or None
        Over :func:`~koordcore.preemption.running.running_on`; ``None`` where the pods may not reclaim. Any
        part of them may leave together: each time the quota is still beyond its floor.
    """
    read = quota_reader(snapshot)
    asked = [read(pod) for pod in members]
    above = have_to_give(ledger, asked)
    if above is None:
        return None
    running = running_on(snapshot)
    return _beyond_floors(running, _of_others(running, ledger, asked, above), ledger, asked, read)


def spared(
    snapshot: ClusterSnapshot, ledger: QuotaLedger, members: Sequence[Pod], priority: int
) -> BoolVector | None:
    """Tell which running pods stay although some pods are more important: they are within their quota's min.

    Whoever goes beyond his own min for it would be reclaimed from in turn, preempt again, and so on for ever.

    Parameters
    ----------
    priority
        Of those for whom room is made.

    Returns
    -------
    ndarray of bool, shape (V,), or None
        Over :func:`~koordcore.preemption.running.running_on`; ``None`` where the pods stay within their min.
    """
    read = quota_reader(snapshot)
    asked = [read(pod) for pod in members]
    if _entitled(ledger, asked):
        return None
    running = running_on(snapshot)
    theirs = _of_others(running, ledger, asked)
    return theirs & ~_beyond_floors(running, theirs & (running.priority < priority), ledger, asked, read)


def _entitled(ledger: QuotaLedger, asked: Sequence[QuotaPod]) -> bool:
    """Tell whether all of some pods together stay within what their quotas are promised."""
    for pod in asked:
        if entitled_to_reclaim(ledger, pod):
            return False
        ledger = ledger.assume(pod)
    return True


def _of_others(
    running: RunningPods, ledger: QuotaLedger, asked: Sequence[QuotaPod], above: Collection[str] = ()
) -> BoolVector:
    """Tell which pods of other quotas, all below some quotas, may be evicted at all, shape (V,)."""
    mine = {ledger.resolve(pod) for pod in asked}
    found = np.zeros(len(running.pods), dtype=np.bool_)
    for team, (quota, namespace) in enumerate(running.teams):
        name = ledger.resolve(QuotaPod(key=PodKey(namespace, "-"), quota=quota))
        if name is None or name in BUILTIN_QUOTAS or name in mine:
            continue
        if not above or is_below(ledger, name, above):
            found |= running.evictable & ~running.leaving & (running.team == team)
    return found


def _beyond_floors(
    running: RunningPods,
    listed: BoolVector,
    ledger: QuotaLedger,
    asked: Sequence[QuotaPod],
    read: Callable[[Pod], QuotaPod],
) -> BoolVector:
    """Keep those who leave while their quota is beyond its floor; of a gang all or nobody."""
    wanted = sorted({name for pod in asked for name, amount in pod.request.items() if amount})
    units: dict[int, list[int]] = {}
    for one in np.flatnonzero(listed).tolist():
        gang = int(running.gang[one])
        units.setdefault(gang if gang >= 0 else -2 - one, []).append(one)
    pods = {one: read(running.pods[one]) for ones in units.values() for one in ones}
    order = sorted(units.values(), key=lambda ones: min(importance(pods[one]) for one in ones), reverse=True)
    kept = np.zeros_like(listed)
    for ones in order:
        given = [name for name in wanted if any(pods[one].request.get(name, 0) for one in ones)]
        if all(borrows(ledger, pods[one], asked, given) for one in ones):
            kept[ones] = True
            for one in ones:
                ledger = ledger.forget(pods[one])
    return kept


def quotas_of_victims(ledger: QuotaLedger, pods: Mapping[PodKey, Pod]) -> tuple[str, ...]:
    """Name the quotas that victims give back, sorted."""
    names = {ledger.resolve(quota_pod_of(pod)) for pod in pods.values()}
    return tuple(sorted(name for name in names if name is not None))
