"""The plugins that a policy can name: the library's own, and those that installed packages offer.

A module is imported when a policy names its plugin, so that nobody pays for allocators that he does not ask
for. A plugin of one's own needs no place here: ``PluginSetting(plugin=Mine)`` hands the class to the policy.
An installed package offers plugins to policy files by an entry point in the group ``koordcore.plugins``;
the library's own names cannot be taken.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from typing import Final, cast

from immutabledict import immutabledict

from koordcore.errors import ModelError
from koordcore.framework.plugin import Plugin
from koordcore.model.installed import offered_plugins
from koordcore.model.policy import PluginSetting, Policy
from koordcore.snapshot import ClusterSnapshot

_HOME: Final = "koordcore.scheduling.plugins"

PLUGINS: Final[immutabledict[str, tuple[str, str]]] = immutabledict(
    {
        "NodeUnschedulable": ("placement", "Unschedulable"),
        "NodeName": ("placement", "NodeName"),
        "TaintToleration": ("placement", "Taints"),
        "NodeAffinity": ("placement", "NodeLabels"),
        "NodePorts": ("placement", "NodePorts"),
        "NodeResourcesFit": ("resources", "ResourceFit"),
        "NodeResourcesBalancedAllocation": ("resources", "BalancedAllocation"),
        "NodeResourcesFitPlus": ("resource_avoidance", "FitPlus"),
        "ScarceResourceAvoidance": ("resource_avoidance", "ScarceAvoidance"),
        "VolumeRestrictions": ("volume_use", "VolumeRestrictions"),
        "NodeVolumeLimits": ("volume_use", "NodeVolumeLimits"),
        "VolumeBinding": ("volumes", "VolumeBinding"),
        "VolumeZone": ("volumes", "VolumeZone"),
        "PodTopologySpread": ("spread", "TopologySpread"),
        "InterPodAffinity": ("interpod", "InterPodAffinity"),
        "ImageLocality": ("images", "ImageLocality"),
        "LoadAwareScheduling": ("load", "LoadAware"),
        "NodeNUMAResource": ("exact", "ExactPlugin"),
        "DynamicResources": ("claims", "DynamicResources"),
        "DeviceShare": ("exact", "ExactPlugin"),
        "SchedulingHint": ("network", "Hints"),
        "Coscheduling": ("network", "Coscheduling"),
        "GpuShare": ("gpu_share", "GpuShare"),
        "ElasticQuota": ("quota", "QuotaPlugin"),
        "Reservation": ("reservation", "ReservationPlugin"),
    }
)
"""The library's plugins: the name in a policy, the module in ``koordcore.scheduling.plugins``, the class."""


def known_plugins() -> frozenset[str]:
    """Give the names that a policy file may use."""
    return frozenset((*PLUGINS, *offered_plugins()))


def plugin_type(name: str) -> type[Plugin]:
    """Give the class of a plugin by its name.

    Raises
    ------
    ModelError
        When there is no such plugin, or what an entry point offers is none.
    """
    if name in PLUGINS:
        return _own_type(name)
    if name not in offered_plugins():
        raise ModelError(f"no plugin {name}")
    return _checked(name, offered_plugins()[name].load())


@cache
def _own_type(name: str) -> type[Plugin]:
    """Give one of the library's own; looking a module up again takes longer than most plugins' answers."""
    module, attribute = PLUGINS[name]
    return cast("type[Plugin]", getattr(import_module(f"{_HOME}.{module}"), attribute))


def plugin_of(setting: PluginSetting) -> type[Plugin]:
    """Give the class of a policy's entry: the one that it was handed, or the one of its name.

    Raises
    ------
    ModelError
        When there is none of that name, or what was handed over is no plugin.
    """
    return plugin_type(setting.name) if setting.plugin is None else _checked(setting.name, setting.plugin)


def kinds_of(profile: Policy) -> dict[str, type[Plugin]]:
    """Give the classes of a profile's plugins by their names in it, in its order.

    Raises
    ------
    ModelError
        When there is no such plugin; the message names the profile.
    """
    try:
        return {setting.name: plugin_of(setting) for setting in profile.plugins}
    except ModelError as error:
        raise ModelError(f"policy {profile.name}: {error}") from error


def plugin_kinds(policy: Policy) -> tuple[type[Plugin], ...]:
    """Give the classes of all plugins of a policy, each once, profile after profile.

    Raises
    ------
    ModelError
        When a profile names a plugin that does not exist.
    """
    found = (kind for profile in policy.profiles for kind in kinds_of(profile).values())
    return tuple(dict.fromkeys(found))


def kinds_with(policy: Policy, hook: str, snapshot: ClusterSnapshot) -> list[type[Plugin]]:
    """Give the classes of a policy's plugins that have a class method of their own, such as ``waiting``.

    Those that need records of which a cluster has none are left out.

    Raises
    ------
    ModelError
        When a profile names a plugin that does not exist.
    """
    has = snapshot.has
    return [
        kind for kind, records in _kinds_with(_This(policy), hook) if not records or any(map(has, records))
    ]


class _This:
    """A policy by identity: to compare two takes longer than most calls have time for."""

    __slots__ = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __hash__(self) -> int:
        return id(self.policy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _This) and other.policy is self.policy


@lru_cache(maxsize=64)  # what is remembered keeps its policy alive, so that no other has its identity
def _kinds_with(policy: _This, hook: str) -> list[tuple[type[Plugin], list[type]]]:
    default = getattr(Plugin, hook).__func__
    kinds = plugin_kinds(policy.policy)
    return [
        (kind, [one for one in kind.needs or () if isinstance(one, type)])
        for kind in kinds
        if getattr(kind, hook).__func__ is not default
    ]


def _checked(name: str, found: object) -> type[Plugin]:
    if isinstance(found, type) and issubclass(found, Plugin):
        return found
    raise ModelError(f"plugin {name}: expected a subclass of koordcore.framework.Plugin, got {found!r}")
