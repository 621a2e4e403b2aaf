"""Pods of Kueue's Workloads as a plan that admits them has them: before they are bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from koordcore.model.decisions import PodDecision, Waiting
from koordcore.model.gangs import PodGroup
from koordcore.model.kueue import AdmittedWorkload, ClusterQueue, KueueWorkload
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.pods import Pod
from koordcore.protocol.workload_pods import FlavorsOf, admitted_pods, pod_set_of, workload_of

if TYPE_CHECKING:
    from koordcore.snapshot.cluster import ClusterSnapshot


def with_admitted(
    before: ClusterSnapshot, admitted: Iterable[AdmittedWorkload], decisions: Iterable[PodDecision]
) -> ClusterSnapshot:
    """Make the pods that a plan starts as the admission of their Workloads makes them.

    Parameters
    ----------
    before
        The cluster that the plan is for; pods that are made already stay as they are.
    admitted
        Whom the plan gives quota. What names objects that are not there is left out.
    decisions
        About the pods. Those that only wait take no part in their gang.
    """
    given = {one.workload: one for one in admitted}
    if not given:
        return before
    idle = {one.pod for one in decisions if isinstance(one, Waiting) and one.held is None}
    members: dict[str, list[Pod]] = {key: [] for key in given}
    for pod in before.pending:
        if (name := workload_of(pod)) in members:
            members[name].append(pod)
    known = {one.name: one for one in before.of(ResourceFlavor)}
    topologies = {one.name: one for one in before.of(KueueTopology)}
    workloads = {one.key: one for one in before.of(KueueWorkload) if one.pod_sets}
    groups: list[PodGroup] = []
    changed: list[Pod] = []
    for key, one in given.items():
        queue, workload = before.find(ClusterQueue, one.queue), workloads.get(key)
        if queue is None or workload is None or not set(one.flavors.values()) <= known.keys():
            continue
        sets = {pod_set_of(pod, workload) for pod in members[key]}
        pods = [pod for pod in members[key] if pod.key not in idle]
        flavors = _flavors_of(one.flavors, queue, workload, known, sets)
        group, made = admitted_pods(pods, workload, flavors, topologies)
        if before.find(PodGroup, group.name, group.namespace) != group:
            groups.append(group)
        changed += [new for old, new in zip(pods, made, strict=True) if new != old]
    before = before.with_records(*groups) if groups else before
    return before.with_pending(*changed) if changed else before


def _flavors_of(
    given: Mapping[str, str],
    queue: ClusterQueue,
    workload: KueueWorkload,
    known: Mapping[str, ResourceFlavor],
    sets: Collection[str],
) -> FlavorsOf:
    """Give the flavors of each pod set; who asks for nothing that the queue covers has those of its group."""
    order = [name for group in queue.groups for name in group.resources]

    def own(names: Iterable[str]) -> tuple[ResourceFlavor, ...]:
        named = (given.get(f"{name}/{resource}") for resource in order for name in names)
        return tuple(known[one] for one in dict.fromkeys(named) if one is not None)

    found = {}
    for one in workload.pod_sets:
        group = one.topology.group
        alike = [each.name for each in workload.pod_sets if group and each.topology.group == group]
        if one.name in sets:
            found[one.name] = own([one.name]) or own(alike)
    return found
