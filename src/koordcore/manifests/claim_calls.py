"""What is sent about the claims of a pod before it is bound."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from koordcore.manifests.calls import STRATEGIC_MERGE_PATCH, Call
from koordcore.manifests.claim_status import claim_manifest, extended_status, reservation_patch
from koordcore.model.claims import DeviceClass, HeldClaim, ResourceClaim
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod
from koordcore.protocol.claims import consumer_for
from koordcore.protocol.extended_resources import classes_by_resource, extended_claim, extended_demand
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.claim_records import group_of


def claim_calls(snapshot: ClusterSnapshot, decision: Bound, now: datetime | None) -> Iterator[Call]:
    """Reserve the claims of a bound pod, with their allocation where they have none yet.

    A claim that a template will give is left out: only the controller makes it, and under a name that is not
    known yet. The claim for extended resources is made here, as kube-scheduler does.

    Parameters
    ----------
    snapshot
        After the decision.
    now
        Time of new allocations of devices with binding conditions.
    """
    pod = snapshot.pod(decision.pod)
    if pod is None:
        return
    for held in decision.claims:
        if not held.entry:
            yield from _made(snapshot, pod, decision.node, held, now)
        elif not held.planned:
            yield _reserve(snapshot, pod, held, now)


def _reserve(snapshot: ClusterSnapshot, pod: Pod, held: HeldClaim, now: datetime | None) -> Call:
    claim = snapshot.find(ResourceClaim, held.name, pod.namespace)
    consumer = consumer_for(pod, held.entry, group_of(snapshot, pod))
    return Call(
        verb="patch",
        pod=pod.key,
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
        body=reservation_patch(held, "" if claim is None else claim.uid, consumer, now=now),
        claim=held.name,
    )


def _made(
    snapshot: ClusterSnapshot, pod: Pod, node: str, held: HeldClaim, now: datetime | None
) -> Iterator[Call]:
    """A claim for extended resources is made first, and the pod is told about it last."""
    classes = classes_by_resource(snapshot.of(DeviceClass))
    demand = extended_demand(pod.requests, snapshot.node(node).node.allocatable, classes)
    made = extended_claim(pod, () if demand is None else demand.claimed, classes)
    yield Call(verb="create", pod=pod.key, body=claim_manifest(made.claim), claim=held.name)
    yield _reserve(snapshot, pod, held, now)
    yield Call(
        verb="patch",
        pod=pod.key,
        subresource="status",
        content_type=STRATEGIC_MERGE_PATCH,
        body=extended_status(pod, held.name, made.mappings),
    )
