"""ConfigMaps that configure the control plane; any other ConfigMap is an object that no plugin reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore.errors import KoordcoreError, ManifestError, MissingExtraError, Problem
from koordcore.manifests._raw import SourceObject
from koordcore.manifests._reading import Metadata, Reading, as_labels, is_object, read_metadata
from koordcore.manifests._reads import Traced, unread
from koordcore.manifests._yaml import read_yaml
from koordcore.manifests.colocation_texts import config_remarks, unselected
from koordcore.model.cluster import ConfigMap
from koordcore.model.colocation import ColocationConfig
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY
from koordcore.model.devices import SharedTemplates
from koordcore.model.mappings import EMPTY
from koordcore.protocol.colocation import parse_config
from koordcore.protocol.device_object import templates_from_manifest
from koordcore.protocol.fields import Json, at, load_json
from koordcore.protocol.normalization import (
    AMPLIFICATION_KEY,
    NORMALIZATION_KEY,
    parse_amplification_config,
    parse_normalization_config,
)
from koordcore.protocol.qos_config import QOS_KEY, parse_qos_config

SLO_CONTROLLER_CONFIG: Final = "slo-controller-config"
CONTROL_NAMESPACE, SHARED_TEMPLATES = DEFAULT_DEVICE_POLICY.template_source
_TEMPLATES_KEY: Final = "data.yaml"

_COLOCATION: Final = "colocation-config"
_DECIDING: Final = (_COLOCATION, QOS_KEY, NORMALIZATION_KEY, AMPLIFICATION_KEY)
_MEASURED: Final = (
    "metricAggregateDurationSeconds",
    "metricReportIntervalSeconds",
    "metricAggregatePolicy",
    "metricMemoryCollectPolicy",
    "extensions",
)
"""Fields by which agents measure; a dump shows what they have measured."""
_CHECKED: Final[Mapping[str, Callable[[Json], object]]] = {
    _COLOCATION: parse_config,
    NORMALIZATION_KEY: parse_normalization_config,
    AMPLIFICATION_KEY: parse_amplification_config,
    QOS_KEY: parse_qos_config,
}


def read_config_map(reading: Reading, raw: Mapping[str, Json]) -> ConfigMap | SharedTemplates | None:
    """Decode a ConfigMap of the control plane; ``None`` for any other.

    A key of ``slo-controller-config`` that cannot be read means its defaults upstream, and a warning here.
    """
    meta = read_metadata(reading, raw)
    match meta.name:
        case "slo-controller-config":
            data = reading.take(raw, "data", "", as_labels, EMPTY)
            for key, parse in _CHECKED.items():
                if data.get(key):
                    _check(reading, key, data[key], parse)
            idle = ", ".join(sorted(key for key in data if key not in _DECIDING))
            if idle:
                reading.warn("data", f"has no effect here: {idle}")
            _warn_of_place(reading, meta)
            return ConfigMap(meta.name, meta.namespace, data)
        case name:
            return _templates(reading, raw, meta, usual=name == SHARED_TEMPLATES)


def _templates(
    reading: Reading, raw: Mapping[str, Json], meta: Metadata, *, usual: bool
) -> SharedTemplates | None:
    """Read templates of virtual cards, which a configuration may keep under any name.

    Upstream logs what it cannot read and goes on without templates.
    """
    data = raw.get("data")
    texts: Mapping[str, str] = EMPTY
    if not usual and not (isinstance(data, Mapping) and isinstance(data.get(_TEMPLATES_KEY), str)):
        return None
    try:
        texts = at("data", as_labels, data or {})
        text = _as_json(texts.get(_TEMPLATES_KEY, "{}"))
        templates = templates_from_manifest({"data": {_TEMPLATES_KEY: text}})
    except KoordcoreError as error:
        if not usual:
            return None
        if isinstance(error, MissingExtraError):
            raise
        problems = error.problems if isinstance(error, ManifestError) else (Problem("data", str(error)),)
        for problem in problems:
            reading.warn(problem.path, f"{problem.message}; no template of virtual cards counts")
        templates = immutabledict()
    if not usual and not templates:
        return None
    if usual:
        _warn_of_place(reading, meta)
        others = ", ".join(sorted(key for key in texts if key != _TEMPLATES_KEY))
        if others:
            reading.warn("data", f"has no effect: {others}; templates stand under {_TEMPLATES_KEY}")
    return SharedTemplates(meta.name, meta.namespace, templates)


def _warn_of_place(reading: Reading, meta: Metadata) -> None:
    if meta.namespace != CONTROL_NAMESPACE:
        reading.warn("metadata.namespace", f"not looked at: only the one in {CONTROL_NAMESPACE} counts")


def _check(reading: Reading, key: str, text: str, parse: Callable[[Json], object]) -> None:
    try:
        raw = load_json(text)
        traced = Traced(raw) if is_object(raw) else raw
        parsed = parse(traced)
    except ManifestError as error:
        for problem in error.within(f"data[{key}]").problems:
            reading.warn(problem.path, f"{problem.message}; the defaults count")
        return
    remarks = [*unselected(raw), *(config_remarks(parsed) if isinstance(parsed, ColocationConfig) else ())]
    reading.warnings += (one.within(f"data[{key}]") for one in remarks)
    if key == QOS_KEY:
        return  # agents heed more of it than what is written here for pods
    idle = [one for one in unread(traced) if not one.endswith("].name")]
    if key == _COLOCATION:
        idle += (name for name in _MEASURED if is_object(raw) and name in raw)
    if idle:
        reading.warn(f"data[{key}]", f"has no effect here: {', '.join(idle)}")


def _as_json(text: str) -> str:
    """Turn YAML text into JSON text, which the parsers of configurations take."""
    if text.lstrip()[:1] in ("{", ""):
        return text
    found = list(read_yaml(text, ""))
    problems = [
        Problem(f"data[{_TEMPLATES_KEY}]", one.message) for one in found if not isinstance(one, SourceObject)
    ]
    values = [one.raw for one in found if isinstance(one, SourceObject)]
    if problems or len(values) != 1:
        raise ManifestError(problems or [Problem(f"data[{_TEMPLATES_KEY}]", "expected one YAML document")])
    return json.dumps(values[0])
