"""How a scheduler configuration is read: its plugin sets and arguments, with what is wrong or idle."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem, join_path
from koordcore.manifests._reads import Traced, unread
from koordcore.manifests.aliases import OLD_NAMES
from koordcore.manifests.idle_settings import IDLE_ARGUMENTS, UNREAD_ARGUMENTS, Unused
from koordcore.manifests.idle_values import idle_values
from koordcore.manifests.plugins import REMOVED_PLUGINS, points_of
from koordcore.manifests.scheduler_args import PLUGIN_ARGS, located
from koordcore.model.installed import offered_plugins
from koordcore.protocol.fields import Json, as_int, as_list, as_mapping, as_str, show

GROUP: Final = "kubescheduler.config.k8s.io"
KIND: Final = "KubeSchedulerConfiguration"
VERSIONS: Final = (f"{GROUP}/v1", f"{GROUP}/v1beta3")
_ALL: Final = "*"


def _weight(value: Json) -> int:
    weight = as_int(value)
    if not 0 <= weight < 2**31:
        raise ManifestError.at("", f"expected 0 to {2**31 - 1}, got {weight}")
    return weight


@record
class PluginRef:
    """A plugin at an extension point.

    Parameters
    ----------
    weight
        Factor of its score; 0 where none was given, which counts as 1.
    """

    name: str
    weight: int = 0


@record
class PluginSet:
    """What one extension point enables and disables."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[str, ...] = ()

    def over(self, defaults: Sequence[PluginRef]) -> tuple[PluginRef, ...]:
        """Lay the set over a list of defaults: a default that is named again changes in its place."""
        own = {one.name: one for one in self.enabled}
        if _ALL in self.disabled:
            return self.enabled
        kept = [own.get(one.name, one) for one in defaults if one.name not in self.disabled]
        replaced = {one.name for one in kept}
        return (*kept, *(one for one in self.enabled if one.name not in replaced))


class ConfigReader:
    """Reads one configuration and gathers what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.unused: list[Unused] = []
        self.profile: int | None = None

    def idle(self, path: str, reason: str, plugin: str = "") -> None:
        self.unused.append(Unused(path, reason, plugin, self.profile))

    def problem(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def warn(self, path: str, message: str) -> None:
        self.warnings.append(Problem(path, message))

    def value(self, raw: Mapping[str, Json], key: str, path: str, convert: Any, default: Any) -> Any:
        given = raw.get(key)
        if given is None:
            return default
        try:
            return convert(given)
        except ManifestError as error:
            self.problems += error.within(f"{path}{key}").problems
            return default

    def only(self, raw: Mapping[str, Json], known: Collection[str], path: str) -> None:
        for key in raw:
            if key not in known:
                self.problem(f"{path}{key}", "unknown field")

    def percentage(self, raw: Mapping[str, Json], path: str) -> int | None:
        number: int | None = self.value(raw, "percentageOfNodesToScore", path, as_int, None)
        if number is not None and not 0 <= number <= 100:
            self.problem(
                f"{path}percentageOfNodesToScore", f"Invalid value: {number}: not in valid range [0-100]"
            )
            return None
        return number

    def plugin(self, value: Json, path: str, version: str) -> PluginRef | None:
        try:
            raw = as_mapping(value)
        except ManifestError as error:
            self.problems += error.within(path).problems
            return None
        self.only(raw, ("name", "weight"), f"{path}.")
        name: str = self.value(raw, "name", f"{path}.", as_str, "")
        if not name:
            self.problem(f"{path}.name", "Required value")
            return None
        removed = REMOVED_PLUGINS.get(name)
        if removed is not None:
            self.problem(
                path,
                f'Invalid value: "{name}": was removed in version "{GROUP}/{removed}" '
                f'({KIND} is version "{version}")',
            )
        return PluginRef(name, self.value(raw, "weight", f"{path}.", _weight, 0))

    def plugin_set(self, value: Json, path: str, version: str) -> PluginSet:
        if value is None:
            return PluginSet()
        try:
            raw = as_mapping(value)
        except ManifestError as error:
            self.problems += error.within(path).problems
            return PluginSet()
        self.only(raw, ("enabled", "disabled"), f"{path}.")
        lists: dict[str, list[PluginRef]] = {"enabled": [], "disabled": []}
        for key, found in lists.items():
            for index, one in enumerate(self.value(raw, key, f"{path}.", as_list, ())):
                ref = self.plugin(one, f"{path}.{key}[{index}]", version)
                if ref is None:
                    continue
                if any(other.name == ref.name for other in found):
                    self.problem(f"{path}.{key}[{index}]", f'Duplicate value: "{ref.name}"')
                else:
                    found.append(ref)
        for ref in lists["disabled"]:
            if ref.weight:
                self.idle(f"{path}.disabled[{ref.name}].weight", "who is disabled scores nothing", ref.name)
        return PluginSet(tuple(lists["enabled"]), tuple(one.name for one in lists["disabled"]))


def expanded(point: str, own: PluginSet, multi: Sequence[PluginRef]) -> tuple[PluginRef, ...]:
    """Spread ``multiPoint`` over one extension point.

    First what the point names although ``multiPoint`` has it too, in the point's order; then the rest of
    ``multiPoint``; then what only the point names. ``"*"`` among the disabled leaves just the point's own.
    """
    if _ALL in own.disabled:
        return own.enabled
    speaking = [one for one in multi if point in points_of(one.name) and one.name not in own.disabled]
    if point != "score":
        speaking = [PluginRef(one.name) for one in speaking]
    names = {one.name for one in speaking}
    mine = {one.name for one in own.enabled}
    return (
        *(one for one in own.enabled if one.name in names),
        *(one for one in speaking if one.name not in mine),
        *(one for one in own.enabled if one.name not in names),
    )


def plugin_args(reader: ConfigReader, raw: Mapping[str, Json], path: str, version: str) -> dict[str, Any]:
    """Read the arguments of every plugin that has any."""
    key = "pluginConfig"
    if "pluginConfigs" in raw:
        reader.warn(f"{path}.pluginConfigs", "read as pluginConfig; write that instead")
        if "pluginConfig" in raw:
            reader.problem(f"{path}.pluginConfigs", "pluginConfig is there too")
        else:
            key = "pluginConfigs"
    args: dict[str, Any] = {}
    for index, one in enumerate(reader.value(raw, key, f"{path}.", as_list, ())):
        place = f"{path}.{key}[{index}]"
        if not isinstance(one, Mapping):
            reader.problem(place, f"expected object, got {show(one)}")
            continue
        reader.only(one, ("name", "args"), f"{place}.")
        name: str = reader.value(one, "name", f"{place}.", as_str, "")
        if not name:
            reader.problem(f"{place}.name", "Required value")
        elif name in args:
            reader.problem(place, f'Duplicate value: "{name}"')
        else:
            args[name] = _args(reader, name, one, place, version)
    return {name: record for name, record in sorted(args.items()) if record is not None}


def _args(reader: ConfigReader, name: str, raw: Mapping[str, Json], place: str, version: str) -> Any:
    given = reader.value(raw, "args", f"{place}.", as_mapping, {})
    stated = given.get("apiVersion", version), given.get("kind", f"{name}Args")
    # Upstream compares group and kind; arguments of another version that it knows are converted.
    if stated[0] not in VERSIONS or stated[1] != f"{name}Args":
        reader.problem(
            f"{place}.args",
            f"expected {name}Args of {version}, got {show(stated[1])} of {show(stated[0])}",
        )
        return None
    read = PLUGIN_ARGS.get(name)
    if read is None and name in offered_plugins():
        return _hashable({key: value for key, value in given.items() if key not in ("apiVersion", "kind")})
    if read is None:
        reader.idle(f"{place}.args", UNREAD_ARGUMENTS.get(name, f"arguments of {name} are not read"), name)
        return None
    traced = Traced({key: value for key, value in given.items() if key not in ("apiVersion", "kind")})
    try:
        record = read(traced)
    except (ManifestError, ModelError) as error:
        refused = error if isinstance(error, ManifestError) else located(error)
        reader.problems += refused.within(f"{place}.args").problems
        return None
    known = IDLE_ARGUMENTS.get(name, {})
    legal = [path for path in known if _given(traced, path.split("."))]
    for path in (*sorted(legal), *(path for path in unread(traced) if path not in legal)):
        reader.idle(f"{place}.args.{path}", known.get(path, "unknown field"), name)
    for path, reason in idle_values(record):
        reader.idle(f"{place}.args.{path}", reason, name)
    for path, old, new in _old_names(given):
        reader.idle(f"{place}.args.{path}", f"{old} is called {new} on all pods and nodes; write that", name)
    return record


def _old_names(value: Json, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Find resources by names that are rewritten on pods and nodes and, as upstream has it, not here."""
    if isinstance(value, str) and value in OLD_NAMES:
        yield path, value, OLD_NAMES[value]
    for key, one in value.items() if isinstance(value, Mapping) else ():
        if key in OLD_NAMES:
            yield f"{path}[{key}]", key, OLD_NAMES[key]
        yield from _old_names(one, join_path(path, key))
    for number, one in enumerate(value if isinstance(value, list) else ()):
        yield from _old_names(one, f"{path}[{number}]")


def _given(args: Json, path: Sequence[str]) -> bool:
    """Tell whether arguments say something at a path."""
    value = dict.get(args, path[0]) if isinstance(args, dict) else None
    return value is not None and (len(path) == 1 or _given(value, path[1:]))


def _hashable(value: Json) -> Any:
    """Freeze the arguments of a plugin of which nothing is known: policies are compared and remembered by."""
    if isinstance(value, Mapping):
        return immutabledict({key: _hashable(one) for key, one in value.items()})
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
