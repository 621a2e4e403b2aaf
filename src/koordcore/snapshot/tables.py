"""The nodes of a cluster as columns, for data frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koordcore.snapshot.cluster import ClusterSnapshot


def node_table(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """Give one row per node, by name; see :meth:`koordcore.ClusterSnapshot.table`."""
    nodes = snapshot.nodes
    table: dict[str, Any] = {
        "node": [state.name for state in nodes],
        "ready": [state.node.ready for state in nodes],
        "cordoned": [state.node.unschedulable for state in nodes],
        "running": [len(state.pods) for state in nodes],
    }
    for number, name in enumerate(snapshot.layout.resources):
        whole, used = snapshot.layout.allocatable[number], snapshot.columns.requested[number]
        if whole.any() or used.any():
            table[name] = whole.copy()
            table[f"{name} requested"] = used.copy()
    return table
