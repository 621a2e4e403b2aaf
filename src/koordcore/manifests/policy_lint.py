"""What is odd about a scheduler configuration though it is legal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from koordcore._record import record
from koordcore.manifests.idle_settings import Unused
from koordcore.manifests.plugins import PLUGIN_POINTS
from koordcore.manifests.scheduler_config import PluginRef, SchedulerConfiguration, SchedulerProfile
from koordcore.model.device_policy import DevicePolicy, ScoringStrategy as DeviceStrategy
from koordcore.model.gangs import CoschedulingArgs, MatchPolicy
from koordcore.model.load import LoadAwareArgs
from koordcore.model.plugin_args import FitArgs, FitPlusArgs, ScarceArgs, ScoringStrategy

_MAX: Final = 100
_LENT: Final = ("kubernetes.io/", "hugepages-")
_OPPOSITE: Final = {
    ScoringStrategy.LEAST_ALLOCATED: ScoringStrategy.MOST_ALLOCATED,
    ScoringStrategy.MOST_ALLOCATED: ScoringStrategy.LEAST_ALLOCATED,
}


@record
class Finding:
    """One odd thing.

    Parameters
    ----------
    profile
        Scheduler name of the profile.
    plugin
        Whom it is about; empty for the profile as a whole.
    message
        What is odd and what follows from it.
    """

    profile: str
    plugin: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.profile, self.plugin, self.message) if part)


def lint_configuration(configuration: SchedulerConfiguration, known: Collection[str]) -> tuple[Finding, ...]:
    """Look for what a configuration says without effect, or against itself.

    Parameters
    ----------
    configuration
        As read.
    known
        Names of the plugins that the library has.
    """
    return (
        *(_unused(configuration, one) for one in configuration.unused),
        *(
            Finding(profile.name, plugin, message)
            for profile in configuration.profiles
            for plugin, message in _findings(profile, known)
        ),
    )


def _unused(configuration: SchedulerConfiguration, one: Unused) -> Finding:
    profile = "" if one.profile is None else configuration.profiles[one.profile].name
    return Finding(profile, one.plugin, f"{one.path} has no effect: {one.reason}")


def _findings(profile: SchedulerProfile, known: Collection[str]) -> Iterator[tuple[str, str]]:
    yield from _strangers(profile, known)
    yield from _weights(profile)
    for name in profile.holding:
        yield (
            name,
            "not enabled at filter: what reservations hold is held, and owners are filtered, all the same",
        )
    yield from _load(profile)
    yield from _gangs(profile)
    yield from _scores_for_nothing(profile)
    yield from _against_each_other(profile)
    yield from _cards_spread(profile)
    yield from _absent(profile)
    if profile.percentage_of_nodes is None:
        yield "", "percentageOfNodesToScore is not set: all nodes are looked at here, upstream takes a sample"


_WITHOUT: Final = {
    "DeviceShare": "whole devices are counted, none is chosen",
    "NodeNUMAResource": "no CPUs are pinned, and NUMA topology policies of nodes and pods do not bind",
    "Reservation": "reservations hold no room, and nobody is placed in one",
    "ElasticQuota": "no quota limits anybody",
    "LoadAwareScheduling": "measured load neither filters nor scores nodes",
    "Coscheduling": "its arguments have no effect; gangs start together all the same",
    "DynamicResources": "pods with resource claims find no place",
}
"""Plugin to what follows where a profile has it nowhere."""
_UNFILTERED: Final = {
    "NodeResourcesFit": "nodes take more than they have",
    "TaintToleration": "taints keep nobody away",
    "NodeUnschedulable": "cordoned nodes take pods",
    "NodeName": "whoever names a node goes to any",
    "NodeAffinity": "node selectors and required node affinity bind nobody",
    "NodePorts": "pods of one node may have the same host port",
    "PodTopologySpread": "hard spread constraints bind nobody",
    "InterPodAffinity": "required affinity and anti-affinity to pods bind nobody",
    "VolumeRestrictions": "a volume for one pod, or one node, may have several",
    "NodeVolumeLimits": "nodes attach more volumes than they can",
    "VolumeBinding": "volumes bind nobody to nodes",
    "VolumeZone": "volumes bind nobody to zones",
    "NodeDeclaredFeatures": "pods go to nodes whose kubelets lack features that they need",
}
"""Plugin of Kubernetes' own to what follows where it does not filter."""


def _absent(profile: SchedulerProfile) -> Iterator[tuple[str, str]]:
    there = {name for refs in profile.points.values() for name in _names(refs)}
    for name, effect in _WITHOUT.items():
        if name not in there:
            yield name, f"not enabled: {effect}"
        elif name not in (*profile.deciding, *profile.holding) and name != "Coscheduling":
            points = ", ".join(point for point, refs in profile.points.items() if name in _names(refs))
            yield name, f"enabled at {points} only, where nothing is decided: {effect}"

    for name, effect in _UNFILTERED.items():
        if name not in profile.names("filter"):
            where = " at filter" if name in there else ""
            yield name, f"not enabled{where}: {effect}"


def _names(refs: Iterable[PluginRef]) -> set[str]:
    return {one.name for one in refs}


def _strangers(profile: SchedulerProfile, known: Collection[str]) -> Iterator[tuple[str, str]]:
    for name in profile.unknown:
        yield name, "unknown plugin: neither Kubernetes nor Koordinator has it; left out"
    for name in profile.missing(known):
        if name in PLUGIN_POINTS:
            yield name, "not modelled: pods are placed as if it had nothing to say"


def _weights(profile: SchedulerProfile) -> Iterator[tuple[str, str]]:
    weights = {name: profile.weight(name) for name in profile.names("score")}
    everything = sum(weights.values())
    for name, weight in weights.items():
        rest = everything - weight
        if rest and weight > _MAX * rest:
            others = f"all other scores together (at most {_MAX * rest})"
            yield name, f"weight {weight}: one point outweighs {others}, which only decide where it is equal"
    for point, refs in profile.points.items():
        for one in refs:
            if point not in ("score", "multiPoint") and one.weight and not weights.get(one.name):
                yield one.name, f"weight {one.weight} at {point} has no effect: it does not score"


def _load(profile: SchedulerProfile) -> Iterator[tuple[str, str]]:
    args = profile.args.get("LoadAwareScheduling")
    if not isinstance(args, LoadAwareArgs):
        return
    name = "LoadAwareScheduling"
    for resource, threshold in args.prod_usage_thresholds.items():
        if threshold > _MAX:
            yield (
                name,
                f"prodUsageThresholds of {resource} is {threshold}: usage rarely exceeds the whole node",
            )
    statistic = args.aggregated
    filters = name in profile.names("filter")
    if filters and not any(
        (
            any(args.usage_thresholds.values()),
            any(args.prod_usage_thresholds.values()),
            statistic is not None and statistic.filters and any(statistic.usage_thresholds.values()),
        )
    ):
        yield name, "all thresholds are 0: it filters nothing unless a node's annotation sets some"
    if statistic is not None and statistic.filters and any(args.usage_thresholds.values()):
        yield name, "aggregated thresholds replace usageThresholds, which have no effect"
    if statistic is not None and statistic.usage_thresholds and not statistic.usage_type:
        yield name, "aggregated thresholds without usageAggregationType have no effect"
    if args.score_according_prod_usage and statistic is not None and statistic.score_type:
        yield name, "prod pods are scored on prod usage; scoreAggregationType counts for the others only"
    if not args.filter_expired_node_metrics and args.enable_schedule_when_node_metrics_expired:
        yield (
            name,
            "enableScheduleWhenNodeMetricsExpired has no effect while filterExpiredNodeMetrics is false",
        )
    idle = sorted(set(args.columns) - set(args.resource_weights)) if args.dominant_resource_weight else []
    if idle:
        listed = ", ".join(idle)
        yield (
            name,
            f"dominantResourceWeight looks at {listed} too: a node that lacks one of them gets 0 for it",
        )


def _gangs(profile: SchedulerProfile) -> Iterator[tuple[str, str]]:
    args = profile.args.get("Coscheduling")
    if isinstance(args, CoschedulingArgs) and args.default_match_policy not in tuple(MatchPolicy):
        known = ", ".join(MatchPolicy)
        yield "Coscheduling", f'defaultMatchPolicy is "{args.default_match_policy}", which is none of {known}'


def _scores_for_nothing(profile: SchedulerProfile) -> Iterator[tuple[str, str]]:
    scorers = profile.names("score")
    plus = profile.args.get("NodeResourcesFitPlus")
    rates = isinstance(plus, FitPlusArgs) and (plus.resources or plus.extended is not None)
    if "NodeResourcesFitPlus" in scorers and not rates:
        yield "NodeResourcesFitPlus", "names no resources: every node scores 100, its weight can never matter"
    if isinstance(plus, FitPlusArgs):
        others = {} if plus.extended is None else {"other extended resources": plus.extended}
        for resource, (strategy, _) in {**plus.resources, **others}.items():
            if strategy not in (ScoringStrategy.LEAST_ALLOCATED, ScoringStrategy.MOST_ALLOCATED):
                yield (
                    "NodeResourcesFitPlus",
                    f'type "{strategy}" of {resource} scores 0 and still has its weight',
                )
    scarce = profile.args.get("ScarceResourceAvoidance")
    if "ScarceResourceAvoidance" in scorers and not (isinstance(scarce, ScarceArgs) and scarce.resources):
        yield (
            "ScarceResourceAvoidance",
            "names no resources: every node scores 100, its weight can never matter",
        )


def _cards_spread(profile: SchedulerProfile) -> Iterator[tuple[str, str]]:
    """Find who spreads cards, as upstream's defaults do: it costs the jobs that need whole nodes."""
    scorers = profile.names("score")
    share = profile.args.get("DeviceShare", DevicePolicy())
    cost = "cards are spread, so that fewer nodes stay whole for large jobs; MostAllocated packs them"
    if (
        "DeviceShare" in scorers
        and isinstance(share, DevicePolicy)
        and share.strategy is DeviceStrategy.LEAST_ALLOCATED
    ):
        yield "DeviceShare", f"LeastAllocated: {cost}"
    fit = profile.args.get("NodeResourcesFit", FitArgs())
    if isinstance(fit, FitArgs) and fit.strategy is ScoringStrategy.LEAST_ALLOCATED:
        names = [name for name, _ in fit.resources if "/" in name and not name.startswith(_LENT)]
        if "NodeResourcesFit" in scorers and names:
            yield "NodeResourcesFit", f"LeastAllocated of {', '.join(names)}: {cost}"


def _against_each_other(profile: SchedulerProfile) -> Iterator[tuple[str, str]]:
    """Find resources that one plugin packs and another spreads."""
    scorers = profile.names("score")
    if "NodeResourcesFit" not in scorers or "NodeResourcesFitPlus" not in scorers:
        return
    fit = profile.args.get("NodeResourcesFit", FitArgs())
    plus = profile.args.get("NodeResourcesFitPlus")
    if not isinstance(plus, FitPlusArgs) or not isinstance(fit, FitArgs):
        return
    scored = [name for name, _ in fit.resources]
    opposed = [
        name
        for name, (strategy, _) in plus.resources.items()
        if name in scored and strategy == _OPPOSITE.get(fit.strategy)
    ]
    if opposed:
        left, right = profile.weight("NodeResourcesFit"), profile.weight("NodeResourcesFitPlus")
        here = f"{', '.join(opposed)}: {_OPPOSITE[fit.strategy]} here (weight {right})"
        there = f"{fit.strategy} of NodeResourcesFit (weight {left})"
        yield "NodeResourcesFitPlus", f"{here} works against {there}"
