"""Configurations as an operator brings them: whole, in ConfigMaps, and every field of them used or named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from koordcore.cli.main import main
from tests.manifests.builders import container, node, obj, pod

Capture = pytest.CaptureFixture[str]
VERSION: Final = "kubescheduler.config.k8s.io/v1"
RAMP: Final = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
POOL: Final = {"matchExpressions": [{"key": "pool", "operator": "Exists"}]}
ARGS: Final[dict[str, dict[str, Any]]] = {
    "LoadAwareScheduling": {
        "filterExpiredNodeMetrics": True,
        "nodeMetricExpirationSeconds": 180,
        "enableScheduleWhenNodeMetricsExpired": True,
        "resourceWeights": {"cpu": 2, "memory": 1},
        "dominantResourceWeight": 1,
        "usageThresholds": {"cpu": 65, "memory": 95},
        "prodUsageThresholds": {"cpu": 55},
        "prodUsageIncludeSys": True,
        "scoreAccordingProdUsage": True,
        "estimator": "defaultEstimator",
        "estimatedScalingFactors": {"cpu": 80, "memory": 60},
        "estimatedSecondsAfterPodScheduled": 90,
        "estimatedSecondsAfterInitialized": 60,
        "allowCustomizeEstimation": True,
        "supportedResources": ["cpu", "memory"],
        "aggregated": {
            "usageThresholds": {"cpu": 60},
            "usageAggregationType": "p95",
            "usageAggregatedDuration": "5m",
            "scoreAggregationType": "p90",
            "scoreAggregatedDuration": "10m",
        },
    },
    "NodeNUMAResource": {
        "defaultCPUBindPolicy": "SpreadByPCPUs",
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 2}]},
        "numaScoringStrategy": {"type": "MostAllocated", "resources": [{"name": "memory", "weight": 7}]},
    },
    "Reservation": {
        "enablePreemption": True,
        "minCandidateNodesPercentage": 20,
        "minCandidateNodesAbsolute": 50,
        "controllerWorkers": 2,
        "gcDurationSeconds": 3600,
        "gcIntervalSeconds": 30,
        "disableGarbageCollection": True,
        "resyncIntervalSeconds": 30,
    },
    "ElasticQuota": {
        "delayEvictTime": "7m",
        "revokePodInterval": "3s",
        "defaultQuotaGroupMax": {"cpu": "100"},
        "systemQuotaGroupMax": {"cpu": "20"},
        "quotaGroupNamespace": "kube-sys",
        "monitorAllQuotas": True,
        "enableCheckParentQuota": True,
        "enableRuntimeQuota": False,
        "enableMinQuotaScale": False,
        "disableDefaultQuotaPreemption": False,
        "enableQueueHint": True,
        "quotaSnapshotUpdateInterval": "5s",
        "hookPlugins": [{"key": "k", "factoryKey": "f"}],
    },
    "Coscheduling": {
        "defaultTimeout": "120s",
        "defaultMatchPolicy": "waiting-and-running",
        "controllerWorkers": 3,
        "enablePreemption": True,
        "awareNetworkTopology": True,
        "skipCheckScheduleCycle": True,
    },
    "DeviceShare": {
        "allocator": "default",
        "scoringStrategy": {
            "type": "MostAllocated",
            "resources": [{"name": "koordinator.sh/rdma", "weight": 3}],
        },
        "disableDeviceNUMATopologyAlignment": True,
        "gpuSharedResourceTemplatesConfig": {
            "configMapNamespace": "here",
            "configMapName": "cards",
            "matchedResources": ["huawei.com/npu-cpu"],
        },
        "gpuShareUnsupportedModels": [{"vendor": "huawei", "model": "X"}],
    },
    "NodeResourcesFit": {
        "ignoredResources": ["example.com/foo"],
        "ignoredResourceGroups": ["example.org"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "cpu", "weight": 3}],
            "requestedToCapacityRatio": {"shape": RAMP},
        },
    },
    "NodeResourcesBalancedAllocation": {"resources": [{"name": "nvidia.com/gpu", "weight": 1}]},
    "PodTopologySpread": {
        "defaultConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "defaultingType": "List",
    },
    "InterPodAffinity": {"hardPodAffinityWeight": 7, "ignorePreferredTermsOfExistingPods": True},
    "NodeAffinity": {
        "addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [POOL]}}
    },
    "VolumeBinding": {"bindTimeoutSeconds": 300, "shape": RAMP},
    "DefaultPreemption": {"minCandidateNodesPercentage": 5, "minCandidateNodesAbsolute": 10},
    "DynamicResources": {"filterTimeout": "5s"},
    "NodeResourcesFitPlus": {"resources": {"nvidia.com/gpu": {"type": "MostAllocated", "weight": 2}}},
    "ScarceResourceAvoidance": {"resources": ["nvidia.com/gpu"]},
}
"""Every argument of the reference's documents, none at its default."""
KOORDINATORS: Final = (
    "LoadAwareScheduling",
    "NodeNUMAResource",
    "Reservation",
    "ElasticQuota",
    "Coscheduling",
    "DeviceShare",
)
COMPONENT: Final = {
    "parallelism": 32,
    "leaderElection": {"leaderElect": True, "resourceName": "koord-scheduler"},
    "clientConnection": {"qps": 50, "burst": 100},
    "healthzBindAddress": "0",
    "metricsBindAddress": "0",
    "enableProfiling": True,
    "delayCacheUntilActive": True,
    "podInitialBackoffSeconds": 2,
    "podMaxBackoffSeconds": 20,
    "extenders": [{"urlPrefix": "http://x", "filterVerb": "f", "weight": 1}],
}
WHOLE: Final = {
    "apiVersion": VERSION,
    "kind": "KubeSchedulerConfiguration",
    **COMPONENT,
    "percentageOfNodesToScore": 40,
    "profiles": [
        {
            "schedulerName": "koord-scheduler",
            "plugins": {
                "multiPoint": {"enabled": [{"name": name} for name in KOORDINATORS]},
                "score": {
                    "enabled": [
                        {"name": "NodeResourcesFitPlus", "weight": 2},
                        {"name": "ScarceResourceAvoidance", "weight": 3},
                    ]
                },
                "queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]},
                "permit": {"enabled": [{"name": "Coscheduling"}]},
            },
            "pluginConfig": [
                {"name": name, "args": {"apiVersion": VERSION, "kind": f"{name}Args", **args}}
                for name, args in ARGS.items()
            ],
        },
        {"schedulerName": "gpu", "plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}}},
    ],
}


def config_map(name: str, kind: dict[str, Any], *, as_json: bool = False) -> dict[str, Any]:
    text = json.dumps(kind) if as_json else yaml.safe_dump(kind)
    metadata = {"namespace": "koordinator-system"}
    return obj("ConfigMap", name, metadata=metadata, data={name: text})


def written(path: Path, *objects: Any) -> str:
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    return str(path)


def dump(tmp_path: Path, *more: Any) -> str:
    asking = [container(requests={"cpu": "1"})]
    pods = [
        pod(name, containers=asking, schedulerName=scheduler)
        for name, scheduler in (("a", "koord-scheduler"), ("b", "gpu"))
    ]
    labelled = node("n1", metadata={"labels": {"pool": "x"}})
    return written(tmp_path / "dump.yaml", labelled, *pods, *more)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_configuration_is_read_out_of_its_config_map(
    as_json: bool, tmp_path: Path, capsys: Capture
) -> None:
    cluster = dump(tmp_path)
    policy = written(tmp_path / "map.yaml", config_map("koord-scheduler-config", WHOLE, as_json=as_json))
    assert main(["schedule", cluster, "--policy", policy, "-o", "json", "-q"]) == 0
    assert {one["pod"] for one in json.loads(capsys.readouterr().out)["decisions"]} == {
        "default/a",
        "default/b",
    }
    assert main(["policy", policy]) == 1
    assert "gpu: 40 % of the nodes" in capsys.readouterr().out
    other = written(tmp_path / "other.yaml", config_map("other", {"kind": "Other"}))
    assert main(["policy", other]) == 2
    assert "no text in its data is a KubeSchedulerConfiguration" in capsys.readouterr().err


@pytest.mark.parametrize("in_a_map", [False, True])
def test_a_configuration_among_the_objects_of_a_dump_is_named(
    in_a_map: bool, tmp_path: Path, capsys: Capture
) -> None:
    told = config_map("koord-scheduler-config", WHOLE) if in_a_map else WHOLE
    cluster = dump(tmp_path, told)
    main(["schedule", cluster])
    name = "ConfigMap koordinator-system/koord-scheduler-config" if in_a_map else "KubeSchedulerConfiguration"
    line = f"not looked at: {name} of the dump (--policy decides by one)"
    assert line in capsys.readouterr().err.splitlines()
    main(["schedule", cluster, "--policy", "stock"])
    assert line not in capsys.readouterr().err


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in leaves(one, (*path, key))]
    return [path]


def test_every_argument_is_part_of_the_policy_or_named_as_unused(tmp_path: Path, capsys: Capture) -> None:
    policy = written(tmp_path / "config.yaml", WHOLE)
    assert main(["policy", policy, "-o", "config"]) == 0
    first = json.loads(capsys.readouterr().out)["profiles"][0]
    used = {one["name"]: one["args"] for one in first["pluginConfig"]}
    assert main(["policy", policy, "-o", "json"]) == 1
    found = [one["message"] for one in json.loads(capsys.readouterr().out)]
    unused = {one.partition(" has no effect: ")[0] for one in found if " has no effect: " in one}
    assert COMPONENT.keys() <= unused
    assert "profiles[0].plugins.{queueSort, permit}" in unused
    for number, (name, args) in enumerate(ARGS.items()):
        place = f"profiles[0].pluginConfig[{number}].args"
        for path in leaves(args):
            named = any(".".join((place, *path)).startswith(one) for one in unused)
            value: Any = used.get(name, {})
            wanted: Any = args
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
                wanted = wanted[key]
            same = value is not None and (value == wanted or isinstance(wanted, str))
            assert named or same, (name, path, value)


def test_schedule_names_all_of_them_whole(tmp_path: Path, capsys: Capture) -> None:
    policy = written(tmp_path / "config.yaml", WHOLE)
    main(["policy", policy, "-o", "json"])
    found = [one["message"] for one in json.loads(capsys.readouterr().out)]
    unused = [one.partition(" has no effect: ")[0] for one in found if " has no effect: " in one]
    main(["schedule", dump(tmp_path), "--policy", policy])
    told = "\n".join(one for one in capsys.readouterr().err.splitlines() if "has no effect: " in one)
    of_settings = [one for one in unused if "." in one or one in COMPONENT]
    assert len(of_settings) > 25
    assert [one for one in of_settings if one not in told] == []


def test_the_lint_says_what_spread_cards_cost(tmp_path: Path, capsys: Capture) -> None:
    main(["policy", "koordinator", "-o", "json"])
    found = {one["plugin"]: one["message"] for one in json.loads(capsys.readouterr().out)}
    assert "LeastAllocated: cards are spread" in found["DeviceShare"]
    fit = {"scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "amd.com/gpu", "weight": 1}]}}
    profile = {"pluginConfig": [{"name": "NodeResourcesFit", "args": fit}]}
    policy = written(
        tmp_path / "fit.yaml",
        {"apiVersion": VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]},
    )
    main(["policy", policy])
    assert "LeastAllocated of amd.com/gpu: cards are spread" in " ".join(capsys.readouterr().out.split())


COOLING: Final = {
    "highThresholds": {"cpu": 65},
    "lowThresholds": {"cpu": 40},
    "numberOfNodes": 1,
}
MIGRATING: Final = {"maxMigratingPerNode": 1, "evictQPS": "10"}
DESCHEDULER: Final = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerConfiguration",
    "deschedulingInterval": "120s",
    "nodeSelector": {},
    "maxNoOfPodsToEvictTotal": 2,
    "profiles": [
        {
            "name": "koord-descheduler",
            "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
            "pluginConfig": [
                {"name": "MigrationController", "args": {"kind": "MigrationControllerArgs", **MIGRATING}},
                {"name": "LowNodeLoad", "args": {"kind": "LowNodeLoadArgs", **COOLING}},
                {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 5}},
            ],
        }
    ],
}


def hot_cluster(tmp_path: Path, *more: Any) -> str:
    """Six replicas of two cores on the hot one of two nodes, of which two may be away."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    pods = [
        pod(
            f"w{number}",
            metadata={"ownerReferences": [owner], "labels": {"app": "web"}},
            containers=[container(requests={"cpu": "2", "memory": "1Gi"})],
            nodeName="hot",
            status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        )
        for number in range(6)
    ]
    replicas = {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}}
    return written(
        tmp_path / "hot.yaml",
        *(node(name, {"cpu": "16", "memory": "64Gi", "pods": "99"}) for name in ("cold", "hot")),
        obj("ReplicaSet", "web", "apps/v1", spec=replicas),
        *pods,
        *(usage(name, cpu, pods if name == "hot" else []) for name, cpu in (("cold", "1"), ("hot", "15"))),
        *more,
    )


def usage(name: str, cpu: str, pods: list[Any]) -> dict[str, Any]:
    each = {"resources": {"cpu": "2500m", "memory": "1Gi"}}
    return obj(
        "NodeMetric",
        name,
        "slo.koordinator.sh/v1alpha1",
        status={
            "updateTime": "2026-02-01T00:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "8Gi"}}},
            "podsMetric": [
                {"namespace": "default", "name": one["metadata"]["name"], "podUsage": each} for one in pods
            ],
        },
    )


def waves(capsys: Capture) -> list[int]:
    return [one["arrives"] for one in json.loads(capsys.readouterr().out)["moves"]]


@pytest.mark.parametrize(
    "told", [DESCHEDULER, config_map("koord-descheduler-config", DESCHEDULER)], ids=["whole", "map"]
)
def test_the_configuration_of_the_descheduler_is_read_whole(
    told: Any, tmp_path: Path, capsys: Capture
) -> None:
    cluster, given = hot_cluster(tmp_path), written(tmp_path / "given.yaml", told)
    assert main(["rebalance", cluster, "--args", given, "-o", "json", "-q"]) == 0
    assert waves(capsys) == [0, 1]  # one at a time from a node, as its MigrationController has it
    main(["rebalance", cluster, "--args", given])
    assert (
        "DeschedulerConfiguration: has no effect: deschedulingInterval, profiles[0].plugins, "
        "profiles[0].pluginConfig[PodLifeTime]"
    ) in capsys.readouterr().err
    main(["rebalance", cluster, "--high", "cpu=65", "--migration", given, "-o", "json", "-q"])
    assert waves(capsys) == [0, 1]


def test_arguments_of_one_plugin_are_read_as_yaml_too(tmp_path: Path, capsys: Capture) -> None:
    cluster = hot_cluster(tmp_path)
    own = written(tmp_path / "own.yaml", {"kind": "LowNodeLoadArgs", **COOLING})
    assert main(["rebalance", cluster, "--args", own, "-o", "json", "-q"]) == 0
    assert waves(capsys) == [0, 0]
    for text, said in (
        ("kind: MigrationControllerArgs", "expected LowNodeLoadArgs or a DeschedulerConfiguration"),
        ("kind: DeschedulerConfiguration", "no profile has arguments of LowNodeLoad"),
        ("a: [", "own.yaml: "),
    ):
        Path(own).write_text(text, encoding="utf-8")
        assert main(["rebalance", cluster, "--args", own]) == 2
        assert said in capsys.readouterr().err


PLUGINS = ("LowNodeLoad", "MigrationController")


@pytest.mark.parametrize("option", ["--args", "--migration"])
@pytest.mark.parametrize(
    ("profiles", "told"),
    [
        *(
            (
                [{"pluginConfig": [{"name": name, "args": args} for name in PLUGINS]}],
                f".args: expected object, {got}",
            )
            for args, got in (
                (-1, "got -1"),
                ("x", 'got "x"'),
                ([1], "got [1]"),
                (True, "got true"),
                (0, "got 0"),
            )
        ),
        ([{"pluginConfig": {"name": "MigrationController"}}], ": expected list, got {"),
        ([{"pluginConfig": ["MigrationController"]}], '[0]: expected object, got "MigrationController"'),
        ({"pluginConfig": []}, "profiles: expected list, got {"),
        (["default"], 'profiles[0]: expected object, got "default"'),
    ],
)
def test_a_configuration_that_is_built_wrongly_is_named(
    option: str, profiles: Any, told: str, tmp_path: Path, capsys: Capture
) -> None:
    given = written(tmp_path / "given.yaml", {"kind": "DeschedulerConfiguration", "profiles": profiles})
    assert main(["rebalance", hot_cluster(tmp_path), option, given]) == 2
    error = capsys.readouterr().err
    assert f"{option}: {given}: profiles" in error
    assert told in error


def test_a_descheduler_among_the_objects_of_a_dump_is_named(tmp_path: Path, capsys: Capture) -> None:
    main(["rebalance", hot_cluster(tmp_path, DESCHEDULER), "--high", "cpu=60"])
    told = "not looked at: DeschedulerConfiguration of the dump (--args decides by one)"
    assert told in capsys.readouterr().err.splitlines()
