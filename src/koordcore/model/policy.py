"""What a scheduler is told to care about: plugins, weights, strategies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
from immutabledict import immutabledict

from koordcore._blame import names_its_arguments, shown
from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.device_policy import DevicePolicy, ScoringStrategy as DeviceStrategy
from koordcore.model.feature_gates import POLICY_GATES, args_under
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.plugin_args import FitPlusArgs, ScoringStrategy

if TYPE_CHECKING:
    from koordcore.model.claims import ClaimArgs

T = TypeVar("T")


_MAX_WEIGHT: Final = 2**31 - 1


@names_its_fields
@record(kw_only=True)
class PluginSetting:
    """One plugin in a policy.

    Parameters
    ----------
    plugin
        The class of a plugin of one's own, a subclass of :class:`koordcore.framework.Plugin`; left out for a
        plugin that the library or an installed package knows by its name.
    name
        Upstream's plugin name, such as ``NodeResourcesFit``; left out, that of ``plugin``.
    weight
        Factor of its score, 1 to 2**31 - 1 (Kubernetes' ``int32``: no sum of scores leaves 64 bits).
    filters, scores
        Which of its questions are asked.
    args
        Its arguments, a frozen record of the plugin's own; ``None`` for the defaults.
    """

    plugin: type[Any] | None = None
    name: str = attrs.field()
    weight: int = 1
    filters: bool = True
    scores: bool = True
    args: Any = None

    @name.default
    def _name_of_plugin(self) -> str:
        return str(getattr(self.plugin, "name", ""))

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise ModelError("name: a plugin needs a name")
        check_fields(self)
        try:
            hash(self.args)
        except TypeError:
            raise ModelError(f"{self.name}: args: expected a frozen record, got {shown(self.args)}") from None
        if type(self.weight) is not int or (self.scores and not 1 <= self.weight <= _MAX_WEIGHT):
            raise ModelError(f"{self.name}: weight: expected 1 to {_MAX_WEIGHT}, got {self.weight!r}")


STOCK_PLUGINS: Final = (
    PluginSetting(name="NodeUnschedulable", scores=False),
    PluginSetting(name="NodeName", scores=False),
    PluginSetting(name="TaintToleration", weight=3),
    PluginSetting(name="NodeAffinity", weight=2),
    PluginSetting(name="NodePorts", scores=False),
    PluginSetting(name="NodeResourcesFit"),
    PluginSetting(name="VolumeRestrictions", scores=False),
    PluginSetting(name="NodeVolumeLimits", scores=False),
    PluginSetting(name="VolumeBinding", scores=False),
    PluginSetting(name="VolumeZone", scores=False),
    PluginSetting(name="NodeResourcesBalancedAllocation", filters=False),
    PluginSetting(name="PodTopologySpread", weight=2),
    PluginSetting(name="InterPodAffinity", weight=2),
    PluginSetting(name="ImageLocality", filters=False),
    PluginSetting(name="NodeNUMAResource", scores=False),
    PluginSetting(name="DynamicResources", weight=2),
    PluginSetting(name="NodeDeclaredFeatures", scores=False),
    PluginSetting(name="DeviceShare"),
    PluginSetting(name="SchedulingHint", scores=False),
    PluginSetting(name="ElasticQuota", scores=False),
    PluginSetting(name="Reservation", weight=5000),
)
"""kube-scheduler's defaults, and Koordinator's plugins with theirs."""

_DEVICES_FIRST: Final = 10
"""Weight by which packing or spreading of devices goes before that of CPUs and memory.

A node of eight cards moves by 12 points with each, CPUs and memory by 100 at the most.
"""


def _claims_rated_by(strategy: str) -> ClaimArgs | None:
    """Give the arguments of who rates claims; none where their defaults say it."""
    if strategy == ScoringStrategy.MOST_ALLOCATED:
        return None
    from koordcore.model.claims import ClaimArgs  # the default policy is made without it

    return ClaimArgs(packed=False)


def rating_devices(plugins: tuple[PluginSetting, ...], strategy: str) -> tuple[PluginSetting, ...]:
    """Let devices decide first, by one strategy in whatever spelling pods ask for them."""
    by_name = {
        "DynamicResources": PluginSetting(
            name="DynamicResources", weight=_DEVICES_FIRST, args=_claims_rated_by(strategy)
        ),
        "DeviceShare": PluginSetting(
            name="DeviceShare", weight=_DEVICES_FIRST, args=DevicePolicy(strategy=DeviceStrategy(strategy))
        ),
    }
    extended = PluginSetting(
        name="NodeResourcesFitPlus",
        weight=_DEVICES_FIRST,
        filters=False,
        args=FitPlusArgs(extended=(strategy, 1)),
    )
    return (*(by_name.get(one.name, one) for one in plugins), extended)


DEFAULT_PLUGINS: Final = rating_devices(STOCK_PLUGINS, ScoringStrategy.MOST_ALLOCATED)
"""Devices are packed, fullest card and fullest node that still fits; CPUs and memory are spread."""


class GangTurns(StrEnum):
    """How gangs whose turns come one after the other are planned."""

    ONE_BY_ONE = "OneByOne"
    """Each on what the earlier ones left, as upstream."""
    TOGETHER = "Together"
    """As one: most gangs of the highest priority, then of the next, then most members, then gathered best."""


DEFAULT_SCHEDULERS: Final = ("default-scheduler", "koord-scheduler")
"""Whose pods are decided where nobody says anything of scheduler names."""


def _scheduler_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise TypeError(f"scheduler_names: expected several names or None, got {names!r}")
    return None if names is None else tuple(names)


def _profiles(others: Iterable[Policy]) -> tuple[Policy, ...]:
    return tuple(
        attrs.evolve(one, scheduler_names=(one.name,)) if one.scheduler_names == DEFAULT_SCHEDULERS else one
        for one in others
    )


@names_its_fields
@record(kw_only=True)
class Policy:
    """Which plugins decide, in the order in which they filter.

    A configuration with several profiles is its first profile with the ``others``: one queue, in which each
    pod is decided by its own.

    Parameters
    ----------
    name
        Scheduler name of the profile.
    scheduler_names
        Whose pods it decides, by their ``spec.schedulerName``; ``None`` for all that no other profile names.
        Left out, ``default-scheduler`` and ``koord-scheduler``; among the ``others``, its ``name``.
    plugins
        In filter order; a name stands once.
    percentage_of_nodes
        Share of feasible nodes after which the search stops, as upstream samples; 100 looks at all, 0 is
        upstream's adaptive share.
    gangs
        How gangs that follow each other in the queue are planned.
    group_preemption
        The preemption policy of Kubernetes' own groups counts (feature gate ``PodGroupPreemptionPolicy``);
        ``None`` for the groups that state one.
    others
        Further profiles, without others of their own.
    feature_gates
        Gates of the scheduler by name. The arguments of ``plugins`` and the fields here that a gate decides
        are what it says: ``feature_gates={"MultiQuotaTree": True}`` gives ElasticQuota a tree for every id.
    """

    name: str = "default-scheduler"
    scheduler_names: tuple[str, ...] | None = attrs.field(
        default=DEFAULT_SCHEDULERS, converter=_scheduler_names
    )
    plugins: tuple[PluginSetting, ...] = DEFAULT_PLUGINS
    percentage_of_nodes: int = 100
    gangs: GangTurns = attrs.field(default=GangTurns.ONE_BY_ONE, converter=GangTurns)
    group_preemption: bool | None = None
    others: tuple[Policy, ...] = attrs.field(default=(), converter=_profiles)
    feature_gates: immutabledict[str, bool] = attrs.field(default=EMPTY, converter=frozen)

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        self._check_profiles()
        if self.feature_gates:
            self._heed_gates()
        names = [plugin.name for plugin in self.plugins]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ModelError(f"plugins: {twice} stands twice")
        if not 0 <= self.percentage_of_nodes <= 100:
            raise ModelError(f"percentage_of_nodes: expected 0..100, got {self.percentage_of_nodes}")

    def _check_profiles(self) -> None:
        taken: set[str] = set()
        for profile in self.profiles:
            if profile is not self and profile.others:
                raise ModelError(f"others: {profile.name} has others of its own")
            for name in profile.scheduler_names or ():
                if name in taken:
                    raise ModelError(f"scheduler_names: {name} stands in two profiles")
                taken.add(name)

    @property
    def profiles(self) -> tuple[Policy, ...]:
        """Give this profile and the others."""
        return (self, *self.others)

    @names_its_arguments
    def profile_of(self, scheduler_name: str) -> Policy | None:
        """Give the profile that decides the pods of a scheduler; ``None`` where they are not ours."""
        everybody: Policy | None = None
        for profile in self.profiles:
            if profile.scheduler_names is None:
                everybody = everybody or profile
            elif scheduler_name in profile.scheduler_names:
                return profile
        return everybody

    def of_all_schedulers(self) -> Policy:
        """Take the pods of all schedulers: those that no profile names are decided by the first one."""
        return attrs.evolve(self, scheduler_names=None)

    def alone(self) -> Policy:
        """Give this profile without the others."""
        return attrs.evolve(self, others=()) if self.others else self

    def _heed_gates(self) -> None:
        gates = self.feature_gates
        for gate, on in gates.items():
            if type(on) is not bool:
                raise ModelError(f"feature_gates: {gate}: expected true or false, got {on!r}")
        gated = [
            attrs.evolve(one, args=args)
            if (args := args_under(one.name, one.args, gates)) is not one.args
            else one
            for one in self.plugins
        ]
        object.__setattr__(self, "plugins", tuple(gated))
        for gate, field in POLICY_GATES.items():
            if gate in gates:
                object.__setattr__(self, field, gates[gate])

    @names_its_arguments
    def plugin(self, name: str) -> PluginSetting | None:
        """Give one plugin's setting, or ``None``."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> Mapping[str, PluginSetting]:
        return {plugin.name: plugin for plugin in self.plugins}

    @names_its_arguments
    def args_of(self, kind: type[T]) -> T:
        """Give the arguments of a class that a plugin has; the defaults where none says anything."""
        found = (one.args for one in self.plugins if isinstance(one.args, kind))
        return cast("T", next(found, None) or _default(cast("Any", kind)))

    @names_its_arguments
    def filters(self, name: str) -> bool:
        """Tell whether a plugin of that name filters nodes."""
        setting = self._by_name.get(name)
        return setting is not None and setting.filters

    @names_its_arguments
    def with_plugin(self, setting: PluginSetting) -> Policy:
        """Add a plugin at the end, or replace the one of the same name in its place."""
        plugins = tuple(setting if one.name == setting.name else one for one in self.plugins)
        return attrs.evolve(self, plugins=plugins if setting in plugins else (*plugins, setting))

    @names_its_arguments
    def without_plugin(self, name: str) -> Policy:
        """Leave a plugin out."""
        return attrs.evolve(self, plugins=tuple(one for one in self.plugins if one.name != name))


@cache
def _default(kind: Any) -> Any:
    """Give the arguments of a plugin about which nobody says anything; they are frozen."""
    return kind()


DEFAULT_POLICY: Final = Policy()
