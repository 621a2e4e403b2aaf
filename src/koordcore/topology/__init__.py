"""What is near what: CPUs and NUMA nodes, device links, network trees. Integers and names only."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.topology.cpu import CPUTopology as CPUTopology
    from koordcore.topology.network import (
        LayerSpec as LayerSpec,
        NetworkTopology as NetworkTopology,
        build_tree as build_tree,
        order_layers as order_layers,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.topology.cpu": ("CPUTopology",),
            "koordcore.topology.network": ("LayerSpec", "NetworkTopology", "build_tree", "order_layers"),
        },
    )
