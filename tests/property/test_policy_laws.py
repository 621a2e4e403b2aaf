"""Scheduler configurations: what is read can be written and read again, whatever a profile turns on and off.

Laws: a configuration comes back as equal policies, and writing twice writes the same; a plugin of a policy
stands once and decides something.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from hypothesis import example, given, settings, strategies as st

from koordcore.errors import ManifestError
from koordcore.manifests.plugins import PLUGIN_POINTS
from koordcore.manifests.policy_manifest import configuration_manifest
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model.policy import Policy

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
weights = st.integers(1, 100)
seconds = st.integers(0, 600)
percents = st.dictionaries(st.sampled_from(("cpu", "memory")), st.integers(0, 100), max_size=2)
listed = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(RESOURCES), "weight": weights}),
    unique_by=lambda one: one["name"],
    min_size=1,
    max_size=3,
)
strategies = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(("LeastAllocated", "MostAllocated")), "resources": listed}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("RequestedToCapacityRatio"),
            "resources": listed,
            "requestedToCapacityRatio": st.lists(
                st.integers(0, 100), unique=True, min_size=1, max_size=4
            ).map(
                lambda used: {
                    "shape": [{"utilization": one, "score": one % 11} for one in sorted(used)],
                }
            ),
        }
    ),
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any part of some fields."""
    return st.fixed_dictionaries({}, optional=fields)


aggregated = some(
    usageThresholds=percents,
    usageAggregationType=st.sampled_from(("avg", "p50", "p90", "p95", "p99")),
    usageAggregatedDuration=seconds.map(lambda one: f"{one}s"),
    scoreAggregationType=st.sampled_from(("avg", "p50", "p90", "p95", "p99")),
    scoreAggregatedDuration=seconds.map(lambda one: f"{one // 60}m{one % 60}s"),
)
load = some(
    filterExpiredNodeMetrics=st.booleans(),
    nodeMetricExpirationSeconds=st.integers(1, 600),
    enableScheduleWhenNodeMetricsExpired=st.booleans(),
    resourceWeights=st.dictionaries(st.sampled_from(("cpu", "memory")), weights, max_size=2),
    dominantResourceWeight=st.integers(0, 100),
    usageThresholds=percents,
    prodUsageThresholds=percents,
    prodUsageIncludeSys=st.booleans(),
    scoreAccordingProdUsage=st.booleans(),
    estimatedScalingFactors=st.dictionaries(st.sampled_from(RESOURCES), weights, max_size=3),
    estimatedSecondsAfterPodScheduled=seconds,
    estimatedSecondsAfterInitialized=seconds,
    allowCustomizeEstimation=st.booleans(),
    supportedResources=st.lists(st.sampled_from(RESOURCES), unique=True),
    aggregated=aggregated,
)
ARGS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "LoadAwareScheduling": load,
    "NodeResourcesFit": some(
        scoringStrategy=strategies,
        ignoredResources=st.just(["example.com/x"]),
        ignoredResourceGroups=st.just(["example.com"]),
    ),
    "NodeResourcesBalancedAllocation": some(
        resources=listed.map(lambda found: [{**one, "weight": 1} for one in found])
    ),
    "NodeResourcesFitPlus": some(
        resources=st.dictionaries(
            st.sampled_from(RESOURCES),
            st.fixed_dictionaries(
                {"type": st.sampled_from(("MostAllocated", "LeastAllocated")), "weight": weights}
            ),
        )
    ),
    "ScarceResourceAvoidance": some(resources=st.lists(st.sampled_from(RESOURCES), unique=True)),
    "InterPodAffinity": some(
        hardPodAffinityWeight=st.integers(0, 100), ignorePreferredTermsOfExistingPods=st.booleans()
    ),
    "NodeNUMAResource": some(
        defaultCPUBindPolicy=st.sampled_from(("FullPCPUs", "SpreadByPCPUs")),
        scoringStrategy=st.fixed_dictionaries(
            {"type": st.sampled_from(("LeastAllocated", "MostAllocated")), "resources": listed}
        ),
    ),
    "Reservation": some(enablePreemption=st.booleans(), gcDurationSeconds=st.integers(1, 9999)),
}
EARLY = ("Reservation", "Coscheduling")
POINTS = ("multiPoint", "preFilter", "filter", "preScore", "score")


@st.composite
def plugin_sets(draw: st.DrawFn, point: str) -> dict[str, Any]:
    """What one point enables and disables, out of the plugins that have something to say there."""
    names = [one for one, points in PLUGIN_POINTS.items() if point in ("multiPoint", *points)]
    reference = st.fixed_dictionaries({"name": st.sampled_from(names)}, optional={"weight": weights})
    enabled = draw(st.lists(reference, unique_by=lambda one: one["name"], max_size=4))
    disabled = draw(st.lists(st.sampled_from(["*", *names]), unique=True, max_size=2))
    return {"enabled": enabled, "disabled": [{"name": name} for name in disabled]}


@st.composite
def profiles(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """A profile with plugins at some points and arguments for some of them."""
    points = draw(st.lists(st.sampled_from(POINTS), unique=True, max_size=4))
    args = {one: draw(ARGS[one]) for one in draw(st.lists(st.sampled_from(sorted(ARGS)), unique=True))}
    made: dict[str, Any] = {
        "schedulerName": name,
        "plugins": {point: draw(plugin_sets(point)) for point in points},
        "pluginConfig": [{"name": one, "args": found} for one, found in args.items()],
    }
    share = draw(st.none() | st.integers(0, 100))
    return made if share is None else {**made, "percentageOfNodesToScore": share}


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """One to three profiles, in either version."""
    names = [f"scheduler-{number}" for number in range(draw(st.integers(1, 3)))]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/" + draw(st.sampled_from(("v1", "v1beta3"))),
        "kind": "KubeSchedulerConfiguration",
        "profiles": [draw(profiles(name)) for name in names],
    }


def read(raw: dict[str, Any]) -> tuple[Policy, ...] | None:
    """The policies, or nothing where upstream would refuse the configuration."""
    with suppress(ManifestError):
        return policies_from_manifest(raw)
    return None


@given(configurations())
@settings(max_examples=10)
@example({"profiles": [{"plugins": {"preFilter": {"enabled": [{"name": one} for one in EARLY]}}}]})
def test_a_configuration_comes_back(raw: dict[str, Any]) -> None:
    policies = read(raw)
    if policies is None:
        return
    written = configuration_manifest(*policies)
    assert policies_from_manifest(json.loads(json.dumps(written))) == policies
    assert configuration_manifest(*policies_from_manifest(written)) == written


@given(configurations())
@settings(max_examples=8)
def test_a_policy_is_complete(raw: dict[str, Any]) -> None:
    """Every plugin stands once, decides something, and has a weight where it scores."""
    for policy in read(raw) or ():
        names = [one.name for one in policy.plugins]
        assert len(set(names)) == len(names)
        assert all(one.filters or one.scores for one in policy.plugins)
        assert all(one.weight >= 1 for one in policy.plugins if one.scores)
