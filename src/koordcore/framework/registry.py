"""The plugins that a policy can name, made from it: the library's own, and those that packages offer.

A module is imported when a policy names its plugin, so that nobody pays for allocators that he does not ask
for. A plugin of one's own needs no place here: ``PluginSetting(plugin=Mine)`` hands the class to the policy.
An installed package offers plugins to policy files by an entry point in the group ``koordcore.plugins``;
the library's own names cannot be taken.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeAlias, cast

import attrs
from immutabledict import immutabledict

from koordcore._blame import shown
from koordcore.errors import ModelError
from koordcore.framework.guarded import guarded
from koordcore.framework.hints import ChangeKind
from koordcore.framework.plugin import JointPlugin, Plugin
from koordcore.framework.readable import Readable
from koordcore.framework.workspace import Workspace
from koordcore.model.installed import PLUGIN_GROUP, offered_plugins
from koordcore.model.policy import PluginSetting, Policy

_KINDS: Final = frozenset(ChangeKind)
_HOME: Final = "koordcore.scheduling.plugins"

PLUGINS: Final[immutabledict[str, tuple[str, str]]] = immutabledict(
    {
        "NodeUnschedulable": ("placement", "Unschedulable"),
        "NodeName": ("placement", "NodeName"),
        "TaintToleration": ("placement", "Taints"),
        "NodeAffinity": ("placement", "NodeLabels"),
        "NodePorts": ("placement", "NodePorts"),
        "NodeDeclaredFeatures": ("placement", "DeclaredFeatures"),
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
        When there is no such plugin, or what an entry point offers is none or cannot be imported.
    """
    if name in PLUGINS:
        return _own_type(name)
    if name not in offered_plugins():
        raise ModelError(f"no plugin {name}")
    offer = offered_plugins()[name]
    try:
        found = offer.load()
    except Exception as error:  # the module is its author's, and so is what it raises
        place = f"entry point {offer.value} in {PLUGIN_GROUP}"
        raise ModelError(f"plugin {name}: {place}: {type(error).__name__}: {error}") from error
    return _checked(name, found)


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


def _checked(name: str, found: object) -> type[Plugin]:
    if isinstance(found, type) and issubclass(found, Plugin):
        for said in ("helped_by", "needs", "reads", "looks_at"):
            names = getattr(found, said)
            if names is not None and not isinstance(names, frozenset):
                raise ModelError(f"plugin {name}: {said}: expected a frozenset or None, got {shown(names)}")
        # Names of classes of records are anybody's; the other kinds are known.
        wrong = [one for one in found.helped_by or () if one not in _KINDS and not str(one).isidentifier()]
        if wrong:
            raise ModelError(f"plugin {name}: helped_by: no change is of the kind {min(map(repr, wrong))}")
        return found
    raise ModelError(f"plugin {name}: expected a subclass of koordcore.framework.Plugin, got {found!r}")


def _args_of(policy: Policy, setting: PluginSetting, kind: type[Plugin]) -> Any:
    """Give a plugin's arguments; what a file says is made a record of the plugin's own class of them."""
    args, expected = setting.args, kind.arguments
    if issubclass(kind, JointPlugin):
        expected = kind.entry_arguments[setting.name]
    if expected is None and (setting.plugin is not None or setting.name not in PLUGINS):
        return args  # a plugin of one's own may say nothing of its arguments
    place = f"policy {policy.name}: {setting.name}: args: "
    if expected is not None and isinstance(args, immutabledict) and not issubclass(expected, Mapping):
        try:
            return expected(**args)
        except TypeError as error:
            raise ModelError(f"{place}{error}") from error
    if args is not None and not isinstance(args, expected or ()):
        wanted = "nothing" if expected is None else expected.__name__
        raise ModelError(f"{place}expected {wanted}, got {shown(args)}")
    return args


_READABLE: Final = PluginSetting(name=Readable.name, scores=False)
Made: TypeAlias = dict[Hashable, Plugin]
"""The plugins of all profiles by kind and arguments: who is told of pods is told once."""


def make_plugins(workspace: Workspace, policy: Policy, known: Made) -> Iterator[tuple[Plugin, PluginSetting]]:
    """Make the plugins of a profile in its order; one behind several names comes before the first of them.

    Those of ``known`` are there already.
    """
    kinds = kinds_of(policy)
    if Readable not in known:
        known[Readable] = Readable(workspace)
    yield known[Readable], _READABLE
    joint: dict[type[Plugin], JointPlugin] = {}
    for setting in policy.plugins:
        kind = kinds[setting.name]
        if not issubclass(kind, JointPlugin):
            key = (kind, setting.name, setting.args, setting.scores)
            if key not in known:
                ours = setting.plugin is None and setting.name in PLUGINS
                make = kind if ours else guarded(kind, setting.name)
                known[key] = plugin = make(workspace, _args_of(policy, setting, kind))
                plugin.scored = setting.scores
            yield known[key], setting
            continue
        if kind not in joint:
            own = {one.name: one for one in policy.plugins if kinds[one.name] is kind}
            together = (kind, tuple(own.values()))
            if together not in known:
                for one in own.values():
                    _args_of(policy, one, kind)  # refuses what it cannot read
                known[together] = kind(workspace, own)
            joint[kind] = cast("JointPlugin", known[together])
            yield joint[kind], PluginSetting(name=kind.name, filters=False, scores=False)
        yield joint[kind].entry(setting.name), attrs.evolve(setting, filters=True)
