"""Taking back what was lent: a pod within its quota's promise may displace pods of quotas beyond theirs.

Upstream has no such thing: a borrower leaves only when its quota has been over its runtime for long, or
when a more important pod of its own quota comes. This is ours: :class:`koordcore.PreemptionRules`.

**Who may.** A pod whose quota stays within its floor with the pod, in every resource that the pod asks for.
The floor is what a quota has without competing: its scaled min. Where a quota above would go beyond its own,
others below that one have to give: what a parent is promised, its children share out.

**Who goes.** Preemptible pods of other leaf quotas whose quota, and every quota above it below the common
ancestor, uses more than its floor in a resource that is asked for, at the moment at which the pod is taken:
the least important first. The last one may take its quota below the floor, if it is no more important than
the pod that comes, and loses less there than that gains.

**No ping-pong.** Let E(k) be the sum over all leaf quotas of what those of at least priority k use within
the floor. Look at E of the highest priority, then at the next, and so on: a reclaim raises the first of these
that it changes, for what more important pods use within their floors stays, and the pod that comes adds to
that of its own priority all that it asks for. So a chain of reclaims ends. Nor can a pod that has reclaimed
be reclaimed while its quota stays within its floor: it is no candidate. A victim therefore never reclaims
back. ``docs/loops.md`` has the same for reclaims, preemption and revokes together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from koordcore.model.quotas import QuotaPod
from koordcore.model.resources import Resources
from koordcore.quota.admission import masked_request
from koordcore.quota.ledger import QuotaLedger


def path_of(ledger: QuotaLedger, name: str) -> tuple[str, ...]:
    """Name a quota and all above it; nothing for built-in and unknown ones."""
    found = ledger.find(name)
    if found is None:
        return ()
    tree = found[0].tree
    return tuple(tree.quotas[row].name for row in tree.path(found[1]))


def _asked(ledger: QuotaLedger, name: str, pod: QuotaPod) -> Resources:
    return masked_request(ledger, name, pod)


def entitled_to_reclaim(ledger: QuotaLedger, pod: QuotaPod) -> str:
    """Say why a pod may not reclaim; empty where it may.

    Parameters
    ----------
    ledger
        With the pod tracked and not placed.
    """
    name = ledger.resolve(pod)
    chain = () if name is None else path_of(ledger, name)
    if name is None or not chain:
        return "no elastic quota promises anything to the pod"
    request = _asked(ledger, name, pod)
    for above in chain:
        used, floor = ledger.used_of(above), ledger.floor_of(above)
        for resource, amount in sorted(request.items()):
            if amount and used.get(resource, 0) + amount > floor.get(resource, 0):
                return f"elastic quota {above} would go beyond its min in {resource}"
    return ""


def have_to_give(ledger: QuotaLedger, pods: Sequence[QuotaPod]) -> frozenset[str] | None:
    """Name the quotas below which others have to give so that some pods get what theirs are promised.

    Parameters
    ----------
    ledger
        Without what the pods use.

    Returns
    -------
    frozenset of str, or None
        All of them at once; empty where anybody may give, ``None`` where the pods' own quotas would go beyond
        their floors, so that they may not reclaim.
    """
    above: set[str] = set()
    for pod in pods:
        name = ledger.resolve(pod)
        chain = () if name is None else path_of(ledger, name)
        if name is None or not chain:
            return None
        request = _asked(ledger, name, pod)
        for quota in chain:
            used, floor = ledger.used_of(quota), ledger.floor_of(quota)
            if any(
                used.get(key, 0) + amount > floor.get(key, 0) for key, amount in request.items() if amount
            ):
                if quota == name:
                    return None
                above.add(quota)
        ledger = ledger.assume(pod)
    return frozenset(above)


def is_below(ledger: QuotaLedger, name: str, quotas: Iterable[str]) -> bool:
    """Tell whether a quota lies below all of some quotas."""
    return set(quotas) <= set(path_of(ledger, name))


def kept_floor(ledger: QuotaLedger, name: str) -> Resources:
    """Give what a quota that borrows keeps: its floor, and its ``min`` where that is larger."""
    # A min that is scaled down, since all of them together are more than there is, is kept all the same.
    floor, written = ledger.floor_of(name), ledger.min_of(name)
    return type(floor)(
        {key: max(amount, floor.get(key, 0)) for key, amount in written.items()}
        | {key: amount for key, amount in floor.items() if key not in written}
    )


def _over(ledger: QuotaLedger, name: str) -> frozenset[str]:
    """Name what a quota uses more of than it keeps."""
    floor = kept_floor(ledger, name)
    return frozenset(key for key, amount in ledger.used_of(name).items() if amount > floor.get(key, 0))


def _is_leaf(ledger: QuotaLedger, name: str) -> bool:
    found = ledger.find(name)
    return found is not None and found[0].tree.group_below[found[1]] < 0


def lenders_below(ledger: QuotaLedger, name: str, spared: Collection[str]) -> list[str]:
    """Name a leaf quota and all above it below the common ancestor; nothing for one that is no leaf."""
    return [one for one in path_of(ledger, name) if one not in spared] if _is_leaf(ledger, name) else []


def _borrowed(ledger: QuotaLedger, victim: str, spared: Collection[str]) -> frozenset[str]:
    """Name what a quota and all above it below the common ancestor use beyond their floors, each of them."""
    overs = [_over(ledger, name) for name in lenders_below(ledger, victim, spared)]
    return frozenset.intersection(*overs) if overs else frozenset()


def borrowers(
    ledger: QuotaLedger, name: str, wanted: Sequence[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """List the leaf quotas that use more than their floor of something, with what that is.

    Parameters
    ----------
    name
        The quota that may get it back; it and those above it are none of them.
    wanted
        Resources that are looked at.
    """
    mine = path_of(ledger, name)
    found = []
    for other in sorted(ledger.quotas):
        if other not in mine:
            borrowed = _borrowed(ledger, other, mine)
            over = tuple(key for key in wanted if key in borrowed)
            if over:
                found.append((other, over))
    return tuple(found)


def affordable(lost: Mapping[str, int], priority: int, gains: dict[str, int], mine: int) -> bool:
    """Tell whether pods may give back what they run on, and take that from what may be lost in all.

    What lies beyond the floor may always be had back. Of what lies within it those who are more important
    keep all; those as important lose together less than the pod gains that comes (see ``docs/loops.md``).

    Parameters
    ----------
    lost
        From :meth:`~koordcore.quota.floors.Floors.lost`.
    priority
        Of the most important of the pods that would leave.
    gains
        What comes, by resource, less what has been taken from it; is changed.
    mine
        The priority of who comes.
    """
    if not lost:
        return False
    if not min(lost.values()) or priority < mine:
        return True
    for key, amount in sorted(lost.items()):
        if priority == mine and amount < gains.get(key, 0):
            gains[key] -= amount
            return True
    return False
