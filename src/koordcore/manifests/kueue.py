"""Kueue's objects, as far as they tell the network: Topology and ResourceFlavor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.manifests._reading import Reading, read_metadata, section
from koordcore.manifests.kubernetes import Decoder
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.protocol.fields import Json, as_labels, as_mapping, as_str, list_of, required

_GROUP: Final = "kueue.x-k8s.io"


def _topology(reading: Reading, raw: Mapping[str, Json]) -> KueueTopology:
    meta = read_metadata(reading, raw, namespaced=False)
    levels = reading.take(section(reading, raw, "spec"), "levels", "spec", list_of(_level), ())
    if not levels:
        reading.problem("spec.levels", "a topology has one level or more")
    return KueueTopology(name=meta.name, levels=levels)


def _level(raw: Json) -> str:
    return required(as_mapping(raw), "nodeLabel", as_str)


def _flavor(reading: Reading, raw: Mapping[str, Json]) -> ResourceFlavor:
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    return ResourceFlavor(
        name=meta.name,
        node_labels=reading.take(spec, "nodeLabels", "spec", as_labels, {}),
        topology=reading.take(spec, "topologyName", "spec", as_str, ""),
    )


KUEUE: Final[Mapping[tuple[str, str], Decoder]] = {
    (_GROUP, "Topology"): _topology,
    (_GROUP, "ResourceFlavor"): _flavor,
}
"""API group and kind to decoder, whatever the version."""
