"""Scheduler configurations become policies."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model.plugin_args import FitArgs, FitPlusArgs, ScarceArgs, ScoringStrategy
from koordcore.model.policy import PluginSetting, Policy

GROUP = "kubescheduler.config.k8s.io"


def profile(**fields: Any) -> Policy:
    (policy,) = policies_from_manifest({"profiles": [fields]})
    return policy


def names(policy: Policy, what: str) -> list[str]:
    return [one.name for one in policy.plugins if getattr(one, what)]


def enabled(*entries: Any, **more: Any) -> dict[str, Any]:
    listed = [
        {"name": one} if isinstance(one, str) else {"name": one[0], "weight": one[1]} for one in entries
    ]
    return {"enabled": listed, **{key: [{"name": name} for name in value] for key, value in more.items()}}


STOCK = (
    PluginSetting(name="NodeUnschedulable", scores=False),
    PluginSetting(name="NodeName", scores=False),
    PluginSetting(name="TaintToleration", weight=3),
    PluginSetting(name="NodeAffinity", weight=2),
    PluginSetting(name="NodePorts", scores=False),
    PluginSetting(name="NodeResourcesFit"),
    PluginSetting(name="VolumeRestrictions", scores=False),
    PluginSetting(name="NodeVolumeLimits", scores=False),
    PluginSetting(name="VolumeBinding"),
    PluginSetting(name="VolumeZone", scores=False),
    PluginSetting(name="PodTopologySpread", weight=2),
    PluginSetting(name="InterPodAffinity", weight=2),
    PluginSetting(name="DynamicResources", weight=2),
    PluginSetting(name="NodeDeclaredFeatures", scores=False),
    PluginSetting(name="NodeResourcesBalancedAllocation", filters=False),
    PluginSetting(name="ImageLocality", filters=False),
)
ALONE = Policy(scheduler_names=("default-scheduler",), plugins=STOCK)


def test_an_empty_configuration_is_the_stock_profile() -> None:
    assert policies_from_manifest({}) == (ALONE,)
    assert profile() == ALONE
    assert profile(schedulerName="mine", percentageOfNodesToScore=30) == Policy(
        name="mine", scheduler_names=("mine",), plugins=STOCK, percentage_of_nodes=30
    )


def test_the_share_of_nodes_is_that_of_the_profile_or_of_all() -> None:
    raw = {
        "percentageOfNodesToScore": 0,
        "profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "percentageOfNodesToScore": 7}],
    }
    assert [one.percentage_of_nodes for one in policies_from_manifest(raw)] == [0, 7]


def test_scores_only_as_listed_and_filters_as_before() -> None:
    policy = profile(
        plugins={
            "score": enabled(("NodeResourcesFitPlus", 2), ("ScarceResourceAvoidance", 3), disabled=["*"])
        },
        pluginConfig=[
            {
                "name": "NodeResourcesFitPlus",
                "args": {"resources": {"nvidia.com/gpu": {"type": "MostAllocated", "weight": 2}}},
            },
            {"name": "ScarceResourceAvoidance", "args": {"resources": ["nvidia.com/gpu"]}},
        ],
    )
    assert names(policy, "scores") == ["NodeResourcesFitPlus", "ScarceResourceAvoidance"]
    assert names(policy, "filters") == names(Policy(plugins=STOCK), "filters")
    plus, scarce = policy.plugins[-2:]
    assert (plus.name, scarce.name) == ("NodeResourcesFitPlus", "ScarceResourceAvoidance")
    assert (plus.weight, plus.args) == (
        2,
        FitPlusArgs(resources={"nvidia.com/gpu": ("MostAllocated", 2)}),
    )
    assert (scarce.weight, scarce.args) == (3, ScarceArgs(resources=("nvidia.com/gpu",)))


def test_multi_point_adds_both_halves_and_points_take_them_away() -> None:
    policy = profile(
        plugins={
            "multiPoint": enabled("LoadAwareScheduling", ("TaintToleration", 9), disabled=["NodePorts"]),
            "filter": {"disabled": [{"name": "LoadAwareScheduling"}]},
            "score": enabled(("NodeAffinity", 0), disabled=["NodeResourcesFit"]),
        }
    )
    assert "NodePorts" not in names(policy, "filters")
    assert "LoadAwareScheduling" not in names(policy, "filters")
    assert "LoadAwareScheduling" in names(policy, "scores")
    assert "NodeResourcesFit" in names(policy, "filters")
    assert "NodeResourcesFit" not in names(policy, "scores")
    weights = {one.name: one.weight for one in policy.plugins}
    assert (weights["TaintToleration"], weights["NodeAffinity"]) == (9, 1)


def test_stock_scoring_strategy() -> None:
    scoring = {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 3}]}
    policy = profile(pluginConfig=[{"name": "NodeResourcesFit", "args": {"scoringStrategy": scoring}}])
    setting = policy.plugin("NodeResourcesFit")
    assert setting is not None
    assert setting.args == FitArgs(strategy=ScoringStrategy.MOST_ALLOCATED, resources=(("cpu", 3),))


def test_every_problem_is_told() -> None:
    with pytest.raises(ManifestError) as caught:
        policies_from_manifest(
            {
                "percentageOfNodesToScore": 101,
                "profiles": [
                    {
                        "plugins": {"score": {"enabled": [{}]}},
                        "pluginConfig": [
                            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}},
                            {"name": "NodeResourcesFit"},
                            {"args": {}},
                        ],
                    },
                    {"schedulerName": "default-scheduler"},
                    5,
                ],
            }
        )
    assert [str(one) for one in caught.value.problems] == [
        "percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
        "profiles[0].plugins.score.enabled[0].name: Required value",
        (
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: "
            'expected one of LeastAllocated, MostAllocated, RequestedToCapacityRatio, got "Best"'
        ),
        'profiles[0].pluginConfig[1]: Duplicate value: "NodeResourcesFit"',
        "profiles[0].pluginConfig[2].name: Required value",
        "profiles[2]: expected object, got 5",
        "profiles[0].schedulerName: Required value",
    ]


def test_the_loader_gives_policies_and_warns_of_what_it_passes_over() -> None:
    raw = {
        "apiVersion": f"{GROUP}/v1beta3",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "pluginConfigs": [{"name": "Mystery", "args": {"a": 1}}],
                "plugins": {"filter": enabled("Mystery")},
            }
        ],
    }
    loaded = snapshot_from_objects([raw])
    assert loaded.policies == (ALONE,)
    assert loaded.unread == {}
    assert [f"{one.path}: {one.message}" for one in loaded.warnings] == [
        "profiles[0].pluginConfigs: read as pluginConfig; write that instead",
        (
            ": has no effect: profiles[0].plugins.filter.enabled[Mystery], profiles[0].pluginConfigs[0].args"
            " (`koordcore policy` says why)"
        ),
    ]
    with pytest.raises(ManifestError, match="2 scheduler profiles are called default-scheduler"):
        snapshot_from_objects([raw, {**raw, "profiles": [{}]}], strict=True)
