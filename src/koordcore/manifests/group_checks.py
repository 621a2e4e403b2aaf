"""What admission would say of Kubernetes' own groups beside the PriorityClasses of a dump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from koordcore.errors import Problem
from koordcore.manifests.cross_checks import Remark
from koordcore.model.cluster import PriorityClass
from koordcore.model.records import ClusterRecord
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup

_GROUP: Final = "scheduling.k8s.io"


def group_remarks(records: Iterable[ClusterRecord]) -> Iterator[Remark]:
    """Find groups whose priority, or whose preemption policy, is not that of their class.

    Notes
    -----
    A stored group has been through admission, which resolves the class; written by hand it may say both. What
    it says itself counts.
    """
    known = list(records)
    classes = {one.name: one for one in known if isinstance(one, PriorityClass)}
    for one in known:
        if not isinstance(one, SchedulingPodGroup | CompositePodGroup) or not one.priority_class:
            continue
        kind = "PodGroup" if isinstance(one, SchedulingPodGroup) else "CompositePodGroup"
        for path, told in _differs(one, classes.get(one.priority_class)):
            yield (_GROUP, kind, one.namespace, one.name), Problem(path, told)


def _differs(
    group: SchedulingPodGroup | CompositePodGroup, named: PriorityClass | None
) -> Iterator[tuple[str, str]]:
    if named is None:
        if group.priority is None:
            told = f"no PriorityClass with name {group.priority_class} was found: it counts as priority 0"
            yield "spec.priorityClassName", told
        return
    if group.priority not in (None, named.value):
        both = f"({group.priority}) must match the priority computed ({named.value})"
        told = f"priority set in the pod group {both} based on the priority class set in the spec"
        yield "spec.priority", told
    if group.preemption_policy not in (None, named.preemption_policy):
        own = f"the string value of PreemptionPolicy ({group.preemption_policy}) must not be provided"
        computed = f"priority admission controller computed {named.preemption_policy}"
        told = f"{own} in pod group spec; {computed} from the given PriorityClass name"
        yield "spec.preemptionPolicy", told
