"""How far quotas fall below their floors, slowly: a ledger for each pod that leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordcore.model.quotas import QuotaPod
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.reclaim import kept_floor, lenders_below, path_of


def over(ledger: QuotaLedger, name: str) -> frozenset[str]:
    """Name what a quota uses more of than it keeps."""
    floor = kept_floor(ledger, name)
    return frozenset(key for key, amount in ledger.used_of(name).items() if amount > floor.get(key, 0))


def lost_within(
    ledger: QuotaLedger, leaving: Sequence[QuotaPod], reclaimers: Iterable[QuotaPod], wanted: Iterable[str]
) -> dict[str, int]:
    """Tell how far the quotas of pods that leave together fall below their floors."""
    shared = {above for pod in reclaimers for above in path_of(ledger, ledger.resolve(pod) or "")}
    after, lost = ledger, dict.fromkeys(wanted, 0)
    for pod in leaving:
        after = after.forget(pod)
    for name in sorted({ledger.resolve(pod) or "" for pod in leaving}):
        chain = lenders_below(ledger, name, shared)
        for key in list(lost):
            beyond = chain and all(key in over(ledger, one) for one in chain)
            if not beyond or key not in ledger.max_of(name):
                del lost[key]
                continue
            lost[key] += max(
                max(0, kept_floor(ledger, one).get(key, 0) - after.used_of(one).get(key, 0)) for one in chain
            )
    return lost
