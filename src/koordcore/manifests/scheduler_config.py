"""KubeSchedulerConfiguration: one policy for each profile.

Profiles are merged with the library's default features as kube-scheduler merges them with its own:
``multiPoint`` first, then ``filter`` and ``score``, which win; ``disabled`` before ``enabled``; ``*`` is all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from koordcore.errors import ManifestError, ModelError
from koordcore.manifests._reading import Reading, section
from koordcore.manifests.scheduler_args import PLUGIN_ARGS
from koordcore.model.policy import FeatureSetting, Policy
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_list,
    as_mapping,
    as_str,
    list_of,
    optional,
    required,
)

__all__ = ["policies_from_manifest", "read_scheduler_configuration"]

_FILTER, _SCORE = "filter", "score"
_POINTS: Final = ("multiPoint", "preFilter", _FILTER, "preScore", _SCORE)
_ALL: Final = "*"


@attrs.frozen
class _Plugin:
    """What a plugin of upstream can do here.

    Parameters
    ----------
    filter_at
        The extension point where it refuses nodes; empty for never.
    scores
        It has a score.
    weight
        Of its score where a configuration names none.
    """

    filter_at: str = _FILTER
    scores: bool = True
    weight: int = 1


_PLUGINS: Final[Mapping[str, _Plugin]] = {
    "NodeUnschedulable": _Plugin(scores=False),
    "NodeName": _Plugin(scores=False),
    "TaintToleration": _Plugin(weight=3),
    "NodeAffinity": _Plugin(weight=2),
    "NodePorts": _Plugin(scores=False),
    "NodeResourcesFit": _Plugin(),
    "NodeResourcesBalancedAllocation": _Plugin(filter_at=""),
    "PodTopologySpread": _Plugin(weight=2),
    "InterPodAffinity": _Plugin(weight=2),
    "ImageLocality": _Plugin(filter_at=""),
    "NodeResourcesFitPlus": _Plugin(filter_at=""),
    "ScarceResourceAvoidance": _Plugin(filter_at=""),
    "LoadAwareScheduling": _Plugin(),
    "NodeNUMAResource": _Plugin(),
    "DeviceShare": _Plugin(),
    "Reservation": _Plugin(weight=5000),
    "ElasticQuota": _Plugin(filter_at="preFilter", scores=False),
    "Coscheduling": _Plugin(filter_at="preFilter"),
    "SchedulingHint": _Plugin(filter_at="preFilter", scores=False),
}
_BUILT_IN: Final = frozenset(
    {"PrioritySort", "SchedulingGates", "DefaultBinder", "DefaultPreemption", "NodeVolumeLimits"}
    | {"VolumeRestrictions", "VolumeBinding", "VolumeZone", "DynamicResources"}
)
"""Plugins of the stock scheduler that the library does otherwise, or that are about volumes."""


def policies_from_manifest(raw: Mapping[str, Json]) -> tuple[Policy, ...]:
    """Read a KubeSchedulerConfiguration: one policy per profile, in the order written.

    Raises
    ------
    ManifestError
        With every problem of the object.

    Examples
    --------
    >>> scores = {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]}
    >>> (policy,) = policies_from_manifest({"profiles": [{"plugins": {"score": scores}}]})
    >>> [(one.name, one.weight) for one in policy.features if one.scores]
    [('NodeResourcesFit', 5)]
    """
    reading = Reading()
    policies = read_scheduler_configuration(reading, raw)
    reading.finish()
    return policies


def read_scheduler_configuration(reading: Reading, raw: Mapping[str, Json]) -> tuple[Policy, ...]:
    """Read a KubeSchedulerConfiguration; problems and warnings go to ``reading``."""
    share = reading.take(raw, "percentageOfNodesToScore", "", _percentage, None)
    profiles: list[Json] = reading.take(raw, "profiles", "", as_list, [{}])
    policies: list[Policy] = []
    for index, value in enumerate(profiles):
        path = f"profiles[{index}]"
        try:
            policy = _profile(reading, as_mapping(value), path, share)
        except (ManifestError, ModelError) as error:
            reading.note(error, path)
            continue
        if any(policy.name == other.name for other in policies):
            reading.problem(f"{path}.schedulerName", f"{policy.name} stands twice")
        policies.append(policy)
    return tuple(policies)


def _percentage(value: Json) -> int:
    share = as_int(value)
    if not 0 <= share <= 100:
        raise ManifestError.at("", f"expected 0..100, got {share}")
    return share


def _profile(reading: Reading, raw: Mapping[str, Json], path: str, share: int | None) -> Policy:
    own_share = reading.take(raw, "percentageOfNodesToScore", path, _percentage, share)
    name = reading.take(raw, "schedulerName", path, as_str, "") or "default-scheduler"
    features = _features(reading, section(reading, raw, "plugins", path), f"{path}.plugins")
    arguments = _arguments(reading, raw, path)
    return Policy(
        name=name,
        features=tuple(attrs.evolve(one, args=arguments.get(one.name)) for one in features),
        **({} if own_share is None else {"percentage_of_nodes": own_share}),
    )


# --- plugins --------------------------------------------------------------------------------------------


@attrs.define
class _State:
    """What is on for one feature while a profile is merged."""

    filters: bool
    scores: bool
    weight: int


@attrs.frozen
class _PluginSet:
    enabled: tuple[tuple[str, int], ...] = ()
    disabled: tuple[str, ...] = ()


def _entry(value: Json) -> tuple[str, int]:
    raw = as_mapping(value)
    return required(raw, "name", as_str), optional(raw, "weight", as_int, 0)


def _plugin_set(value: Json) -> _PluginSet:
    raw = as_mapping(value)
    disabled: tuple[tuple[str, int], ...] = optional(raw, "disabled", list_of(_entry), ())
    return _PluginSet(optional(raw, "enabled", list_of(_entry), ()), tuple(name for name, _ in disabled))


def _features(reading: Reading, plugins: Mapping[str, Json], path: str) -> tuple[FeatureSetting, ...]:
    states = {one.name: _State(one.filters, one.scores, one.weight) for one in Policy().features}
    for point in _POINTS:
        chosen: _PluginSet = reading.take(plugins, point, path, _plugin_set, _PluginSet())
        for name in chosen.disabled:
            _disable(states, point, name)
        for name, weight in chosen.enabled:
            plugin = _PLUGINS.get(name)
            if plugin is not None:
                _enable(states, point, name, plugin, weight)
            elif name not in _BUILT_IN:
                reading.warn(
                    f"{path}.{point}.enabled", f"{name} is not a plugin of this library; passed over"
                )
    return tuple(
        FeatureSetting(name=name, weight=state.weight, filters=state.filters, scores=state.scores)
        for name, state in states.items()
        if state.filters or state.scores
    )


def _disable(states: dict[str, _State], point: str, name: str) -> None:
    for known, state in states.items():
        if name not in (_ALL, known):
            continue
        if point == _SCORE:
            state.scores = False
        elif point == "multiPoint":
            state.filters = state.scores = False
        elif known in _PLUGINS and _PLUGINS[known].filter_at == point:
            state.filters = False


def _enable(states: dict[str, _State], point: str, name: str, plugin: _Plugin, weight: int) -> None:
    state = states.setdefault(name, _State(filters=False, scores=False, weight=weight or plugin.weight))
    if point in (_SCORE, "multiPoint") and plugin.scores:
        state.scores = True
        # A weight of zero is not permitted upstream; it counts as absent, and absent as one.
        state.weight = weight or (1 if point == _SCORE else plugin.weight)
    if point == "multiPoint" and plugin.filter_at:
        state.filters = True
    if plugin.filter_at == point:
        state.filters = True


# --- arguments ------------------------------------------------------------------------------------------


def _arguments(reading: Reading, profile: Mapping[str, Json], path: str) -> dict[str, Any]:
    """Read ``pluginConfig``; release notes print it as ``pluginConfigs``, which is read too (ruling 12)."""
    name = "pluginConfig"
    if name not in profile and "pluginConfigs" in profile:
        name = "pluginConfigs"
        reading.warn(f"{path}.pluginConfigs", "read as pluginConfig; write that instead")
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for index, value in enumerate(reading.take(profile, name, path, as_list, [])):
        place = f"{path}.{name}[{index}]"
        try:
            raw = as_mapping(value)
            plugin = required(raw, "name", as_str)
        except ManifestError as error:
            reading.note(error, place)
            continue
        if plugin in seen:
            reading.problem(f"{place}.name", f"{plugin} is configured twice")
        seen.add(plugin)
        if plugin in PLUGIN_ARGS:
            found[plugin] = reading.take(raw, "args", place, _read_by(PLUGIN_ARGS[plugin]), None)
        elif plugin not in _BUILT_IN and raw.get("args"):
            reading.warn(f"{place}.args", f"arguments of {plugin} are not read")
    return found


def _read_by(read: Callable[[Mapping[str, Json]], Any]) -> Callable[[Json], Any]:
    return lambda value: read(as_mapping(value))
