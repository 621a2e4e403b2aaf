"""KubeSchedulerConfiguration in, policies out.

Profiles of ``v1`` and ``v1beta3``: which plugins are enabled at which extension point after defaults,
``multiPoint``, ``disabled`` and ``"*"`` (Kubernetes' ``mergePlugins`` and ``expandMultiPointPlugins``), their
weights and their arguments with defaults. Every problem of a configuration is reported at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._reading import Reading
from koordcore.manifests.plugins import (
    ARGUMENT_FIELDS,
    DEFAULT_PLUGINS,
    KOORDINATOR_CONFIGURATION,
    MODELLED,
    PLUGIN_POINTS,
    POINTS,
    REMOVED_PLUGINS,
)
from koordcore.manifests.scheduler_args import PLUGIN_ARGS
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.policy import DEFAULT_SCHEDULERS, PluginSetting, Policy
from koordcore.protocol.fields import Json, as_int, as_list, as_mapping, as_str, show

__all__ = [
    "PluginRef",
    "SchedulerConfiguration",
    "SchedulerProfile",
    "koordinator_policy",
    "policies_from_manifest",
    "read_scheduler_configuration",
    "scheduler_configuration",
]

_GROUP: Final = "kubescheduler.config.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta3")
_KIND: Final = "KubeSchedulerConfiguration"
_WITHOUT_EFFECT: Final = (
    "parallelism",
    "leaderElection",
    "clientConnection",
    "healthzBindAddress",
    "metricsBindAddress",
    "enableProfiling",
    "enableContentionProfiling",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "delayCacheUntilActive",
)
"""Fields of the component, which say nothing about placement."""
_TOP: Final = ("apiVersion", "kind", "metadata", "profiles", "percentageOfNodesToScore", "extenders")
_PROFILE: Final = ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig", "pluginConfigs")
_ALL: Final = "*"


def _weight(value: Json) -> int:
    weight = as_int(value)
    if not 0 <= weight < 2**31:
        raise ManifestError.at("", f"expected 0 to {2**31 - 1}, got {weight}")
    return weight


@attrs.frozen
class PluginRef:
    """A plugin at an extension point.

    Parameters
    ----------
    weight
        Factor of its score; 0 where none was given, which counts as 1.
    """

    name: str
    weight: int = 0


_HOLDING: Final = ("Reservation",)
"""Their pods stand in upstream's cache, and its transformers give the room to owners, at whatever points."""


@attrs.frozen(kw_only=True)
class SchedulerProfile:
    """One profile, resolved.

    Parameters
    ----------
    name
        The scheduler name that pods ask for.
    points
        Extension point to what is enabled there, in order.
    args
        Plugin to its arguments as a frozen record, for plugins whose arguments the library reads.
    percentage_of_nodes
        Share of nodes to score; ``None`` where the configuration does not say.
    unknown
        Enabled plugins that neither Kubernetes nor Koordinator has.
    """

    name: str
    points: immutabledict[str, tuple[PluginRef, ...]] = attrs.field(default=EMPTY, converter=frozen)
    args: immutabledict[str, Any] = attrs.field(default=EMPTY, converter=frozen)
    percentage_of_nodes: int | None = None
    unknown: tuple[str, ...] = ()

    def names(self, point: str) -> tuple[str, ...]:
        """Give what is enabled at a point, in order."""
        return tuple(one.name for one in self.points.get(point, ()))

    def weight(self, name: str) -> int:
        """Give the factor of a plugin's score; 0 where it does not score."""
        found = next((one for one in self.points.get("score", ()) if one.name == name), None)
        return 0 if found is None else found.weight or 1

    @property
    def deciding(self) -> tuple[str, ...]:
        """Plugins that filter or score: in filter order, then those that refuse early, then the others."""
        return tuple(dict.fromkeys((*self._filtering(), *self.names("score"))))

    @property
    def holding(self) -> tuple[str, ...]:
        """Plugins that are enabled at other points only and hold room all the same."""
        there = {name for refs in self.points.values() for name in (one.name for one in refs)}
        return tuple(name for name in _HOLDING if name in there and name not in self.deciding)

    def _filtering(self) -> tuple[str, ...]:
        """Plugins that refuse: at ``filter``, or at ``preFilter`` where they have no filter."""
        early = (one for one in self.names("preFilter") if "filter" not in PLUGIN_POINTS.get(one, ()))
        return (*self.names("filter"), *early)

    def policy(self, known: Collection[str]) -> Policy:
        """Give the profile as a policy.

        Parameters
        ----------
        known
            Names of the plugins that the library has. The others are left out; :meth:`missing` lists them.
        """
        filtering = (*self._filtering(), *self.holding)
        settings = []
        for name in dict.fromkeys((*filtering, *self.deciding)):
            if name in known:
                weight = self.weight(name)
                settings.append(
                    PluginSetting(
                        name=name,
                        weight=weight or 1,
                        filters=name in filtering,
                        scores=weight > 0,
                        args=self.args.get(name),
                    )
                )
        percentage = 100 if self.percentage_of_nodes is None else self.percentage_of_nodes
        return Policy(
            name=self.name,
            scheduler_names=(self.name,),
            plugins=tuple(settings),
            percentage_of_nodes=percentage,
        )

    def missing(self, known: Collection[str]) -> tuple[str, ...]:
        """List plugins that would decide but are no plugin of the library, unknown ones included."""
        return tuple(name for name in self.deciding if name not in known)


@attrs.frozen(kw_only=True)
class SchedulerConfiguration:
    """A configuration, resolved.

    Parameters
    ----------
    version
        Its ``apiVersion``.
    profiles
        In the order of the file; their names differ.
    warnings
        What was read in another sense than it is written, or has no effect.
    """

    version: str
    profiles: tuple[SchedulerProfile, ...]
    warnings: tuple[Problem, ...] = ()

    def profile(self, name: str) -> SchedulerProfile | None:
        """Give the profile of a scheduler name."""
        return next((one for one in self.profiles if one.name == name), None)


@attrs.frozen
class _PluginSet:
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


class _Reader:
    """Reads one configuration and gathers what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

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
                f'Invalid value: "{name}": was removed in version "{_GROUP}/{removed}" '
                f'({_KIND} is version "{version}")',
            )
        return PluginRef(name, self.value(raw, "weight", f"{path}.", _weight, 0))

    def plugin_set(self, value: Json, path: str, version: str) -> _PluginSet:
        if value is None:
            return _PluginSet()
        try:
            raw = as_mapping(value)
        except ManifestError as error:
            self.problems += error.within(path).problems
            return _PluginSet()
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
        return _PluginSet(tuple(lists["enabled"]), tuple(one.name for one in lists["disabled"]))


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
    >>> [(one.name, one.weight) for one in policy.plugins if one.scores]
    [('NodeResourcesFit', 5)]
    """
    return tuple(one.policy(MODELLED) for one in scheduler_configuration(raw).profiles)


def read_scheduler_configuration(reading: Reading, raw: Mapping[str, Json]) -> tuple[Policy, ...]:
    """Read a KubeSchedulerConfiguration; problems and warnings go to ``reading``."""
    reader = _Reader()
    configuration = _read(reader, raw)
    for problem in reader.problems:
        reading.problem(problem.path, problem.message)
    for warning in reader.warnings:
        reading.warn(warning.path, warning.message)
    return () if reader.problems else tuple(one.policy(MODELLED) for one in configuration.profiles)


def scheduler_configuration(raw: Mapping[str, Json]) -> SchedulerConfiguration:
    """Read a KubeSchedulerConfiguration with everything that it says about placement.

    Parameters
    ----------
    raw
        The object as parsed from JSON or YAML.

    Raises
    ------
    ManifestError
        With every problem and its path, in the words of upstream's validation where it has any.

    Examples
    --------
    >>> nothing = {"score": {"disabled": [{"name": "*"}]}}
    >>> config = scheduler_configuration({"profiles": [{"plugins": nothing}]})
    >>> config.profiles[0].name, config.profiles[0].names("score")
    ('default-scheduler', ())
    """
    reader = _Reader()
    configuration = _read(reader, raw)
    if reader.problems:
        raise ManifestError(reader.problems)
    return configuration


def _read(reader: _Reader, raw: Mapping[str, Json]) -> SchedulerConfiguration:
    version, kind = raw.get("apiVersion", _VERSIONS[0]), raw.get("kind", _KIND)
    if kind == "ConfigMap":
        raise ManifestError.at("kind", f"this is a ConfigMap; give the {_KIND} that is a text in its data")
    if version not in _VERSIONS:
        reader.problem("apiVersion", f"expected {' or '.join(_VERSIONS)}, got {show(version)}")
    if kind != _KIND:
        reader.problem("kind", f"expected {_KIND}, got {show(kind)}")
    reader.only(raw, (*_TOP, *_WITHOUT_EFFECT), "")
    if raw.get("extenders"):
        reader.warn("extenders", "not read: an extender is asked over the network")
    percentage = reader.percentage(raw, "")
    listed: Sequence[Json] = reader.value(raw, "profiles", "", as_list, ()) or ({},)
    profiles = []
    for index, one in enumerate(listed):
        path = f"profiles[{index}]"
        if not isinstance(one, Mapping):
            reader.problem(path, f"expected object, got {show(one)}")
            continue
        profiles.append(_profile(reader, one, path, str(version), percentage, alone=len(listed) == 1))
    _check_names(reader, profiles)
    return SchedulerConfiguration(
        version=str(version), profiles=tuple(profiles), warnings=tuple(reader.warnings)
    )


def _check_names(reader: _Reader, profiles: Iterable[SchedulerProfile]) -> None:
    seen: set[str] = set()
    for index, one in enumerate(profiles):
        if not one.name:
            reader.problem(f"profiles[{index}].schedulerName", "Required value")
        elif one.name in seen:
            reader.problem(f"profiles[{index}].schedulerName", f'Duplicate value: "{one.name}"')
        seen.add(one.name)


def _profile(
    reader: _Reader,
    raw: Mapping[str, Json],
    path: str,
    version: str,
    percentage: int | None,
    *,
    alone: bool,
) -> SchedulerProfile:
    reader.only(raw, _PROFILE, f"{path}.")
    name: str = reader.value(raw, "schedulerName", f"{path}.", as_str, "")
    share = reader.percentage(raw, f"{path}.")
    plugins = reader.value(raw, "plugins", f"{path}.", as_mapping, {})
    reader.only(plugins, ("multiPoint", *POINTS), f"{path}.plugins.")
    sets = {
        point: reader.plugin_set(plugins.get(point), f"{path}.plugins.{point}", version)
        for point in ("multiPoint", *POINTS)
    }
    multi = sets["multiPoint"].over([PluginRef(*one) for one in DEFAULT_PLUGINS])
    points = {point: _expanded(point, sets[point], multi) for point in POINTS}
    named = [one.name for refs in (multi, *points.values()) for one in refs]
    unknown = tuple(sorted({one for one in named if one not in PLUGIN_POINTS}))
    for point, own in sets.items():
        for one in own.enabled:
            if one.name not in PLUGIN_POINTS and one.name not in REMOVED_PLUGINS:
                where = f"{path}.plugins.{point}.enabled"
                reader.warn(where, f"{one.name} is not a plugin of this library; passed over")
    for point in POINTS:
        for one in sets[point].enabled:
            if one.name in PLUGIN_POINTS and point not in PLUGIN_POINTS[one.name]:
                reader.problem(
                    f"{path}.plugins.{point}", f'plugin "{one.name}" does not extend {point} plugin'
                )
    return SchedulerProfile(
        name=name or ("default-scheduler" if alone else ""),
        points=points,
        args=_plugin_args(reader, raw, path, version),
        percentage_of_nodes=percentage if share is None else share,
        unknown=unknown,
    )


def _expanded(point: str, own: _PluginSet, multi: Sequence[PluginRef]) -> tuple[PluginRef, ...]:
    """Spread ``multiPoint`` over one extension point.

    First what the point names although ``multiPoint`` has it too, in the point's order; then the rest of
    ``multiPoint``; then what only the point names. ``"*"`` among the disabled leaves just the point's own.
    """
    if _ALL in own.disabled:
        return own.enabled
    speaking = [
        one for one in multi if point in PLUGIN_POINTS.get(one.name, ()) and one.name not in own.disabled
    ]
    if point != "score":
        speaking = [PluginRef(one.name) for one in speaking]
    names = {one.name for one in speaking}
    mine = {one.name for one in own.enabled}
    return (
        *(one for one in own.enabled if one.name in names),
        *(one for one in speaking if one.name not in mine),
        *(one for one in own.enabled if one.name not in names),
    )


def _plugin_args(reader: _Reader, raw: Mapping[str, Json], path: str, version: str) -> dict[str, Any]:
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


def _args(reader: _Reader, name: str, raw: Mapping[str, Json], place: str, version: str) -> Any:
    given = reader.value(raw, "args", f"{place}.", as_mapping, {})
    stated = given.get("apiVersion", version), given.get("kind", f"{name}Args")
    if stated != (version, f"{name}Args"):
        reader.problem(
            f"{place}.args",
            f"expected {name}Args of {version}, got {show(stated[1])} of {show(stated[0])}",
        )
        return None
    read = PLUGIN_ARGS.get(name)
    if read is None:
        reader.warn(f"{place}.args", f"arguments of {name} are not read")
        return None
    for key in given:
        if key not in ("apiVersion", "kind", *ARGUMENT_FIELDS.get(name, given)):
            reader.warn(f"{place}.args.{key}", "unknown field; passed over")
    try:
        return read({key: value for key, value in given.items() if key not in ("apiVersion", "kind")})
    except ManifestError as error:
        reader.problems += error.within(f"{place}.args").problems
        return None


def koordinator_policy(known: Collection[str] = MODELLED) -> Policy:
    """Give the profile that Koordinator ships as a policy for the pods that the default policy takes.

    Parameters
    ----------
    known
        Names of the plugins that the library has.
    """
    shipped = scheduler_configuration(KOORDINATOR_CONFIGURATION).profiles[0].policy(known)
    return attrs.evolve(shipped, scheduler_names=DEFAULT_SCHEDULERS)
