"""Amounts that are told do as they are written, and evictions that are told are all that it takes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from koordcore.cli.plan_tables import nearest_text
from koordcore.explaining.advice import Advice, advise
from koordcore.explaining.remedy import Remedy, RemedyKind, exact_amount, rounded_down, rounded_up
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import NearMiss, Shortfall, Unschedulable
from koordcore.model.pods import PodKey
from koordcore.model.quantity import Scale, parse_quantity
from koordcore.reporting.data import PageData
from koordcore.scheduling import schedule
from tests.manifests.builders import container, node, obj, pod

Object = dict[str, Any]
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "99"}
QUOTA = "quota.scheduling.koordinator.sh/name"
_CARDS = {"core": "koordinator.sh/gpu-core", "ratio": "koordinator.sh/gpu-memory-ratio"}
UNEVEN = ("8G", "7Gi", "8000000001", "20958643713", "7000001Ki", "9123456M", "123456789")


def advice(objects: list[Object], name: str) -> Advice:
    snapshot = snapshot_from_objects(objects).snapshot
    return advise(snapshot, schedule(snapshot), f"default/{name}")


def helps(objects: list[Object], name: str, kind: RemedyKind) -> Remedy:
    (found,) = (one for one in advice(objects, name).remedies if one.kind is kind)
    return found


def starts(objects: list[Object], name: str) -> bool:
    result = schedule(snapshot_from_objects(objects).snapshot)
    return any(one.pod.name == name for one in result.bound)


def asking(name: str, on: str = "", priority: int = 0, **requests: str) -> Object:
    amounts = {_CARDS.get(key, key): value for key, value in requests.items()}
    more = {"nodeName": on} if on else {}
    return pod(name, containers=[container(requests=amounts)], priority=priority, **more)


@pytest.mark.parametrize("memory", UNEVEN)
def test_an_amount_that_is_written_is_read_back_the_same(memory: str) -> None:
    value = parse_quantity(memory)
    for one in (value, rounded_up("memory", value), rounded_down("memory", value)):
        assert parse_quantity(exact_amount("memory", one).removesuffix(" memory")) == one
    assert rounded_down("memory", value) <= value <= rounded_up("memory", value)
    milli = 1000 + value % 10**9
    assert parse_quantity(exact_amount("cpu", milli).removesuffix(" cpu"), scale=Scale.MILLI) == milli


@pytest.mark.parametrize("memory", UNEVEN)
def test_a_larger_quota_does_as_it_is_written(memory: str) -> None:
    def world(most: str) -> list[Object]:
        bounds = {"min": {"memory": "0"}, "max": {"memory": most}}
        asks = asking("p", memory=memory)
        asks["metadata"]["labels"] = {QUOTA: "q"}
        own = obj("ElasticQuota", "q", "scheduling.sigs.k8s.io/v1alpha1", spec=bounds)
        return [node("n", {**ROOM, "memory": "9P"}), own, asks]

    told = helps(world("1Mi"), "p", RemedyKind.QUOTA).text
    (amount,) = re.findall(r"with max (\S+) memory for q", told)
    assert starts(world(amount), "p")


def test_less_does_as_it_is_written() -> None:
    for offered in ("6000000001", "5999M", "6Gi"):
        machine = node("n", {**ROOM, "memory": offered})
        told = helps([machine, asking("p", memory="7G")], "p", RemedyKind.SHRINK).text
        (amount, before) = re.findall(r"^(\S+) memory instead of (\S+)", told)[0]
        assert before == "7G"
        assert starts([machine, asking("p", memory=amount)], "p"), told


def test_all_that_shrinks_together_is_told() -> None:
    """Half of the core alone does not fit: the memory of cards is asked for beside it."""
    machine = node("n", {**ROOM, **{_CARDS[one]: "50" for one in _CARDS}})
    told = helps([machine, asking("p", core="100", ratio="100")], "p", RemedyKind.SHRINK).text
    assert told.startswith(
        "50 koordinator.sh/gpu-core instead of 100 and 50 koordinator.sh/gpu-memory-ratio instead of 100"
    )
    assert starts([machine, asking("p", core="50", ratio="50")], "p")
    assert not starts([machine, asking("p", core="50", ratio="100")], "p")


def test_members_that_ask_for_less_than_others_shrink_as_well() -> None:
    group = obj("PodGroup", "g", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": 2})
    members = [asking("m0", cpu="64"), asking("m1", cpu="32")]
    for one in members:
        one["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "g"}
    told = helps([node("n", ROOM), group, *members], "m0", RemedyKind.SHRINK).text
    assert told == "42 cpu instead of 64, the other members in proportion"


def test_amounts_that_differ_by_little_are_told_apart() -> None:
    offered, wanted = 64 * 2**30, 64 * 2**30 + 2**10
    told = advice([node("n", {**ROOM, "memory": str(offered)}), asking("p", memory=str(wanted))], "p")
    assert told.never == (f"no node has ever {wanted // 2**10}Ki memory: the most is 64Gi, on n",)


# -- evictions -----------------------------------------------------------------------------------------------


def without(objects: list[Object], remedy: Remedy) -> list[Object]:
    gone = {one.name for one in remedy.pods}
    return [one for one in objects if one["metadata"]["name"] not in gone]


def test_who_leaves_for_somebody_before_is_named_where_nobody_else_has_to() -> None:
    """The first needs all that runs to go, and leaves enough for the second."""
    objects = [
        node("n", {**ROOM, "cpu": "8"}),
        asking("r", "n", cpu="8"),
        asking("a", priority=9, cpu="5"),
        asking("b", priority=9, cpu="3"),
    ]
    told = helps(objects, "b", RemedyKind.EVICT)
    assert told.text == (
        "default/r (priority 0) for default/a, before it in the queue; then it fits, too (schedule --preempt)"
    )
    assert starts(without(objects, told), "b")
    assert helps(objects, "a", RemedyKind.EVICT).text.startswith("default/r (priority 0): the cheapest")


def test_an_eviction_that_is_not_enough_by_itself_says_who_leaves_before() -> None:
    """Whoever leaves for the second alone makes room for the first, which takes it."""
    objects = [
        node("n", {**ROOM, "cpu": "8"}),
        node("o", {**ROOM, "cpu": "8"}),
        asking("r", "n", priority=1, cpu="8"),
        asking("s", "o", priority=2, cpu="8"),
        asking("a", priority=9, cpu="8"),
        asking("b", priority=9, cpu="8"),
    ]
    told = helps(objects, "b", RemedyKind.EVICT)
    assert told.text == (
        "default/s (priority 2): the cheapest, proven (schedule --preempt); "
        "first default/r (priority 1) for default/a, before it in the queue"
    )
    assert starts(without(objects, told), "b")
    assert not starts([one for one in objects if one["metadata"]["name"] != "s"], "b")


def test_an_eviction_that_is_enough_says_nothing_of_what_leaves_for_others() -> None:
    objects = [
        node("n", {**ROOM, "cpu": "8"}),
        node("o", {**ROOM, "cpu": "4"}),
        asking("r", "n", priority=1, cpu="8"),
        asking("s", "o", priority=2, cpu="4"),
        asking("a", priority=9, cpu="8"),
        asking("b", priority=9, cpu="4"),
    ]
    told = helps(objects, "b", RemedyKind.EVICT)
    assert told.text == "default/s (priority 2): the cheapest, proven (schedule --preempt)"
    assert starts(without(objects, told), "b")


# -- less than a core, and nodes with NUMA nodes -------------------------------------------------------------


def test_less_than_a_core_can_be_less_as_well_and_never_more() -> None:
    small = node("n", {**ROOM, "cpu": "300m"})
    assert helps([small, asking("p", cpu="500m")], "p", RemedyKind.SHRINK).text.startswith(
        "0.3 cpu instead of 0.5"
    )
    bound = asking("p", priority=9000, cpu="500m")
    bound["metadata"]["labels"] = {"koordinator.sh/qosClass": "LSR"}
    told = advice([node("n", ROOM), numa("n", 8), bound], "p")
    assert told.summary == (
        "gets no node in its turn: 0/1 nodes are available: the requested CPUs must be integer.",
    )
    assert RemedyKind.SHRINK not in {one.kind for one in told.remedies}


def numa(name: str, cores: int, policy: str = "SingleNUMANodePodLevel") -> Object:
    """Two NUMA nodes of so many CPUs each."""
    detail = [
        {"id": cpu, "core": cpu, "socket": cpu // cores, "node": cpu // cores} for cpu in range(2 * cores)
    ]
    amounts = [
        {"name": kind, "capacity": much, "allocatable": much, "available": much}
        for kind, much in (("cpu", str(cores)), ("memory", "32Gi"))
    ]
    zones = [{"name": f"node-{row}", "type": "Node", "resources": amounts} for row in range(2)]
    notes = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    return obj(
        "NodeResourceTopology",
        name,
        "topology.node.k8s.io/v1alpha1",
        metadata={"annotations": notes},
        topologyPolicies=[policy],
        zones=zones,
    )


@pytest.mark.parametrize(("cpus", "helped"), [("6", True), ("10", False)])
def test_another_node_has_the_numa_nodes_of_the_one_that_it_is_like(cpus: str, helped: bool) -> None:
    """Ten CPUs are on no single NUMA node of eight, however many such nodes there are."""
    room = {**ROOM, "cpu": "16"}
    zones = [{"node": row, "resources": {"cpu": "5", "memory": "1Gi"}} for row in range(2)]
    running = [asking(f"r{row}", "n", cpu="5", memory="1Gi") for row in range(2)]
    for one, zone in zip(running, zones, strict=True):
        status = json.dumps({"numaNodeResources": [zone]})
        one["metadata"]["annotations"] = {"scheduling.koordinator.sh/resource-status": status}
    objects = [node("n", room), numa("n", 8), *running, asking("p", cpu=cpus, memory="1Gi")]
    told = [one.text for one in advice(objects, "p").remedies if one.kind is RemedyKind.GROW]
    assert told == ["1 more like n (16 cpu, 64Gi memory)"] * helped
    assert starts([*objects, node("m", room), numa("m", 8)], "p") == helped


def _zone(number: int, cpu: str, memory: str) -> Object:
    amounts = {"cpu": cpu, "memory": memory}
    told = [
        {"name": name, "capacity": most, "allocatable": most, "available": most}
        for name, most in amounts.items()
    ]
    return {"name": f"node-{number}", "type": "Node", "resources": told}


def _aligned(*zones: tuple[str, str]) -> list[Object]:
    """A node of which each pod gets one NUMA node."""
    labels = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}
    listed = [_zone(number, *amounts) for number, amounts in enumerate(zones)]
    topology = "topology.node.k8s.io/v1alpha1"
    return [
        node("n1", ROOM, metadata={"labels": labels}),
        obj("NodeResourceTopology", "n1", topology, topologyPolicies=["None"], zones=listed),
    ]


def test_what_every_numa_node_has_is_not_told_as_lacking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [*_aligned(("2", "16Gi"), ("2", "16Gi")), asking("p", cpu="6", memory="2Gi")]
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot)
    (refused,) = result.decisions
    assert isinstance(refused, Unschedulable)
    assert refused.message == ("0/1 nodes are available: 1 Unsatisfied NUMA cpu, 1 Unsatisfied NUMA memory.")
    assert nearest_text(refused) == "n1: lacks 4 cpu"
    page = PageData(snapshot).values(result, (), {}, lambda _done, _all: None)
    assert page["queue"][0]["near"] == [0, ["Unsatisfied NUMA cpu", "cpu", 4000]]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    assert main(["explain", "p", str(path)]) == 1
    out = capsys.readouterr().out
    assert "Unsatisfied NUMA cpu (6 asked, 2 free); Unsatisfied NUMA memory  NodeNUMAResource" in out


def test_what_is_there_and_does_not_go_together_is_told_where_nothing_is_short() -> None:
    apart = Shortfall("Insufficient GPU Devices", "gpu", 3, 4)
    near = NearMiss("n1", "DeviceShare", (apart, Shortfall("Insufficient RDMA Devices", "rdma", 1, 0)))
    assert near.short == near.shortfalls[1:]
    refused = Unschedulable(
        pod=PodKey("default", "p"), nodes=1, nearest=NearMiss("n1", "DeviceShare", (apart,))
    )
    assert nearest_text(refused) == "n1: lacks 3 gpu that go together"
