"""Policies back to a KubeSchedulerConfiguration of ``v1``."""

from __future__ import annotations

from typing import Any, Final

from koordcore.errors import ModelError
from koordcore.manifests.plugins import PLUGIN_POINTS
from koordcore.manifests.policy_args import gates_of, write_args
from koordcore.model.policy import PluginSetting, Policy

_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_NEEDED: Final = {"queueSort": "PrioritySort", "bind": "DefaultBinder"}
"""Without these a scheduler does not start."""

Object = dict[str, Any]


def configuration_manifest(*policies: Policy) -> Object:
    """Write policies as one configuration, a profile each.

    Every profile turns the defaults off and lists what it wants, so that it means the same under any version
    of the scheduler. Reading it back gives equal policies, as long as the plugins that filter stand before
    those that only score.

    Raises
    ------
    ModelError
        When arguments are of a kind that cannot be written, or policies differ in feature gates.
    """
    gates = [_gates(policy) for policy in policies]
    for policy, own in zip(policies, gates, strict=True):
        if own != gates[0]:
            raise ModelError(
                f"{policy.name}: feature gates of one component cannot differ from profile to profile"
            )
    return {
        "apiVersion": _VERSION,
        "kind": "KubeSchedulerConfiguration",
        **({"featureGates": gates[0]} if any(gates) else {}),
        "profiles": [_profile(policy) for policy in policies],
    }


def _gates(policy: Policy) -> dict[str, bool]:
    own = {gate: on for one in policy.plugins for gate, on in gates_of(one.name, one.args).items()}
    return dict(sorted({**policy.feature_gates, **own}.items()))


def _profile(policy: Policy) -> Object:
    plugins: Object = {"multiPoint": {"disabled": [{"name": "*"}]}}
    for point in ("preFilter", "filter"):
        names = [one.name for one in policy.plugins if one.filters and _speaks(one.name, point)]
        if names:
            plugins[point] = {"enabled": [{"name": name} for name in names]}
    scorers = [one for one in policy.plugins if one.scores]
    if scorers:
        plugins["score"] = {"enabled": [{"name": one.name, "weight": one.weight} for one in scorers]}
        names = [one.name for one in scorers if _speaks(one.name, "preScore")]
        if names:
            plugins["preScore"] = {"enabled": [{"name": name} for name in names]}
    plugins.update({point: {"enabled": [{"name": name}]} for point, name in _NEEDED.items()})
    config = [_config(one) for one in policy.plugins if one.args is not None]
    return {
        "schedulerName": policy.name,
        "percentageOfNodesToScore": policy.percentage_of_nodes,
        "plugins": plugins,
        **({"pluginConfig": config} if config else {}),
    }


def _speaks(name: str, point: str) -> bool:
    return point in PLUGIN_POINTS.get(name, ("filter", "score"))


def _config(setting: PluginSetting) -> Object:
    kind = {"apiVersion": _VERSION, "kind": f"{setting.name}Args"}
    return {"name": setting.name, "args": {**kind, **write_args(setting.name, setting.args)}}
