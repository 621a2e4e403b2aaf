"""Configurations come back as they were read, and odd ones are found out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.errors import ManifestError, ModelError
from koordcore.manifests.idle_settings import idle_gates
from koordcore.manifests.named_policies import named_policy
from koordcore.manifests.plugins import KOORDINATOR_CONFIGURATION, MODELLED
from koordcore.manifests.policy_lint import lint_configuration
from koordcore.manifests.policy_manifest import configuration_manifest
from koordcore.manifests.scheduler_config import (
    koordinator_policy,
    policies_from_manifest,
    scheduler_configuration,
)
from koordcore.model.plugin_args import FitArgs, FitPlusArgs, ScoringStrategy, ShapePoint
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.quotas import NamedCheck, QuotaPolicy

LOAD = {
    "filterExpiredNodeMetrics": False,
    "nodeMetricExpirationSeconds": 60,
    "resourceWeights": {"cpu": 3},
    "dominantResourceWeight": 2,
    "usageThresholds": {"cpu": 50},
    "prodUsageThresholds": {"memory": 40},
    "estimatedSecondsAfterPodScheduled": 30,
    "aggregated": {
        "usageThresholds": {"cpu": 70},
        "usageAggregationType": "p95",
        "usageAggregatedDuration": "5m0s",
        "scoreAggregationType": "avg",
    },
    "supportedResources": ["nvidia.com/gpu"],
}
SPREAD = {
    "defaultingType": "List",
    "defaultConstraints": [
        {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}
    ],
}
ADDED = {
    "addedAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
        }
    }
}
RATIO = {
    "scoringStrategy": {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 2}],
        "requestedToCapacityRatio": {
            "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 9}]
        },
    },
    "ignoredResources": ["example.com/x"],
}


def configuration(*profiles: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": list(profiles),
    }


def plugin_config(**args: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "args": one} for name, one in args.items()]


MANY = configuration(
    {
        "schedulerName": "a",
        "percentageOfNodesToScore": 0,
        "plugins": {"multiPoint": {"enabled": [{"name": "LoadAwareScheduling", "weight": 7}]}},
        "pluginConfig": plugin_config(LoadAwareScheduling=LOAD, PodTopologySpread=SPREAD, NodeAffinity=ADDED),
    },
    {
        "schedulerName": "b",
        "plugins": {
            "filter": {"disabled": [{"name": "TaintToleration"}]},
            "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 4}]},
        },
        "pluginConfig": plugin_config(NodeResourcesFit=RATIO, InterPodAffinity={"hardPodAffinityWeight": 9}),
    },
)


KOORDINATOR = configuration(
    {
        "schedulerName": "koord",
        "plugins": {
            "multiPoint": {
                "enabled": [
                    {"name": name}
                    for name in (
                        "NodeNUMAResource",
                        "DeviceShare",
                        "Reservation",
                        "Coscheduling",
                        "ElasticQuota",
                        "SchedulingHint",
                    )
                ]
            }
        },
        "pluginConfig": plugin_config(
            NodeNUMAResource={
                "defaultCPUBindPolicy": "SpreadByPCPUs",
                "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 2}]},
                "numaScoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 2}]},
            },
            DeviceShare={
                "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "koordinator.sh/rdma"}]},
                "disableDeviceNUMATopologyAlignment": True,
                "gpuShareUnsupportedModels": [{"vendor": "huawei", "model": "x"}],
            },
            Reservation={
                "enablePreemption": True,
                "gcDurationSeconds": 60,
                "ignoredResources": ["example.com/x"],
                "preAllocationConfig": {"enableClusterMode": True, "clusterLabelKey": "a/b"},
            },
            Coscheduling={"defaultTimeout": "5m0s", "enablePreemption": True, "awareNetworkTopology": True},
            ElasticQuota={
                "enableRuntimeQuota": False,
                "delayEvictTime": "1m30s",
                "defaultQuotaGroupMax": {"cpu": "100", "memory": "1Ti"},
            },
            SchedulingHint={"maxHintNodes": 7},
        ),
    }
)


@pytest.mark.parametrize(
    "raw",
    [KOORDINATOR_CONFIGURATION, MANY, KOORDINATOR, configuration({})],
    ids=["shipped", "many", "koordinator", "empty"],
)
def test_a_configuration_comes_back_as_it_was_read(raw: Any) -> None:
    policies = policies_from_manifest(raw)
    assert policies_from_manifest(configuration_manifest(*policies)) == policies


def test_the_shipped_profile_filters_and_scores_in_upstreams_order() -> None:
    policy = koordinator_policy()
    assert [one.name for one in policy.plugins if one.filters] == [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
        "LoadAwareScheduling",
        "NodeNUMAResource",
        "DeviceShare",
        "Reservation",
        "SchedulingHint",
        "Coscheduling",
        "ElasticQuota",
    ]
    assert {one.name: one.weight for one in policy.plugins if one.scores} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "LoadAwareScheduling": 1,
        "NodeNUMAResource": 1,
        "DeviceShare": 1,
        "Reservation": 5000,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "Coscheduling": 1,
        "DynamicResources": 2,
    }


def test_arguments_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(ModelError, match="Mine: arguments of str cannot be written"):
        configuration_manifest(Policy(plugins=(PluginSetting(name="Mine", args="x"),)))


def test_checks_of_quotas_cannot_be_written() -> None:
    args = QuotaPolicy(checks=(NamedCheck("mine", lambda *_: ""),))
    with pytest.raises(ModelError, match="checks are functions"):
        configuration_manifest(Policy(plugins=(PluginSetting(name="ElasticQuota", args=args),)))


def test_a_ratio_keeps_its_shape() -> None:
    policy = policies_from_manifest(MANY)[1]
    setting = policy.plugin("NodeResourcesFit")
    assert setting is not None
    assert setting.args == FitArgs(
        strategy=ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO,
        resources=(("cpu", 2),),
        shape=(ShapePoint(0, 0), ShapePoint(100, 9)),
        ignored=("example.com/x",),
    )
    assert policy.plugin("TaintToleration") is None


def test_a_shape_beside_another_strategy_is_kept() -> None:
    scoring = {
        "type": "MostAllocated",
        "requestedToCapacityRatio": {"shape": [{"utilization": 9, "score": 1}]},
    }
    raw = configuration({"pluginConfig": plugin_config(NodeResourcesFit={"scoringStrategy": scoring})})
    again = configuration_manifest(*policies_from_manifest(raw))
    assert policies_from_manifest(again) == policies_from_manifest(raw)
    assert '"requestedToCapacityRatio"' in json.dumps(again)


def test_what_multi_point_and_a_point_both_name_goes_first() -> None:
    raw = configuration(
        {"plugins": {"filter": {"enabled": [{"name": "LoadAwareScheduling"}, {"name": "NodePorts"}]}}}
    )
    names = scheduler_configuration(raw).profiles[0].names("filter")
    assert (names[0], names[-1]) == ("NodePorts", "LoadAwareScheduling")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta2"}, "apiVersion: expected"),
        ({"kind": "ConfigMap"}, "kind: this is a ConfigMap"),
        ({"profile": []}, "profile: unknown field"),
        (
            configuration({"schedulerName": "a"}, {"schedulerName": "a"}),
            'profiles[1].schedulerName: Duplicate value: "a"',
        ),
        (
            configuration({"plugins": {"score": {"enabled": [{"name": "SelectorSpread"}]}}}),
            'Invalid value: "SelectorSpread": was removed in version "kubescheduler.config.k8s.io/v1"',
        ),
        (
            configuration({"plugins": {"filter": {"enabled": [{"name": "ImageLocality"}]}}}),
            'plugin "ImageLocality" does not extend filter plugin',
        ),
        (
            configuration(
                {"pluginConfig": plugin_config(LoadAwareScheduling={"dominantResourceWeight": 101})}
            ),
            "dominantResourceWeight: Invalid value: 101: dominantResourceWeight should be less than 100",
        ),
        (
            configuration({"pluginConfig": [{"name": "NodeResourcesFit", "args": {"kind": "OtherArgs"}}]}),
            "profiles[0].pluginConfig[0].args: expected NodeResourcesFitArgs",
        ),
    ],
)
def test_what_upstream_refuses_is_refused_with_its_path(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(ManifestError) as caught:
        scheduler_configuration(raw)
    assert any(problem in str(one) for one in caught.value.problems), caught.value


def test_an_unknown_argument_is_a_warning() -> None:
    args = plugin_config(LoadAwareScheduling={"usageThreshold": {"cpu": 1}}, DeviceShare={"any": 1})
    enabled = {"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}, {"name": "DeviceShare"}]}}
    read = scheduler_configuration(configuration({"plugins": enabled, "pluginConfig": args}))
    assert [(one.path, one.reason, one.plugin) for one in read.unused] == [
        ("profiles[0].pluginConfig[0].args.usageThreshold", "unknown field", "LoadAwareScheduling"),
        ("profiles[0].pluginConfig[1].args.any", "unknown field", "DeviceShare"),
    ]


def findings(profile: dict[str, Any]) -> str:
    whole = {"percentageOfNodesToScore": 100, **profile}
    found = lint_configuration(scheduler_configuration(configuration(whole)), MODELLED)
    return "\n".join(map(str, found))


def score(*enabled: tuple[str, int], bare: bool = False) -> dict[str, Any]:
    listed = [{"name": name, "weight": weight} for name, weight in enabled]
    return {"enabled": listed, **({"disabled": [{"name": "*"}]} if bare else {})}


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ({"plugins": {"filter": {"enabled": [{"name": "Mystery"}]}}}, "Mystery: unknown plugin"),
        ({}, "DeviceShare: not enabled"),
        (
            {"plugins": {"score": score(("Reservation", 5000))}},
            "Reservation: weight 5000: one point outweighs",
        ),
        (
            {"plugins": {"filter": {"enabled": [{"name": "NodePorts", "weight": 3}]}}},
            "NodePorts: weight 3 at filter has no effect",
        ),
        (
            {"pluginConfig": plugin_config(LoadAwareScheduling={})},
            "profiles[0].pluginConfig[LoadAwareScheduling] has no effect: it is not enabled anywhere",
        ),
        (
            {
                "plugins": {"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}},
                "pluginConfig": plugin_config(LoadAwareScheduling={"usageThresholds": {"cpu": 0}}),
            },
            "all thresholds are 0",
        ),
        (
            {"pluginConfig": plugin_config(LoadAwareScheduling={"prodUsageThresholds": {"cpu": 101}})},
            "prodUsageThresholds of cpu is 101",
        ),
        ({"plugins": {"score": score(("NodeResourcesFitPlus", 1))}}, "names no resources"),
        (
            {"pluginConfig": plugin_config(LoadAwareScheduling={"estimator": "mine"})},
            "args.estimator has no effect: pods are estimated as by defaultEstimator",
        ),
        (
            {"pluginConfig": plugin_config(Coscheduling={"defaultMatchPolicy": "running"})},
            'defaultMatchPolicy is "running", which is none of only-waiting',
        ),
        (
            {
                "pluginConfig": plugin_config(
                    NodeResourcesFit={
                        "scoringStrategy": {"requestedToCapacityRatio": {"shape": [{"score": 1}]}}
                    }
                )
            },
            "args.scoringStrategy.requestedToCapacityRatio has no effect: the type is LeastAllocated",
        ),
        (
            {"pluginConfig": plugin_config(NodeResourcesFit={"ignoredResources": ["a.b/c", "memory"]})},
            "args.ignoredResources[1] has no effect: memory is no extended resource",
        ),
        (
            {
                "plugins": {"score": score(("NodeResourcesFitPlus", 1))},
                "pluginConfig": plugin_config(
                    NodeResourcesFitPlus={"resources": {"cpu": {"type": "MostAllocated", "weight": 1}}}
                ),
            },
            "cpu: MostAllocated here (weight 1) works against LeastAllocated of NodeResourcesFit (weight 1)",
        ),
    ],
)
def test_odd_things_are_found(profile: dict[str, Any], text: str) -> None:
    assert text in findings(profile)


def test_a_plain_profile_has_no_finding_of_its_own() -> None:
    names = ("DeviceShare", "NodeNUMAResource", "Reservation", "ElasticQuota", "Coscheduling")
    enabled = [{"name": name} for name in (*names, "LoadAwareScheduling")]
    args = plugin_config(
        LoadAwareScheduling={"usageThresholds": {"cpu": 65}},
        DeviceShare={"scoringStrategy": {"type": "MostAllocated"}},
    )
    assert findings({"plugins": {"multiPoint": {"enabled": enabled}}, "pluginConfig": args}) == ""


def entry(name: str, weight: int = 0) -> dict[str, Any]:
    return {"name": name, "weight": weight} if weight else {"name": name}


@pytest.mark.parametrize(
    ("plugins", "text"),
    [
        (
            {"multiPoint": {"disabled": [entry("TaintTolerations")]}},
            "multiPoint.disabled[TaintTolerations] has no effect: neither Kubernetes nor Koordinator has",
        ),
        ({"bind": {"disabled": [entry("Bindre")]}}, "bind.disabled[Bindre] has no effect: neither"),
        (
            {"score": {"disabled": [entry("Balanced"), entry("*")]}},
            "score.disabled[Balanced] has no effect: neither",
        ),
        (
            {"filter": {"disabled": [entry("NodeResourcesBalancedAllocation")]}},
            "filter.disabled[NodeResourcesBalancedAllocation] has no effect: it does not extend filter",
        ),
        (
            {"multiPoint": {"disabled": [entry("DeviceShare")]}},
            "multiPoint.disabled[DeviceShare] has no effect: it is not enabled by default",
        ),
        (
            {"filter": {"disabled": [entry("DeviceShare")]}},
            "filter.disabled[DeviceShare] has no effect: nothing enables it at filter",
        ),
        (
            {"preFilter": {"disabled": [entry("NodePorts")]}},
            "preFilter.disabled[NodePorts] has no effect: whoever is enabled at filter filters",
        ),
        ({"preScore": {"disabled": [entry("*")]}}, "preScore.disabled[*] has no effect: whoever is enabled"),
        (
            {"score": {"disabled": [entry("NodeAffinity", 3)]}},
            "score.disabled[NodeAffinity].weight has no effect: who is disabled scores nothing",
        ),
        (
            {"multiPoint": {"enabled": [entry("NodePorts", 3)]}},
            "multiPoint.enabled[NodePorts].weight has no effect: it does not score",
        ),
        (
            {
                "multiPoint": {"enabled": [entry("NodeAffinity", 9)]},
                "score": {"enabled": [entry("NodeAffinity", 4)]},
            },
            "multiPoint.enabled[NodeAffinity].weight has no effect: score names it again",
        ),
        (
            {
                "multiPoint": {"enabled": [entry("NodeAffinity", 9)]},
                "score": {"disabled": [entry("NodeAffinity")]},
            },
            "multiPoint.enabled[NodeAffinity].weight has no effect: it is disabled at score",
        ),
    ],
)
def test_entries_of_plugin_sets_that_change_nothing_are_named(plugins: dict[str, Any], text: str) -> None:
    assert f"profiles[0].plugins.{text}" in findings({"plugins": plugins})


def test_filters_of_kubernetes_that_a_profile_lacks_are_named() -> None:
    for plugins, where in (
        ({"filter": {"disabled": [entry("*")]}}, " at filter"),
        ({"multiPoint": {"disabled": [entry("*")]}}, ""),
    ):
        told = findings({"plugins": plugins})
        assert (
            f"default-scheduler: NodeResourcesFit: not enabled{where}: nodes take more than they have" in told
        )
        assert f"default-scheduler: TaintToleration: not enabled{where}: taints keep nobody away" in told
    assert "NodeResourcesFit" not in findings({})


def test_what_is_really_disabled_is_no_finding() -> None:
    plugins = {
        "multiPoint": {"enabled": [entry("DeviceShare", 2)], "disabled": [entry("ImageLocality")]},
        "filter": {"disabled": [entry("DeviceShare")]},
        "score": {
            "enabled": [entry("NodeResourcesFit", 5)],
            "disabled": [entry("NodeResourcesFit"), entry("VolumeBinding")],
        },
        "preFilter": {"disabled": [entry("*")]},
    }
    assert "plugins." not in findings({"plugins": plugins})


@pytest.mark.parametrize("name", ["default", "stock", "binpack", "spread"])
def test_a_policy_by_name_means_the_same_once_it_is_written(name: str) -> None:
    known = named_policy(name)
    (again,) = policies_from_manifest(configuration_manifest(known))
    for setting in known.plugins:
        assert again.plugin(setting.name) == setting


def test_other_extended_resources_are_rated_by_a_file_too() -> None:
    plugins = {"score": score(("NodeResourcesFitPlus", 2))}
    for args, extended, told in (
        ({"extendedResources": {"type": "MostAllocated", "weight": 3}}, ("MostAllocated", 3), ""),
        ({"extendedResources": {"type": "Most"}}, ("Most", 0), 'type "Most" of other extended resources'),
        ({}, None, "names no resources"),
    ):
        profile = {"plugins": plugins, "pluginConfig": plugin_config(NodeResourcesFitPlus=args)}
        (policy,) = policies_from_manifest(configuration(profile))
        setting = policy.plugin("NodeResourcesFitPlus")
        assert setting is not None
        assert setting.args == FitPlusArgs(extended=extended)
        found = [one for one in findings(profile).splitlines() if "NodeResourcesFitPlus" in one]
        assert (told in found[0]) if told else found == []


def test_plugins_that_only_newer_versions_have_are_no_strangers() -> None:
    told = findings({"plugins": {"multiPoint": {"enabled": [entry("GangScheduling")]}}})
    assert "GangScheduling" not in told


def test_gates_say_how_decisions_act() -> None:
    gates = {
        "InPlacePodVerticalScaling": True,
        "NominatedNodeNameForExpectation": True,
        "TaintTolerationComparisonOperators": False,
        "NodeDeclaredFeatures": True,
        "StorageCapacityScoring": False,
    }
    said = [(one.path, one.reason) for one in idle_gates(gates)]
    assert said == [
        ("featureGates.TaintTolerationComparisonOperators", "acts as on here, always"),
    ]
