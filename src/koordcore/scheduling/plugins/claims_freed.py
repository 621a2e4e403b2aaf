"""Who has to leave a node, so that the claims of a pod fit there."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore.allocators.claims.departures import departures, holding_of, least_sets
from koordcore.allocators.claims.outcome import ClaimError
from koordcore.allocators.claims.requests import read_claims
from koordcore.allocators.claims.states import Answers
from koordcore.model.claims import ClaimAllocation
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.plugins.claim_ledger import ClaimKey, ClaimLedger


def ways_to_free(
    ledger: ClaimLedger, answers: Answers, row: int, going: Sequence[Pod]
) -> tuple[frozenset[PodKey], ...] | None:
    """List the least sets of pods whose leaving lets claims fit on a node.

    A claim is free when all its users have left; one that stands without them is not.

    Parameters
    ----------
    answers
        What the claims get, by state.
    row
        The node.
    going
        Pods on it that may leave.

    Returns
    -------
    tuple of frozenset or None
        Whoever leaves so that the claims fit contains one of these sets; ``None`` where there are too many to
        tell.
    """
    claims = _freed_by(ledger, going)
    number = int(ledger.numbers[row])
    empty = ledger.number_without(row, [allocation for allocation, _ in claims.values()])
    if not answers.fits(empty):
        return ()
    now, emptied = ledger.states.room(number), ledger.states.room(empty)
    forms = read_claims(now.table, answers.claims, ledger.devices.classes)
    if isinstance(forms, ClaimError):
        return None
    known = list(claims.values())

    def fits(leaving: frozenset[int]) -> bool:
        return answers.fits(ledger.number_without(row, [known[place][0] for place in leaving]))

    # The table may be that of another node of the same shape: places are equal, names are not.
    places = ledger.devices.places(row)
    holdings = [holding_of(now.table, places, one) for one, _ in known]
    able = departures(now, emptied, forms, holdings, fits)
    if able is None:
        return None
    names = sorted({pod for _, pods in known for pod in pods})
    numbered = {pod: place for place, pod in enumerate(names)}
    sets = (frozenset(numbered[pod] for place in one for pod in known[place][1]) for one in able)
    return tuple(frozenset(names[place] for place in one) for one in least_sets(sets))


def _freed_by(
    ledger: ClaimLedger, going: Sequence[Pod]
) -> dict[ClaimKey, tuple[ClaimAllocation, frozenset[PodKey]]]:
    """Give the claims that are free once some pods have left, with those of them that use each."""
    users: dict[ClaimKey, set[PodKey]] = {}
    for pod in going:
        for key, _ in ledger.book.held_by(pod):
            users.setdefault(key, set()).add(pod.key)
    found = {}
    for key, pods in users.items():
        allocation = ledger.freed_with(key, len(pods))
        if allocation is not None:
            found[key] = (allocation, frozenset(pods))
    return found
