"""What is sent about the claims of a pod before it is bound."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import attrs

from koordcore.manifests.calls import STRATEGIC_MERGE_PATCH, Call
from koordcore.manifests.claim_status import claim_manifest, extended_status, reservation_patch
from koordcore.model.claims import POD_GROUPS, ClaimConsumer, DeviceClass, ResourceClaim
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod
from koordcore.protocol.claims import consumer_of
from koordcore.protocol.extended_resources import classes_by_resource, extended_claim
from koordcore.snapshot import ClusterSnapshot

__all__ = ["claim_calls"]


def claim_calls(snapshot: ClusterSnapshot, decision: Bound, now: datetime | None) -> Iterator[Call]:
    """Reserve the claims of a bound pod, with their allocation where they have none yet.

    A claim made from a template must have been made by the controller before: one that was only planned here
    has another name there, and the server does not find it. The claim for extended resources is made here,
    as kube-scheduler does.

    Parameters
    ----------
    snapshot
        After the decision: claims as they stand then.
    now
        Time of new allocations of devices with binding conditions.
    """
    pod = snapshot.pod(decision.pod)
    if pod is None:
        return
    reserved = snapshot.once(_by_consumer)
    names = [("pods", pod.name)]
    if pod.scheduling_group is not None:
        names.append((POD_GROUPS, pod.scheduling_group.pod_group))
    for resource, name in names:
        for claim in reserved.get((resource, pod.namespace, name), ()):
            consumer = consumer_of(claim, pod)
            if consumer is None:
                continue
            if claim.extended:
                yield from _made(snapshot, pod, claim, consumer, now)
            else:
                yield _reserve(pod, claim, consumer, now)


def _by_consumer(snapshot: ClusterSnapshot) -> dict[tuple[str, str, str], list[ResourceClaim]]:
    found: dict[tuple[str, str, str], list[ResourceClaim]] = {}
    for claim in snapshot.of(ResourceClaim):
        for one in claim.reserved_for:
            found.setdefault((one.resource, claim.namespace, one.name), []).append(claim)
    return found


def _reserve(pod: Pod, claim: ResourceClaim, consumer: ClaimConsumer, now: datetime | None) -> Call:
    return Call(
        verb="patch",
        pod=pod.key,
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
        body=reservation_patch(claim, consumer, now=now),
        claim=claim.name,
    )


def _made(
    snapshot: ClusterSnapshot, pod: Pod, claim: ResourceClaim, consumer: ClaimConsumer, now: datetime | None
) -> Iterator[Call]:
    """A claim for extended resources is made first, and the pod is told about it last."""
    body = claim_manifest(attrs.evolve(claim, allocation=None, reserved_for=()))
    yield Call(verb="create", pod=pod.key, body=body, claim=claim.name)
    yield _reserve(pod, claim, consumer, now)
    classes = classes_by_resource(snapshot.of(DeviceClass))
    # Which resources the claim serves is what its requests say; the rest a device plugin serves.
    wanted = {form.class_name for request in claim.spec.requests for form in request.forms}
    served = [name for name, amount in pod.requests.items() if amount and classes.get(name) in wanted]
    told = extended_claim(pod, served, classes)
    yield Call(
        verb="patch",
        pod=pod.key,
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
        body=extended_status(pod, claim, told.mappings),
    )
