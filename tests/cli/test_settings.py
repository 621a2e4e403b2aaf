"""What a scheduler configuration says is done, or named as not done: feature gates, arguments, fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore import ModelError, Policy
from koordcore.cli import main
from koordcore.manifests import policies_from_manifest
from koordcore.manifests.policy_manifest import configuration_manifest
from koordcore.model.policy import PluginSetting
from koordcore.model.quotas import QuotaPolicy
from tests.manifests.builders import container, node, pod

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PREFIX = "quota.scheduling.koordinator.sh/"
CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
WITH_QUOTA = {"schedulerName": "s", "plugins": {"multiPoint": {"enabled": [{"name": "ElasticQuota"}]}}}


def quota(name: str, least: int, most: int, total: int | None = None, **labels: str) -> dict[str, Any]:
    annotations = {} if total is None else {f"{PREFIX}total-resource": json.dumps({"cpu": total})}
    meta = {
        "name": name,
        "namespace": "q",
        "labels": {PREFIX + key.replace("_", "-"): text for key, text in labels.items()},
        "annotations": annotations,
    }
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": meta,
        "spec": {"min": {"cpu": least}, "max": {"cpu": most}},
    }


def written(path: Path, *objects: Any) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)


@pytest.fixture
def trees(tmp_path: Path) -> str:
    """A tree of its own with 40 of 100 cores, and a quota beside it; both want everything."""
    return written(
        tmp_path / "trees.json",
        node("n1", {"cpu": "100", "memory": "10Gi", "pods": "200"}),
        quota("root-x", 0, 100, total=40, tree_id="tx", is_root="true", is_parent="true"),
        quota("x", 0, 100, tree_id="tx", parent="root-x"),
        quota("other", 0, 100),
        pod(
            "px", metadata={"labels": {f"{PREFIX}name": "x"}}, containers=[container(requests={"cpu": "90"})]
        ),
        pod(
            "po",
            metadata={"labels": {f"{PREFIX}name": "other"}},
            containers=[container(requests={"cpu": "90"})],
        ),
    )


def runtimes(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, int]:
    assert main(["quota", *words, "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["quotas"]
    return {row["quota"]: row["runtime"] for row in rows}


def test_quota_names_the_tree_ids_that_do_not_count(trees: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = "of ElasticQuotas (the feature gate MultiQuotaTree is off)"
    assert main(["quota", trees]) == 0
    assert told in capsys.readouterr().err
    assert main(["quota", trees, "--feature-gates", "MultiQuotaTree=true"]) == 0
    assert told not in capsys.readouterr().err


def test_a_gate_of_the_file_gives_every_tree_its_own_total(
    trees: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gated = written(
        tmp_path / "c.json", {**CONFIG, "featureGates": {"MultiQuotaTree": True}, "profiles": [WITH_QUOTA]}
    )
    assert runtimes(capsys, trees, "--policy", gated, "--tree", "tx") == {"root-x": 40000, "x": 40000}
    assert runtimes(capsys, trees, "--policy", gated) == {"other": 60000}
    assert runtimes(capsys, trees, "--feature-gates", "MultiQuotaTree=true") == {"other": 60000}


def test_a_table_names_the_trees_that_it_leaves_out(trees: str, capsys: pytest.CaptureFixture[str]) -> None:
    gate = ("--feature-gates", "MultiQuotaTree=true")
    for words, shown in ((gate, True), ((*gate, "--tree", "tx"), False), ((), False)):
        assert main(["quota", trees, *words]) == 0
        assert ("not shown (--tree ID): tx" in capsys.readouterr().out) == shown


def test_a_tree_that_nobody_looks_for_names_the_gate(trees: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quota", trees, "--tree", "tx"]) == 2
    assert "--feature-gates MultiQuotaTree=true" in capsys.readouterr().err
    assert main(["quota", trees, "--tree", "ty", "--feature-gates", "MultiQuotaTree=true"]) == 2
    assert "the dump has tx" in capsys.readouterr().err


@pytest.mark.parametrize(("gates", "placed"), [({}, 0), ({"DisableDefaultQuota": True}, 1)])
def test_a_gate_of_the_file_decides_who_is_governed(
    gates: dict[str, bool], placed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod without a label counts in the default quota, whose max is below what it asks, or nowhere."""
    args = {"enableRuntimeQuota": False, "defaultQuotaGroupMax": {"cpu": "2"}}
    profile = {**WITH_QUOTA, "pluginConfig": [{"name": "ElasticQuota", "args": args}]}
    policy = written(tmp_path / "c.json", {**CONFIG, "featureGates": gates, "profiles": [profile]})
    dump = written(
        tmp_path / "d.json",
        node("n1", {"cpu": "100", "memory": "10Gi", "pods": "200"}),
        quota("team", 0, 10),
        pod("free", containers=[container(requests={"cpu": "4"})]),
    )
    main(["schedule", dump, "--policy", policy, "--all-schedulers", "-o", "json"])
    assert json.loads(capsys.readouterr().out)["stats"]["bound"] == placed


def test_gates_that_are_written_wrongly_are_refused_with_their_place(
    trees: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quota", trees, "--feature-gates", "MultiQuotaTree"]) == 2
    assert "--feature-gates: expected Name=true or Name=false" in capsys.readouterr().err
    wrong = written(tmp_path / "c.json", {**CONFIG, "featureGates": {"MultiQuotaTree": "yes"}})
    assert main(["quota", trees, "--policy", wrong]) == 2
    assert "featureGates.MultiQuotaTree: expected bool" in capsys.readouterr().err
    with pytest.raises(ModelError, match="feature_gates: MultiQuotaTree"):
        Policy(feature_gates={"MultiQuotaTree": "yes"})


def test_claims_are_allocated_under_a_configuration_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DynamicResources is among the stock plugins, so a file that says nothing of it has it."""
    policy = written(tmp_path / "c.json", {**CONFIG, "profiles": [{"schedulerName": "s"}]})
    main(["schedule", str(EXAMPLES / "claims.yaml"), "-o", "json"])
    expected = json.loads(capsys.readouterr().out)["stats"]
    main(["schedule", str(EXAMPLES / "claims.yaml"), "-o", "json", "--all-schedulers", "--policy", policy])
    assert json.loads(capsys.readouterr().out)["stats"] == expected


def test_gates_decide_arguments_in_python_and_survive_writing() -> None:
    policy = Policy(feature_gates={"MultiQuotaTree": True, "PodGroupPreemptionPolicy": True})
    setting = policy.plugin("ElasticQuota")
    assert setting is not None
    assert setting.args == QuotaPolicy(multi_quota_tree=True)
    assert policy.group_preemption is True
    again = Policy().with_plugin(
        PluginSetting(name="ElasticQuota", scores=False, args=QuotaPolicy(guarantee_usage=True))
    )
    raw = configuration_manifest(again)
    assert raw["featureGates"] == {"ElasticQuotaGuaranteeUsage": True}
    (read,) = policies_from_manifest(raw)
    assert read.plugin("ElasticQuota") == again.plugin("ElasticQuota")


NOISY = {
    **CONFIG,
    "leaderElection": {"leaderElect": True},
    "featureGates": {"ElasticQuotaIgnorePodOverhead": True, "Nonsense": True, "GangScheduling": True},
    "extenders": [{"urlPrefix": "http://x"}],
    "profiles": [
        {
            "schedulerName": "s",
            "plugins": {"multiPoint": {"enabled": [{"name": "ElasticQuota"}, {"name": "Mine"}]}},
            "pluginConfig": [
                {
                    "name": "ElasticQuota",
                    "args": {"hookPlugins": [{"key": "a", "factoryKey": "b"}], "monitorAllQuota": True},
                },
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "scoringStrategy": {
                            "type": "MostAllocated",
                            "resource": [],
                            "resources": [{"name": "cpu", "weigth": 3}],
                        }
                    },
                },
                {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 10}},
            ],
        }
    ],
}
FIT = "profiles[0].pluginConfig[1].args.scoringStrategy"
IDLE = {
    "leaderElection",
    "extenders",
    "featureGates.ElasticQuotaIgnorePodOverhead",
    "featureGates.Nonsense",
    "profiles[0].plugins.multiPoint.enabled[Mine]",
    "profiles[0].pluginConfig[0].args.hookPlugins",
    "profiles[0].pluginConfig[0].args.monitorAllQuota",
    f"{FIT}.resource",
    f"{FIT}.resources[0].weigth",
    "profiles[0].pluginConfig[2].args",
}


def test_whatever_has_no_effect_is_a_finding_and_one_line_of_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = written(tmp_path / "c.json", NOISY)
    dump = written(tmp_path / "d.json", node("n1", {"cpu": "4", "memory": "8Gi", "pods": "10"}))
    single = tmp_path / "single.json"
    single.write_text(json.dumps(NOISY))
    assert main(["policy", str(single), "-o", "json"]) == 1
    told = [one["message"] for one in json.loads(capsys.readouterr().out)]
    assert {one.partition(" has no effect: ")[0] for one in told if " has no effect: " in one} >= IDLE
    assert main(["schedule", dump, "--policy", policy]) == 0
    lines = [one for one in capsys.readouterr().err.splitlines() if "has no effect: " in one]
    assert len(lines) == 1
    assert all(path in lines[0] for path in IDLE)
    assert "GangScheduling" not in lines[0]  # it acts here as it is set


@pytest.mark.parametrize(
    "plugin",
    [
        "DeviceShare",
        "NodeNUMAResource",
        "Reservation",
        "ElasticQuota",
        "LoadAwareScheduling",
        "Coscheduling",
        "DynamicResources",
    ],
)
def test_the_lint_names_every_plugin_that_a_profile_lacks(
    plugin: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = {"multiPoint": {"disabled": [{"name": plugin}]}}
    having = {"multiPoint": {"enabled": [{"name": plugin}]}}
    found = []
    for plugins in (lacking, having):
        single = tmp_path / "single.json"
        single.write_text(json.dumps({**CONFIG, "profiles": [{"schedulerName": "s", "plugins": plugins}]}))
        main(["policy", str(single), "-o", "json"])
        listed = json.loads(capsys.readouterr().out)
        found.append([one for one in listed if one["plugin"] == plugin and "not enabled:" in one["message"]])
    assert [len(one) for one in found] == [1, 0]
