"""Reservations of exact CPUs and cards: held, drawn from, and never given to others."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore.checking import verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Unschedulable
from koordcore.model.device_policy import DevicePolicy, ScoringStrategy
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.reservations import Reservation
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_numa import node, pod

STATUS = "scheduling.koordinator.sh/resource-status"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
AFFINITY = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
OWNER = {"app": "a"}


def reservation(name: str, template: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A reservation that waits for a node, for pods of application ``a``."""
    resources = template["spec"]["containers"][0]["resources"]
    for amounts in resources.values():
        amounts["memory"] = "8Gi"
    body = {"metadata": template["metadata"], "spec": template["spec"]}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "spec": {
            "template": body,
            "owners": [{"labelSelector": {"matchLabels": OWNER}}],
            "ttl": "24h",
            "allocateOnce": False,
            **spec,
        },
    }


def owner(name: str, cpu: int, **more: Any) -> dict[str, Any]:
    """A pod that must use a reservation."""
    made = pod(name, cpu, **more)
    made["metadata"]["labels"] = {**made["metadata"].get("labels", {}), **OWNER}
    made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **AFFINITY}
    return made


def held(*objects: dict[str, Any]) -> ClusterSnapshot:
    """Place the reservations of a cluster; pods are left to wait."""
    snapshot = snapshot_from_objects(list(objects)).snapshot
    alone = ClusterSnapshot(nodes=snapshot.nodes, records=snapshot.records)
    result = checked(alone)
    assert all(one.available for one in result.snapshot.of(Reservation))
    return result.snapshot.with_pending(*snapshot.pending)


def checked(snapshot: ClusterSnapshot) -> ScheduleResult:
    """Schedule and check."""
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


def given(result: ScheduleResult, name: str, key: str) -> Any:
    """What is written on a pod."""
    bound = next(one for one in result.bound if one.pod.name == name)
    return json.loads(bound.annotations[key])


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_owners_draw_exactly_the_cpus_that_are_held(policy: str) -> None:
    snapshot = held(*node("n1"), reservation("r1", pod("t", 4), allocatePolicy=policy), owner("o", 4))
    (one,) = snapshot.of(Reservation)
    cpus = json.loads(one.annotations[STATUS])["cpuset"]
    assert given(checked(snapshot), "o", STATUS)["cpuset"] == cpus


def test_strangers_get_the_other_cpus_and_no_more() -> None:
    snapshot = held(*node("n1"), reservation("r1", pod("t", 4)), pod("s1", 4), pod("s2", 2))
    (one,) = snapshot.of(Reservation)
    result = checked(snapshot)
    assert [bound.pod.name for bound in result.bound] == ["s1"]
    assert given(result, "s1", STATUS)["cpuset"] != json.loads(one.annotations[STATUS])["cpuset"]


def test_two_owners_share_what_is_held_one_after_the_other() -> None:
    snapshot = held(
        *node("n1"),
        reservation("r1", pod("t", 4), allocatePolicy="Restricted"),
        owner("o1", 2),
        owner("o2", 2),
        owner("o3", 2),
    )
    result = checked(snapshot)
    assert [bound.pod.name for bound in result.bound] == ["o1", "o2"]
    taken = {given(result, name, STATUS)["cpuset"] for name in ("o1", "o2")}
    assert taken == {"0-1", "2-3"}
    refused = result.decisions[2]
    assert isinstance(refused, Unschedulable)
    assert "Reservation(s) not enough cpus available to satisfy request" in refused.message


@pytest.mark.parametrize("policy", ["", "Restricted", "SingleNUMANode"])
def test_cores_of_which_halves_are_held_serve_whole(policy: str) -> None:
    """The two halves that are held make no core, and the others nobody has (ruling 5)."""
    spec = {"scheduling.koordinator.sh/resource-spec": '{"requiredCPUBindPolicy":"FullPCPUs"}'}
    snapshot = held(
        *node("n1", policy=policy),
        reservation("r1", pod("t", 2), allocatePolicy="Aligned"),
        owner("o", 2, annotations=spec),
    )
    (one,) = snapshot.of(Reservation)
    halves = attrs.evolve(one, annotations={**one.annotations, STATUS: '{"cpuset":"0,2"}'})
    result = checked(snapshot.with_records(halves))
    assert given(result, "o", STATUS)["cpuset"] == "0-1"
    assert {bound.reservation for bound in result.bound} == {"r1"}


def test_owners_draw_exactly_the_cards_that_are_held() -> None:
    snapshot = held(
        *node("n1", cards=(0, 0, 1, 1)),
        reservation("r1", pod("t", 2, gpus=2, bound=False), allocatePolicy="Restricted"),
        pod("s", 1, gpus=2, bound=False),
        owner("o", 2, gpus=2, bound=False),
        pod("tardy", 1, gpus=1, bound=False),
    )
    (one,) = snapshot.of(Reservation)
    cards = {entry["minor"] for entry in json.loads(one.annotations[ALLOCATED])["gpu"]}
    result = checked(snapshot)
    assert {entry["minor"] for entry in given(result, "o", ALLOCATED)["gpu"]} == cards
    assert {entry["minor"] for entry in given(result, "s", ALLOCATED)["gpu"]} == {0, 1, 2, 3} - cards
    assert {one.pod.name for one in result.bound} == {"o", "s"}


def test_cpus_and_cards_out_of_one_reservation_under_a_topology_policy() -> None:
    snapshot = held(
        *node("n1", policy="SingleNUMANode", cards=(0, 1)),
        reservation("r1", pod("t", 2, gpus=1), allocatePolicy="Restricted"),
        owner("o", 2, gpus=1),
    )
    (one,) = snapshot.of(Reservation)
    result = checked(snapshot)
    assert given(result, "o", STATUS)["cpuset"] == json.loads(one.annotations[STATUS])["cpuset"]
    assert (
        given(result, "o", ALLOCATED)["gpu"][0]["minor"]
        == (json.loads(one.annotations[ALLOCATED])["gpu"][0]["minor"])
    )


def test_half_a_card_is_left_to_the_second_owner() -> None:
    half = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}

    def halved(made: dict[str, Any]) -> dict[str, Any]:
        resources = made["spec"]["containers"][0]["resources"]
        for part in resources.values():
            part.update({name: amount for name, amount in half.items() if name in part})
        return made

    snapshot = held(
        *node("n1", cards=(0,)),
        reservation("r1", pod("t", 2, gpus=1, bound=False)),
        halved(owner("o1", 1, gpus=1, bound=False)),
        halved(owner("o2", 1, gpus=1, bound=False)),
        halved(pod("s", 1, gpus=1, bound=False)),
    )
    result = checked(snapshot)
    assert [one.pod.name for one in result.bound] == ["o1", "o2"]


def test_a_gathered_gang_draws_its_cards_from_reservations() -> None:
    network = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": "default"},
        "spec": {
            "networkTopologySpec": [
                {"topologyLayer": "SpineLayer", "labelKey": ["spine"]},
                {"parentTopologyLayer": "SpineLayer", "topologyLayer": "NodeTopologyLayer"},
            ]
        },
    }
    nodes = [*node("n1", cards=(0, 1)), *node("n2", cards=(0, 1))]
    for one in nodes:
        if one["kind"] == "Node":
            one["metadata"]["labels"] = {"spine": "s1"}
    spec = {"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}]}
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {
            "name": "g",
            "namespace": "default",
            "annotations": {"gang.scheduling.koordinator.sh/network-topology-spec": json.dumps(spec)},
        },
        "spec": {"minMember": 2},
    }
    members = []
    for name in ("g0", "g1"):
        made = owner(name, 2, gpus=2, bound=False)
        made["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] = "g"
        members.append(made)
    snapshot = held(
        *nodes,
        network,
        group,
        *(reservation(name, pod("t", 2, gpus=2, bound=False)) for name in ("r1", "r2")),
        *members,
    )
    result = checked(snapshot)
    assert sorted((one.node, one.reservation) for one in result.bound) == [("n1", "r1"), ("n2", "r2")]


@pytest.mark.parametrize(("strategy", "name"), [("LeastAllocated", "big"), ("MostAllocated", "small")])
def test_what_devices_say_counts_among_the_reservations_of_a_node(strategy: str, name: str) -> None:
    # Amounts alone give 78 to the small one and 53 to the other; of the cards 25 and 50 would be left over,
    # scaled 50 and 100, or 75 and 50 be in use, scaled 100 and 66.
    snapshot = held(
        *node("n1", cards=(0, 0, 0, 0)),
        reservation("big", pod("t", 2, gpus=2, bound=False)),
        reservation("small", pod("t", 2, gpus=1, bound=False)),
        owner("o", 2, gpus=1, bound=False),
    )
    devices = PluginSetting(name="DeviceShare", args=DevicePolicy(strategy=ScoringStrategy(strategy)))
    result = schedule(snapshot, policy=Policy().with_plugin(devices))
    assert verify(snapshot, result) == ()
    assert [one.reservation for one in result.bound] == [name]


def test_of_many_cards_a_few_less_count_for_less_than_how_full_the_reservation_gets() -> None:
    """Of the cards 62 and 75 would be left over, scaled 82 and 100; of the amounts 78 and 53 be in use."""
    snapshot = held(
        *node("n1", cards=(0,) * 8),
        reservation("big", pod("t", 2, gpus=2, bound=False)),
        reservation("small", pod("t", 2, gpus=1, bound=False)),
        owner("o", 2, gpus=1, bound=False),
    )
    devices = PluginSetting(name="DeviceShare", args=DevicePolicy(strategy=ScoringStrategy.LEAST_ALLOCATED))
    result = schedule(snapshot, policy=Policy().with_plugin(devices))
    assert verify(snapshot, result) == ()
    assert [one.reservation for one in result.bound] == ["small"]


@pytest.mark.parametrize("stranger", [pod("s", 1, gpus=1, bound=False), pod("s", 6)])
def test_what_the_only_user_left_over_is_free_at_once(stranger: dict[str, Any]) -> None:
    """Cards and CPUs of a reservation for one use are free once it is used, in the same call as later."""
    snapshot = held(
        *node("n1", cards=(0,)),
        reservation("r1", pod("t", 4, gpus=1), allocateOnce=True),
        owner("o", 2, bound=False),
        stranger,
    )
    at_once = checked(snapshot)
    assert sorted(one.pod.name for one in at_once.bound) == ["o", "s"]
    first = schedule(snapshot, [one for one in snapshot.pending if one.name == "o"])
    assert [one.pod.name for one in first.bound] == ["o"]
    assert [one.pod.name for one in checked(first.snapshot).bound] == ["s"]


def test_what_a_restricted_reservation_does_not_hold_comes_from_numa_nodes() -> None:
    def zone(number: int) -> dict[str, Any]:
        amounts = (("cpu", "4"), ("memory", "8Gi"))
        resources = [{"name": name, "allocatable": text, "available": text} for name, text in amounts]
        return {"name": f"node-{number}", "type": "Node", "resources": resources}

    def asking(name: str, memory: str, **labels: str) -> dict[str, Any]:
        requests = {"cpu": "1", "memory": memory}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]},
        }

    cpus = [{"id": one, "core": one, "socket": 0, "node": one // 4} for one in range(8)]
    there = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "10"}},
    }
    table = {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": "n",
            "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": cpus})},
        },
        "zones": [zone(0), zone(1)],
    }
    of_cpus = reservation("r", asking("t", "8Gi"), allocatePolicy="Restricted")
    of_cpus["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "2"}
    of_cpus["metadata"]["annotations"] = {
        STATUS: json.dumps({"numaNodeResources": [{"node": 0, "resources": {"cpu": "2"}}]})
    }
    of_cpus["status"] = {"phase": "Available", "nodeName": "n", "allocatable": {"cpu": "2"}}
    pods = [asking("a", "7Gi", **OWNER), asking("b", "7Gi", **OWNER), asking("c", "2Gi")]
    result = checked(snapshot_from_objects([there, table, of_cpus, *pods]).snapshot)
    assert [(one.pod.name, one.reservation) for one in result.bound] == [("a", "r"), ("b", "")]
    entries = [json.loads(one.annotations[STATUS])["numaNodeResources"] for one in result.bound]
    assert entries == [
        [{"node": number, "resources": {"cpu": "1", "memory": "7Gi"}}] for number in range(2)
    ], "each on a NUMA node that has its memory"
