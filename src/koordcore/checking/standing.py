"""A cluster as it stands, told as one decision about all that runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from koordcore.checking.claim_records import claims_after
from koordcore.checking.holders import AFFINITY, USED, identity_of, used_by
from koordcore.checking.permits import as_placed
from koordcore.model.claims import HeldClaim, ResourceClaim
from koordcore.model.decisions import Bound, Waiting
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.protocol.holdings import without
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded


def as_decided(snapshot: ClusterSnapshot, policy: Policy) -> tuple[ClusterSnapshot, ScheduleResult]:
    """Give the cluster without what runs, and the result that has bound all of it."""
    # Whoever runs is bound: what drivers have said of devices since then keeps nobody away.
    told = [one for one in snapshot.of(ResourceClaim) if one.devices]
    if told:
        snapshot = snapshot.with_records(*(attrs.evolve(one, devices=()) for one in told))
    names = {identity_of(one): one.name for one in snapshot.of(Reservation)}
    over = {identity_of(one) for one in snapshot.of(Reservation) if one.over}
    made = {
        (one.namespace, one.owner, one.pod_claim_name): one
        for one in snapshot.of(ResourceClaim)
        if one.owner and (one.extended or one.pod_claim_name)
    }
    there = {"", *names} - over
    running = [pod if used_by(pod) in there else _by_itself(pod) for pod in snapshot.bound_pods()]
    bound = [
        Bound(
            pod=pod.key,
            node=pod.node_name or "",
            reservation=names.get(used_by(pod), ""),
            claims=tuple(_claims(snapshot, pod, made)),
        )
        for pod in running
    ]
    held = {one.pod: one.claims for one in bound}
    decisions = [
        Waiting(pod=pod.key, reason="its gang", held=one) if WAITS_AT_PERMIT in pod.annotations else one
        for pod, one in zip(running, bound, strict=True)
    ]
    after = snapshot.apply(*(PodEnded(pod.key) for pod in running)) if running else snapshot
    before = after.with_pending(*(pod.at(None) for pod in running))
    after = after.assume(*(pod.at(pod.node_name, claims=held[pod.key]) for pod in running))
    result = ScheduleResult(decisions=tuple(decisions), snapshot=after, policy=policy)
    if snapshot.of(ResourceClaim):  # these say whom they are reserved for
        claims = claims_after(before, as_placed(result)).of(ResourceClaim)
        result = attrs.evolve(result, snapshot=after.with_records(*claims))
    return before, result


def _by_itself(pod: Pod) -> Pod:
    """Give a pod whose reservation is over or gone: it holds nothing any more, and need not be used."""
    return attrs.evolve(pod, annotations=without(pod.annotations, (USED, AFFINITY)))


def _claims(
    snapshot: ClusterSnapshot, pod: Pod, made: Mapping[tuple[str, str, str], ResourceClaim]
) -> Iterator[HeldClaim]:
    """Give what a running pod holds: as its last decision says, or the claims themselves.

    Parameters
    ----------
    snapshot, pod
        Where claims stand, and whose are looked for.
    made
        Claims made for pods, by namespace, owner and entry: none for extended resources.
    """
    entries = {held.entry: held for held in pod.held_claims}
    yield from pod.held_claims
    for name, claim in (*((entry.name, entry.claim) for entry in pod.resource_claims), ("", "")):
        owned = made.get((pod.namespace, pod.uid or pod.name, name))
        found = snapshot.find(ResourceClaim, claim, pod.namespace) if claim else owned
        if name not in entries and found is not None and found.allocation is not None:
            yield HeldClaim(name=found.name, allocation=found.allocation, entry=name, fresh=False)
