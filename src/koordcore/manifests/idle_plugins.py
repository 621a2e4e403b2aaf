"""Plugins that a profile names at an extension point without effect, each with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from koordcore.manifests._config_reader import PluginRef, PluginSet
from koordcore.manifests.idle_settings import IDLE_POINTS
from koordcore.manifests.plugins import DEFAULT_PLUGINS, REMOVED_PLUGINS, points_of

_MULTI, _SCORE, _ALL = "multiPoint", "score", "*"
_UNKNOWN: Final = "neither Kubernetes nor Koordinator has such a plugin"
_DEFAULTS: Final = frozenset(name for name, _ in DEFAULT_PLUGINS)


def idle_plugins(
    sets: Mapping[str, PluginSet], multi: Collection[PluginRef]
) -> Iterator[tuple[str, str, str]]:
    """Give the entries of a profile's plugin sets that change nothing.

    Parameters
    ----------
    sets
        Extension point, ``multiPoint`` included, to what it enables and disables.
    multi
        What ``multiPoint`` enables in the end, defaults included.

    Yields
    ------
    tuple of str
        Path below ``plugins``, why the entry has no effect, and the plugin.
    """
    spread = {one.name for one in multi}
    for point, own in sets.items():
        for one in own.enabled:
            if not points_of(one.name) and one.name not in REMOVED_PLUGINS:
                yield f"{point}.enabled[{one.name}]", _UNKNOWN, one.name
        for name in own.disabled:
            reason = _vain(point, name, own, spread)
            if reason and name not in REMOVED_PLUGINS:
                yield f"{point}.disabled[{name}]", reason, name
    for one in sets[_MULTI].enabled:
        reason = _unweighted(one, sets[_SCORE]) if one.weight and points_of(one.name) else ""
        if reason:
            yield f"{_MULTI}.enabled[{one.name}].weight", reason, one.name


def _vain(point: str, name: str, own: PluginSet, spread: Collection[str]) -> str:
    """Say why disabling a plugin takes nothing away; empty where it does, or where others say it."""
    if name != _ALL and not points_of(name):
        return _UNKNOWN
    if point == "preScore":
        return "whoever is enabled at score scores"
    if _ALL in own.disabled or point in IDLE_POINTS:
        return ""
    if point == _MULTI:
        return "" if name in _DEFAULTS else "it is not enabled by default"
    if point not in points_of(name):
        return f"it does not extend {point}"
    if name not in spread:
        return f"nothing enables it at {point}"
    early = point == "preFilter" and "filter" in points_of(name)
    return "whoever is enabled at filter filters" if early else ""


def _unweighted(one: PluginRef, scoring: PluginSet) -> str:
    """Say why a weight beside ``multiPoint`` does not count; empty where it does."""
    if _SCORE not in points_of(one.name):
        return "it does not score"
    if any(other.name == one.name for other in scoring.enabled):
        return "score names it again, and the weight there counts"
    return "it is disabled at score" if {one.name, _ALL} & {*scoring.disabled} else ""
