"""Arguments of the reference's descheduling heuristics: defaults, records, what is wrong with them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore.descheduling import args as checks
from koordcore.model.colocation import RawSelector
from koordcore.model.rebalance import (
    _EVEN_WEIGHTS,
    Namespaces,
    PodSelector,
)
from koordcore.protocol.colocation import parse_selector
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_str,
    list_of,
    optional,
)
from koordcore.protocol.rebalance import (
    _COMMON,
    _COMMON_POINTERS,
    _namespaces_of,
    _pod_selector_of,
    _switch,
)
from koordcore.protocol.strict_fields import as_number, map_of, struct


class BinPackStrategy(StrEnum):
    """Whether bin-packing down only ranks pods or evicts the first of them."""

    CALCULATE_ONLY = "CalculateOnly"
    EVICT_DIRECTLY = "EvictDirectly"


@attrs.frozen(kw_only=True)
class FragmentationAwareArgs:
    """Arguments of FragmentationAware after defaulting.

    Parameters
    ----------
    resources
        Whose shares should be alike on a node.
    imbalance_threshold
        Standard deviation up to which a node is left alone.
    min_improvement_threshold
        Gain that an eviction must exceed.
    """

    paused: bool = False
    dry_run: bool = False
    node_fit: bool = True
    node_selector: RawSelector | None = None
    namespaces: Namespaces | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    resources: tuple[str, ...] = ("cpu", "memory")
    imbalance_threshold: float = 0.15
    min_improvement_threshold: float = 0.02


@attrs.frozen(kw_only=True)
class ScaleDownBinPackArgs:
    """Arguments of ScaleDownBinPack after defaulting.

    Parameters
    ----------
    strategy
        Write costs only, or evict.
    max_pods_to_evict
        Successful evictions of one round.
    resources, weights
        What a node is weighed by.
    """

    paused: bool = False
    strategy: str = BinPackStrategy.CALCULATE_ONLY
    max_pods_to_evict: int | None = None
    node_selector: RawSelector | None = None
    namespaces: Namespaces | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    resources: tuple[str, ...] = ("cpu", "memory")
    weights: immutabledict[str, float] = _EVEN_WEIGHTS


def fragmentation_aware_problems(defaulted: Mapping[str, Any]) -> tuple[str, ...]:
    """List what is wrong with defaulted ``FragmentationAwareArgs``, sorted."""
    found: list[str] = []
    for name in ("imbalanceThreshold", "minImprovementThreshold"):
        if defaulted[name] < 0:
            text = "must be greater than or equal to 0"
            found.append(checks._invalid(name, checks._number(defaulted[name]), text))
    resources = defaulted["resources"]
    for index, name in enumerate(resources):
        if name in resources[:index]:
            found.append(f"resources[{index}]: Duplicate value: {json.dumps(name)}")
    found += checks._namespaces("evictableNamespaces", defaulted.get("evictableNamespaces"))
    found += checks._selector("nodeSelector", defaulted.get("nodeSelector"))
    found += checks._pod_selectors(defaulted.get("podSelectors", ()))
    return tuple(sorted(found))


def scale_down_bin_pack_problems(defaulted: Mapping[str, Any]) -> tuple[str, ...]:
    """List what is wrong with defaulted ``ScaleDownBinPackArgs``, sorted."""
    found: list[str] = []
    strategy, most = defaulted["strategy"], defaulted.get("maxPodsToEvict")
    if strategy not in ("CalculateOnly", "EvictDirectly"):
        text = "strategy must be CalculateOnly or EvictDirectly"
        found.append(checks._invalid("strategy", strategy, text))
    elif strategy == "EvictDirectly" and (most is None or most <= 0):
        text = "maxPodsToEvict must be positive when strategy is EvictDirectly"
        found.append(checks._invalid("maxPodsToEvict", most, text))
    for name, weight in defaulted["resourceWeights"].items():
        if not (weight > 0 and math.isfinite(weight)):
            text = "weights must be positive finite floats"
            found.append(checks._invalid(f"resourceWeights[{name}]", checks._number(weight), text))
    found += checks._namespaces("evictableNamespaces", defaulted.get("evictableNamespaces"))
    found += checks._selector("nodeSelector", defaulted.get("nodeSelector"))
    found += checks._pod_selectors(defaulted.get("podSelectors", ()))
    return tuple(sorted(found))


_fragmentation_aware: Final = struct(
    {
        **_COMMON,
        **_switch("dryRun", "nodeFit"),
        **dict.fromkeys(("imbalanceThreshold", "minImprovementThreshold"), as_number),
    },
    _COMMON_POINTERS | {"dryRun", "nodeFit", "imbalanceThreshold", "minImprovementThreshold"},
)


_scale_down: Final = struct(
    {**_COMMON, "strategy": as_str, "maxPodsToEvict": as_int, "resourceWeights": map_of(as_number)},
    _COMMON_POINTERS | {"maxPodsToEvict"},
)


def default_fragmentation_aware(raw: Mapping[str, Json]) -> dict[str, Any]:
    """Decode ``FragmentationAwareArgs`` and put the defaults in place.

    Raises
    ------
    ManifestError
        When a field is unknown or of the wrong type.
    """
    done: dict[str, Any] = _fragmentation_aware(raw)
    done.setdefault("paused", False)
    done.setdefault("dryRun", False)
    done.setdefault("nodeFit", True)
    done.setdefault("resources", ["cpu", "memory"])
    done.setdefault("imbalanceThreshold", 0.15)
    done.setdefault("minImprovementThreshold", 0.02)
    return done


def fragmentation_aware_args(raw: Mapping[str, Json]) -> FragmentationAwareArgs:
    """Read ``FragmentationAwareArgs`` with defaults."""
    done = default_fragmentation_aware(raw)
    return FragmentationAwareArgs(
        paused=done["paused"],
        dry_run=done["dryRun"],
        node_fit=done["nodeFit"],
        node_selector=optional(done, "nodeSelector", parse_selector, None),
        namespaces=optional(done, "evictableNamespaces", _namespaces_of, None),
        pod_selectors=optional(done, "podSelectors", list_of(_pod_selector_of), ()),
        resources=tuple(done["resources"]),
        imbalance_threshold=float(done["imbalanceThreshold"]),
        min_improvement_threshold=float(done["minImprovementThreshold"]),
    )


def default_scale_down_bin_pack(raw: Mapping[str, Json]) -> dict[str, Any]:
    """Decode ``ScaleDownBinPackArgs`` and put the defaults in place.

    Raises
    ------
    ManifestError
        When a field is unknown or of the wrong type.
    """
    done: dict[str, Any] = _scale_down(raw)
    done.setdefault("paused", False)
    done.setdefault("strategy", "CalculateOnly")
    done.setdefault("resources", ["cpu", "memory"])
    weights = done.setdefault("resourceWeights", {})
    for name in done["resources"]:
        weights.setdefault(name, 1)
    return done


def scale_down_bin_pack_args(raw: Mapping[str, Json]) -> ScaleDownBinPackArgs:
    """Read ``ScaleDownBinPackArgs`` with defaults."""
    done = default_scale_down_bin_pack(raw)
    return ScaleDownBinPackArgs(
        paused=done["paused"],
        strategy=done["strategy"],
        max_pods_to_evict=done.get("maxPodsToEvict"),
        node_selector=optional(done, "nodeSelector", parse_selector, None),
        namespaces=optional(done, "evictableNamespaces", _namespaces_of, None),
        pod_selectors=optional(done, "podSelectors", list_of(_pod_selector_of), ()),
        resources=tuple(done["resources"]),
        weights=immutabledict({name: float(one) for name, one in sorted(done["resourceWeights"].items())}),
    )
