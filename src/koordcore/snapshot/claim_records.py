"""Claims as they stand after a call: allocated, and reserved for the pods that use them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

import attrs

from koordcore.model.claims import ResourceClaim
from koordcore.model.decisions import Bound, PodDecision, Waiting
from koordcore.model.pods import PodKey
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.claims import consumer_for, consumer_of

if TYPE_CHECKING:
    from koordcore.model.pods import Pod
    from koordcore.snapshot.cluster import ClusterSnapshot


def with_claims(end: ClusterSnapshot, decisions: Iterable[PodDecision]) -> ClusterSnapshot:
    """Write what pods got on their claims, as far as these exist.

    A claim that its controller has yet to make is known by its pod alone.
    """
    changed: dict[tuple[str, str], ResourceClaim] = {}
    for decision in decisions:
        bound = decision.held if isinstance(decision, Waiting) else decision
        if not isinstance(bound, Bound) or not bound.claims:
            continue
        pod = end.pod(bound.pod)
        for held in bound.claims:
            key = (bound.pod.namespace, held.name)
            claim = changed.get(key) or end.find(ResourceClaim, held.name, bound.pod.namespace)
            if claim is None or pod is None:
                continue
            reserved = claim.reserved_for
            if consumer_of(claim, pod) is None:
                reserved = (*reserved, consumer_for(pod, held.entry, group_of(end, pod)))
            changed[key] = attrs.evolve(claim, allocation=held.allocation, reserved_for=reserved)
    return end.with_records(*changed.values()) if changed else end


def given_back(claims: Iterable[ResourceClaim], gone: Collection[PodKey]) -> Iterator[ResourceClaim]:
    """Give back the claims of pods that have left, as their controller does where nobody else uses them.

    Who is made anew under the same name, as a plan of moves has it, does not find them allocated.

    Yields
    ------
    ResourceClaim
        The claims that say something else then.
    """
    names = {(one.namespace, one.name) for one in gone}
    for claim in claims:
        kept = tuple(
            one
            for one in claim.reserved_for
            if one.resource != "pods" or (claim.namespace, one.name) not in names
        )
        if len(kept) < len(claim.reserved_for):
            if kept:
                yield attrs.evolve(claim, reserved_for=kept)
            else:  # what drivers said goes with the devices that they said it of
                yield attrs.evolve(claim, reserved_for=kept, allocation=None, devices=())


def group_of(snapshot: ClusterSnapshot, pod: Pod) -> SchedulingPodGroup | None:
    """Give the PodGroup that a pod names, where it is there."""
    group = pod.scheduling_group
    if group is None or group.workload:
        return None
    return snapshot.find(SchedulingPodGroup, group.pod_group, pod.namespace)
