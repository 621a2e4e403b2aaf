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
    list_of,
    optional,
)

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
    usual = ScoringStrategy.LEAST_ALLOCATED, DEFAULT_NUMA_ARGS.weights
    scoring, weights = optional(raw, "scoringStrategy", _strategy, usual)
    numa_scoring, _ = optional(raw, "numaScoringStrategy", _strategy, usual)
    try:
        return NUMAArgs(
            default_bind_policy=CPUBindPolicy(policy) if policy else None,
            scoring=scoring,
            numa_scoring=numa_scoring,
            weights=weights,
        )
    except ModelError as error:
        raise ManifestError.at("", str(error)) from None


def _strategy(value: Json) -> tuple[ScoringStrategy, tuple[tuple[str, int], ...]]:
    raw = as_mapping(value)
    if not raw:
        return ScoringStrategy.LEAST_ALLOCATED, DEFAULT_NUMA_ARGS.weights
    text = optional(raw, "type", as_str, "")
    if text not in (ScoringStrategy.LEAST_ALLOCATED, ScoringStrategy.MOST_ALLOCATED):
        raise ManifestError.at("type", f"expected LeastAllocated or MostAllocated, got {text!r}")
    weights = optional(raw, "resources", list_of(_weight), _NO_WEIGHTS)
    for index, (name, weight) in enumerate(weights):
        if not name or not 1 <= weight <= 100:
            raise ManifestError.at(f"resources[{index}]", f"expected a weight of 1..100, got {weight}")
    return ScoringStrategy(text), weights


def _weight(value: Json) -> tuple[str, int]:
    raw = as_mapping(value)
    return optional(raw, "name", as_str, ""), optional(raw, "weight", as_int, 0)
