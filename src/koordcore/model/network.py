"""The network's layers as the cluster declares them."""

from __future__ import annotations

from typing import Final

import attrs

from koordcore.model.checks import check_fields
from koordcore.topology.network import LayerSpec

__all__ = ["DEFAULT_NETWORK_TOPOLOGY", "ClusterNetworkTopology"]

DEFAULT_NETWORK_TOPOLOGY: Final = "default"
"""Name of the one object that upstream's scheduler looks at."""


@attrs.frozen
class ClusterNetworkTopology:
    """A ClusterNetworkTopology object.

    Parameters
    ----------
    name
        Only the one named ``default`` counts.
    layers
        The declared layers in the order written; :func:`~koordcore.topology.network.order_layers` puts them
        from the top down.
    """

    name: str
    layers: tuple[LayerSpec, ...] = ()
    namespace: str = ""

    __attrs_post_init__ = check_fields
