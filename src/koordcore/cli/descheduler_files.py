"""Arguments of the descheduler's plugins, alone or in its whole configuration, as JSON or YAML."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.manifests.config_maps import unpacked
from koordcore.manifests.loading import opened
from koordcore.manifests.sources import read_sources
from koordcore.model.mappings import EMPTY
from koordcore.model.rebalance import EvictionLimits
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.fields import Json, as_mapping, at, list_of, optional, show
from koordcore.protocol.rebalance import parse_eviction_limits
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
_POOL: Final = re.compile(r"nodePools\[([0-9]+)\]\.")

T = TypeVar("T")


@record
class PluginFile:
    """What a file says to one plugin.

    Parameters
    ----------
    args
        The plugin's arguments.
    counts
        Of the migration controller: how many pods the descheduler may evict in a cycle.
    idle
        Paths of what else a whole configuration says, which has no effect.
    nodes
        Nodes that a whole configuration looks at; ``None`` for all.
    whole
        It is a whole configuration, which may have arguments of other plugins, too.
    source, place
        Option and file, and where in the file the arguments stand, for what is wrong with them.
    """

    args: Any
    counts: Mapping[str, Any] = EMPTY
    idle: tuple[str, ...] = ()
    nodes: LabelSelector | None = None
    whole: bool = False
    source: str = ""
    place: str = ""

    def read(self, convert: Callable[[Any], T]) -> T:
        """Convert the arguments; what is wrong with them is told with option, file and place."""
        try:
            return convert(self.args)
        except ManifestError as error:
            raise _of(self.source, error.within(self.place)) from None

    def limits(self) -> EvictionLimits:
        """Convert the counts, in the same way."""
        try:
            return parse_eviction_limits(self.counts)
        except ManifestError as error:
            raise _of(self.source, error) from None

    def refuse(self, messages: Iterable[str]) -> None:
        """Raise what a validation says of the arguments: each message begins with its path."""
        problems = [Problem(*_split(one)).within(self.place) for one in messages]
        if problems:
            raise _of(self.source, ManifestError(problems))


def _of(source: str, error: ManifestError) -> ManifestError:
    return ManifestError(attrs.evolve(one, source=source) for one in error.problems)


def _split(message: str) -> tuple[str, str]:
    """Part a message of upstream's validation, which counts the block at the top as the first pool."""
    path, _, text = message.partition(": ")
    number = _POOL.match(path)
    if number is None:
        return path, text
    rest, before = path[number.end() :], int(number[1]) - 1
    return (rest if before < 0 else f"nodePools[{before}].{rest}"), text


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
    ManifestError
        With option, file and place of what is built wrongly in it.
    """
    raw, source = _one_object(option, path)
    if not isinstance(raw, Mapping):
        raise _of(source, ManifestError.at("", f"expected object, got {show(raw)}"))
    if raw.get("kind") == CONFIGURATION:
        try:
            return _of_plugin(raw, plugin, source)
        except ManifestError as error:
            raise _of(source, error) from None
    kind = raw.get("kind", f"{plugin}Args")
    if kind != f"{plugin}Args":
        raise ModelError(f"{source}: expected {plugin}Args or a {CONFIGURATION}, got {show(kind)}")
    beside = _COUNTED if plugin == MIGRATING else ()
    args = {name: one for name, one in _without_header(raw).items() if name not in beside}
    return PluginFile(args, {name: raw[name] for name in beside if name in raw}, source=source)


def also_migrates(arguments: argparse.Namespace) -> None:
    """Let a whole configuration that is given as ``--args`` alone say how pods migrate, too."""
    given: Path | None = arguments.args
    if given is not None and arguments.migration is None:
        read = read_plugin_file("--args", given, COOLING)
        arguments.migration = given if read.whole else None


def _one_object(option: str, path: Path) -> tuple[Any, str]:
    """Give what a file holds, and its name with that of the option."""
    source = f"{option}: {path}"
    if path.is_dir():
        raise ModelError(f"{source}: is a folder")
    found = list(unpacked(opened(read_sources([path])), CONFIGURATION))
    for one in found:
        if isinstance(one, Problem):
            raise ModelError(f"{source}: {one.message}")
    if len(found) != 1:
        raise ModelError(f"{source}: expected one object, got {len(found)}")
    (only,) = found
    return (None, source) if isinstance(only, Problem) else (only.raw, f"{option}: {only.source}")


def _of_plugin(raw: Mapping[str, Any], plugin: str, source: str) -> PluginFile:
    found: list[tuple[Mapping[str, Any], str]] = []
    idle = [name for name in raw if name not in (*_HEADER, "nodeSelector", "profiles", *_COUNTED)]
    for number, profile in enumerate(optional(raw, "profiles", _OBJECTS, ())):
        place = f"profiles[{number}]"
        idle += (f"{place}.{name}" for name in profile if name not in _PROFILE)
        for index, one in enumerate(at(place, _configured, profile)):
            name, here = one.get("name"), f"{place}.pluginConfig[{index}]"
            if name == plugin and not found:
                found.append((at(here, partial(_arguments, plugin), one), f"{here}.args"))
            elif name == plugin or name not in (COOLING, MIGRATING):
                idle.append(f"{place}.pluginConfig[{name}]")
    if not found and plugin == COOLING:
        raise ManifestError.at("", f"no profile has arguments of {plugin}")
    counts = {name: raw[name] for name in _COUNTED if name in raw and plugin == MIGRATING}
    args, place = found[0] if found else ({}, "")
    nodes = optional(raw, "nodeSelector", as_label_selector, None)
    return PluginFile(args, counts, tuple(idle), nodes, whole=True, source=source, place=place)


def say_idle(arguments: argparse.Namespace, option: str, read: PluginFile) -> None:
    """Name what a whole configuration says in vain, once for the options that name it."""
    if read.idle and not arguments.quiet:
        message = f"{option}: {CONFIGURATION}: has no effect: {', '.join(read.idle)}"
        print(f"warning: {message}", file=sys.stderr)


def _configured(profile: Json) -> tuple[Mapping[str, Any], ...]:
    return optional(as_mapping(profile), "pluginConfig", _OBJECTS, ())


def _arguments(plugin: str, one: Json) -> dict[str, Any]:
    args = optional(as_mapping(one), "args", as_mapping, EMPTY)
    if args.get("kind", f"{plugin}Args") != f"{plugin}Args":
        raise ManifestError.at("args.kind", f"expected {plugin}Args, got {show(args['kind'])}")
    return _without_header(args)


def _without_header(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: one for key, one in raw.items() if key not in _HEADER}
