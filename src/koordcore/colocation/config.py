"""Which strategy holds for a node: loading, validating, admitting and overlaying configurations.

Rules: upstream ``slo-controller/noderesource``, ``pkg/util/sloconfig`` and the ConfigMap webhook.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import permutations
from math import lcm
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.colocation import (
    DEFAULT_STRATEGY,
    NO_STRATEGY,
    ColocationConfig,
    ColocationStrategy,
    NodeStrategy,
    overlay,
)
from koordcore.model.selectors import LabelSelector, SelectorOperator
from koordcore.protocol.colocation import (
    ANNOTATION_COLOCATION_STRATEGY,
    STRATEGY_RATIO_LABELS,
    parse_config,
    parse_ratio,
    parse_strategy,
)
from koordcore.protocol.fields import load_json
from koordcore.protocol.raw_selectors import selector_of
from koordcore.protocol.strategy_rules import RANGES, out_of_range

CONFIG_KEY: Final = "colocation-config"

_MAX_STEPS: Final = 10_000
_UNNAMED: Final = "~"
"""Stands for a label value that no selector can name."""


def is_strategy_valid(strategy: ColocationStrategy) -> bool:
    """Tell whether every field that says something is in its range."""
    return next(out_of_range(strategy), None) is None


def is_node_strategy_valid(entry: NodeStrategy | None) -> bool:
    """Tell whether an entry has labels to match, a selector that can be evaluated, and says something."""
    if entry is None or entry.selector is None or entry.selector.match_labels is None:
        return False
    try:
        selector_of(entry.selector)
    except ManifestError:
        return False
    return entry.strategy != NO_STRATEGY


@record
class ConfigState:
    """The configuration in force.

    Parameters
    ----------
    config
        With defaults filled in and node strategies completed from the cluster's.
    available
        Whether anything was ever read; until then no node is touched.
    error
        Whether the last reading failed, or found no ConfigMap.
    """

    config: ColocationConfig = attrs.field(factory=ColocationConfig)
    available: bool = False
    error: bool = False

    @classmethod
    def missing(cls) -> ConfigState:
        """Give the state after the ConfigMap was found missing: defaults, flagged as an error."""
        return cls(available=True, error=True)

    def after(self, text: str | None) -> ConfigState:
        """Give the state after the key ``colocation-config`` was read.

        Parameters
        ----------
        text
            Value of the key; ``None`` or empty means defaults. The configuration so far stays when the text
            cannot be used.
        """
        if not text:
            return ConfigState(available=True)
        try:
            raw = load_json(text)
            config = completed_config(parse_config({} if raw is None else raw))
        except ManifestError:
            return attrs.evolve(self, error=True)
        if not is_strategy_valid(config.strategy):
            return attrs.evolve(self, error=True)
        return ConfigState(config, available=True)


def completed_config(config: ColocationConfig) -> ColocationConfig:
    """Fill in defaults and complete each node strategy; an invalid one becomes the cluster's."""
    cluster = overlay(DEFAULT_STRATEGY, config.strategy)
    entries = []
    for entry in config.node_strategies:
        strategy = overlay(cluster, entry.strategy)
        entries.append(attrs.evolve(entry, strategy=strategy if is_strategy_valid(strategy) else cluster))
    return ColocationConfig(cluster, tuple(entries))


def effective_strategy(
    config: ColocationConfig, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> ColocationStrategy:
    """Give the strategy in force for a node.

    The cluster's, under the first node strategy that selects the node, under the node's annotation, under
    its ratio labels. Broken selectors, annotations and labels are passed over, and neither annotation nor
    labels are checked for ranges.
    """
    strategy = config.strategy
    for entry in config.node_strategies:
        try:
            selected = selector_of(entry.selector).matches(labels)
        except ManifestError:
            continue
        if selected:
            strategy = overlay(strategy, entry.strategy)
            break
    text = annotations.get(ANNOTATION_COLOCATION_STRATEGY)
    if text is not None:
        try:
            raw = load_json(text)
            strategy = overlay(strategy, parse_strategy({} if raw is None else raw))
        except ManifestError:
            pass
    for label, name in STRATEGY_RATIO_LABELS.items():
        if label not in labels:
            continue
        try:
            ratio = parse_ratio(labels[label])
        except ManifestError:
            continue
        # The product may fall just short of a whole percent ("0.29" gives 28), as upstream's does.
        strategy = attrs.evolve(strategy, **{name: int(ratio * 100)})  # type: ignore[arg-type]  # an int field
    return strategy


def is_disabled(config: ColocationConfig, strategy: ColocationStrategy) -> bool:
    """Tell whether a node lends nothing: the cluster or the strategy in force does not enable it."""
    return not (config.strategy.enable and strategy.enable)


class RefusalReason(StrEnum):
    """Why a configuration is not admitted (upstream's spelling)."""

    PARSE = "ParseConfigFail"
    PARAMETER = "ConfigParamInvalid"
    OVERLAP = "NodeStrategiesOverlap"
    NODE = "ExistNodeConfict"


@record(kw_only=True)
class Refusal:
    """A configuration that is not admitted.

    Parameters
    ----------
    reason
        Kind of fault.
    message
        Text; empty where ``fields`` or ``strategies`` say it.
    fields
        Path and complaint per field out of range.
    strategies
        Names of node strategies that select the same nodes.
    example_nodes
        A node that several of them select.
    """

    reason: RefusalReason
    message: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    strategies: tuple[str, ...] = ()
    example_nodes: tuple[str, ...] = ()


@record
class Admitted:
    """A configuration that may be stored."""


def _complaints(path: str, strategy: ColocationStrategy) -> list[tuple[str, str]]:
    found = []
    for name, bounds in RANGES.items():
        value = getattr(strategy, name)
        complaint = None if value is None else bounds.complaint(value)
        if complaint:
            found.append((f"{path}.ColocationStrategy.{bounds.wire}", complaint))
    return found


def admit_config(
    text: str | None,
    *,
    old: str | None = None,
    nodes: Iterable[tuple[str, Mapping[str, str]]] = (),
) -> Admitted | Refusal:
    """Decide whether a new value of ``colocation-config`` may be stored.

    Parameters
    ----------
    text
        The new value; an empty one is not checked.
    old
        The value before; ``None`` where there was none. An unchanged value is not checked.
    nodes
        Name and labels of the nodes in the cluster.
    """
    if not text or text == old:
        return Admitted()
    try:
        raw = load_json(text)
        config = parse_config({} if raw is None else raw)
    except ManifestError as error:
        return Refusal(reason=RefusalReason.PARSE, message=str(error))
    selectors = []
    for entry in config.node_strategies:
        where = f"configType: {CONFIG_KEY},nodeConfig name:{entry.name}"
        raw_selector = entry.selector
        if raw_selector is None or not (raw_selector.match_labels or raw_selector.match_expressions):
            return Refusal(
                reason=RefusalReason.PARAMETER,
                message=f"nodeConfigs NodeSelector must not empty error! {where}",
            )
        try:
            selectors.append(selector_of(raw_selector))
        except ManifestError as error:
            return Refusal(
                reason=RefusalReason.PARAMETER, message=f"failed to parse node selector,{where}, err: {error}"
            )
    fields = _complaints("ColocationCfg", config.strategy)
    for index, entry in enumerate(config.node_strategies):
        fields += _complaints(f"ColocationCfg.NodeConfigs[{index}]", entry.strategy)
    if fields:
        return Refusal(reason=RefusalReason.PARAMETER, fields=tuple(fields))
    return _overlap([entry.name for entry in config.node_strategies], selectors, nodes)


def _overlap(
    names: list[str], selectors: list[LabelSelector], nodes: Iterable[tuple[str, Mapping[str, str]]]
) -> Admitted | Refusal:
    for labels in _probes(selectors):
        both = tuple(name for name, one in zip(names, selectors, strict=True) if one.matches(labels))
        if len(both) > 1:
            return Refusal(reason=RefusalReason.OVERLAP, strategies=both)
    for node, own in sorted(nodes, key=lambda pair: pair[0]):
        both = tuple(name for name, one in zip(names, selectors, strict=True) if one.matches(own))
        if len(both) > 1:
            return Refusal(reason=RefusalReason.NODE, strategies=both, example_nodes=(node,))
    return Admitted()


def _probes(selectors: list[LabelSelector]) -> Iterable[dict[str, str]]:
    """Give label sets on which two selectors may meet.

    First the plain ones, in upstream's order: each selector's labels with its listed values taken in step.
    Then, for every pair, the label set that serves the first alone and may please the second as well; a
    second that wants labels which the first does not speak of is left to the check of existing nodes.
    """
    for selector in selectors:
        listed = [one for one in selector.requirements if one.values]
        for step in range(min(lcm(*(len(one.values) for one in listed)), _MAX_STEPS)):
            labels = dict(selector.match_labels)
            labels.update((one.key, one.values[step % len(one.values)]) for one in listed)
            yield labels
    for first, second in permutations(selectors, 2):
        meeting = _meeting(first, second)
        if meeting is not None:
            yield meeting


def _meeting(first: LabelSelector, second: LabelSelector) -> dict[str, str] | None:
    """Give labels that serve the first selector and please the second; keys are chosen one by one."""
    labels: dict[str, str] = {}
    for key in sorted({*first.match_labels, *(one.key for one in first.requirements)}):
        own = [one for one in first.requirements if one.key == key]
        values = [value for one in own if one.operator is SelectorOperator.IN for value in one.values]
        if key in first.match_labels:
            values = [first.match_labels[key]]
        # Absent, then each value asked for, then one that nobody names.
        candidates: list[dict[str, str]] = [{}, *({key: value} for value in values), {key: _UNNAMED}]
        fitting = (one for one in candidates if _pleases(first, key, one) and _pleases(second, key, one))
        chosen = next(fitting, None)
        if chosen is None:
            return None
        labels.update(chosen)
    return labels if second.matches(labels) else None


def _pleases(selector: LabelSelector, key: str, labels: Mapping[str, str]) -> bool:
    if selector.match_labels.get(key, labels.get(key)) != labels.get(key):
        return False
    return all(one.matches(labels) for one in selector.requirements if one.key == key)
