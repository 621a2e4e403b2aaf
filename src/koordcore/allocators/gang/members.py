"""The pods of a snapshot that belong to groups of Kubernetes, followed from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from koordcore._vector import Vector
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.protocol.gang_names import gang_name
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_states, derived


def belongs(pod: Pod) -> bool:
    """Tell whether a pod goes with others: in a gang by its labels, or in one of Kubernetes' own groups."""
    return pod.scheduling_group is not None or bool(gang_name(pod.labels, pod.annotations))


def grouped_members(snapshot: ClusterSnapshot) -> Iterable[Pod]:
    """Give the members of Kubernetes' own groups that hold room on a node, by node and key.

    Only nodes that have some are looked at.
    """
    found = derived(snapshot, _running, _running_again, replaced=True)
    return chain.from_iterable(found[name] for name in sorted(found))


def _grouped(pod: Pod) -> bool:
    return pod.scheduling_group is not None


def _running(snapshot: ClusterSnapshot) -> dict[str, tuple[Pod, ...]]:
    """Members by the name of their node."""
    found = ((state.name, tuple(filter(_grouped, state.pods))) for state in snapshot.nodes)
    return {name: pods for name, pods in found if pods}


def _running_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    value: dict[str, tuple[Pod, ...]],
    snapshot: ClusterSnapshot,
) -> dict[str, tuple[Pod, ...]]:
    del records
    changed = changed_states(snapshot, nodes)
    found = dict(value) if changed else value
    for before, after in changed:
        if before is not None:
            found.pop(before.name, None)
        pods = () if after is None else tuple(filter(_grouped, after.pods))
        if after is not None and pods:
            found[after.name] = pods
    return found


def in_two_gangs(pod: Pod) -> bool:
    """Tell whether a waiting pod is in a gang by its labels and names a group of Kubernetes as well.

    Nobody knows which of them is meant, so it is refused alone and counts in neither.
    """
    if pod.scheduling_group is None or pod.node_name is not None:
        return False
    return bool(gang_name(pod.labels, pod.annotations))
