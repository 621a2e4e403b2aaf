"""How the decisions of a call must show in the claims afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from koordcore.model.claims import ClaimConsumer, ResourceClaim
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def claims_after(snapshot: ClusterSnapshot, result: ScheduleResult) -> ClusterSnapshot:
    """Give the snapshot before with the claims as they should be after: allocated, and reserved for users."""
    pods = {pod.key: pod for pod in (*snapshot.pending, *result.snapshot.pending)}
    pods |= {pod.key: pod for pod in result.snapshot.bound_pods()}
    claims = {(one.namespace, one.name): one for one in snapshot.of(ResourceClaim)}
    changed = {}
    for decision in result.decisions:
        if not isinstance(decision, Bound):
            continue
        for held in decision.claims:
            key = (decision.pod.namespace, held.name)
            pod = pods.get(decision.pod)
            if key in claims and pod is not None:
                users = claims[key].reserved_for
                if not any(_stands_for(one, pod) for one in users):
                    group = group_that_shares(snapshot, pod, held.entry)
                    users = (*users, ClaimConsumer(pod.name, pod.uid) if group is None else _whole(group))
                claims[key] = changed[key] = attrs.evolve(
                    claims[key], allocation=held.allocation, reserved_for=users
                )
    return snapshot.with_records(*changed.values()) if changed else snapshot


def group_that_shares(snapshot: ClusterSnapshot, pod: Pod, entry: str) -> SchedulingPodGroup | None:
    """Find the PodGroup of a pod that has the same entry, by name, claim and template (KEP-5729)."""
    named = pod.scheduling_group
    if named is None or named.workload:
        return None
    group = snapshot.find(SchedulingPodGroup, named.pod_group, pod.namespace)
    wanted = next((one for one in pod.resource_claims if one.name == entry), None)
    if group is None or wanted is None:
        return None
    for one in group.claims:
        same = one.template == wanted.template and (one.template or one.claim == wanted.claim)
        if one.name == entry and same:
            return group
    return None


def failed_devices(claim: ResourceClaim) -> Iterator[str]:
    """Name the conditions of the devices of a claim that forbid to bind anybody with it (KEP-5007).

    When a time is over is not looked at: a result does not say when it was made.
    """
    for result in () if claim.allocation is None else claim.allocation.results:
        for one in claim.devices:
            same = (one.driver, one.pool, one.device) == tuple(result.id) and one.share_id == result.share_id
            for kind in result.binding_failure_conditions if same else ():
                if one.conditions.get(kind):
                    yield f"{kind} of {result.id}"


def _whole(group: SchedulingPodGroup) -> ClaimConsumer:
    return ClaimConsumer(group.name, group.uid, "podgroups", "scheduling.k8s.io")


def _stands_for(consumer: ClaimConsumer, pod: Pod) -> bool:
    """Tell whether an entry is for the pod, or for the group that it belongs to."""
    if consumer.resource == "pods":
        return consumer.uid == pod.uid if consumer.uid and pod.uid else consumer.name == pod.name
    group = pod.scheduling_group
    return consumer.resource == "podgroups" and group is not None and consumer.name == group.pod_group
