"""What a policy leaves out is named; ages count by the moment that is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore import Policy, schedule
from koordcore.cli import main
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model.policy import PluginSetting
from koordcore.model.preemption import PreemptionRules
from tests.manifests.builders import container, node, pod

CONFIG = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
FITS: dict[str, Any] = {
    **CONFIG,
    "profiles": [
        {
            "schedulerName": "lean",
            "plugins": {
                "multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]},
            },
        }
    ],
}
BIG = {"cpu": "8", "memory": "8Gi", "pods": "10"}


def reservation(name: str, cpu: int, node_name: str = "", **meta: str) -> dict[str, Any]:
    status = {"phase": "Available", "nodeName": node_name, "allocatable": {"cpu": str(cpu)}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": f"uid-{name}", **meta},
        "spec": {
            "ttl": "1h",
            "template": {"spec": {"containers": [container(requests={"cpu": str(cpu)})]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "o"}}}],
        },
        **({"status": status} if node_name else {}),
    }


def quota(name: str, tree: str = "") -> dict[str, Any]:
    labels = {"quota.scheduling.koordinator.sh/tree-id": tree} if tree else {}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "q", "labels": labels},
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "2"}},
    }


def metric(name: str, updated: str, cpu: str) -> dict[str, Any]:
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        "status": {
            "updateTime": updated,
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}},
                "systemUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}},
            },
        },
    }


CLUSTER = [
    {**node("n1", BIG), "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}], "unschedulable": True}},
    reservation("held", 8, "n1", creationTimestamp="2026-01-01T00:00:00Z"),
    quota("a"),
    quota("b"),
    metric("n1", "2026-01-01T00:00:00Z", "1"),
    pod(
        "p",
        metadata={
            "annotations": {
                "scheduling.koordinator.sh/device-allocate-hint": "{}",
                "scheduling.koordinator.sh/resource-spec": '{"preferredCPUBindPolicy":"FullPCPUs"}',
                "scheduling.koordinator.sh/network-topology-selector": "a=b",
            }
        },
        containers=[container(requests={"cpu": "1", "koordinator.sh/rdma": "0"})],
    ),
]
LEFT = [
    "1 Reservation (the profile lean has no Reservation)",
    "2 ElasticQuotas (the profile lean has no ElasticQuota)",
    "1 NodeMetric (the profile lean has no LoadAwareScheduling)",
    "1 pod with requests for devices (the profile lean has no DeviceShare)",
    "1 pod with device hints (the profile lean has no DeviceShare)",
    "1 pod with CPU or NUMA specs (the profile lean has no NodeNUMAResource)",
    "1 pod with a network topology selector (the profile lean has no Coscheduling)",
    "1 node cordoned (the profile lean has no NodeUnschedulable)",
    "1 node tainted (the profile lean has no TaintToleration)",
]


def written(path: Path, *objects: Any) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)


def test_what_a_profile_lacks_is_named_on_standard_error_and_in_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump, policy = written(tmp_path / "d.json", *CLUSTER), written(tmp_path / "c.json", FITS)
    assert main(["schedule", dump, "--policy", policy, "-o", "json"]) == 0
    out = capsys.readouterr()
    lines = [one.removeprefix("not looked at: ") for one in out.err.splitlines() if "not looked at" in one]
    assert lines == LEFT
    record = json.loads(out.out)["notLookedAt"]
    assert record[1] == {
        "what": "ElasticQuotas",
        "count": 2,
        "why": "the profile lean has no ElasticQuota",
    }
    plan = tmp_path / "plan.json"
    plan.write_text(out.out)
    assert main(["verify", dump, "--plan", str(plan), "--policy", policy]) == 0
    assert "not looked at: 2 ElasticQuotas" in capsys.readouterr().err
    main(["schedule", dump, "--policy", policy, "-q"])
    assert "not looked at" not in capsys.readouterr().err


def test_who_wants_quiet_hears_no_warning_of_the_policy_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = {"schedulerName": "s", "plugins": {"multiPoint": {"enabled": [{"name": "Nobody"}]}}}
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    policy = written(tmp_path / "c.json", kind | {"profiles": [profile]})
    dump = written(tmp_path / "d.json", *CLUSTER)
    words = ["--policy", policy, "--feature-gates", "Nothing=true"]
    for verb in (["schedule", dump, *words], ["quota", dump, *words], ["compare", dump, "--policy", policy]):
        main(verb)
        assert "warning: " in capsys.readouterr().err
        main([*verb, "-q"])
        assert capsys.readouterr().err == ""


def test_the_result_says_it_in_python_and_a_full_policy_leaves_nothing_out() -> None:
    snapshot = snapshot_from_objects(CLUSTER).snapshot
    (lean,) = policies_from_manifest(FITS)
    assert [str(one) for one in schedule(snapshot, policy=lean).not_looked_at] == LEFT
    # The default has all of these but measured load and nearness.
    assert [one.why for one in schedule(snapshot).not_looked_at] == [
        "the profile default-scheduler has no LoadAwareScheduling",
        "the profile default-scheduler has no Coscheduling",
    ]
    quotas = snapshot_from_objects([node("n1", BIG), quota("a", "t"), quota("b", "t")]).snapshot
    assert [str(one) for one in schedule(quotas).not_looked_at] == [
        "2 tree ids of ElasticQuotas (the feature gate MultiQuotaTree is off)"
    ]
    assert schedule(quotas, policy=Policy(feature_gates={"MultiQuotaTree": True})).not_looked_at == ()


@pytest.mark.parametrize("plugin", ["Coscheduling", "Reservation"])
def test_preemption_that_a_configuration_asks_for_and_a_call_does_not_is_named(plugin: str) -> None:
    profile = {
        "plugins": {"multiPoint": {"enabled": [{"name": plugin}]}},
        "pluginConfig": [{"name": plugin, "args": {"enablePreemption": True}}],
    }
    (policy,) = policies_from_manifest({"profiles": [profile]})
    snapshot = snapshot_from_objects([node("n1", BIG)]).snapshot
    (told,) = schedule(snapshot, policy=policy).not_looked_at
    assert told.what == f"enablePreemption of {plugin}"
    assert schedule(snapshot, policy=policy, preempt=PreemptionRules()).not_looked_at == ()


def placed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    main([*words, "-o", "json"])
    decisions = json.loads(capsys.readouterr().out)["decisions"]
    return {one["pod"]: one["node"] for one in decisions if one["decision"] == "Bound"}


def test_reservations_end_at_the_moment_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = written(
        tmp_path / "d.json",
        node("n1", BIG),
        reservation("held", 8, "n1", creationTimestamp="2026-01-01T00:00:00Z"),
        reservation("undated", 0, "n1"),
        pod("p", containers=[container(requests={"cpu": "1"})]),
    )
    assert placed(capsys, "schedule", dump, "--now", "2026-01-01T00:30:00Z") == {}
    assert placed(capsys, "schedule", dump, "--now", "2026-01-01T02:00:00Z") == {"default/p": "n1"}
    main(["schedule", dump, "--now", "2026-01-01T02:00:00Z"])
    assert capsys.readouterr().err == "warning: --now: no longer available: reservation held\n"
    assert main(["explain", "p", dump, "--now", "2026-01-01T00:30:00Z"]) == 1
    assert main(["explain", "p", dump, "--now", "2026-01-01T02:00:00Z"]) == 0
    capsys.readouterr()
    main(["compare", dump, "--now", "2026-01-01T02:00:00Z", "-o", "json"])
    assert "held" in capsys.readouterr().err
    assert main(["schedule", dump, "--now", "yesterday"]) == 2
    assert "--now: expected an RFC 3339 time" in capsys.readouterr().err


def test_metrics_grow_stale_with_the_moment_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loaded node is refused while its report is fresh; once all reports are stale nobody can say."""
    args = {"usageThresholds": {"cpu": 50}, "enableScheduleWhenNodeMetricsExpired": True}
    profile = {
        "plugins": {"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
        "pluginConfig": [{"name": "LoadAwareScheduling", "args": args}],
    }
    policy = written(tmp_path / "c.json", {**CONFIG, "profiles": [profile]})
    dump = written(
        tmp_path / "d.json",
        node("n1", BIG),
        metric("n1", "2026-01-01T00:00:00Z", "7"),
        pod("p", containers=[container(requests={"cpu": "100m"})]),
    )
    words = ("schedule", dump, "--policy", policy)
    assert placed(capsys, *words) == {}
    assert placed(capsys, *words, "--now", "2026-01-01T00:02:00Z") == {}
    assert placed(capsys, *words, "--now", "2026-01-01T01:00:00Z") == {"default/p": "n1"}
    cool = written(tmp_path / "cool.json", node("n2", BIG), metric("n2", "2026-01-01T00:00:00Z", "1"))
    hot = ("rebalance", dump, cool, "--high", "cpu=50", "-o", "json")
    main([*hot])
    assert json.loads(capsys.readouterr().out)["hotBefore"] == ["n1"]
    main([*hot, "--now", "2026-01-01T01:00:00Z"])
    assert json.loads(capsys.readouterr().out)["hotBefore"] == []


def test_a_pending_reservation_stands_in_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = written(tmp_path / "d.json", node("n1", BIG), reservation("want", 6), reservation("more", 6))
    assert main(["schedule", dump]) == 1
    out = capsys.readouterr().out
    assert "reservation/more" in out.partition("Not placed")[0]
    assert "reservation/want" in out.partition("Not placed")[2]


OWN_FILTERS = (
    "NodeResourcesFit",
    "NodeAffinity",
    "InterPodAffinity",
    "PodTopologySpread",
    "NodePorts",
    "VolumeBinding",
    "NodeUnschedulable",
    "TaintToleration",
)


def neighbours(required: bool) -> dict[str, Any]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    if required:
        return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}


@pytest.mark.parametrize("hard", [True, False])
def test_filters_of_kubernetes_that_only_score_are_named(hard: bool) -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    asking = pod(
        "p",
        containers=[container(requests={"cpu": "100"})],
        nodeSelector={"no": "such"},
        affinity={"podAntiAffinity": neighbours(hard)},
        topologySpreadConstraints=[spread],
    )
    off = [{"name": name} for name in OWN_FILTERS]
    config = {**CONFIG, "profiles": [{"schedulerName": "lean", "plugins": {"filter": {"disabled": off}}}]}
    (policy,) = policies_from_manifest(config)
    snapshot = snapshot_from_objects(
        [CLUSTER[0], {**asking, "spec": {**asking["spec"], "schedulerName": "lean"}}]
    )
    result = schedule(snapshot.snapshot, policy=policy)
    assert len(result.bound) == 1
    told = {str(one) for one in result.not_looked_at}
    assert {
        "1 pod with requests (the profile lean has NodeResourcesFit for its score alone)",
        "1 pod with a choice of nodes by labels (the profile lean has NodeAffinity for its score alone)",
        "1 node cordoned (the profile lean has no NodeUnschedulable)",
        "1 node tainted (the profile lean has TaintToleration for its score alone)",
    } <= told
    for what, plugin in (("pod affinity", "InterPodAffinity"), ("spread constraints", "PodTopologySpread")):
        line = f"1 pod with {what} (the profile lean has {plugin} for its score alone)"
        assert (line in told) == hard


def test_a_policy_of_cards_counts_what_nodes_have() -> None:
    policy = Policy(plugins=(PluginSetting(name="GpuShare"),))
    snapshot = snapshot_from_objects(
        [node("n1", BIG), pod("p", containers=[container(requests={"cpu": "1"})])]
    )
    assert schedule(snapshot.snapshot, policy=policy).not_looked_at == ()


@pytest.mark.parametrize("asked", [True, False])
def test_verify_says_that_it_does_not_look_at_the_age_of_what_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: bool
) -> None:
    objects = [node("n1", BIG), metric("n1", "2026-03-01T12:00:00Z", "7"), pod("p")]
    dump, plan = tmp_path / "dump.json", tmp_path / "plan.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    policy = ["--policy", "koordinator" if asked else "stock"]
    main(["schedule", str(dump), *policy, "-o", "json"])
    plan.write_text(capsys.readouterr().out)
    assert main(["verify", str(dump), "--plan", str(plan), *policy]) == 0
    told = "not looked at: how old NodeMetrics were, for LoadAwareScheduling (give --now)\n"
    assert (told in capsys.readouterr().err) is asked
    now = ["--now", "2026-03-01T12:00:10Z"]
    assert main(["verify", str(dump), "--plan", str(plan), *policy, *now]) == 0
    assert told not in capsys.readouterr().err


def test_verify_names_a_pod_on_a_node_that_was_too_busy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan was made by a policy that does not look at load."""
    objects = [node("n1", BIG), metric("n1", "2026-03-01T12:00:00Z", "7"), pod("p")]
    dump, plan = tmp_path / "dump.json", tmp_path / "plan.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    main(["schedule", str(dump), "-o", "json"])
    plan.write_text(capsys.readouterr().out)
    configuration = tmp_path / "configuration.json"
    args = {"usageThresholds": {"cpu": 50}}
    profile = {
        "plugins": {"filter": {"enabled": [{"name": "LoadAwareScheduling"}]}},
        "pluginConfig": [{"name": "LoadAwareScheduling", "args": args}],
    }
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    configuration.write_text(json.dumps({**kind, "profiles": [profile]}))
    words = ["verify", str(dump), "--plan", str(plan), "--policy", str(configuration)]
    assert main(words) == 1
    assert "load" in capsys.readouterr().out
