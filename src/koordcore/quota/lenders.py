"""Whose leaving a quota may count on when a pod of it preempts (ruling 26).

A pod that is evicted for the room that it holds leaves whatever its quota. That others may use more of the
quota tree is reason enough to evict pods of the same quota, and pods of quotas that use more than their
``min``; nobody within a guaranteed ``min`` goes so that somebody else may borrow. Admission after evictions
is therefore judged as if those within their ``min`` had stayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from koordcore.model.pods import PodKey
from koordcore.model.quotas import QuotaPod
from koordcore.quota.ledger import QuotaLedger


def chain_of(ledger: QuotaLedger, pod: QuotaPod) -> tuple[str, ...]:
    """Name the quota of a pod and those above it, the nearest first; empty where none governs it."""
    name = ledger.resolve(pod)
    if name is None:
        return ()
    chain = [name]
    while name in ledger.quotas and ledger.quotas[name].parent in ledger.quotas:
        name = ledger.quotas[name].parent
        if name in chain:
            break
        chain.append(name)
    return tuple(chain)


def checked_chain(ledger: QuotaLedger, pod: QuotaPod) -> tuple[str, ...]:
    """Name the quotas that limit a pod: its own and, with ``enableCheckParentQuota``, those above."""
    chain = chain_of(ledger, pod)
    return chain if ledger.policy.enable_check_parent_quota else chain[:1]


def lent_by(
    ledger: QuotaLedger, chain: Sequence[str], mine: Collection[tuple[str, ...]], wanted: Iterable[str]
) -> frozenset[str] | None:
    """Name the resources that a quota's pods give back by leaving; None for all that they hold.

    The built-in quotas are promised nothing: whoever is in them gives back what it uses.

    Parameters
    ----------
    chain
        The quota and those above it, the nearest first; empty where none governs the pods.
    mine
        Chains of the quotas of the pods that come.
    wanted
        Resources that they ask for.
    """
    if not chain:
        return frozenset()
    if any(own and own[0] == chain[0] for own in mine):
        return None
    shared = {name for own in mine for name in own}
    below = [name for name in chain if name not in shared]
    return frozenset(
        name
        for name in wanted
        if all(ledger.used_of(quota).get(name, 0) > ledger.min_of(quota).get(name, 0) for quota in below)
    )


def gives_back(
    ledger: QuotaLedger, victim: QuotaPod, mine: Collection[tuple[str, ...]], wanted: Iterable[str]
) -> bool:
    """Tell whether evicting a pod may count for the quotas of those who come; see :func:`lent_by`.

    Parameters
    ----------
    ledger
        The quotas with what is used of them.
    victim
        Who would leave.
    mine
        Chains of the quotas of the pods that come, the nearest first.
    wanted
        Resources that they ask for.
    """
    lent = lent_by(ledger, chain_of(ledger, victim), mine, wanted)
    return lent is None or any(victim.request.get(name, 0) for name in lent)


def staying_charged(
    ledger: QuotaLedger, victims: Iterable[QuotaPod], mine: Collection[tuple[str, ...]], wanted: Iterable[str]
) -> frozenset[PodKey]:
    """Give those of the victims whose quotas go on counting them: they lie within a guaranteed ``min``.

    One after the other is taken, each from a quota that uses more than its ``min`` at that moment.

    Parameters
    ----------
    ledger
        With the victims counted.
    mine, wanted
        As for :func:`gives_back`.
    """
    asked = tuple(wanted)
    charged = set()
    for victim in sorted(victims, key=lambda pod: (pod.priority, pod.key)):
        if gives_back(ledger, victim, mine, asked):
            ledger = ledger.forget(victim)
        elif ledger.resolve(victim) is not None:
            charged.add(victim.key)
    return frozenset(charged)
