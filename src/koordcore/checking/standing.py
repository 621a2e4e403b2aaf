"""A cluster as it stands, told as one decision about all that runs."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from koordcore.checking.claim_records import claims_after
from koordcore.checking.holders import identity_of, used_by
from koordcore.model.claims import HeldClaim, ResourceClaim
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded


def as_decided(snapshot: ClusterSnapshot, policy: Policy) -> tuple[ClusterSnapshot, ScheduleResult]:
    """Give the cluster without what runs, and the result that has bound all of it."""
    names = {identity_of(one): one.name for one in snapshot.of(Reservation)}
    running = list(snapshot.bound_pods())
    decisions = [
        Bound(
            pod=pod.key,
            node=pod.node_name or "",
            reservation=names.get(used_by(pod), ""),
            claims=tuple(_claims(snapshot, pod)),
        )
        for pod in running
    ]
    held = {one.pod: one.claims for one in decisions}
    after = snapshot.apply(*(PodEnded(pod.key) for pod in running)) if running else snapshot
    before = after.with_pending(*(pod.at(None) for pod in running))
    after = after.assume(*(pod.at(pod.node_name, claims=held[pod.key]) for pod in running))
    result = ScheduleResult(decisions=tuple(decisions), snapshot=after, policy=policy)
    if snapshot.of(ResourceClaim):  # these say whom they are reserved for
        claims = claims_after(before, result).of(ResourceClaim)
        result = attrs.evolve(result, snapshot=after.with_records(*claims))
    return before, result


def _claims(snapshot: ClusterSnapshot, pod: Pod) -> Iterator[HeldClaim]:
    """Give what a running pod holds: as its last decision says, or the claims themselves."""
    entries = {held.entry: held for held in pod.held_claims}
    yield from pod.held_claims
    for entry in pod.resource_claims:
        found = snapshot.find(ResourceClaim, entry.claim, pod.namespace) if entry.claim else None
        if entry.name not in entries and found is not None and found.allocation is not None:
            yield HeldClaim(name=found.name, allocation=found.allocation, entry=entry.name, fresh=False)
