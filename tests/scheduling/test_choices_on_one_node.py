"""What members of a gang get of one node together, and what is proven where it has nothing for all."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore import CertificateStatus, ClusterSnapshot, schedule, verify
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.model.devices import GPU_CORE, GPU_MEMORY_RATIO
from koordcore.model.pods import HostPort
from koordcore.result import ScheduleResult
from tests.scheduling import test_gang_devices as partitioned
from tests.scheduling.test_gang_company import block, decided as company, gathered
from tests.scheduling.test_numa import ALLOCATED, node, pod, status_of

GANG = "gang.scheduling.koordinator.sh/"
CARD = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}
AMOUNTS = {GPU_CORE: 200, GPU_MEMORY_RATIO: 200}


def gang(*members: dict[str, Any]) -> list[dict[str, Any]]:
    """Pods that start all together or not at all."""
    for one in members:
        notes = one["metadata"].setdefault("annotations", {})
        notes |= {f"{GANG}name": "g", f"{GANG}min-available": str(len(members))}
    return list(members)


def sized(name: str, memory: int) -> dict[str, Any]:
    """A pod of one CPU and so much memory, in GiB."""
    made = pod(name, 1, bound=False)
    for amounts in made["spec"]["containers"][0]["resources"].values():
        amounts["memory"] = f"{memory}Gi"
    return made


def decided(*objects: dict[str, Any]) -> ScheduleResult:
    snapshot: ClusterSnapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


@pytest.mark.parametrize("idle", [False, True])
def test_members_are_laid_on_numa_nodes_in_the_one_way_in_which_all_have_room(idle: bool) -> None:
    """Of 16 GiB a NUMA node has: one after another the third small one finds 3 GiB on either."""
    members = [sized(f"m{number}", memory) for number, memory in enumerate((8, 8, 5, 5, 5))]
    if idle:
        members.append(sized("m9", 0))
        members[-1]["spec"]["containers"][0]["resources"] = {}
    result = decided(*node("n", policy="SingleNUMANode"), *gang(*members))
    assert len(result.bound) == len(members)
    places = {
        name: [one["node"] for one in status_of(result, name)["numaNodeResources"]]
        for name in ("m0", "m1", "m2", "m3", "m4")
    }
    assert places["m0"] == places["m1"] != places["m2"] == places["m3"] == places["m4"]


def test_that_two_kinds_of_members_find_no_cards_beside_each_other_is_proven() -> None:
    """Each needs one of two pairs of cards that share the one in the middle; there are cards enough."""
    name, device = partitioned.node("n")
    table = {"2": [{"minors": minors, "allocationScore": 1} for minors in ([0, 1], [1, 2])]}
    device["metadata"]["annotations"] = {f"{partitioned.PREFIX}gpu-partitions": json.dumps(table)}
    members = gang(*(pod(f"m{cpu}", cpu, gpus=2, bound=False) for cpu in (1, 2)))
    result = decided(name, device, *members)
    assert not result.bound
    (plan,) = result.jobs
    assert plan.certificate is not None
    assert plan.certificate.status is CertificateStatus.INFEASIBLE


def test_members_with_one_port_go_to_nodes_of_their_own_whose_cards_nobody_knows() -> None:
    """The nodes list cards and have no Device object, so there is nothing to choose on either."""
    nodes = [attrs.evolve(one, allocatable={**one.allocatable, **AMOUNTS}) for one in block(2)]
    members = [
        attrs.evolve(one, requests={**one.requests, GPU_CORE: 100, GPU_MEMORY_RATIO: 100})
        for one in gathered((1000, 1500), host_ports=(HostPort(80),))
    ]
    result = company(nodes, members)
    assert sorted(one.node for one in result.bound) == [one.name for one in nodes]
    assert {one.notes for one in result.bound} == {("no card chosen: the node has no Device object",)}


def test_only_cards_near_the_numa_nodes_that_the_policy_leaves_are_scored() -> None:
    """Near NUMA node 0 one of two cards would be left, as on the other node, and one of four in all."""
    taken = {"gpu": [{"minor": minor, "resources": CARD} for minor in (2, 3)]}
    there = pod("there", 1, gpus=2, bound=False, annotations={ALLOCATED: json.dumps(taken)})
    there["spec"]["nodeName"] = "n1"
    there["status"] = {"phase": "Running"}
    asks = pod("asks", 2, gpus=1, bound=False)
    nodes = (*node("n1", policy="SingleNUMANode", cards=(0, 0, 1, 1)), *node("n2", cards=(0, 1)))
    snapshot = snapshot_from_objects([*nodes, there, asks]).snapshot
    verdicts = explain(snapshot, "default/asks").verdicts
    assert {one.node: one.scores["DeviceShare"] for one in verdicts} == {"n1": 100, "n2": 100}
