"""KubeSchedulerConfiguration in, policies out.

Profiles of ``v1`` and ``v1beta3``: which plugins are enabled at which extension point after defaults,
``multiPoint``, ``disabled`` and ``"*"`` (Kubernetes' ``mergePlugins`` and ``expandMultiPointPlugins``), their
weights and their arguments with defaults. Every problem of a configuration is reported at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, Problem
from koordcore.manifests._config_reader import (
    KIND,
    VERSIONS,
    ConfigReader,
    PluginRef,
    PluginSet,
    expanded,
    plugin_args,
)
from koordcore.manifests._reading import Reading
from koordcore.manifests.idle_plugins import idle_plugins
from koordcore.manifests.idle_settings import (
    COMPONENT_FIELDS,
    IDLE_POINTS,
    POINTS_REASON,
    Unused,
    idle_gates,
)
from koordcore.manifests.plugins import (
    DEFAULT_PLUGINS,
    KOORDINATOR_CONFIGURATION,
    MODELLED,
    PLUGIN_POINTS,
    POINTS,
    deciding_plugins,
    points_of,
)
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.policy import DEFAULT_SCHEDULERS, PluginSetting, Policy
from koordcore.protocol.feature_gates import parse_feature_gates
from koordcore.protocol.fields import Json, as_list, as_mapping, as_str, show

__all__ = [
    "PluginRef",
    "SchedulerConfiguration",
    "SchedulerProfile",
    "koordinator_policy",
    "policies_from_manifest",
    "read_scheduler_configuration",
    "scheduler_configuration",
]

_TOP: Final = (
    "apiVersion",
    "kind",
    "metadata",
    "profiles",
    "percentageOfNodesToScore",
    "extenders",
    "featureGates",
)
_LINE: Final = 900
_PROFILE: Final = ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig", "pluginConfigs")


_HOLDING: Final = ("Reservation",)
"""Their pods stand in upstream's cache, and its transformers give the room to owners, at whatever points."""


@record(kw_only=True)
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
    gates
        Feature gates of the component.
    """

    name: str
    points: immutabledict[str, tuple[PluginRef, ...]] = attrs.field(default=EMPTY, converter=frozen)
    args: immutabledict[str, Any] = attrs.field(default=EMPTY, converter=frozen)
    percentage_of_nodes: int | None = None
    unknown: tuple[str, ...] = ()
    gates: immutabledict[str, bool] = attrs.field(default=EMPTY, converter=frozen)

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
        return tuple(dict.fromkeys((*self.names("filter"), *self._early(), *self.names("score"))))

    @property
    def holding(self) -> tuple[str, ...]:
        """Plugins that are enabled at other points only and hold room all the same."""
        there = {name for refs in self.points.values() for name in (one.name for one in refs)}
        return tuple(name for name in _HOLDING if name in there and name not in self.deciding)

    def _early(self) -> tuple[str, ...]:
        """Plugins that refuse at ``preFilter`` and have no filter."""
        return tuple(one for one in self.names("preFilter") if "filter" not in PLUGIN_POINTS.get(one, ()))

    def policy(self, known: Collection[str]) -> Policy:
        """Give the profile as a policy.

        Parameters
        ----------
        known
            Names of the plugins that the library has. The others are left out; :meth:`missing` lists them.
        """
        # In the order in which it is read again once it has been written: who holds room may filter there.
        filtering = (*self.names("filter"), *self.holding, *self._early())
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
            feature_gates=self.gates,
        )

    def missing(self, known: Collection[str]) -> tuple[str, ...]:
        """List plugins that would decide but are no plugin of the library, unknown ones included."""
        return tuple(name for name in self.deciding if name not in known)


@record(kw_only=True)
class SchedulerConfiguration:
    """A configuration, resolved.

    Parameters
    ----------
    version
        Its ``apiVersion``.
    profiles
        In the order of the file; their names differ.
    warnings
        What was read in another sense than it is written.
    unused
        What has no effect.
    """

    version: str
    profiles: tuple[SchedulerProfile, ...]
    warnings: tuple[Problem, ...] = ()
    unused: tuple[Unused, ...] = ()

    def profile(self, name: str) -> SchedulerProfile | None:
        """Give the profile of a scheduler name."""
        return next((one for one in self.profiles if one.name == name), None)


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
    return tuple(one.policy(deciding_plugins()) for one in scheduler_configuration(raw).profiles)


def read_scheduler_configuration(reading: Reading, raw: Mapping[str, Json]) -> tuple[Policy, ...]:
    """Read a KubeSchedulerConfiguration; problems and warnings go to ``reading``."""
    reader = ConfigReader()
    configuration = _read(reader, raw)
    for problem in reader.problems:
        reading.problem(problem.path, problem.message)
    for warning in reader.warnings:
        reading.warn(warning.path, warning.message)
    for listed in _lines([one.path for one in configuration.unused]):
        reading.warn("", f"has no effect: {listed} (`koordcore policy` says why)")
    return () if reader.problems else tuple(one.policy(deciding_plugins()) for one in configuration.profiles)


def _lines(paths: Iterable[str]) -> Iterator[str]:
    """Join paths, in as few lines as can be shown whole."""
    line = ""
    for path in paths:
        if line and len(line) + len(path) > _LINE:
            yield line
            line = ""
        line = f"{line}, {path}" if line else path
    if line:
        yield line


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
    reader = ConfigReader()
    configuration = _read(reader, raw)
    if reader.problems:
        raise ManifestError(reader.problems)
    return configuration


def _read(reader: ConfigReader, raw: Mapping[str, Json]) -> SchedulerConfiguration:
    version, kind = raw.get("apiVersion", VERSIONS[0]), raw.get("kind", KIND)
    if kind == "ConfigMap":
        raise ManifestError.at("kind", f"this is a ConfigMap, and no text in its data is a {KIND}")
    if version not in VERSIONS:
        reader.problem("apiVersion", f"expected {' or '.join(VERSIONS)}, got {show(version)}")
    if kind != KIND:
        reader.problem("kind", f"expected {KIND}, got {show(kind)}")
    reader.only(raw, (*_TOP, *COMPONENT_FIELDS), "")
    for name in raw:
        if name in COMPONENT_FIELDS:
            reader.idle(name, COMPONENT_FIELDS[name])
    if raw.get("extenders"):
        reader.idle("extenders", "an extender is asked over the network")
    gates = reader.value(raw, "featureGates", "", parse_feature_gates, EMPTY)
    reader.unused += idle_gates(gates)
    percentage = reader.percentage(raw, "")
    listed: Sequence[Json] = reader.value(raw, "profiles", "", as_list, ()) or ({},)
    profiles = []
    for index, one in enumerate(listed):
        path = f"profiles[{index}]"
        if not isinstance(one, Mapping):
            reader.problem(path, f"expected object, got {show(one)}")
            continue
        reader.profile = index
        profile = _profile(reader, one, path, str(version), percentage, alone=len(listed) == 1)
        profiles.append(attrs.evolve(profile, gates=gates))
    _check_names(reader, profiles)
    return SchedulerConfiguration(
        version=str(version),
        profiles=tuple(profiles),
        warnings=tuple(reader.warnings),
        unused=tuple(reader.unused),
    )


def _check_names(reader: ConfigReader, profiles: Iterable[SchedulerProfile]) -> None:
    seen: set[str] = set()
    for index, one in enumerate(profiles):
        if not one.name:
            reader.problem(f"profiles[{index}].schedulerName", "Required value")
        elif one.name in seen:
            reader.problem(f"profiles[{index}].schedulerName", f'Duplicate value: "{one.name}"')
        seen.add(one.name)


def _profile(
    reader: ConfigReader,
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
    points = {point: expanded(point, sets[point], multi) for point in POINTS}
    named = [one.name for refs in (multi, *points.values()) for one in refs]
    unknown = tuple(sorted({one for one in named if not points_of(one)}))
    for where, reason, plugin in idle_plugins(sets, multi):
        reader.idle(f"{path}.plugins.{where}", reason, plugin)
    for point in POINTS:
        for one in sets[point].enabled:
            if one.name in PLUGIN_POINTS and point not in PLUGIN_POINTS[one.name]:
                reader.problem(
                    f"{path}.plugins.{point}", f'plugin "{one.name}" does not extend {point} plugin'
                )
    profile = SchedulerProfile(
        name=name or ("default-scheduler" if alone else ""),
        points=points,
        args=plugin_args(reader, raw, path, version),
        percentage_of_nodes=percentage if share is None else share,
        unknown=unknown,
    )
    enabled = {one.name for refs in points.values() for one in refs}
    for plugin in profile.args:
        if plugin not in enabled:
            reader.idle(f"{path}.pluginConfig[{plugin}]", "it is not enabled anywhere", plugin)
    without = attrs.evolve(
        profile, points={**points, **{point: expanded(point, PluginSet(), multi) for point in IDLE_POINTS}}
    )
    idle = [point for point in IDLE_POINTS if plugins.get(point)]
    if idle and without.holding == profile.holding:
        reader.idle(f"{path}.plugins.{{{', '.join(idle)}}}", POINTS_REASON)
    return profile


def koordinator_policy(known: Collection[str] = MODELLED) -> Policy:
    """Give the profile that Koordinator ships as a policy for the pods that the default policy takes.

    Parameters
    ----------
    known
        Names of the plugins that the library has.
    """
    shipped = scheduler_configuration(KOORDINATOR_CONFIGURATION).profiles[0].policy(known)
    return attrs.evolve(shipped, scheduler_names=DEFAULT_SCHEDULERS)
