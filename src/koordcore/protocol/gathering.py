"""How a gang wants to be gathered, as its annotation says it."""

from __future__ import annotations

from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_mapping,
    as_str,
    list_of,
    load_json,
    optional,
)

_INT64: Final = 2**63


def parse_gather_rule(raw: Json) -> GatherRule:
    """Read one entry of ``gatherStrategy``.

    Raises
    ------
    ManifestError
        When it has the wrong shape.
    """
    entry = {} if raw is None else as_mapping(raw)
    multiple = optional(entry, "podCountMultiple", as_int, 0, fold_case=True)
    if not -_INT64 <= multiple < _INT64:
        raise ManifestError.at("podCountMultiple", f"{multiple} is out of range")
    return GatherRule(
        optional(entry, "layer", as_str, "", fold_case=True),
        optional(entry, "strategy", as_str, "", fold_case=True),
        multiple,
    )


def parse_topology_spec(text: str) -> NetworkTopologySpec | None:
    """Read the annotation ``network-topology-spec``; None for an empty text.

    Raises
    ------
    ManifestError
        When it is no JSON of the right shape; upstream then treats the gang as a plain one.
    """
    if not text:
        return None
    raw = load_json(text)
    if raw is None:
        return NetworkTopologySpec()
    return NetworkTopologySpec(
        optional(
            as_mapping(raw),
            "gatherStrategy",
            list_of(parse_gather_rule),
            (),
            fold_case=True,
        )
    )
