"""CPUs, NUMA nodes and cards of one pod, in the flow."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    PluginSetting,
    Policy,
    ScheduleResult,
    Unschedulable,
    ViolationKind,
    schedule,
    verify,
)
from koordcore.allocators.device import DevicePolicy
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.records import result_from_record, result_record

STATUS = "scheduling.koordinator.sh/resource-status"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
GPU = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}


def node(name: str, *, policy: str = "", cards: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Eight CPUs, two per core, on two NUMA nodes; ``cards`` gives the NUMA node of each GPU."""
    detail = [{"id": cpu, "core": cpu // 2, "node": cpu // 4, "socket": 0} for cpu in range(8)]
    zone = [
        {"name": key, "capacity": amount, "allocatable": amount, "available": amount}
        for key, amount in (("cpu", "4"), ("memory", "16Gi"))
    ]
    number = str(100 * len(cards))
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    if cards:
        allocatable |= {"koordinator.sh/gpu-core": number, "koordinator.sh/gpu-memory-ratio": number}
    labels = {"node.koordinator.sh/numa-topology-policy": policy} if policy else {}
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": allocatable},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
            },
            "topologyPolicies": ["None"],
            "zones": [{"name": f"node-{number}", "type": "Node", "resources": zone} for number in range(2)],
        },
    ]
    if cards:
        devices = [
            {
                "type": "gpu",
                "minor": minor,
                "id": f"GPU-{minor}",
                "health": True,
                "topology": {"nodeID": numa, "socketID": 0, "pcieID": str(minor)},
                "resources": {**GPU, "koordinator.sh/gpu-memory": "80Gi"},
            }
            for minor, numa in enumerate(cards)
        ]
        objects.append(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {"name": name},
                "spec": {"devices": devices},
            }
        )
    return objects


def pod(name: str, cpu: int, *, gpus: int = 0, bound: bool = True, **metadata: Any) -> dict[str, Any]:
    requests = {"cpu": str(cpu), "memory": "1Gi"}
    if gpus:
        requests |= {key: str(100 * gpus) for key in GPU}
    labels = {"koordinator.sh/qosClass": "LSR"} if bound else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}", "labels": labels, **metadata},
        "spec": {
            "priority": 9500,
            "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
        },
    }


def cluster(*objects: dict[str, Any]) -> ClusterSnapshot:
    return snapshot_from_objects(objects).snapshot


def status_of(result: ScheduleResult, name: str) -> dict[str, Any]:
    decision = next(one for one in result.bound if one.pod.name == name)
    return dict(json.loads(decision.annotations[STATUS]))


def test_bound_pods_get_cores_of_their_own() -> None:
    """Two pods of two CPUs each get a whole core, on the emptier NUMA node; the annotation says which."""
    snapshot = cluster(*node("n"), pod("a", 2), pod("b", 2))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert {status_of(result, name)["cpuset"] for name in "ab"} == {"0-1", "4-5"}


def test_a_single_numa_node_holds_it_all_or_nothing() -> None:
    """Five CPUs are free, yet on no single NUMA node."""
    result = schedule(cluster(*node("n", policy="SingleNUMANode"), pod("big", 5, bound=False)))
    refused = result.decisions[0]
    assert isinstance(refused, Unschedulable)
    assert refused.rejections[0].plugin == "NodeNUMAResource"


@pytest.mark.parametrize("policy", ["", "BestEffort", "Restricted", "SingleNUMANode"])
def test_zones_that_tell_no_cpus_have_those_of_the_topology(policy: str) -> None:
    objects = node("n", policy=policy)
    for zone in objects[1]["zones"]:
        zone["resources"] = [one for one in zone["resources"] if one["name"] != "cpu"]
    snapshot = cluster(*objects, *(pod(name, 3) for name in "abc"))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    held = [status_of(result, name)["cpuset"] for name in "ab"]
    apart = {"0-2", "4-6"}
    assert set(held) == apart if policy in ("Restricted", "SingleNUMANode") else len(set(held)) == 2
    assert isinstance(result.decisions[2], Unschedulable)


def test_cpus_and_cards_come_from_the_same_numa_node() -> None:
    """The only cards sit on NUMA node 1, so the CPUs do too, although node 0 is as empty."""
    snapshot = cluster(*node("n", policy="SingleNUMANode", cards=(1, 1)), pod("train", 2, gpus=2))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    status = status_of(result, "train")
    assert status["cpuset"] == "4-5"
    assert [entry["node"] for entry in status["numaNodeResources"]] == [1]
    decision = result.bound[0]
    assert [one["minor"] for one in json.loads(decision.annotations[ALLOCATED])["gpu"]] == [0, 1]


def test_no_numa_node_has_both() -> None:
    """CPUs are left on one NUMA node and cards on the other: refused, with the reason of NodeNUMAResource."""
    snapshot = cluster(
        *node("n", policy="SingleNUMANode", cards=(1,)), pod("first", 4, gpus=1), pod("second", 2, gpus=1)
    )
    result = schedule(snapshot)
    assert [one.pod.name for one in result.bound] == ["first"]
    assert verify(snapshot, result) == ()


def test_without_a_policy_cards_are_the_devices_plugins_own() -> None:
    """Both annotations are written, each by its plugin, and the cards are taken once."""
    snapshot = cluster(*node("n", cards=(0, 1)), pod("a", 2, gpus=1), pod("b", 2, gpus=1))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    minors = [json.loads(one.annotations[ALLOCATED])["gpu"][0]["minor"] for one in result.bound]
    assert sorted(minors) == [0, 1]


def with_args(devices: DevicePolicy | None = None, *, swapped: bool = False) -> Policy:
    """The default policy with arguments of DeviceShare, which on request comes before NodeNUMAResource."""
    policy = Policy().with_plugin(PluginSetting(name="DeviceShare", args=devices))
    plugins = list(policy.plugins)
    first, second = (
        next(place for place, one in enumerate(plugins) if one.name == name)
        for name in ("NodeNUMAResource", "DeviceShare")
    )
    if swapped:
        plugins[first], plugins[second] = plugins[second], plugins[first]
    return attrs.evolve(policy, plugins=tuple(plugins))


def test_either_of_both_names_may_come_first() -> None:
    """DeviceShare before NodeNUMAResource in the policy gives the same cards and CPUs."""
    snapshot = cluster(*node("n", policy="Restricted", cards=(0, 0, 1, 1)), pod("q", 4, gpus=2))
    results = [schedule(snapshot, policy=with_args(swapped=swapped)) for swapped in (False, True)]
    assert results[0].bound[0].annotations == results[1].bound[0].annotations
    assert len(results[0].bound) == 1


def test_cards_need_not_be_aligned() -> None:
    """The card is on NUMA node 1, CPUs are left on node 0: refused, unless the alignment is switched off."""
    taken = {STATUS: '{"cpuset":"4-7","numaNodeResources":[{"node":1,"resources":{"cpu":"4"}}]}'}
    there = pod("there", 4, annotations=taken)
    there["spec"]["nodeName"] = "n"
    snapshot = cluster(*node("n", policy="SingleNUMANode", cards=(1,)), there, pod("q", 2, gpus=1))
    assert not schedule(snapshot, policy=with_args()).bound
    result = schedule(snapshot, policy=with_args(DevicePolicy(align_numa=False)))
    assert verify(snapshot, result) == ()
    assert status_of(result, "q")["numaNodeResources"][0]["node"] == 0
    assert json.loads(result.bound[0].annotations[ALLOCATED])["gpu"][0]["minor"] == 0


@pytest.mark.parametrize("policy", ["", "BestEffort", "Restricted", "SingleNUMANode"])
def test_shared_cards_are_packed_under_every_numa_policy(policy: str) -> None:
    """MostAllocated puts the second share beside the first, not on an empty card."""
    shares = [pod(name, 1, gpus=1, bound=False) for name in "ab"]
    for share in shares:
        for asked in share["spec"]["containers"][0]["resources"].values():
            asked.update(dict.fromkeys(GPU, "30"))
    snapshot = cluster(*node("n", policy=policy, cards=(0, 0, 0, 0)), *shares)
    packed = schedule(snapshot, policy=with_args(DevicePolicy(strategy="MostAllocated")))
    minors = [json.loads(one.annotations[ALLOCATED])["gpu"][0]["minor"] for one in packed.bound]
    assert len(minors) == 2
    assert len(set(minors)) == 1


def test_best_effort_takes_a_node_that_tells_no_numa_nodes() -> None:
    """Restricted does not; what no NUMA node is told of cannot be restricted to some."""
    plain = [one for one in node("n") if one["kind"] == "Node"]
    for policy, number in (("BestEffort", 1), ("Restricted", 0)):
        spec = json.dumps({"numaTopologyPolicy": policy})
        annotations = {"scheduling.koordinator.sh/numa-topology-spec": spec}
        snapshot = cluster(*plain, pod("q", 2, bound=False, annotations=annotations))
        result = schedule(snapshot)
        assert len(result.bound) == number
        assert verify(snapshot, result) == ()


def rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[ScheduleResult], ScheduleResult]:
    def corrupt(result: ScheduleResult) -> ScheduleResult:
        decision = next(one for one in result.bound if one.pod.name == "a")
        raw = json.loads(decision.annotations[STATUS])
        change(raw)
        annotations = {**decision.annotations, STATUS: json.dumps(raw)}
        changed = tuple(
            attrs.evolve(decision, annotations=annotations) if one is decision else one
            for one in result.decisions
        )
        old = result.snapshot.pod(decision.pod)
        assert old is not None
        after = result.snapshot.forget(old.key).assume(old.at("n", annotations=annotations))
        return attrs.evolve(result, decisions=changed, snapshot=after)

    return corrupt


def amounts(numa: int, cpu: str) -> Callable[[dict[str, Any]], object]:
    return lambda raw: raw.update(numaNodeResources=[{"node": numa, "resources": {"cpu": cpu}}])


CORRUPTIONS = {
    "CPU of another pod": (rewritten(lambda raw: raw.update(cpuset="4-5")), ViolationKind.CPU),
    "CPU that does not exist": (rewritten(lambda raw: raw.update(cpuset="8-9")), ViolationKind.CPU),
    "fewer CPUs than asked": (rewritten(lambda raw: raw.update(cpuset="0")), ViolationKind.CPU),
    "no CPU list": (rewritten(lambda raw: raw.update(cpuset="all")), ViolationKind.CPU),
    "NUMA node that does not exist": (rewritten(amounts(7, "2")), ViolationKind.NUMA),
    "more than the NUMA node has": (rewritten(amounts(0, "40")), ViolationKind.NUMA),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_is_found(name: str) -> None:
    """What the annotation says is checked against the node and its other pods."""
    corrupt, kind = CORRUPTIONS[name]
    snapshot = cluster(*node("n", policy="Restricted"), pod("a", 2), pod("b", 2))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert kind in {violation.kind for violation in verify(snapshot, corrupt(result))}


@pytest.mark.parametrize("text", ['{"cpuset": "0-3"}', '{"numaNodeResources": [{"node": 9}]}', "{"])
def test_what_a_failed_bind_left_on_a_pod_is_dropped(text: str) -> None:
    """The pod holds what it is given now, and nothing where it is given nothing; the patch says so too."""
    left = {STATUS: text, "scheduling.koordinator.sh/reservation-allocated": '{"name": "r"}'}
    snapshot = cluster(
        *node("n"), pod("cpus", 2, annotations=left), pod("plain", 2, bound=False, annotations=left)
    )
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert status_of(result, "cpus")["cpuset"] == "0-1"
    pods = {one.name: dict(one.annotations) for one in result.snapshot.bound_pods()}
    assert set(pods["cpus"]) == {"scheduling.koordinator.sh/resource-spec", STATUS}
    assert pods["plain"] == {}
    (written,) = [call.body for call in patches(result) if call.pod.name == "plain" and call.verb == "patch"]
    assert written == {"metadata": {"annotations": dict.fromkeys(sorted(left))}}
    read = result_from_record(snapshot, result_record(result))
    assert verify(snapshot, read) == ()


@pytest.mark.parametrize("ratio", ["1e17", "1.7e308"])
def test_an_absurd_amplification_only_keeps_its_node_from_being_chosen(
    ratio: str, recwarn: pytest.WarningsRecorder
) -> None:
    """The CPUs that its pods are bound to count as more than there is; no arithmetic overflows."""
    odd = node("n")
    odd[0]["metadata"]["annotations"] = {
        "node.koordinator.sh/resource-amplification-ratio": f'{{"cpu": {ratio}}}'
    }
    holder = pod("holder", 2, annotations={STATUS: '{"cpuset": "0-1"}'})
    holder["spec"]["nodeName"] = "n"
    result = schedule(cluster(*odd, *node("m"), holder, pod("cpus", 2)))
    assert [(one.pod.name, one.node) for one in result.bound] == [("cpus", "m")]
    assert not recwarn.list


@pytest.mark.parametrize(("policy", "placed"), [("BestEffort", True), ("Restricted", False)])
def test_best_effort_goes_on_where_a_node_tells_no_numa_nodes(policy: str, placed: bool) -> None:
    """There is nothing to align with; a policy that insists refuses the node."""
    plain = node("n")[:1]
    spec = {"scheduling.koordinator.sh/numa-topology-spec": json.dumps({"numaTopologyPolicy": policy})}
    snapshot = cluster(*plain, pod("p", 2, bound=False, annotations=spec))
    result = schedule(snapshot)
    assert bool(result.bound) is placed
    assert verify(snapshot, result) == ()


def test_null_among_amplification_ratios_amplifies_nothing() -> None:
    """Go leaves zero there; the loader says so, and the node serves pods."""
    ratios = {"node.koordinator.sh/resource-amplification-ratio": '{"memory": null, "cpu": 1.0}'}
    objects = node("n")
    objects[0]["metadata"]["annotations"] = ratios
    loaded = snapshot_from_objects([*objects, pod("p", 2)])
    (warning,) = loaded.warnings
    assert str(warning).endswith("resource-amplification-ratio][memory]: null counts as 0")
    assert [one.node for one in schedule(loaded.snapshot).bound] == ["n"]


@pytest.mark.parametrize(("policy", "placed"), [("BestEffort", 4), ("Restricted", 2)])
def test_best_effort_is_no_condition_whatever_numa_nodes_lack(policy: str, placed: int) -> None:
    """NUMA nodes lack the CPUs that the kubelet keeps back; the node counts them, and takes the pods."""
    one, topology = node("n", policy=policy)
    kept = {"policy": "static", "reservedCPUs": "0-1,4"}
    topology["metadata"]["annotations"]["kubelet.koordinator.sh/cpu-manager-policy"] = json.dumps(kept)
    snapshot = cluster(one, topology, *(pod(f"p{number}", 2, bound=False) for number in range(4)))
    result = schedule(snapshot)
    assert len(result.bound) == placed
    assert verify(snapshot, result) == ()
    assert [bool(json.loads(one.annotations[STATUS])) for one in result.bound] == [True, True, False, False][
        :placed
    ]


def test_best_effort_inside_a_full_reservation_is_refused_by_its_amounts() -> None:
    """NUMA nodes are no condition, what the reservation has is."""
    amounts = {"cpu": "3", "memory": "2Gi"}
    held = {"numaNodeResources": [{"node": 0, "resources": amounts}]}
    user = pod("user", 3, bound=False, labels={"team": "t"})
    user["metadata"]["annotations"] = {
        "scheduling.koordinator.sh/reservation-allocated": '{"name":"r","uid":"u-r"}',
        STATUS: json.dumps(held),
    }
    user["spec"] |= {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": amounts}}]}
    late = pod("late", 2, bound=False, labels={"team": "t"})
    late["metadata"]["annotations"] = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
    reservation = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u-r", "annotations": {STATUS: json.dumps(held)}},
        "spec": {
            "allocateOnce": False,
            "allocatePolicy": "Restricted",
            "owners": [{"labelSelector": {"matchLabels": {"team": "t"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts}}]}},
            "ttl": "24h",
        },
        "status": {"phase": "Available", "nodeName": "n", "allocatable": amounts},
    }
    snapshot = cluster(*node("n", policy="BestEffort"), reservation, user, late)
    policy = Policy().with_plugin(PluginSetting(name="Reservation", weight=5000))
    (refused,) = schedule(snapshot, policy=policy).decisions
    assert isinstance(refused, Unschedulable)
    assert "1 Reservation(s) Insufficient cpu" in refused.message
