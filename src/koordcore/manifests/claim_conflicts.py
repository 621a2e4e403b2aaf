"""What claims, slices and pods of a dump say against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import Problem
from koordcore.manifests.claim_overuse import overused
from koordcore.model.claims import (
    POD_GROUPS,
    DeviceResult,
    ResourceClaim,
)
from koordcore.model.cluster import Namespace
from koordcore.model.device_slices import (
    DeviceId,
    ResourceSlice,
)
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.claims import ClaimIndex, ClaimProblem, claims_of_pod, consumer_of

_ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"


@record
class ClaimConflict:
    """A warning about a claim or a pod."""

    about: ResourceClaim | Pod
    problem: Problem


def claim_conflicts(
    records: Sequence[ClusterRecord], nodes: Iterable[NodeState], waiting: Iterable[Pod]
) -> Iterator[ClaimConflict]:
    """Find devices held twice, overused or published by nobody, and claims and pods that disagree.

    Parameters
    ----------
    records
        All of the dump; claims and slices are looked at.
    nodes
        With the pods bound to them.
    waiting
        Pods that are bound nowhere.
    """
    claims = (one for one in records if isinstance(one, ResourceClaim))
    slices = [one for one in records if isinstance(one, ResourceSlice)]
    ordered = sorted(claims, key=lambda one: (one.namespace, one.name))
    published = {DeviceId(one.driver, one.pool, device.name) for one in slices for device in one.devices}
    yield from _held_twice(ordered)
    for over in overused(ordered, slices):
        yield _warning(over.claim, f"status.allocation.devices.results[{over.place}]", over.message)
    for claim in ordered:
        for path, result in _results(claim):
            if published and result.id not in published:
                yield _warning(claim, path, f"no slice publishes {result.id}")
    bound = [(pod, state) for state in nodes for pod in state.pods]
    known = {(pod.namespace, pod.name): pod for pod, _ in bound}
    known |= {(pod.namespace, pod.name): pod for pod in waiting}
    closed = {
        one.name for one in records if isinstance(one, Namespace) and one.labels.get(_ADMIN_ACCESS) != "true"
    }
    for claim in ordered:
        yield from _unknown_consumers(claim, known)
        if claim.namespace in closed:
            yield from _without_leave(claim)
    index = ClaimIndex(ordered, groups=(one for one in records if isinstance(one, SchedulingPodGroup)))
    for pod, state in bound:
        if pod.resource_claims:
            yield from _without_devices(pod, state, index)


def _warning(about: ResourceClaim | Pod, path: str, message: str) -> ClaimConflict:
    return ClaimConflict(about, Problem(path, message))


def _results(claim: ResourceClaim) -> Iterator[tuple[str, DeviceResult]]:
    if claim.allocation is not None:
        for number, result in enumerate(claim.allocation.results):
            yield f"status.allocation.devices.results[{number}]", result


def _held_twice(claims: Iterable[ResourceClaim]) -> Iterator[ClaimConflict]:
    whole: dict[DeviceId, ResourceClaim] = {}
    shared: dict[DeviceId, ResourceClaim] = {}
    shares: dict[tuple[DeviceId, str], ResourceClaim] = {}
    for claim in claims:
        for path, result in _results(claim):
            if result.admin_access:
                continue
            other = whole.get(result.id)
            if result.share_id is None:
                other = other or shared.get(result.id)
                whole.setdefault(result.id, claim)
            else:
                shared.setdefault(result.id, claim)
                same = shares.setdefault((result.id, result.share_id), claim)
                if same is not claim:
                    shown = f"{same.namespace}/{same.name}"
                    yield _warning(
                        claim, f"{path}.shareID", f"claim {shown} has the same share of {result.id}"
                    )
            if other is not None and other is not claim:
                shown = f"{other.namespace}/{other.name}"
                yield _warning(claim, path, f"{result.id} is held by claim {shown}, too")


def _unknown_consumers(claim: ResourceClaim, pods: Mapping[tuple[str, str], Pod]) -> Iterator[ClaimConflict]:
    for number, consumer in enumerate(claim.reserved_for):
        if consumer.resource == POD_GROUPS or not pods:
            continue
        path = f"status.reservedFor[{number}]"
        pod = pods.get((claim.namespace, consumer.name))
        if pod is None:
            yield _warning(claim, path, f"no pod {claim.namespace}/{consumer.name} in the dump")
        elif consumer.uid and pod.uid and consumer.uid != pod.uid:
            yield _warning(claim, path, f"{consumer.name} has uid {pod.uid}, not {consumer.uid}")


def _without_leave(claim: ResourceClaim) -> Iterator[ClaimConflict]:
    for number, request in enumerate(claim.spec.requests):
        if any(form.admin_access for form in request.forms):
            where = f"spec.devices.requests[{number}].exactly.adminAccess"
            yield _warning(
                claim, where, f"the server refuses it without the namespace's label {_ADMIN_ACCESS}"
            )


def _without_devices(pod: Pod, state: NodeState, index: ClaimIndex) -> Iterator[ClaimConflict]:
    """A running pod should have all its devices."""
    for number, entry in enumerate(pod.resource_claims):
        path = f"spec.resourceClaims[{number}]"
        found = claims_of_pod(attrs.evolve(pod, resource_claims=(entry,)), index)
        if isinstance(found, ClaimProblem):
            yield _warning(pod, path, f"{found.reason}, although the pod is bound")
            continue
        claim = found.claims[0]
        allocation = claim.allocation
        if allocation is None:
            yield _warning(pod, path, f"claim {claim.name} is not allocated, although the pod is bound")
        elif consumer_of(claim, pod) is None:
            yield _warning(pod, path, f"claim {claim.name} is not reserved for the pod")
        elif allocation.node_selector is not None and not allocation.node_selector.matches(
            state.name, state.node.labels
        ):
            yield _warning(
                pod, path, f"the devices of claim {claim.name} cannot be used on node {state.name}"
            )
