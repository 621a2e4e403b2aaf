"""One unit of cpu on every machine: normalization ratios and amplified allocatable.

Rules: upstream ``plugins/{cpunormalization,resourceamplification}`` and the node webhook.
What devices give a node is in :mod:`koordcore.protocol.device_amounts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.colocation.amounts import ceil_divide, format_ratio
from koordcore.colocation.batch import Failed
from koordcore.errors import ManifestError
from koordcore.model.colocation import RawSelector
from koordcore.model.metrics import NOTHING_MEASURED, Measured
from koordcore.model.quantity import NANO
from koordcore.model.resources import AMOUNT_LIMIT, CPU, MEMORY
from koordcore.protocol.normalization import (
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_RAW_ALLOCATABLE,
    AmplificationConfig,
    AmplificationStrategy,
    CPUBasicInfo,
    NormalizationConfig,
    NormalizationStrategy,
    cpu_basic_info_of,
    format_raw_allocatable,
    normalization_enabled_of,
    normalization_ratio_of,
    parse_amplification,
    parse_raw_allocatable,
)
from koordcore.protocol.raw_selectors import selector_of

MIN_RATIO: Final = 1.0
MAX_RATIO: Final = 5.0
_MILLI: Final = NANO // 1000
_MOST: Final = {CPU: AMOUNT_LIMIT, MEMORY: AMOUNT_LIMIT * 1000}
"""The largest amounts that a node may offer, in thousandths."""
_EPSILON: Final = 0.01
_WHERE: Final = "in cpu normalization calculation"


def _first_match(selectors: Iterable[RawSelector | None], labels: Mapping[str, str]) -> int | None:
    for index, selector in enumerate(selectors):
        try:
            if selector_of(selector).matches(labels):
                return index
        except ManifestError:
            continue
    return None


def _normalization_strategy(config: NormalizationConfig, labels: Mapping[str, str]) -> NormalizationStrategy:
    index = _first_match((selector for selector, _ in config.node_strategies), labels)
    return config.strategy if index is None else config.node_strategies[index][1].over(config.strategy)


def _amplification_strategy(config: AmplificationConfig, labels: Mapping[str, str]) -> AmplificationStrategy:
    index = _first_match((selector for selector, _ in config.node_strategies), labels)
    return config.strategy if index is None else config.node_strategies[index][1].over(config.strategy)


def normalization_ratio(
    config: NormalizationConfig | None,
    labels: Mapping[str, str],
    topology_annotations: Mapping[str, str] | None,
) -> float | Failed:
    """Compute how much stronger a node's cpu is than the unit.

    Parameters
    ----------
    config
        Content of ``cpu-normalization-config``; ``None`` when it could not be read at the start.
    labels
        Labels of the node; one of them overrides the switch of the configuration.
    topology_annotations
        Annotations of its NodeResourceTopology, which say what the cpu is; ``None`` without one.

    Returns
    -------
    float or Failed
        1.0 where normalization is off; after a failure the annotation stays as it is.
    """

    def info() -> CPUBasicInfo | Failed:
        if topology_annotations is None:
            return Failed(f"failed to get NodeResourceTopology {_WHERE}")
        try:
            found = cpu_basic_info_of(topology_annotations)
        except ManifestError as error:
            return Failed(f"failed to parse CPUBasicInfo {_WHERE}, err: {error}")
        return found or Failed(f"failed to get CPUBasicInfo {_WHERE}, err: info is missing")

    return normalized(config, labels, info)


def normalized(
    config: NormalizationConfig | None,
    labels: Mapping[str, str],
    info_of: Callable[[], CPUBasicInfo | Failed],
) -> float | Failed:
    """Compute it, given who says what the cpu is; see :func:`normalization_ratio`."""
    where = _WHERE
    if config is None:
        return Failed(f"failed to get config {where}, err: config is not available")
    strategy = _normalization_strategy(config, labels)
    try:
        enabled = normalization_enabled_of(labels)
    except ManifestError as error:
        return Failed(f"failed to get node label {where}, err: {error}")
    if not (strategy.enable if enabled is None else enabled):
        return MIN_RATIO
    info = info_of()
    if isinstance(info, Failed):
        return info
    ratio = _model_ratio(info, strategy)
    if isinstance(ratio, Failed):
        return Failed(f"failed to get ratio {where}, err: {ratio.message}")
    if not MIN_RATIO <= ratio <= MAX_RATIO:
        small = ratio < MIN_RATIO
        bound = f"< min[{format_ratio(MIN_RATIO)}]" if small else f"> max[{format_ratio(MAX_RATIO)}]"
        text = f"the ratio is too {'small' if small else 'big'}, cur[{format_ratio(ratio)}] {bound}"
        return Failed(f"failed to validate ratio {where}, ratio {format_ratio(ratio)}, err: {text}")
    return ratio


def _model_ratio(info: CPUBasicInfo, strategy: NormalizationStrategy) -> float | Failed:
    name = {
        (False, False): "BaseRatio",
        (True, False): "HyperThreadEnabledRatio",
        (False, True): "TurboEnabledRatio",
        (True, True): "HyperThreadTurboEnabledRatio",
    }[info.hyper_thread, info.turbo]
    fields = None if strategy.ratio_model is None else strategy.ratio_model.get(info.model)
    ratio = None if fields is None else fields.get(name)
    if ratio is None:
        ratio = strategy.default_ratio
    if ratio is not None:
        return ratio
    if strategy.ratio_model is None:
        problem = "ratio model is nil"
    elif fields is None:
        problem = f"no ratio for CPU {info.model}"
    else:
        problem = f"missing {name} for CPU {info.model}"
    return Failed(f"failed to get cpu normalization ratio from model, err: {problem}")


def amplification_ratios(
    config: AmplificationConfig | None, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> immutabledict[str, float] | Failed:
    """Compute by how much each resource of a node is amplified.

    Parameters
    ----------
    config
        Content of ``resource-amplification-config``; ``None`` when it could not be read at the start.
    name, labels, annotations
        The node; its stored normalization ratio multiplies the cpu's.

    Returns
    -------
    immutabledict or Failed
        Resource name to ratio of at least 1, sorted; empty where nothing is amplified.
    """
    head = f"calculate failed for node {name}, "
    if config is None:
        return Failed(f"{head}getResourceAmplificationRatios failed: cfgHandler is not available")
    strategy = _amplification_strategy(config, labels)
    ratios = dict(strategy.ratios or {}) if strategy.enable else {}
    configured = ratios.get(CPU, 0.0)
    try:
        stored = normalization_ratio_of(annotations)
    except ManifestError as error:
        text = f"calculateCPUAmplificationRatio failed: failed to get cpu normalization ratio, error: {error}"
        return Failed(head + text)
    product = (configured if configured > 0 else 1.0) * (1.0 if stored is None else stored)
    if product > 1:
        ratios[CPU] = product
    for resource, ratio in sorted(ratios.items()):
        if ratio < 1:
            text = f"ratio with resource type {resource} and value {format_ratio(ratio)} is invalid"
            return Failed(f"{head}amplification ratio is invalid: {text}")
    return immutabledict(sorted(ratios.items()))


def as_reported(allocatable: Measured, annotations: Mapping[str, str]) -> Measured:
    """Give what the kubelet reports as allocatable, where the webhook may have multiplied it.

    Parameters
    ----------
    allocatable, annotations
        The node; what the webhook has saved counts, unless it cannot be read.
    """
    try:
        raw = parse_raw_allocatable(annotations) or NOTHING_MEASURED
    except ManifestError:
        return allocatable
    own = {resource: raw[resource] for resource in (CPU, MEMORY) if resource in raw}
    return immutabledict({**allocatable, **own}) if own else allocatable


@record(kw_only=True)
class AmplifiedNode:
    """A node after the webhook.

    Parameters
    ----------
    allocatable
        Exact amounts as published.
    annotations
        Annotations with the raw allocatable saved or removed.
    problem
        Why the update is refused; empty when it is admitted.
    """

    allocatable: Measured | None
    annotations: immutabledict[str, str]
    problem: str = ""


def amplify_node(
    allocatable: Measured | None,
    annotations: Mapping[str, str],
    *,
    before: Measured | None = None,
) -> AmplifiedNode:
    """Publish amplified cpu and memory of a node whose status the kubelet just wrote.

    The kubelet's amounts are saved the first time and whenever they differ from what the node had; then
    each is multiplied in thousandths and cut towards zero.

    Parameters
    ----------
    allocatable, annotations
        The node as it comes in, exact amounts.
    before
        What was allocatable before the update; ``None`` where that is unknown.
    """
    kept = dict(annotations)
    if not kept.get(ANNOTATION_AMPLIFICATION_RATIO):
        kept.pop(ANNOTATION_RAW_ALLOCATABLE, None)
        return AmplifiedNode(allocatable=allocatable, annotations=immutabledict(kept))
    if allocatable is None:
        return AmplifiedNode(allocatable=None, annotations=immutabledict(kept))
    changed = before is not None and any(
        before.get(resource) != allocatable.get(resource) for resource in (CPU, MEMORY)
    )
    if changed or ANNOTATION_RAW_ALLOCATABLE not in kept:
        own = {resource: allocatable[resource] for resource in (CPU, MEMORY) if resource in allocatable}
        kept[ANNOTATION_RAW_ALLOCATABLE] = format_raw_allocatable(own)
    published = dict(allocatable)
    problem = ""
    try:
        raw = parse_raw_allocatable(kept)
        ratios = parse_amplification(kept) if raw is not None else {}
        for resource in (CPU, MEMORY):
            ratio = ratios.get(resource, 0.0)
            if raw is not None and resource in raw and ratio > 1:
                amount = float(ceil_divide(raw[resource], _MILLI)) * ratio
                if amount > _MOST[resource]:
                    path = f"metadata.annotations[{ANNOTATION_AMPLIFICATION_RATIO}]"
                    text = f"times {format_ratio(ratio)} it is more than can be counted"
                    raise ManifestError.at(f"{path}[{resource}]", text)
                published[resource] = int(amount) * _MILLI
    except ManifestError as error:
        problem = str(error)
    return AmplifiedNode(
        allocatable=immutabledict(published), annotations=immutabledict(kept), problem=problem
    )


@record
class SyncVerdict:
    """Whether an annotation is to be written, and why."""

    needed: bool
    reason: str


def normalization_changed(old: Mapping[str, str], new: Mapping[str, str]) -> SyncVerdict:
    """Decide by two sets of annotations whether the normalization ratio is to be written."""
    try:
        before = normalization_ratio_of(old)
    except ManifestError:
        return SyncVerdict(True, "old ratio parsed error")
    try:
        after = normalization_ratio_of(new)
    except ManifestError:
        return SyncVerdict(False, "new ratio parsed error")
    if before is None:
        return (
            SyncVerdict(True, "old ratio is nil")
            if after is not None
            else SyncVerdict(False, "ratios are nil")
        )
    if after is None:
        return SyncVerdict(True, "new ratio is nil")
    if before > after + _EPSILON or before < after - _EPSILON:
        return SyncVerdict(True, "ratio is different")
    return SyncVerdict(False, "ratios are close")


def amplification_changed(old: Mapping[str, str], new: Mapping[str, str]) -> SyncVerdict:
    """Decide by two sets of annotations whether the amplification ratios are to be written."""
    before = old.get(ANNOTATION_AMPLIFICATION_RATIO, "")
    after = new.get(ANNOTATION_AMPLIFICATION_RATIO, "")
    if not before:
        return SyncVerdict(True, "old ratio is empty") if after else SyncVerdict(False, "ratio remains empty")
    if not after:
        return SyncVerdict(True, "new ratio is empty")
    if before == after:
        return SyncVerdict(False, "ratio remains unchanged")
    return SyncVerdict(True, "ratio changed")
