"""Which pods start together: members of one gang, of gangs that wait for each other, of one group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from koordcore.model.gangs import PodGroup
from koordcore.model.pods import Pod
from koordcore.protocol.gang import gang_from_pod_group, parse_gang_pod
from koordcore.protocol.gang_names import gang_name
from koordcore.snapshot import ClusterSnapshot


def gang_of(pod: Pod) -> str:
    """Name what a pod starts together with: its gang or its group; empty for a pod on its own."""
    name = gang_name(pod.labels, pod.annotations)
    if name:
        return f"{pod.namespace}/{name}"
    group = pod.scheduling_group
    if group is None:
        return ""
    # Groups of a tree start together, and a tree lies in one namespace.
    return f"{pod.namespace}//{group.workload}/{group.pod_group}" if group.workload else f"{pod.namespace}//"


def starting_together(snapshot: ClusterSnapshot, gang: str, pods: Iterable[Pod]) -> Iterator[str]:
    """Name the gangs that start together with one."""
    yield gang
    space, _, name = gang.partition("/")
    written = snapshot.find(PodGroup, name, space)
    if written is not None:
        yield from gang_from_pod_group(written).gang.group
        return
    for pod in pods:
        if gang_of(pod) == gang:
            config = parse_gang_pod(
                namespace=pod.namespace, name=pod.name, labels=pod.labels, annotations=pod.annotations
            ).pod.config
            if config is not None:
                yield from config.group
                return


def units(snapshot: ClusterSnapshot, pods: Sequence[Pod]) -> list[list[Pod]]:
    """Part pods into those that start together, in the order of the first of each."""
    found: list[list[Pod]] = []
    unit_of: dict[str, list[Pod]] = {}
    for pod in pods:
        gang = gang_of(pod)
        unit = unit_of.get(gang)
        if unit is None:
            unit = []
            found.append(unit)
            if gang:
                for name in starting_together(snapshot, gang, pods):
                    unit_of.setdefault(name, unit)
        unit.append(pod)
    return found
