"""PersistentVolumes, claims on them, where they come from, and how many a node takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.manifests._reading import Reading, read_metadata, section
from koordcore.model.pods import Pod
from koordcore.model.volumes import (
    ONE_POD_ONLY,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_list,
    as_mapping,
    as_str,
    as_strings,
    collect,
    optional,
    required,
)
from koordcore.protocol.selectors import as_node_selector

_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def read_claim(reading: Reading, raw: Mapping[str, Json]) -> PersistentVolumeClaim:
    """Decode a PersistentVolumeClaim."""
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    return PersistentVolumeClaim(
        name=meta.name,
        namespace=meta.namespace,
        volume=reading.take(spec, "volumeName", "spec", as_str, ""),
        terminating=meta.deleted is not None,
        storage_class=meta.annotations.get(_OLD_CLASS)
        or reading.take(spec, "storageClassName", "spec", as_str, ""),
        one_pod=ONE_POD_ONLY in reading.take(spec, "accessModes", "spec", as_strings, ()),
    )


def read_volume(reading: Reading, raw: Mapping[str, Json]) -> PersistentVolume:
    """Decode a PersistentVolume."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    affinity = section(reading, spec, "nodeAffinity", "spec")
    csi = section(reading, spec, "csi", "spec")
    return PersistentVolume(
        name=meta.name,
        labels=meta.labels,
        node_affinity=reading.take(affinity, "required", "spec.nodeAffinity", as_node_selector, None),
        driver=reading.take(csi, "driver", "spec.csi", as_str, ""),
        handle=reading.take(csi, "volumeHandle", "spec.csi", as_str, ""),
    )


def read_storage_class(reading: Reading, raw: Mapping[str, Json]) -> StorageClass:
    """Decode a StorageClass."""
    return StorageClass(
        name=read_metadata(reading, raw, namespaced=False).name,
        provisioner=reading.take(raw, "provisioner", "", as_str, ""),
        immediate=reading.take(raw, "volumeBindingMode", "", as_str, "Immediate") == "Immediate",
    )


def read_csi_node(reading: Reading, raw: Mapping[str, Json]) -> CSINode:
    """Decode a CSINode."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    limits = reading.take(spec, "drivers", "spec", _limits, {})
    return CSINode(name=meta.name, limits=limits)


def _limits(value: Json) -> dict[str, int]:
    pairs = collect(_limit, as_list(value))
    return {driver: count for driver, count in pairs if count is not None}


def _limit(value: Json) -> tuple[str, int | None]:
    driver = as_mapping(value)
    return required(driver, "name", as_str), optional(driver, "allocatable", _count, None)


def _count(value: Json) -> int | None:
    return optional(as_mapping(value), "count", as_int, None)


def warn_of_volumes(
    reading: Reading, pod: Pod, claims: Mapping[tuple[str, str], PersistentVolumeClaim]
) -> None:
    """Say where the volumes of a pending pod are not held against nodes as the reference would.

    Parameters
    ----------
    claims
        All claims of the dump, by namespace and name.
    """
    if not pod.claims:
        return
    if not claims:
        reading.warn("spec.volumes", "the dump has no PersistentVolumeClaim: its volumes hold it to no node")
        return
    found = (claims.get((pod.namespace, name)) for name in pod.claims)
    waiting = sorted({one.name for one in found if one is not None and not one.volume})
    if waiting:
        text = f"no volume is bound to {', '.join(waiting)}: where one could be made or found is not modelled"
        reading.warn("spec.volumes", text)
