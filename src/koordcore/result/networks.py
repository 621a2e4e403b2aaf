"""Which network the gangs of a result were gathered in."""

from __future__ import annotations

from koordcore.model.network import ClusterNetworkTopology, KueueTopology, ResourceFlavor
from koordcore.protocol.networks import network_of
from koordcore.result import ScheduleResult
from koordcore.topology.network import NODE_LAYER


def network_used(result: ScheduleResult) -> str:
    """Say what the network was read from that gangs were gathered in; empty where none was looked at."""
    if not any(layer != NODE_LAYER for plan in result.jobs for layer in plan.domains):
        return ""
    snapshot = result.snapshot
    known = network_of(
        snapshot.of(ClusterNetworkTopology),
        snapshot.of(KueueTopology),
        snapshot.of(ResourceFlavor),
        {state.name: state.node.labels for state in snapshot.nodes},
    )
    return "" if known is None else known.source
