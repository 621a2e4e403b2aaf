"""The network of a snapshot, as a tree over its nodes."""

from __future__ import annotations

from koordcore.model.network import ClusterNetworkTopology, KueueTopology, ResourceFlavor
from koordcore.protocol.networks import Network, network_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import NetworkTopology


def known_network(snapshot: ClusterSnapshot) -> Network | None:
    """Read the network of all nodes; ask for it by ``snapshot.once``.

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
    known = snapshot.once(known_network)
    return None if known is None else known.tree
