"""Each manifest that users copy from release notes does what its first comment says."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordcore import PreemptionRules, ScheduleResult, Unschedulable, Waiting, schedule, verify
from koordcore.cli.main import main
from koordcore.manifests import patches, snapshot_from_objects
from koordcore.manifests.scheduler_config import policies_from_manifest
from tests.conformance.__main__ import SHARED

EXAMPLES = SHARED.parent / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the example manifests are not here")
Object = dict[str, Any]


def example(name: str) -> list[Object]:
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    return [one for one in yaml.safe_load_all(text) if one]


def node(name: str, labels: Mapping[str, str] | None = None, /, **amounts: str) -> Object:
    there = {"cpu": "96", "memory": "1Ti", "pods": "110", **amounts}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": there},
    }


def pod(name: str, asks: Mapping[str, str], on: str = "", **meta: Any) -> Object:
    spec: Object = {"containers": [{"name": "c", "resources": {"requests": asks, "limits": asks}}]}
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": spec}


def cards(number: int, numa: Mapping[int, int] | None = None, **spec: Any) -> list[Object]:
    """A Device with so many whole cards of ``device_h20``; two per PCIe switch, four per NUMA node."""
    (device,) = example("device_h20")
    (first,) = device["spec"]["devices"]
    device["spec"]["devices"] = [
        {
            **copy.deepcopy(first),
            "minor": minor,
            "id": f"GPU-{minor}",
            "topology": {
                "busID": f"0000:{minor:02}:00.0",
                "nodeID": (numa or {}).get(minor, minor // 4),
                "pcieID": f"pci{minor // 2}",
            },
        }
        for minor in range(number)
    ]
    return [device, node("worker01", **spec)]


def decide(objects: list[Object], **asked: Any) -> ScheduleResult:
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot, **asked)
    assert verify(snapshot, result) == ()
    return result


def bound(result: ScheduleResult) -> dict[str, str]:
    return {one.pod.name: one.node for one in result.bound}


def why(result: ScheduleResult, name: str) -> str:
    (found,) = [one for one in result.decisions if one.pod.name == name]
    assert isinstance(found, Unschedulable), found
    return found.message


def minors(result: ScheduleResult, name: str, kind: str = "gpu") -> list[int]:
    (found,) = [one for one in result.bound if one.pod.name == name]
    text = found.annotations["scheduling.koordinator.sh/device-allocated"]
    return sorted(one["minor"] for one in yaml.safe_load(text)[kind])


def test_ascend_npu_is_a_partition_of_four() -> None:
    (device,) = example("ascend_npu")
    (first,) = device["spec"]["devices"]
    for minor in range(1, 8):
        more = copy.deepcopy(first) | {"minor": minor, "id": f"NPU-{minor}"}
        device["spec"]["devices"].append(more)
    four = {"koordinator.sh/gpu-memory-ratio": "400", "huawei.com/npu-core": "80"}
    honor = node("node-1", {"node.koordinator.sh/gpu-partition-policy": "Honor"})
    result = decide([device, honor, pod("a", four), pod("b", four)])
    assert minors(result, "a") == [0, 1, 2, 3]
    assert "b" not in bound(result)  # the other four are no partition


def test_cambricon_mlu_gets_its_profile() -> None:
    device, _ = cards(1)
    device["metadata"]["labels"]["node.koordinator.sh/gpu-vendor"] = "cambricon"
    vendor = {"node.koordinator.sh/gpu-vendor": "cambricon"}
    mlu = {"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "400"}
    result = decide([device, node("worker01", vendor, **mlu), *example("cambricon_mlu")])
    calls = patches(result, bound_at=datetime(2026, 11, 1, tzinfo=UTC))
    (written,) = [one for one in calls if one.path.endswith("/test-cambricon-partial")]
    assert written.body["metadata"]["annotations"]["CAMBRICON_DSMLU_PROFILE"] == "0_10_4"


def test_device_h20_serves_a_card() -> None:
    result = decide([*example("device_h20"), node("worker01"), pod("p", {"koordinator.sh/gpu": "100"})])
    assert minors(result, "p") == [0]


def test_the_child_of_elastic_quota_is_charged() -> None:
    parent, child, demo = example("elastic_quota")
    quota = {"quota.scheduling.koordinator.sh/name": "childA1"}
    others = [pod(f"w-{n}", {"cpu": "12"}, labels=quota) for n in range(3)]
    result = decide([node("n", cpu="96"), parent, child, demo, *others])
    assert len(result.bound) == 4  # 4 + 3 * 12 is the max of 40
    result = decide([node("n", cpu="96"), parent, child, demo, *others, pod("x", {"cpu": "1"}, labels=quota)])
    assert "childA1" in why(result, "x")


def test_gang_by_annotation_needs_all_five() -> None:
    (first,) = example("gang_by_annotation")
    members = []
    for number in range(5):
        member = copy.deepcopy(first)
        member["metadata"]["name"] = f"demo-pod-{number}"
        members.append(member)
    assert not decide([node("n"), *members[:4]]).bound
    assert len(decide([node("n"), *members]).bound) == 5
    assert not decide([node("n", pods="4"), *members]).bound


def test_gang_groups_start_together() -> None:
    groups = example("gang_groups")
    sizes = {"podGroupA": ("namespaceA", 2), "podGroupB": ("namespaceB", 3)}
    label = "pod-group.scheduling.sigs.k8s.io"
    pods = [
        pod(f"{name.lower()}-{number}", {"cpu": "1"}, namespace=space, labels={label: name})
        for name, (space, size) in sizes.items()
        for number in range(size)
    ]
    assert len(decide([node("n"), *groups, *pods]).bound) == 5
    short = decide([node("n"), *groups, *pods[:-1]])
    assert not short.bound
    few = decide([node("n", pods="4"), *groups, *pods])
    assert not few.bound  # NonStrict members may keep places, but nobody starts
    assert all(isinstance(one, Waiting | Unschedulable) for one in few.decisions)


def test_under_honor_the_empty_sizes_of_gpu_partition_refuse() -> None:
    device, hello = example("gpu_partition")
    table = device["metadata"]["annotations"]
    labels = device["metadata"]["labels"]
    full, _ = cards(8)
    full["metadata"] = {**full["metadata"], "name": "node-1", "annotations": table}
    full["metadata"]["labels"] |= labels
    two = copy.deepcopy(hello)
    two["metadata"]["name"] = "two"
    two["spec"]["containers"][0]["resources"] = {"limits": {"koordinator.sh/gpu": 200}}
    result = decide([full, node("node-1", labels), hello, two])
    assert minors(result, "hello-gpu") == [0]
    assert "two" not in bound(result)


def test_gpu_rdma_joint_gives_both_of_one_switch() -> None:
    device, worker = cards(2)
    for minor in range(2):
        functions = [{"busID": f"0000:1{minor}:00.{n}", "minor": n} for n in range(2)]
        device["spec"]["devices"].append(
            {
                "type": "rdma",
                "minor": minor,
                "health": True,
                "id": f"0000:1{minor}:00.0",
                "resources": {"koordinator.sh/rdma": "100"},
                "topology": {"busID": f"0000:1{minor}:00.0", "nodeID": 0, "pcieID": f"pci{minor}"},
                "vfGroups": [{"labels": {"type": "general"}, "vfs": functions}],
            }
        )
    device["spec"]["devices"][1]["topology"]["pcieID"] = "pci1"
    taken = pod("busy", {"koordinator.sh/gpu": "100"})
    result = decide([device, worker, *example("gpu_rdma_joint"), taken])
    assert minors(result, "pod-vf01") == minors(result, "pod-vf01", "rdma")


def test_hami_shares_go_to_labelled_nodes_alone() -> None:
    device, plain = cards(1)
    result = decide([device, plain, *example("gpu_share_hami")])
    assert not result.bound
    labelled = node("worker01", {"koordinator.sh/gpu-isolation-provider": "HAMi-core"})
    (half,) = example("gpu_share_hami")
    other = copy.deepcopy(half)
    other["metadata"]["name"] = "other"
    third = copy.deepcopy(half)
    third["metadata"]["name"] = "third"
    result = decide([device, labelled, half, other, third])
    assert minors(result, "pod-example") == minors(result, "other") == [0]
    assert "third" not in bound(result)


def test_gpu_topology_scopes_bind() -> None:
    same_pcie, same_numa = example("gpu_topology_scope")
    result = decide([*cards(8), same_pcie, same_numa])
    pair, four = minors(result, "same-pcie"), minors(result, "same-numa")
    assert pair[0] // 2 == pair[1] // 2
    assert len({minor // 4 for minor in four}) == 1
    busy = [pod(f"busy-{n}", {"koordinator.sh/gpu": "100"}, on="worker01") for n in range(2)]
    for minor, one in zip((0, 4), busy, strict=True):
        amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
        text = yaml.safe_dump({"gpu": [{"minor": minor, "resources": amounts}]}, default_flow_style=True)
        one["metadata"]["annotations"] = {
            "scheduling.koordinator.sh/device-allocated": json.dumps(yaml.safe_load(text))
        }
    result = decide([*cards(8), *busy, same_numa])
    assert not result.bound  # three and three are free


def test_gpu_v07_names_share_by_memory() -> None:
    full, half = example("gpu_v07")

    def on_card(memory: str) -> list[Object]:
        device, worker = cards(1)
        device["spec"]["devices"][0]["resources"]["koordinator.sh/gpu-memory"] = memory
        return [device, worker]

    assert set(bound(decide([*on_card("8Gi"), full, half]))) == {"full"}
    again = copy.deepcopy(half)
    again["metadata"]["name"] = "half-2"
    result = decide([*on_card("16Gi"), half, again])
    assert set(bound(result)) == {"half", "half-2"}


def test_the_gang_of_job_preemption_evicts_only_where_both_fit() -> None:
    objects = example("job_preemption")
    low = [pod(f"low-{n}", {"cpu": "3"}, on=f"n{n}") for n in range(2)]
    for one in low:
        one["spec"]["priorityClassName"] = "low-priority"
    rules = PreemptionRules()
    one_node = decide([node("n0", cpu="4"), low[0], *objects], preempt=rules)
    assert not one_node.preemptions
    both = decide([node("n0", cpu="4"), node("n1", cpu="4"), *low, *objects], preempt=rules)
    (plan,) = both.preemptions
    assert sorted(victim.pod.name for victim in plan.victims) == ["low-0", "low-1"]


def test_the_job_of_network_topology_lies_in_one_block() -> None:
    first, *others = example("network_topology")
    nodes = []
    for number, block in enumerate(["b1"] * 3 + ["b2"] * 4 + ["b3"] * 2):
        one = copy.deepcopy(first)
        one["metadata"] = {
            "name": f"node-{number}",
            "labels": {**first["metadata"]["labels"], "network.topology.nvidia.com/block": block},
        }
        one["status"] = {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"}}
        nodes.append(one)
    label = {"pod-group.scheduling.sigs.k8s.io": "training-job"}
    pods = [pod(f"w-{n}", {"cpu": "1"}, labels=label) for n in range(8)]
    placed = set(bound(decide([*nodes, *others, *pods])).values())
    assert placed == {"node-3", "node-4", "node-5", "node-6"}
    assert len(decide([*nodes[:3], *nodes[7:], *others, *pods]).bound) == 8  # if possible


def test_numa_restricted_takes_all_from_one_numa_node() -> None:
    (asks,) = example("numa_restricted")
    device, _ = cards(8)
    zones = [
        {
            "name": f"node-{zone}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": "64", "allocatable": "64", "available": "64"},
                {"name": "memory", "capacity": "512Gi", "allocatable": "512Gi", "available": "512Gi"},
            ],
        }
        for zone in range(2)
    ]
    detail = [{"id": n, "core": n // 2, "socket": n // 64, "node": n // 64} for n in range(128)]
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "worker01",
            "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
        },
        "zones": zones,
    }
    again = copy.deepcopy(asks)
    again["metadata"]["name"] = "again"
    result = decide([device, node("worker01", cpu="128", memory="1Ti"), topology, asks, again])
    first, second = minors(result, "numa-pod"), minors(result, "again")
    assert len({minor // 4 for minor in first}) == len({minor // 4 for minor in second}) == 1
    assert first[0] // 4 != second[0] // 4  # 64 CPUs of one NUMA node each


def test_pod_qos_is_written_for_the_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its ways of the cache and its bandwidth; its identity where node and label let it have one."""
    (asks,) = example("pod_qos")
    detail = [{"id": cpu, "core": cpu, "socket": cpu // 4, "node": cpu // 4} for cpu in range(8)]
    hardware = {
        "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
        "node.koordinator.sh/cpu-basic-info": json.dumps({"catL3CbmMask": "fff", "vendorID": "GenuineIntel"}),
    }
    topology = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n", "annotations": hardware},
        "zones": [],
    }
    on = {"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": True}}}}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": {"resource-qos-config": json.dumps(on)},
    }

    def setting(*objects: Object) -> Object:
        dump = tmp_path / "dump.yaml"
        dump.write_text(yaml.safe_dump_all([node("n"), topology, *objects]), encoding="utf-8")
        words = ["schedule", str(dump), "--lend", "--now", "2026-11-01T00:00:00Z", "-o", "patches"]
        assert main(words) == 0
        bound, told = map(json.loads, capsys.readouterr().out.splitlines())
        assert bound["path"].endswith("/pods/resctrl/binding")
        return dict(told)

    limits = {"resctrl/koordlet-resctrl/schemata": "L3:0=f;1=f;\nMB:0=20;1=20;\n"}
    printed = setting(asks)
    assert printed["files"] == limits
    (reason,) = printed["problems"]
    assert reason.startswith(
        "metadata.annotations[koordinator.sh/cpuQOS] has no effect: the strategy of its "
    )
    assert "=LS alone" in setting(asks, config)["problems"][0]
    asks["metadata"]["labels"] = {"koordinator.sh/qosClass": "LS"}
    assert "enable" in setting(asks, config)["problems"][0]
    asks["metadata"]["annotations"]["koordinator.sh/cpuQOS"] = '{"enable": true, "groupIdentity": 1}'
    whole = setting(asks, config)
    assert whole["files"] == {"cpu.bvt_warp_ns": "1", **limits}
    assert "problems" not in whole


def test_reservation_affinity_binds_by_name_and_taint() -> None:
    by_name, held, tolerates = example("reservation_affinity")
    held["metadata"]["uid"] = "u"
    held["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    held["status"] = {
        "phase": "Available",
        "nodeName": "b",
        "allocatable": {"cpu": "4", "memory": "8Gi"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
    }
    result = decide([node("a"), node("b"), by_name])
    assert not result.bound  # there is no such reservation
    for one in (by_name, tolerates):
        one["metadata"]["labels"] = {"app": "demo"}
    placed = decide([node("a"), node("b"), held, tolerates])
    assert bound(placed) == {"tolerates": "b"}
    assert placed.bound[0].reservation == "test-reservation"
    wary = copy.deepcopy(tolerates)
    wary["metadata"]["annotations"] = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
    assert not decide([node("a"), node("b"), held, wary]).bound
    # Who names it asks for it, taint or not.
    assert bound(decide([node("a"), node("b"), held, by_name])) == {"by-name": "b"}


@pytest.mark.parametrize(("gpus", "found"), [("1", "r"), ("2", "")])
def test_reservation_exact_match_compares_all_three(gpus: str, found: str) -> None:
    (exact,) = example("reservation_exact_match")
    exact["metadata"]["labels"] = {"app": "demo"}
    holds = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": gpus}
    held = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "demo"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": holds}}]}},
        },
        "status": {"phase": "Available", "nodeName": "b", "allocatable": holds},
    }
    wide = {"nvidia.com/gpu": "8"}
    (placed,) = decide([node("a", **wide), node("b", **wide), held, exact]).bound
    assert placed.reservation == found


def test_reservation_ignored_uses_what_nobody_has_taken() -> None:
    (ignores,) = example("reservation_ignored")
    ignores["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "90"}}
    stranger = copy.deepcopy(ignores)
    stranger["metadata"] = {"name": "stranger"}
    holds = {"cpu": "64"}
    held = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "demo"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": holds}}]}},
        },
        "status": {"phase": "Available", "nodeName": "n", "allocatable": holds},
    }
    assert not decide([node("n"), held, stranger]).bound
    assert bound(decide([node("n"), held, ignores])) == {"ignores": "n"}


def test_scheduler_config_fit_spreads_cards() -> None:
    (policy,) = policies_from_manifest(example("scheduler_config_fit")[0])
    two = [node(name, **{"nvidia.com/gpu": "8"}) for name in "ab"]
    pods = [pod(f"p-{n}", {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "4"}) for n in range(2)]
    assert set(bound(decide([*two, *pods], policy=policy)).values()) == {"a", "b"}


def test_scheduler_config_fit_plus_packs_cards_and_keeps_others_off() -> None:
    (policy,) = policies_from_manifest(example("scheduler_config_fit_plus")[0])
    nodes = [node(name, **{"nvidia.com/gpu": "8"}) for name in "ab"]
    # CPUs are spread at once, so that cards decide where CPUs do not matter.
    pods = [pod(f"p-{n}", {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}) for n in range(4)]
    for one in pods:
        one["spec"]["schedulerName"] = "koord-scheduler"
    assert len(set(bound(decide([*nodes, *pods], policy=policy)).values())) == 1
    web = pod("web", {"cpu": "1", "memory": "1Gi"})
    web["spec"]["schedulerName"] = "koord-scheduler"
    assert bound(decide([*nodes, node("plain"), web], policy=policy)) == {"web": "plain"}


def test_a_pending_reservation_preempts_under_the_printed_configuration() -> None:
    (policy,) = policies_from_manifest(example("scheduler_config_reservation_preemption")[0])
    low = pod("low", {"cpu": "60"}, on="n")
    low["spec"]["priority"] = 100
    held = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u"},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": "demo"}}}],
            "template": {
                "spec": {"priority": 1000, "containers": [{"resources": {"requests": {"cpu": "60"}}}]}
            },
            "ttl": "1h",
        },
    }
    result = decide([node("n"), low, held], policy=policy, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert [victim.pod.name for victim in plan.victims] == ["low"]


def test_every_example_has_its_test() -> None:
    """Counts the files named above, so that a further one is not forgotten."""
    text = Path(__file__).read_text(encoding="utf-8")
    names = [path.stem for path in sorted(EXAMPLES.glob("*.yaml"))]
    assert [name for name in names if f'example("{name}")' not in text] == []
