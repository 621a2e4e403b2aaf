"""Which function decodes which kind of Koordinator.

One line per kind: ``plain`` around the parser that the kind's room has in :mod:`koordcore.protocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from koordcore.manifests._reading import Reading, read_metadata
from koordcore.manifests.kubernetes import Decoder
from koordcore.protocol.fields import Json
from koordcore.protocol.node_metric import parse_node_metric

__all__ = ["KOORDINATOR"]

_SCHEDULING: Final = "scheduling.koordinator.sh"
_SLO: Final = "slo.koordinator.sh"
_SIGS: Final = "scheduling.sigs.k8s.io"


def plain(parse: Callable[[Mapping[str, Json]], Any], *, namespaced: bool = True) -> Decoder:
    """Make a decoder of a parser that gives one record and raises what is wrong."""

    def decode(reading: Reading, raw: Mapping[str, Json]) -> Any:
        read_metadata(reading, raw, namespaced=namespaced)
        return parse(raw)

    return decode


KOORDINATOR: Final[Mapping[tuple[str, str], Decoder]] = {
    (_SLO, "NodeMetric"): plain(parse_node_metric, namespaced=False),
}
"""API group and kind to decoder, whatever the version."""
