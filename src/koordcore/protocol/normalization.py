"""Normalization and amplification on the wire: two configurations and four annotations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.colocation import RawSelector
from koordcore.model.metrics import Measured, parse_measured
from koordcore.model.quantity import NANO, format_exact_quantity
from koordcore.model.resources import AMOUNT_LIMIT, CPU, MEMORY
from koordcore.protocol.colocation import parse_selector
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_float,
    as_mapping,
    as_str,
    list_of,
    load_json,
    optional,
)
from koordcore.protocol.numbers import parse_bool, parse_float

LABEL_NORMALIZATION_ENABLED: Final = "node.koordinator.sh/cpu-normalization-enabled"
ANNOTATION_NORMALIZATION_RATIO: Final = "node.koordinator.sh/cpu-normalization-ratio"
ANNOTATION_CPU_BASIC_INFO: Final = "node.koordinator.sh/cpu-basic-info"
ANNOTATION_AMPLIFICATION_RATIO: Final = "node.koordinator.sh/resource-amplification-ratio"
ANNOTATION_RAW_ALLOCATABLE: Final = "node.koordinator.sh/raw-allocatable"

NORMALIZATION_KEY: Final = "cpu-normalization-config"
AMPLIFICATION_KEY: Final = "resource-amplification-config"
"""Keys of the ConfigMap ``slo-controller-config``."""

T = TypeVar("T")

Ratios = immutabledict[str, float]


@record
class CPUBasicInfo:
    """What a node's cpu is.

    Parameters
    ----------
    model
        Name of the model; empty where it is not said.
    hyper_thread, turbo
        Whether each is switched on.
    vendor
        As ``/proc/cpuinfo`` names it; empty where it is not said.
    cache_mask
        All ways of the last-level cache in hexadecimal; empty where it is not said.
    """

    model: str = ""
    hyper_thread: bool = False
    turbo: bool = False
    vendor: str = ""
    cache_mask: str = ""


@record
class NormalizationStrategy:
    """Ratios per cpu model.

    Parameters
    ----------
    enable
        ``None`` where nothing is said.
    default_ratio
        For models and settings without a ratio; ``None`` makes those an error.
    ratio_model
        Model to setting (``BaseRatio``, ``HyperThreadEnabledRatio``, ``TurboEnabledRatio``,
        ``HyperThreadTurboEnabledRatio``) to ratio.
    """

    enable: bool | None = None
    default_ratio: float | None = None
    ratio_model: immutabledict[str, Ratios] | None = None

    def over(self, base: NormalizationStrategy) -> NormalizationStrategy:
        """Put what is said here over another strategy; a model named here replaces that model whole."""
        models = base.ratio_model
        if self.ratio_model:
            models = immutabledict({**(base.ratio_model or {}), **self.ratio_model})
        return NormalizationStrategy(
            base.enable if self.enable is None else self.enable,
            base.default_ratio if self.default_ratio is None else self.default_ratio,
            models,
        )


@record
class NormalizationConfig:
    """The cluster's strategy and, per selector, exceptions of which the first match holds."""

    strategy: NormalizationStrategy = attrs.field(factory=NormalizationStrategy)
    node_strategies: tuple[tuple[RawSelector | None, NormalizationStrategy], ...] = ()


@record
class AmplificationStrategy:
    """Ratios per resource; ``None`` where nothing is said."""

    enable: bool | None = None
    ratios: Ratios | None = None

    def over(self, base: AmplificationStrategy) -> AmplificationStrategy:
        """Put what is said here over another strategy, resource by resource."""
        ratios = base.ratios
        if self.ratios:
            ratios = immutabledict({**(base.ratios or {}), **self.ratios})
        return AmplificationStrategy(base.enable if self.enable is None else self.enable, ratios)


@record
class AmplificationConfig:
    """The cluster's strategy and, per selector, exceptions of which the first match holds."""

    strategy: AmplificationStrategy = attrs.field(factory=AmplificationStrategy)
    node_strategies: tuple[tuple[RawSelector | None, AmplificationStrategy], ...] = ()


def _number(value: Json) -> float:
    if value is None:
        return 0.0  # Go leaves the zero value where a map entry is null
    return as_float(value)


def _map_of(convert: Callable[[Json], T]) -> Callable[[Json], immutabledict[str, T]]:
    def read(value: Json) -> immutabledict[str, T]:
        done: dict[str, T] = {}
        for key, one in as_mapping(value).items():
            try:
                done[key] = convert(one)
            except ManifestError as error:
                raise error.within(f"[{key}]") from None
        return immutabledict(done)

    return read


_SETTINGS: Final = {
    "BaseRatio": "baseRatio",
    "HyperThreadEnabledRatio": "hyperThreadEnabledRatio",
    "TurboEnabledRatio": "turboEnabledRatio",
    "HyperThreadTurboEnabledRatio": "hyperThreadTurboEnabledRatio",
}


def _model(value: Json) -> Ratios:
    raw = {} if value is None else as_mapping(value)
    ratios = {name: optional(raw, wire, _number, None, fold_case=True) for name, wire in _SETTINGS.items()}
    return immutabledict((name, ratio) for name, ratio in ratios.items() if ratio is not None)


def _normalization(raw: Mapping[str, Json]) -> NormalizationStrategy:
    return NormalizationStrategy(
        optional(raw, "enable", as_bool, None, fold_case=True),
        optional(raw, "defaultRatio", _number, None, fold_case=True),
        optional(raw, "ratioModel", _map_of(_model), None, fold_case=True),
    )


def _amplification(raw: Mapping[str, Json]) -> AmplificationStrategy:
    return AmplificationStrategy(
        optional(raw, "enable", as_bool, None, fold_case=True),
        optional(raw, "resourceAmplificationRatio", _map_of(_number), None, fold_case=True),
    )


def _entries(
    raw: Mapping[str, Json], read: Callable[[Mapping[str, Json]], T]
) -> tuple[tuple[RawSelector | None, T], ...]:
    def entry(value: Json) -> tuple[RawSelector | None, T]:
        fields = as_mapping(value)
        return optional(fields, "nodeSelector", parse_selector, None, fold_case=True), read(fields)

    found = optional(raw, "nodeConfigs", list_of(entry), None, fold_case=True)
    return () if found is None else found


def parse_normalization_config(raw: Json) -> NormalizationConfig:
    """Read the content of ``cpu-normalization-config``; what is absent is off.

    Raises
    ------
    ManifestError
        With the path of what has another type.
    """
    fields = as_mapping(raw)
    return NormalizationConfig(
        _normalization(fields).over(NormalizationStrategy(False)), _entries(fields, _normalization)
    )


def parse_amplification_config(raw: Json) -> AmplificationConfig:
    """Read the content of ``resource-amplification-config``; what is absent is off.

    Raises
    ------
    ManifestError
        With the path of what has another type.
    """
    fields = as_mapping(raw)
    return AmplificationConfig(
        _amplification(fields).over(AmplificationStrategy(False)), _entries(fields, _amplification)
    )


def _read(annotations: Mapping[str, str], key: str, read: Callable[[str], T]) -> T:
    try:
        return read(annotations[key])
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{key}]") from None


def normalization_enabled_of(labels: Mapping[str, str]) -> bool | None:
    """Give what a node's label says about normalization; ``None`` without the label.

    Raises
    ------
    ManifestError
        When the label is neither true nor false.
    """
    text = labels.get(LABEL_NORMALIZATION_ENABLED)
    if text is None:
        return None
    try:
        return parse_bool(text)
    except ManifestError as error:
        raise error.within(f"metadata.labels[{LABEL_NORMALIZATION_ENABLED}]") from None


def normalization_ratio_of(annotations: Mapping[str, str]) -> float | None:
    """Give a node's stored normalization ratio; ``None`` without one.

    Raises
    ------
    ManifestError
        When it is no positive number.
    """

    def read(text: str) -> float:
        ratio = parse_float(text)
        if ratio <= 0:
            raise ManifestError.at("", f"expected a positive number, got {text}")
        return ratio

    if ANNOTATION_NORMALIZATION_RATIO not in annotations:
        return None
    return _read(annotations, ANNOTATION_NORMALIZATION_RATIO, read)


def cpu_basic_info_of(annotations: Mapping[str, str]) -> CPUBasicInfo | None:
    """Give what a NodeResourceTopology says about the cpu; ``None`` where it says nothing.

    Raises
    ------
    ManifestError
        When the annotation cannot be read.
    """

    def read(text: str) -> CPUBasicInfo:
        value = load_json(text)
        raw = {} if value is None else as_mapping(value)
        return CPUBasicInfo(
            optional(raw, "cpuModel", as_str, "", fold_case=True),
            optional(raw, "hyperThreadEnabled", as_bool, False, fold_case=True),
            optional(raw, "turboEnabled", as_bool, False, fold_case=True),
            optional(raw, "vendorID", as_str, "", fold_case=True),
            optional(raw, "catL3CbmMask", as_str, "", fold_case=True),
        )

    if ANNOTATION_CPU_BASIC_INFO not in annotations:
        return None
    return _read(annotations, ANNOTATION_CPU_BASIC_INFO, read)


def format_amplification(ratios: Mapping[str, float]) -> str:
    """Write amplification ratios as the annotation, two decimals each.

    Examples
    --------
    >>> format_amplification({"memory": 2.5, "cpu": 1.8})
    '{"cpu":1.80,"memory":2.50}'
    """
    return "{" + ",".join(f"{json.dumps(name)}:{ratio:.2f}" for name, ratio in sorted(ratios.items())) + "}"


def parse_amplification(annotations: Mapping[str, str]) -> Ratios:
    """Read a node's amplification ratios; empty where there are none.

    Raises
    ------
    ManifestError
        When the annotation cannot be read.
    """

    def read(text: str) -> Ratios:
        value = load_json(text)
        return immutabledict() if value is None else _map_of(_number)(value)

    if ANNOTATION_AMPLIFICATION_RATIO not in annotations:
        return immutabledict()
    return _read(annotations, ANNOTATION_AMPLIFICATION_RATIO, read)


def format_raw_allocatable(amounts: Mapping[str, int]) -> str:
    """Write what a kubelet reported, exact amounts, as the annotation."""
    texts = {
        name: format_exact_quantity(amount, binary=name == MEMORY) for name, amount in sorted(amounts.items())
    }
    return json.dumps(texts, separators=(",", ":"))


def parse_raw_allocatable(annotations: Mapping[str, str]) -> Measured | None:
    """Read what a kubelet reported before amplification; ``None`` where nothing is saved.

    Raises
    ------
    ManifestError
        When the annotation cannot be read, or has an amount that no node offers.
    """

    def read(text: str) -> Measured | None:
        value = load_json(text)
        if value is None:
            return None
        amounts = parse_measured(as_mapping(value))
        for name, amount in amounts.items():
            if not 0 <= amount <= AMOUNT_LIMIT * NANO // (1000 if name == CPU else 1):
                raise ManifestError.at(f"[{name}]", "no node offers such an amount")
        return amounts

    if ANNOTATION_RAW_ALLOCATABLE not in annotations:
        return None
    return _read(annotations, ANNOTATION_RAW_ALLOCATABLE, read)
