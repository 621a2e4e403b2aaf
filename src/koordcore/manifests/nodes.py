"""Nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.manifests._reading import Reading, as_countable, as_strings, is_object, read_metadata, section
from koordcore.manifests.aliases import as_written, canonical_names
from koordcore.model.devices import AMD_GPU, DCU_GPU, GPU, GPU_COUNT, MOST_CARDS, NVIDIA_GPU
from koordcore.model.nodes import Node
from koordcore.model.resources import NO_RESOURCES, Resources
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_list,
    as_mapping,
    collect,
    optional,
)
from koordcore.protocol.selectors import as_taints

_CARDS: Final[Mapping[str, int]] = {NVIDIA_GPU: 1, AMD_GPU: 1, DCU_GPU: 1, GPU_COUNT: 1, GPU: 100}
"""Names that count whole cards with how many of one make a card."""
_NO_IMAGES: Final[immutabledict[str, int]] = immutabledict()


def node_from_manifest(raw: Mapping[str, Json]) -> Node:
    """Decode one Node object.

    Raises
    ------
    ManifestError
        With every problem of the object.

    Examples
    --------
    >>> node_from_manifest({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4"}}}).allocatable
    immutabledict({'cpu': 4000})
    """
    reading = Reading()
    node = read_node(reading, raw)
    reading.finish()
    return node


def read_node(reading: Reading, raw: Mapping[str, Json]) -> Node:
    """Decode a Node; problems and warnings go to ``reading``, and with a problem the record is worthless."""
    meta = read_metadata(reading, raw, namespaced=False)
    spec = section(reading, raw, "spec")
    status = section(reading, raw, "status")
    capacity = _listed(reading, status, "capacity", NO_RESOURCES)
    # A node that has not reported what pods may use offers all it has (the API server's default).
    allocatable = _listed(reading, status, "allocatable", capacity)
    if not allocatable:
        reading.warn("status.allocatable", "absent: no pod fits on this node")
    for name, each in _CARDS.items():
        if (cards := allocatable.get(name, 0) // each) > MOST_CARDS:
            told = f"{cards} cards; where cards are looked at one by one, only {MOST_CARDS} of them are"
            reading.warn(f"status.allocatable[{name}]", told)
    taints = reading.recall(spec, "taints", "spec", as_taints, ())
    ready = _ready(reading, status)
    images = reading.recall(status, "images", "status", _images, _NO_IMAGES)
    unschedulable = reading.take(spec, "unschedulable", "spec", as_bool, False)
    return Node(
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels,
        annotations=meta.annotations,
        taints=taints,
        unschedulable=unschedulable,
        allocatable=allocatable,
        capacity=capacity,
        images=images,
        created=meta.created,
        ready=ready,
        features=reading.recall(status, "declaredFeatures", "status", as_strings, ()),
    )


def _listed(reading: Reading, status: Mapping[str, Json], name: str, default: Resources) -> Resources:
    """Read a resource list; old names mean the new ones, as for pods (upstream's node transformer)."""
    written = status.get(name)
    if is_object(written):
        _, notes = canonical_names(written)
        reading.warnings += (note.within(f"status.{name}") for note in notes)
    return reading.recall(status, name, "status", _amounts, default)


def _amounts(value: Json) -> Resources:
    written = as_mapping(value)
    try:
        return as_countable(canonical_names(written)[0])
    except ManifestError as error:
        raise as_written(error, written) from None


def _ready(reading: Reading, status: Mapping[str, Json]) -> bool:
    """Tell whether the node's Ready condition holds; a node that reports no condition counts as ready."""
    conditions = reading.take(status, "conditions", "status", as_list, [])
    for condition in conditions:
        if is_object(condition) and condition.get("type") == "Ready":
            return condition.get("status") == "True"
    return True


def _image(value: Json) -> tuple[tuple[str, ...], int]:
    raw = as_mapping(value)
    names: tuple[str, ...] = optional(raw, "names", as_strings, ())
    return names, optional(raw, "sizeBytes", as_int, 0)


def _images(value: Json) -> immutabledict[str, int]:
    sizes: dict[str, int] = {}
    for names, size in collect(_image, as_list(value)):
        sizes.update(dict.fromkeys(names, size))
    return immutabledict(sorted(sizes.items()))
