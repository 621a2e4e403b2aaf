"""The network of a cluster: what is declared, as a tree over its nodes."""

from __future__ import annotations

from koordcore.model.network import DEFAULT_NETWORK_TOPOLOGY, ClusterNetworkTopology
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import NetworkTopology, build_tree, order_layers

__all__ = ["network_tree"]


def network_tree(snapshot: ClusterSnapshot) -> NetworkTopology | None:
    """Build the network's tree of all nodes; ``None`` without a ClusterNetworkTopology named ``default``.

    Raises
    ------
    ModelError
        When the declared layers do not lead from the top down to the nodes.
    """
    declared = snapshot.find(ClusterNetworkTopology, DEFAULT_NETWORK_TOPOLOGY)
    if declared is None:
        return None
    labels = {state.name: state.node.labels for state in snapshot.nodes}
    return build_tree(order_layers(declared.layers), labels)
