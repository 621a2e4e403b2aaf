"""Arguments of the NodeNUMAResource plugin as a scheduler configuration writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.errors import ManifestError, ModelError
from koordcore.model.numa import DEFAULT_NUMA_ARGS, CPUBindPolicy, NUMAArgs
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_mapping,
    as_str,
    at,
    list_of,
    optional,
)

_EMPTY: Final[Mapping[str, Json]] = {}
_NO_WEIGHTS: Final[tuple[tuple[str, int], ...]] = ()


def numa_args_of(raw: Mapping[str, Json]) -> NUMAArgs:
    """Read ``NodeNUMAResourceArgs``.

    Defaults stand for a strategy object as a whole: one that is given without ``resources`` has no weights,
    and then every node scores 0.

    Raises
    ------
    ManifestError
        For a bind policy, strategy or weight that upstream's validation refuses.
    """
    policy = optional(raw, "defaultCPUBindPolicy", as_str, CPUBindPolicy.FULL_PCPUS.value)
    if policy not in ("", CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS):
        raise ManifestError.at("defaultCPUBindPolicy", f"expected FullPCPUs or SpreadByPCPUs, got {policy!r}")
    scoring, weights = _strategy(raw, "scoringStrategy")
    numa_scoring, _ = _strategy(raw, "numaScoringStrategy")
    try:
        return NUMAArgs(
            default_bind_policy=CPUBindPolicy(policy) if policy else None,
            scoring=scoring,
            numa_scoring=numa_scoring,
            weights=weights,
        )
    except ModelError as error:
        raise ManifestError.at("", str(error)) from None


def _strategy(raw: Mapping[str, Json], key: str) -> tuple[ScoringStrategy, tuple[tuple[str, int], ...]]:
    value = optional(raw, key, as_mapping, _EMPTY)
    if not value:
        return ScoringStrategy.LEAST_ALLOCATED, DEFAULT_NUMA_ARGS.weights
    text = optional(value, "type", as_str, "")
    if text not in (ScoringStrategy.LEAST_ALLOCATED, ScoringStrategy.MOST_ALLOCATED):
        raise ManifestError.at(f"{key}.type", f"expected LeastAllocated or MostAllocated, got {text!r}")
    weights = optional(value, "resources", list_of(_weight), _NO_WEIGHTS)
    for index, (name, weight) in enumerate(weights):
        if not name or not 1 <= weight <= 100:
            raise ManifestError.at(f"{key}.resources[{index}]", f"expected a weight of 1..100, got {weight}")
    return ScoringStrategy(text), weights


def _weight(value: Json) -> tuple[str, int]:
    raw = at("", as_mapping, value)
    return optional(raw, "name", as_str, ""), optional(raw, "weight", as_int, 0)
