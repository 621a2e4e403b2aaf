"""Nodes whose CPUs and memory manager and webhook would have multiplied, in a dump that they never saw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from koordcore.errors import ManifestError, Problem
from koordcore.manifests.cross_checks import Remark
from koordcore.model.cluster import ConfigMap
from koordcore.model.nodes import Node
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import CPU, MEMORY
from koordcore.protocol.fields import Json, field, load_json
from koordcore.protocol.normalization import (
    AMPLIFICATION_KEY,
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_NORMALIZATION_RATIO,
    ANNOTATION_RAW_ALLOCATABLE,
    NORMALIZATION_KEY,
    parse_amplification,
)

AS_THEY_STAND: Final = "without --lend CPU and memory count as they stand"
"""How a message ends that does not hold where ratios are worked out."""


def unamplified(nodes: Sequence[Node], records: Iterable[ClusterRecord]) -> Iterator[Remark]:
    """Name nodes with a ratio and without the raw amounts beside it, and ratios that stand on no node."""
    raw = [node for node in nodes if _amplifies(node) and ANNOTATION_RAW_ALLOCATABLE not in node.annotations]
    if raw:
        others = f" (nor on {len(raw) - 1} more nodes)" if len(raw) > 1 else ""
        told = f"no {ANNOTATION_RAW_ALLOCATABLE} beside it{others}; {AS_THEY_STAND}"
        yield ("", "Node", "", raw[0].name), Problem(_path(ANNOTATION_AMPLIFICATION_RATIO), told)
    written = (ANNOTATION_NORMALIZATION_RATIO, ANNOTATION_AMPLIFICATION_RATIO)
    if any(key in node.annotations for node in nodes for key in written):
        return
    for one in records:
        if isinstance(one, ConfigMap):
            for key in (NORMALIZATION_KEY, AMPLIFICATION_KEY):
                if _enabled(one.data.get(key, "")):
                    told = f"no node carries a ratio; {AS_THEY_STAND}"
                    yield ("", "ConfigMap", one.namespace, one.name), Problem(f"data[{key}]", told)


def _path(key: str) -> str:
    return f"metadata.annotations[{key}]"


def _amplifies(node: Node) -> bool:
    try:
        ratios = parse_amplification(node.annotations)
    except ManifestError:
        return False  # said when it was read
    return any(ratios.get(name, 0) > 1 for name in (CPU, MEMORY))


def _enabled(text: str) -> bool:
    """Tell whether a configuration is switched on for any node."""
    try:
        raw = load_json(text) if text else None
    except ManifestError:
        return False  # said when it was read
    nodes = field(raw, "nodeConfigs", fold_case=True) if isinstance(raw, dict) else None
    every: list[Json] = [raw, *(nodes if isinstance(nodes, list) else ())]
    return any(isinstance(one, dict) and field(one, "enable", fold_case=True) is True for one in every)
