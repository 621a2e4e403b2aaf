"""The ClusterNetworkTopology object: its declared layers in, its status out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordcore.protocol.fields import (
    Json,
    as_mapping,
    as_str,
    as_strings,
    list_of,
    optional,
    required,
)
from koordcore.topology.network import DomainStatus, LayerSpec

TOPOGRAPH_LABELS: Final = (
    "network.topology.nvidia.com/accelerator",
    "network.topology.nvidia.com/block",
    "network.topology.nvidia.com/spine",
    "network.topology.nvidia.com/datacenter",
)
"""Node labels that topograph writes, from the nodes up."""


def parse_cluster_network_topology(raw: Json) -> tuple[LayerSpec, ...]:
    """Read the layers that the object declares, in the order written.

    Raises
    ------
    ManifestError
        With the path of what has the wrong shape.
    """
    return optional(as_mapping(raw), "spec", _layers, ())


def _layers(raw: Json) -> tuple[LayerSpec, ...]:
    return optional(as_mapping(raw), "networkTopologySpec", list_of(_layer), ())


def _layer(raw: Json) -> LayerSpec:
    entry = as_mapping(raw)
    return LayerSpec(
        required(entry, "topologyLayer", as_str),
        optional(entry, "labelKey", as_strings, ()),
        optional(entry, "parentTopologyLayer", as_str, ""),
    )


def format_detail_status(entries: Sequence[DomainStatus]) -> list[dict[str, Json]]:
    """Write ``status.detailStatus``; fields without content are left out."""
    written = []
    for entry in entries:
        shown: dict[str, Json] = {
            "topologyInfo": {"topologyLayer": entry.layer, "topologyName": entry.name},
            "nodeNum": entry.node_count,
        }
        if entry.parent is not None:
            shown["parentTopologyInfo"] = {
                "topologyLayer": entry.parent[0],
                "topologyName": entry.parent[1],
            }
        if entry.child_layer:
            shown["childTopologyLayer"] = entry.child_layer
        if entry.child_names:
            shown["childTopologyNames"] = list(entry.child_names)
        written.append(shown)
    return written
