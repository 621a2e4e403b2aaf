"""Who may be evicted so that a job gets back what its quota has lent: pods of quotas beyond their promises.

A job may reclaim that stays within its quota's floor (the scaled ``min``); where it would go beyond that of
a quota above, from quotas below that one alone. Then priorities do not count: what a quota is promised is its
own, whoever borrowed it. Pods of a quota leave, the least important first, only while it still uses more
than its floor, so that nobody who reclaims can be reclaimed from in turn (:mod:`koordcore.quota.reclaim`).

Who goes beyond his own floor preempts nobody whose quota would fall below its floor without him.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore.model.devices import GPU
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import BUILTIN_QUOTAS, QuotaPod
from koordcore.model.resources import PODS
from koordcore.preemption.running import Leaving, RunningPods, running_on
from koordcore.protocol.quota import quota_pod_of
from koordcore.quota.admission import masked_request
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.floors import Floors, amounts_in
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.reclaim import affordable, entitled_to_reclaim, have_to_give, is_below
from koordcore.snapshot import ClusterSnapshot


def entitled(snapshot: ClusterSnapshot, ledger: QuotaLedger, members: Sequence[Pod]) -> bool:
    """Tell whether all of some pods together stay within what their quotas are promised."""
    read = quota_reader(snapshot)
    for pod in map(read, members):
        if entitled_to_reclaim(ledger, pod):
            return False
        ledger = ledger.assume(pod)
    return True


def givers(snapshot: ClusterSnapshot, ledger: QuotaLedger, members: Sequence[Pod]) -> frozenset[str] | None:
    """Name the quotas below which others have to give; ``None`` where the pods may not reclaim."""
    read = quota_reader(snapshot)
    return have_to_give(ledger, [read(pod) for pod in members])


def lent(
    snapshot: ClusterSnapshot,
    ledger: QuotaLedger,
    members: Sequence[Pod],
    priority: int,
    below: frozenset[str] | None,
    gone: Collection[Leaving],
) -> tuple[BoolVector, BoolVector]:
    """Tell which running pods of other quotas may leave for some pods: those beyond what theirs are promised.

    If others left, they or theirs would reclaim in turn, and so on for ever (``docs/loops.md``).

    Parameters
    ----------
    priority
        Of those for whom room is made.
    below
        They reclaim: they take from anybody below these quotas, and what lies within a min in part as well.
        ``None`` where they take from the less important only.
    gone
        Who has left already, as far as this question goes, and uses nothing any more.

    Returns
    -------
    theirs, beyond : ndarray of bool, shape (V,)
        Over :func:`~koordcore.preemption.running.running_on`: who is of another quota, and who of them may
        leave. Any part of these may leave together.
    """
    read = quota_reader(snapshot)
    asked = [read(pod) for pod in members]
    running, rows = running_on(snapshot), snapshot.layout.index
    theirs = _of_others(running, ledger, asked, below or ()) & ~running.marked(gone)
    if below is None:
        listed = theirs & (running.priority < priority)
        return theirs, _beyond_floors(running, listed, ledger, asked, read, rows, None)
    return theirs, _beyond_floors(running, theirs, ledger, asked, read, rows, priority)


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
    rows: Mapping[str, int],
    priority: int | None,
) -> BoolVector:
    """Keep those who leave while their quota is beyond its floor; of a gang all or nobody.

    In each quota the least important come first. Where one of them has to stay, so do all that are more
    important: what these use of the floor is not to be made up for by who is less important.
    """
    gains = Counter[str]()
    for pod in asked:
        # What a quota's max does not name it is not promised either: nobody has that to give back.
        quota = ledger.resolve(pod)
        reclaims = priority is not None and quota is not None
        gains.update(masked_request(ledger, str(quota), pod) if reclaims else pod.request)
    wanted = sorted(name for name, amount in gains.items() if amount)
    names = [ledger.resolve(QuotaPod(key=PodKey(space, "-"), quota=quota)) for quota, space in running.teams]
    floors = Floors(ledger, asked, wanted)
    order = running.by_importance[listed[running.by_importance]]
    asks = _wanted_by(running, order, wanted, rows, read)
    kept, left = np.zeros_like(listed), listed.copy()
    number_of = {name: number for number, name in enumerate(sorted({*names} - {None}, key=str))}
    quota_of = np.array([number_of.get(name, -1) for name in names], np.int64)[running.team]
    together = {*quota_of[listed & (running.gang >= 0)].tolist()}
    quota_of = quota_of[order]
    for name, number in number_of.items():
        mine = np.flatnonzero(quota_of == number)
        if len(mine) and number not in together and floors.alone(str(name)):
            count = floors.leave_freely(str(name), asks[mine])
            kept[order[mine[:count]]] = (asks[mine[:count]] > 0).any(axis=1)
            # Whoever comes next has to stay, or to be paid for.
            left[order[mine[:count] if priority is not None else mine]] = False
    team, priorities = running.team.tolist(), running.own_priority.tolist()
    amounts = dict(zip(order[left[order]].tolist(), asks[left[order]].tolist(), strict=True))
    closed = set[str]()
    for ones in _units(running, order[left[order]]):
        quotas = {str(names[team[one]]) for one in ones}
        if quotas & closed:
            continue
        leaving = [(str(names[team[one]]), amounts[one]) for one in ones]
        if not any(any(each) for _, each in leaving):
            continue
        lost = floors.lost(leaving)
        if lost and not min(lost.values()):
            pass
        elif priority is None or not affordable(lost, max(priorities[one] for one in ones), gains, priority):
            closed |= quotas
            continue
        kept[ones] = True
        floors.leave(leaving)
    return kept


def _units(running: RunningPods, order: IntVector) -> Iterator[list[int]]:
    """Give those who leave together, the least important first; a gang is as important as its best member."""
    gang = running.gang[order].tolist()
    members: dict[int, list[int]] = {}
    for one, group in zip(order.tolist(), gang, strict=True):
        members.setdefault(group, []).append(one)
    for one, group in zip(order.tolist(), gang, strict=True):
        if group < 0:
            yield [one]
        elif one == members[group][-1]:
            yield members[group]


def _wanted_by(
    running: RunningPods,
    some: IntVector,
    wanted: Sequence[str],
    rows: Mapping[str, int],
    read: Callable[[Pod], QuotaPod],
) -> IntMatrix:
    """Give what each of some pods asks for of some resources, shape (n, k)."""
    cards = rows.get(GPU)
    plain = read is quota_pod_of and all(name in rows and name != PODS for name in wanted)
    if plain and (cards is None or not running.amounts[cards, some].any()):
        found: IntMatrix = running.amounts[[rows[name] for name in wanted]][:, some].T
        return found
    asked = [amounts_in(read(running.pods[one]).request, wanted) for one in some.tolist()]
    return np.array(asked, np.int64).reshape(len(some), len(wanted))


def quotas_of_victims(ledger: QuotaLedger, pods: Mapping[PodKey, Pod]) -> tuple[str, ...]:
    """Name the quotas that victims give back, sorted."""
    names = {ledger.resolve(quota_pod_of(pod)) for pod in pods.values()}
    return tuple(sorted(name for name in names if name is not None))
