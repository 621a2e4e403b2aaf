"""What is sent about the claims of a pod before it is bound."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from koordcore.manifests.calls import STRATEGIC_MERGE_PATCH, Call
from koordcore.manifests.claim_status import (
    claim_statuses,
    extended_status,
    finalizer_patch,
    new_claim,
    reservation_patch,
)
from koordcore.model.claims import DeviceClass, HeldClaim, ResourceClaim, ResourceClaimTemplate
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod, PodKey
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.claims import Owner, claim_from_template, consumer_for, sharing_entry
from koordcore.protocol.extended_resources import classes_by_resource, extended_claim, extended_demand
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.claim_records import group_of


def claim_calls(snapshot: ClusterSnapshot, decision: Bound, now: datetime | None) -> Iterator[Call]:
    """Reserve the claims of a bound pod, with their allocation where they have none yet.

    A claim that does not exist yet is made first: that of extended resources as kube-scheduler does, that of
    a template as its controller does, which takes over a claim that the pod (or its group) owns already.

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
            yield from _extended(snapshot, pod, decision.node, held, now)
        elif held.planned:
            yield from _templated(snapshot, pod, held, now)
        else:
            if held.fresh:
                yield _patch(pod.key, finalizer_patch(_uid(snapshot, pod, held)), claim=held.name)
            yield _reserve(snapshot, pod, held, now)


def _patch(pod: PodKey, body: dict[str, object], subresource: str = "", claim: str = "") -> Call:
    return Call(
        verb="patch",
        pod=pod,
        subresource=subresource,
        content_type=STRATEGIC_MERGE_PATCH,
        body=body,
        claim=claim,
    )


def _uid(snapshot: ClusterSnapshot, pod: Pod, held: HeldClaim) -> str:
    claim = snapshot.find(ResourceClaim, held.name, pod.namespace)
    return "" if claim is None else claim.uid


def _reserve(snapshot: ClusterSnapshot, pod: Pod, held: HeldClaim, now: datetime | None) -> Call:
    consumer = consumer_for(pod, held.entry, group_of(snapshot, pod))
    body = reservation_patch(held, _uid(snapshot, pod, held), consumer, now=now)
    return _patch(pod.key, body, "status", held.name)


def _extended(
    snapshot: ClusterSnapshot, pod: Pod, node: str, held: HeldClaim, now: datetime | None
) -> Iterator[Call]:
    """A claim for extended resources is made first, and the pod is told about it last."""
    classes = classes_by_resource(snapshot.of(DeviceClass))
    demand = extended_demand(pod.requests, snapshot.node(node).node.allocatable, classes)
    made = extended_claim(pod, () if demand is None else demand.claimed, classes)
    yield Call(verb="create", pod=pod.key, body=new_claim(made.claim, pod), claim=held.name)
    yield _reserve(snapshot, pod, held, now)
    yield _patch(pod.key, extended_status(pod, held.name, made.mappings), "status")


def _templated(snapshot: ClusterSnapshot, pod: Pod, held: HeldClaim, now: datetime | None) -> Iterator[Call]:
    """A claim of a template is made once: for its pod, or with the first of the members that share it."""
    entry = next(one for one in pod.resource_claims if one.name == held.entry)
    template = snapshot.find(ResourceClaimTemplate, entry.template, pod.namespace)
    if template is None or not held.fresh:
        return
    group = group_of(snapshot, pod)
    shared = group is not None and sharing_entry(group, entry) is not None
    owner: Owner = group if group is not None and shared else pod
    made = claim_from_template(owner, held.entry, template)
    yield Call(verb="create", pod=pod.key, body=new_claim(made, owner), claim=held.name)
    yield _reserve(snapshot, pod, held, now)
    body = claim_statuses(owner.uid, held.entry, held.name)
    if isinstance(owner, SchedulingPodGroup):
        key = PodKey(owner.namespace, owner.name)
        yield Call(
            verb="patch",
            pod=key,
            subresource="status",
            content_type=STRATEGIC_MERGE_PATCH,
            body=body,
            pod_group=owner.api_version,
        )
    else:
        yield _patch(pod.key, body, "status")
