"""Arguments of the descheduler's plugins, alone or in its whole configuration, as JSON or YAML."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.manifests.config_maps import unpacked
from koordcore.manifests.loading import opened
from koordcore.manifests.sources import read_sources
from koordcore.model.mappings import EMPTY
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.fields import Json, as_mapping, at, list_of, optional
from koordcore.protocol.selectors import as_label_selector

CONFIGURATION: Final = "DeschedulerConfiguration"
COOLING, MIGRATING = "LowNodeLoad", "MigrationController"
_HEADER: Final = ("apiVersion", "kind")
_PROFILE: Final = ("name", "pluginConfig")
_COUNTED: Final = (
    "maxNoOfPodsToEvictPerNode",
    "maxNoOfPodsToEvictPerNamespace",
    "maxNoOfPodsToEvictTotal",
)
_OBJECTS: Final = list_of(as_mapping)


@record
class PluginFile:
    """What a file says to one plugin.

    Parameters
    ----------
    args
        The plugin's arguments, with the counts of the descheduler beside those of the migration controller.
    idle
        Paths of what else a whole configuration says, which has no effect.
    nodes
        Nodes that a whole configuration looks at; ``None`` for all.
    whole
        It is a whole configuration, which may have arguments of other plugins, too.
    """

    args: Any
    idle: tuple[str, ...] = ()
    nodes: LabelSelector | None = None
    whole: bool = False


def read_plugin_file(option: str, path: Path, plugin: str) -> PluginFile:
    """Read the arguments of a plugin out of a file.

    Parameters
    ----------
    option
        Who names the file.
    path
        Arguments, a configuration of the descheduler, or the ConfigMap that holds one.
    plugin
        Whose arguments.

    Raises
    ------
    ModelError
        With option and file, when it cannot be read or holds something else.
    """
    raw = _one_object(option, path)
    if not isinstance(raw, Mapping):
        return PluginFile(raw)
    if raw.get("kind") == CONFIGURATION:
        return _in_whole(option, path, raw, plugin)
    kind = raw.get("kind", f"{plugin}Args")
    if kind != f"{plugin}Args":
        raise ModelError(f"{option}: {path}: expected {plugin}Args or a {CONFIGURATION}, got {kind}")
    return PluginFile(_without_header(raw))


def also_migrates(arguments: argparse.Namespace) -> None:
    """Let a whole configuration that is given as ``--args`` alone say how pods migrate, too."""
    given: Path | None = arguments.args
    if given is not None and arguments.migration is None:
        read = read_plugin_file("--args", given, COOLING)
        arguments.migration = given if read.whole else None


def _one_object(option: str, path: Path) -> Any:
    if path.is_dir():
        raise ModelError(f"{option}: {path}: is a folder")
    found = list(unpacked(opened(read_sources([path])), CONFIGURATION))
    for one in found:
        if isinstance(one, Problem):
            raise ModelError(f"{option}: {path}: {one.message}")
    if len(found) != 1:
        raise ModelError(f"{option}: {path}: expected one object, got {len(found)}")
    (only,) = found
    return None if isinstance(only, Problem) else only.raw


def _in_whole(option: str, path: Path, raw: Mapping[str, Any], plugin: str) -> PluginFile:
    try:
        return _of_plugin(raw, plugin)
    except ManifestError as error:
        raise ModelError(f"{option}: {path}: {error}") from None


def _of_plugin(raw: Mapping[str, Any], plugin: str) -> PluginFile:
    found: list[Mapping[str, Any]] = []
    idle = [name for name in raw if name not in (*_HEADER, "nodeSelector", "profiles", *_COUNTED)]
    for number, profile in enumerate(optional(raw, "profiles", _OBJECTS, ())):
        place = f"profiles[{number}]"
        idle += (f"{place}.{name}" for name in profile if name not in _PROFILE)
        for index, one in enumerate(at(place, _configured, profile)):
            name = one.get("name")
            if name == plugin and not found:
                found.append(at(f"{place}.pluginConfig[{index}]", _arguments, one))
            elif name == plugin or name not in (COOLING, MIGRATING):
                idle.append(f"{place}.pluginConfig[{name}]")
    if not found and plugin == COOLING:
        raise ManifestError.at("", f"no profile has arguments of {plugin}")
    counts = {name: raw[name] for name in _COUNTED if raw.get(name) is not None}
    args = {**(found[0] if found else {}), **(counts if plugin == MIGRATING else {})}
    nodes = optional(raw, "nodeSelector", as_label_selector, None)
    return PluginFile(args, tuple(idle), nodes, whole=True)


def say_idle(arguments: argparse.Namespace, option: str, read: PluginFile) -> None:
    """Name what a whole configuration says in vain, once for the options that name it."""
    if read.idle and not arguments.quiet:
        message = f"{option}: {CONFIGURATION}: has no effect: {', '.join(read.idle)}"
        print(f"warning: {message}", file=sys.stderr)


def _configured(profile: Json) -> tuple[Mapping[str, Any], ...]:
    return optional(as_mapping(profile), "pluginConfig", _OBJECTS, ())


def _arguments(one: Json) -> dict[str, Any]:
    return _without_header(optional(as_mapping(one), "args", as_mapping, EMPTY))


def _without_header(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in raw.items() if key not in _HEADER}
