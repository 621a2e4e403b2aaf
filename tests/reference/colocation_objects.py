"""Objects of colocation that only cases hold or expect."""

from __future__ import annotations

from collections.abc import Mapping

from immutabledict import immutabledict

from koordcore.model.colocation import (
    ColocationConfig,
    ColocationStrategy,
    RawSelector,
    ZoneLoad,
)
from koordcore.model.durations import format_duration
from koordcore.model.metrics import NOTHING_MEASURED, Measured, parse_measured
from koordcore.model.resources import CPU, MEMORY
from koordcore.protocol.colocation import (
    _NO_PAIRS,
    _NO_ZONES,
    _WIRE,
)
from koordcore.protocol.fields import (
    Json,
    as_mapping,
    as_str,
    list_of,
    optional,
)


def format_strategy(strategy: ColocationStrategy) -> dict[str, Json]:
    """Write what a strategy says."""
    written: dict[str, Json] = {}
    for wire, (name, _) in _WIRE.items():
        value = getattr(strategy, name)
        if value is None:
            continue
        if name == "metric_aggregate_durations":
            written[wire] = {"durations": [format_duration(duration) for duration in value]}
        elif name == "extensions":
            written[wire] = dict(value)
        else:
            written[wire] = value
    return written


def _format_selector(selector: RawSelector) -> dict[str, Json]:
    written: dict[str, Json] = {}
    if selector.match_labels:
        written["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        written["matchExpressions"] = [
            {"key": one.key, "operator": one.operator} | ({"values": list(one.values)} if one.values else {})
            for one in selector.match_expressions
        ]
    return written


def format_config(config: ColocationConfig) -> dict[str, Json]:
    """Write a configuration as the content of ``colocation-config``."""
    written = format_strategy(config.strategy)
    entries: list[Json] = []
    for entry in config.node_strategies:
        fields = format_strategy(entry.strategy)
        if entry.name:
            fields["name"] = entry.name
        if entry.selector is not None:
            fields["nodeSelector"] = _format_selector(entry.selector)
        entries.append(fields)
    return written | ({"nodeConfigs": entries} if entries else {})


def parse_zones(raw: Mapping[str, Json] | None) -> tuple[ZoneLoad, ...]:
    """Read the NUMA zones of a NodeResourceTopology object.

    Returns
    -------
    tuple of ZoneLoad
        In their order; empty unless some zone has cpu or memory.

    Raises
    ------
    ManifestError
        With the path of what cannot be read.
    """

    def resource(value: Json) -> tuple[str, Measured]:
        fields = as_mapping(value)
        name = optional(fields, "name", as_str, "")
        amount = fields.get("allocatable")
        return name, NOTHING_MEASURED if amount is None else parse_measured({name: amount})

    def zone(value: Json) -> ZoneLoad:
        fields = as_mapping(value)
        amounts: dict[str, int] = {}
        for name, amount in optional(fields, "resources", list_of(resource), _NO_PAIRS):
            amounts[name] = amount.get(name, 0)
        return ZoneLoad(optional(fields, "name", as_str, ""), immutabledict(amounts))

    zones = optional(raw or {}, "zones", list_of(zone), _NO_ZONES)
    known = any(CPU in one.allocatable or MEMORY in one.allocatable for one in zones)
    return zones if known else ()
