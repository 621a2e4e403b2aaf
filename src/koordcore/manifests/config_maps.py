"""Configurations of components that a ConfigMap holds as texts, as their charts install them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore.errors import Problem
from koordcore.manifests._raw import Source
from koordcore.manifests._reading import is_object
from koordcore.manifests.sources import read_text
from koordcore.model.cluster import RawObject
from koordcore.snapshot import ClusterSnapshot

_CONFIG_MAP: Final = "ConfigMap"


def unpacked(sources: Iterable[Source], kind: str) -> Iterator[Source]:
    """Give what ConfigMaps hold of a kind in their places, and all else as it is.

    A ConfigMap without anything of the kind stays what it is.
    """
    for source in sources:
        inside = [] if isinstance(source, Problem) else list(_inside(source.raw, source.source, kind))
        yield from inside or (source,)


def _inside(raw: object, where: str, kind: str) -> Iterator[Source]:
    data = raw.get("data") if is_object(raw) and raw.get("kind") == _CONFIG_MAP else None
    for key, text in data.items() if isinstance(data, Mapping) else ():
        if isinstance(text, str) and kind in text:
            for found in read_text(text, f"{where}: data[{key}]"):
                if isinstance(found, Problem) or (is_object(found.raw) and found.raw.get("kind") == kind):
                    yield found


def maps_with(snapshot: ClusterSnapshot, kind: str) -> list[str]:
    """Name the ConfigMaps of a cluster that seem to hold something of a kind."""
    kept = (one for one in snapshot.of(RawObject) if one.kind == _CONFIG_MAP and kind in one.text)
    return [f"{one.namespace}/{one.name}" for one in kept]
