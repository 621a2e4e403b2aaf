"""The network of a snapshot, as a tree over its nodes."""

from __future__ import annotations

from typing import Final

from koordcore._vector import Vector
from koordcore.model.network import ClusterNetworkTopology, KueueTopology, ResourceFlavor
from koordcore.model.nodes import NodeState
from koordcore.model.records import ClusterRecord
from koordcore.protocol.networks import Network, network_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived
from koordcore.topology.network import NetworkTopology

_DECLARING: Final = (ClusterNetworkTopology, KueueTopology, ResourceFlavor)


def known_network(snapshot: ClusterSnapshot) -> Network | None:
    """Read the network of all nodes; see :func:`network_tree` for what follows changes.

    Returns
    -------
    Network or None
        From ClusterNetworkTopology objects, else from Kueue's Topology objects, else from known node labels;
        ``None`` where there is nothing of the kind.

    Raises
    ------
    ModelError
        When the declared layers do not lead from the top down to the nodes.
    """
    return network_of(
        snapshot.of(ClusterNetworkTopology),
        snapshot.of(KueueTopology),
        snapshot.of(ResourceFlavor),
        {state.name: state.node.labels for state in snapshot.nodes},
    )


def network_tree(snapshot: ClusterSnapshot) -> NetworkTopology | None:
    """Give the network's tree of all nodes; ``None`` without a network."""
    known = derived(snapshot, known_network, _known_again, replaced=True)
    return None if known is None else known.tree


def _known_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    known: Network | None,
    snapshot: ClusterSnapshot,
) -> Network | None:
    """Read it anew where labels changed, nodes came or went, or somebody declares something else."""
    changed = (before or after for before, after in changed_records(snapshot, records))
    same = not any(isinstance(one, _DECLARING) for one in changed) and all(
        before is not None and after is not None and before.node.labels == after.node.labels
        for before, after in changed_states(snapshot, nodes)
    )
    return known if same else known_network(snapshot)
