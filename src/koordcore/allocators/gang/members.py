"""The pods of a snapshot that belong to a gang or a group, followed from snapshot to snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from koordcore._vector import Vector
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.protocol.gang import gang_name
from koordcore.snapshot import ClusterSnapshot

__all__ = ["belongs", "running_members"]


def belongs(pod: Pod) -> bool:
    """Tell whether a pod goes with others: in a gang by its labels, or in one of Kubernetes' own groups."""
    return pod.scheduling_group is not None or bool(gang_name(pod.labels, pod.annotations))


def running_members(snapshot: ClusterSnapshot) -> Iterable[Pod]:
    """Give the members that hold room on a node, by node and key; only nodes that have some are looked at."""
    return chain.from_iterable(snapshot.derived(_running, _running_again, replaced=True).values())


def _running(snapshot: ClusterSnapshot) -> dict[int, tuple[Pod, ...]]:
    """Members by the row of their node."""
    found = ((row, tuple(filter(belongs, state.pods))) for row, state in enumerate(snapshot.nodes))
    return {row: pods for row, pods in found if pods}


def _running_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    value: dict[int, tuple[Pod, ...]],
    snapshot: ClusterSnapshot,
) -> dict[int, tuple[Pod, ...]]:
    del records
    changed = snapshot.changed_rows(nodes)
    found = dict(value) if changed else value
    for row in changed:
        found.pop(row, None)
        pods = tuple(filter(belongs, snapshot.state_at(row).pods))
        if pods:
            found[row] = pods
    return found
