"""What the claims of a pod get on its node, written down for the decision."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.allocators.claims.outcome import ClaimError
from koordcore.allocators.claims.results import Choice, allocation_of
from koordcore.framework.evaluator import Reserved
from koordcore.model.claims import ClaimAllocation, HeldClaim, ResourceClaim
from koordcore.model.decisions import Shortfall
from koordcore.model.pods import Pod
from koordcore.protocol.claims import ClaimProblem, missing_conditions
from koordcore.scheduling.plugins.claim_book import ClaimKey
from koordcore.scheduling.plugins.claim_ledger import ClaimLedger


def give_claims(
    ledger: ClaimLedger, pod: Pod, row: int, chosen: Mapping[ClaimKey, tuple[ResourceClaim, Choice]]
) -> Reserved | Shortfall | None:
    """Write down what the claims of a pod get on a node.

    Parameters
    ----------
    ledger
        Who has which claim.
    pod
        Who gets them.
    row
        The node.
    chosen
        The claims that are allocated with the pod, with their devices; the others are allocated already.

    Returns
    -------
    Reserved, Shortfall or None
        ``None`` where the node's device plugins give all that the pod asks for.
    """
    devices = ledger.devices
    given: dict[ClaimKey, ClaimAllocation] = {}
    served_there: set[ClaimKey] = set()
    for key, (claim, choice) in chosen.items():
        if claim.extended and not choice.forms:
            served_there.add(key)  # by the node's device plugins
            continue
        shareable = devices.table(devices.shape[row]).shareable
        allocation = allocation_of(devices.pools[row], shareable, choice, claim, devices.classes)
        if isinstance(allocation, ClaimError):
            return Shortfall(allocation.text, resolvable=False)
        given[key] = allocation
    found = ledger.book.claims_of(pod)
    if isinstance(found, ClaimProblem):
        return Shortfall(found.reason, resolvable=False)
    held: list[HeldClaim] = []
    notes: list[str] = []
    # The claim for extended resources belongs to no entry.
    entries = [entry.name for entry in pod.resource_claims]
    entries += [""] * (len(found.claims) - len(entries))
    for entry, claim in zip(entries, found.claims, strict=True):
        key = (claim.namespace, claim.name)
        if key in served_there:
            continue
        known = given.get(key)
        settled = known or ledger.allocation(key)
        assert settled is not None
        # Whoever uses an allocated claim waits as well until its devices are ready.
        notes += [f"{claim.name} waits for {missing}" for missing in missing_conditions(claim, settled)]
        held.append(
            HeldClaim(
                name=claim.name,
                entry=entry,
                allocation=settled,
                fresh=known is not None,
                planned=claim.name in found.planned,
            )
        )
    return Reserved(claims=tuple(held), notes=tuple(notes)) if held else None
