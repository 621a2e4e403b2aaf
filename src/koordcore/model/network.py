"""The network's layers as the cluster declares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.affinity import Taint, Toleration
from koordcore.model.checks import check_fields
from koordcore.model.mappings import frozen_texts
from koordcore.topology.network import CLUSTER_LAYER, NODE_LAYER, LayerSpec

DEFAULT_NETWORK_TOPOLOGY: Final = "default"
"""Name of the one object that upstream's scheduler looks at."""
_NO_TEXTS: Final[immutabledict[str, str]] = immutabledict()


@record
class ClusterNetworkTopology:
    """A ClusterNetworkTopology object.

    Parameters
    ----------
    name
        Only the one named ``default`` counts upstream; where there are others, each node is under the first,
        ``default`` before the others by name, whose labels it has.
    layers
        The declared layers in the order written; :func:`~koordcore.topology.network.order_layers` puts them
        from the top down.
    """

    name: str
    layers: tuple[LayerSpec, ...] = ()
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class KueueTopology:
    """A Topology object of Kueue: labels from the top down to the nodes."""

    name: str
    levels: tuple[str, ...] = ()
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class ResourceFlavor:
    """A ResourceFlavor of Kueue: a kind of nodes.

    Parameters
    ----------
    name
        Of the object.
    node_labels
        Labels that its nodes have.
    topology
        Name of the Topology; empty for none.
    taints
        What its nodes repel; only pod sets that tolerate it get the flavor.
    tolerations
        What every pod gets that the flavor is given to.
    """

    name: str
    node_labels: immutabledict[str, str] = attrs.field(default=_NO_TEXTS, converter=frozen_texts)
    topology: str = ""
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    namespace: str = ""

    __attrs_post_init__ = check_fields


def label_layers(layers: Mapping[str, str | Sequence[str]]) -> ClusterNetworkTopology:
    """Declare a network by plain node labels, as ``--layers`` does.

    Parameters
    ----------
    layers
        Label, or labels of which the first that a node has counts, by name of the layer, from the top down.
        The nodes themselves come below and are not listed.

    Raises
    ------
    ModelError
        When a layer has no name or no label, or is called like the nodes' own.

    Examples
    --------
    >>> label_layers({"block": "example.com/block", "rack": "example.com/rack"}).layers[1].parent
    'block'
    """
    specs: list[LayerSpec] = []
    for name, labels in layers.items():
        keys = (labels,) if isinstance(labels, str) else tuple(labels)
        if not name or not all(keys) or not keys:
            raise ModelError(f"layers: expected a name and a label, got {name!r}: {labels!r}")
        if name in (NODE_LAYER, CLUSTER_LAYER):
            raise ModelError(f"layers: {name} is there without being declared")
        specs.append(LayerSpec(name, keys, specs[-1].layer if specs else ""))
    specs.append(LayerSpec(NODE_LAYER, (), specs[-1].layer if specs else ""))
    return ClusterNetworkTopology(DEFAULT_NETWORK_TOPOLOGY, tuple(specs))
