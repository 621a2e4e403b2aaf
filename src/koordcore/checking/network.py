"""The network of all nodes: what lies together there depends on more nodes than a result touches."""

from __future__ import annotations

from typing import Final

from koordcore._vector import Vector
from koordcore.errors import ModelError
from koordcore.model.network import ClusterNetworkTopology, KueueTopology, ResourceFlavor
from koordcore.model.nodes import NodeState
from koordcore.model.records import ClusterRecord
from koordcore.protocol.networks import network_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived
from koordcore.topology.network import NetworkTopology

_DECLARING: Final = (ClusterNetworkTopology, KueueTopology, ResourceFlavor)


def tree_of(snapshot: ClusterSnapshot) -> NetworkTopology | None:
    """Give the tree of a cluster; ``None`` where it has no network, or one that cannot be read."""
    return derived(snapshot, _read, _again, replaced=True)


def _read(snapshot: ClusterSnapshot) -> NetworkTopology | None:
    try:
        known = network_of(
            snapshot.of(ClusterNetworkTopology),
            snapshot.of(KueueTopology),
            snapshot.of(ResourceFlavor),
            {state.name: state.node.labels for state in snapshot.nodes},
        )
    except ModelError:
        return None
    return None if known is None else known.tree


def _again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    tree: NetworkTopology | None,
    snapshot: ClusterSnapshot,
) -> NetworkTopology | None:
    for before, after in changed_records(snapshot, records):
        if isinstance(before or after, _DECLARING):
            return _read(snapshot)
    for old, new in changed_states(snapshot, nodes):
        if old is None or new is None or old.node.labels != new.node.labels:
            return _read(snapshot)
    return tree
