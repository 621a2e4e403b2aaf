"""PersistentVolumes and claims on them."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.manifests._reading import Reading, read_metadata, section
from koordcore.model.volumes import PersistentVolume, PersistentVolumeClaim
from koordcore.protocol.fields import Json, as_str
from koordcore.protocol.selectors import as_node_selector

__all__ = ["read_claim", "read_volume"]


def read_claim(reading: Reading, raw: Mapping[str, Json]) -> PersistentVolumeClaim:
    """Decode a PersistentVolumeClaim."""
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    return PersistentVolumeClaim(
        name=meta.name,
        namespace=meta.namespace,
        volume=reading.take(spec, "volumeName", "spec", as_str, ""),
        terminating=meta.deleted is not None,
    )


def read_volume(reading: Reading, raw: Mapping[str, Json]) -> PersistentVolume:
    """Decode a PersistentVolume."""
    meta = read_metadata(reading, raw, namespaced=False)
    affinity = section(reading, section(reading, raw, "spec"), "nodeAffinity", "spec")
    return PersistentVolume(
        name=meta.name,
        labels=meta.labels,
        node_affinity=reading.take(affinity, "required", "spec.nodeAffinity", as_node_selector, None),
    )
