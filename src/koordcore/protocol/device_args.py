"""Arguments of the DeviceShare plugin as a scheduler configuration writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from koordcore.errors import ManifestError
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy, ScoringStrategy
from koordcore.protocol.fields import Json, as_bool, as_int, as_mapping, as_str, list_of, optional, required

_EMPTY: Final[Mapping[str, Any]] = {}


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


def _scoring(value: Json) -> dict[str, Any]:
    """Read how nodes and devices are ranked; an object without weights has the usual ones."""
    raw = as_mapping(value)
    if not raw:
        return {}
    strategy = optional(raw, "type", _strategy, ScoringStrategy.LEAST_ALLOCATED)
    weights = optional(raw, "resources", list_of(_weight), ())
    for index, (_, weight) in enumerate(weights):
        if weight < 1:
            raise ManifestError.at(f"resources[{index}].weight", f"expected at least 1, got {weight}")
    return {"strategy": strategy, **({"weights": dict(weights)} if weights else {})}


def _templates(value: Json) -> dict[str, Any]:
    """Read which ConfigMap holds templates of virtual cards, and which requests need one."""
    raw = as_mapping(value)
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
    return DevicePolicy(
        **optional(raw, "scoringStrategy", _scoring, _EMPTY),
        **optional(raw, "gpuSharedResourceTemplatesConfig", _templates, _EMPTY),
        unshareable_models=optional(raw, "gpuShareUnsupportedModels", list_of(_model), ()),
        align_numa=not optional(raw, "disableDeviceNUMATopologyAlignment", as_bool, False),
    )
