"""PersistentVolumes, claims on them, where they come from, and how many a node takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.manifests._reading import Reading, as_resources, read_metadata, section
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.model.volumes import (
    ONE_POD_ONLY,
    SELECTED_NODE,
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
    list_of,
    optional,
    required,
)
from koordcore.protocol.selectors import as_label_selector, as_node_selector

_OLD_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_BLOCK: Final = "Block"


def read_claim(reading: Reading, raw: Mapping[str, Json]) -> PersistentVolumeClaim:
    """Decode a PersistentVolumeClaim."""
    meta = read_metadata(reading, raw)
    spec = section(reading, raw, "spec")
    resources = section(reading, spec, "resources", "spec")
    modes = reading.take(spec, "accessModes", "spec", as_strings, ())
    phase = reading.take(section(reading, raw, "status"), "phase", "status", as_str, "")
    owner = next((one for one in meta.owners if one.controller), None)
    return PersistentVolumeClaim(
        name=meta.name,
        namespace=meta.namespace,
        volume=reading.take(spec, "volumeName", "spec", as_str, ""),
        terminating=meta.deleted is not None,
        lost=phase == "Lost",
        storage_class=meta.annotations.get(_OLD_CLASS)
        # The API server gives a claim that names none the default class, if there is one.
        or reading.take(spec, "storageClassName", "spec", as_str, "" if meta.uid else None),
        one_pod=ONE_POD_ONLY in modes,
        selected_node=meta.annotations.get(SELECTED_NODE, ""),
        request=_bytes(reading, resources, "requests", "spec.resources"),
        access_modes=modes,
        block=reading.take(spec, "volumeMode", "spec", as_str, "") == _BLOCK,
        selector=reading.take(spec, "selector", "spec", as_label_selector, None),
        attributes_class=reading.take(spec, "volumeAttributesClassName", "spec", as_str, ""),
        owner=owner.name if owner is not None and owner.kind == "Pod" else "",
        owner_uid=owner.uid if owner is not None else "",
        uid=meta.uid,
    )


def _bytes(reading: Reading, raw: Mapping[str, Json], name: str, path: str) -> int:
    """Take the bytes of storage in a list of resources."""
    return reading.take(raw, name, path, as_resources, EMPTY).get("storage", 0)


def read_volume(reading: Reading, raw: Mapping[str, Json]) -> PersistentVolume:
    """Decode a PersistentVolume."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    affinity = section(reading, spec, "nodeAffinity", "spec")
    csi = section(reading, spec, "csi", "spec")
    bound = section(reading, spec, "claimRef", "spec")
    name, space = (reading.take(bound, one, "spec.claimRef", as_str, "") for one in ("name", "namespace"))
    phase = reading.take(section(reading, raw, "status"), "phase", "status", as_str, "")
    return PersistentVolume(
        name=meta.name,
        labels=meta.labels,
        node_affinity=reading.take(affinity, "required", "spec.nodeAffinity", as_node_selector, None),
        driver=reading.take(csi, "driver", "spec.csi", as_str, ""),
        handle=reading.take(csi, "volumeHandle", "spec.csi", as_str, ""),
        storage_class=meta.annotations.get(_OLD_CLASS)
        or reading.take(spec, "storageClassName", "spec", as_str, ""),
        capacity=_bytes(reading, spec, "capacity", "spec"),
        access_modes=reading.take(spec, "accessModes", "spec", as_strings, ()),
        block=reading.take(spec, "volumeMode", "spec", as_str, "") == _BLOCK,
        attributes_class=reading.take(spec, "volumeAttributesClassName", "spec", as_str, ""),
        claim=f"{space}/{name}" if name else "",
        claim_uid=reading.take(bound, "uid", "spec.claimRef", as_str, ""),
        available=meta.deleted is None
        and (phase in ("", "Available") or (phase == "Pending" and bool(name))),
    )


def read_storage_class(reading: Reading, raw: Mapping[str, Json]) -> StorageClass:
    """Decode a StorageClass."""
    return StorageClass(
        name=read_metadata(reading, raw, namespaced=False).name,
        provisioner=reading.take(raw, "provisioner", "", as_str, ""),
        immediate=reading.take(raw, "volumeBindingMode", "", as_str, "Immediate") == "Immediate",
        topologies=reading.take(raw, "allowedTopologies", "", _topologies, None),
    )


def _topologies(value: Json) -> NodeSelector | None:
    terms = collect(_topology, as_list(value))
    return NodeSelector(terms) if terms else None


def _topology(value: Json) -> NodeSelectorTerm:
    return NodeSelectorTerm(optional(as_mapping(value), "matchLabelExpressions", list_of(_one_of), ()))


def _one_of(value: Json) -> Requirement:
    raw = as_mapping(value)
    values = required(raw, "values", as_strings)
    return Requirement(required(raw, "key", as_str), SelectorOperator.IN, values)


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
        text = f"no volume is bound to {', '.join(waiting)}: which one it gets is not modelled"
        reading.warn("spec.volumes", text)
