"""Arguments of the DeviceShare plugin as a scheduler configuration writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from koordcore.errors import ManifestError, ModelError
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy, ScoringStrategy
from koordcore.protocol.fields import Json, as_bool, as_int, as_mapping, as_str, list_of, optional, required

_EMPTY: Final[Mapping[str, Json]] = {}


def _weight(value: Json) -> tuple[str, int]:
    raw = as_mapping(value)
    return required(raw, "name", as_str), optional(raw, "weight", as_int, 1)


def _model(value: Json) -> tuple[str, str]:
    raw = as_mapping(value)
    return optional(raw, "vendor", as_str, ""), optional(raw, "model", as_str, "")


def _strategy(value: Json) -> ScoringStrategy:
    text = as_str(value)
    if text not in [known.value for known in ScoringStrategy]:
        raise ManifestError.at("", f'expected one of {", ".join(ScoringStrategy)}, got "{text}"')
    return ScoringStrategy(text)


def _templates(raw: Mapping[str, Json]) -> dict[str, Any]:
    """Read which ConfigMap holds templates of virtual cards, and which requests need one."""
    namespace, name = DEFAULT_DEVICE_POLICY.template_source
    resources = optional(raw, "matchedResources", list_of(as_str), ())
    found = (
        optional(raw, "configMapNamespace", as_str, namespace),
        optional(raw, "configMapName", as_str, name),
    )
    return {"template_source": found, **({"template_resources": resources} if resources else {})}


def device_policy_of(raw: Mapping[str, Json]) -> DevicePolicy:
    """Read ``DeviceShareArgs``; what is left out has upstream's default.

    Raises
    ------
    ManifestError
        For an unknown strategy or a weight below 1, with the path.
    """
    changes: dict[str, Any] = {}
    scoring = optional(raw, "scoringStrategy", as_mapping, _EMPTY)
    if scoring:
        changes["strategy"] = optional(scoring, "type", _strategy, ScoringStrategy.LEAST_ALLOCATED)
        weights = optional(scoring, "resources", list_of(_weight), ())
        if weights:
            changes["weights"] = dict(weights)
    changes |= _templates(optional(raw, "gpuSharedResourceTemplatesConfig", as_mapping, _EMPTY))
    changes["unshareable_models"] = optional(raw, "gpuShareUnsupportedModels", list_of(_model), ())
    changes["align_numa"] = not optional(raw, "disableDeviceNUMATopologyAlignment", as_bool, False)
    try:
        return DevicePolicy(**changes)
    except ModelError as error:
        raise ManifestError.at("scoringStrategy.resources", str(error)) from None
