"""One cycle of a pod that reservations concern: who is blamed, and how nodes are scored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.explaining.cycle import Cycle, explain_cycle
from koordcore.manifests.named_policies import named_policy
from koordcore.model.pods import PodKey
from koordcore.model.reservations import Reservation
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.test_fine import OWNER, checked, held, owner, reservation
from tests.scheduling.test_numa import cluster, node, pod

SPEC = "scheduling.koordinator.sh/resource-spec"
PARTITIONED = {"scheduling.koordinator.sh/gpu-partition-spec": "{}"}
SHIPPED = named_policy("koordinator")
NO_TABLE = "node(s) missing GPU Partition Table"


def cycle_of(snapshot: ClusterSnapshot, name: str) -> Cycle:
    """Lay the cycle of a waiting pod open."""
    waiting = snapshot.pod(PodKey("default", name))
    assert waiting is not None
    return explain_cycle(snapshot, waiting, policy=SHIPPED)


def may(made: dict[str, Any]) -> dict[str, Any]:
    """Let a pod use reservations without having to."""
    made["metadata"]["labels"] = {**made["metadata"]["labels"], **OWNER}
    return made


def ordered(one: dict[str, Any], order: int) -> dict[str, Any]:
    """Put a reservation in its place in line."""
    one["metadata"]["labels"] = {"scheduling.koordinator.sh/reservation-order": str(order)}
    return one


def test_numa_nodes_are_scored_as_the_reservation_leaves_them() -> None:
    snapshot = held(
        *node("n1", policy="SingleNUMANode"),
        reservation("r1", pod("t", 2), allocatePolicy="Restricted"),
        *node("n2", policy="SingleNUMANode"),
        may(pod("o", 2)),
    )
    scores = cycle_of(snapshot, "o").scores
    # The memory is given back; the two CPUs are those that the pod takes, and count twice: 0 and 93 of 100.
    assert scores["n1"]["NodeNUMAResource"] == 46
    assert scores["n2"]["NodeNUMAResource"] == 71


@pytest.mark.parametrize(
    ("policy", "score"), [("BestEffort", 85), ("Restricted", 71), ("SingleNUMANode", 71)]
)
def test_of_the_cpus_that_a_reservation_holds_only_those_that_the_pod_takes_count(
    policy: str, score: int
) -> None:
    """One of four, counted twice: half of the NUMA node is left then, and three quarters of the whole node.

    The memory that is left is 93 of 100 there and 96 of the whole node, which BestEffort scores.
    """
    snapshot = held(
        *node("n1", policy=policy),
        reservation("r1", pod("t", 4)),
        *node("n2", policy=policy),
        may(pod("o", 1)),
    )
    assert cycle_of(snapshot, "o").scores["n1"]["NodeNUMAResource"] == score


def test_cards_are_scored_as_the_reservation_holds_them() -> None:
    without = held(
        *node("n1", cards=(0, 1)),
        reservation("r1", pod("t", 2, bound=False)),
        *node("n2", cards=(0, 1)),
        may(pod("o", 2, gpus=1, bound=False)),
    )
    scores = cycle_of(without, "o").scores
    assert (scores["n1"]["DeviceShare"], scores["n2"]["DeviceShare"]) == (0, 100)
    holding = held(
        *node("n1", cards=(0, 1)),
        reservation("r1", pod("t", 2, gpus=1, bound=False)),
        *node("n2", cards=(0, 1)),
        may(pod("o", 2, gpus=1, bound=False)),
    )
    scores = cycle_of(holding, "o").scores
    assert scores["n1"]["DeviceShare"] == scores["n2"]["DeviceShare"] == 100


@pytest.mark.parametrize(
    ("policy", "plugin", "resolvable"),
    [
        ("", "DeviceShare", False),
        ("BestEffort", "DeviceShare", False),
        ("Restricted", "NodeNUMAResource", True),
    ],
)
def test_who_lacks_cards_is_named_after_the_policy(policy: str, plugin: str, resolvable: bool) -> None:
    snapshot = cluster(*node("n1", policy=policy, cards=(0, 1)), pod("p", 2, gpus=1, annotations=PARTITIONED))
    verdict = cycle_of(snapshot, "p").filters["n1"]
    assert (verdict.plugin, verdict.reasons, verdict.resolvable) == (plugin, (NO_TABLE,), resolvable)


def test_a_pod_that_must_use_a_reservation_is_told_of_each_that_has_cards() -> None:
    snapshot = held(
        *node("n1", cards=(0, 0, 1, 1)),
        reservation("r1", pod("t", 2, gpus=1, bound=False)),
        reservation("r2", pod("t", 2, gpus=1, bound=False)),
        owner("o", 2, gpus=1, bound=False, annotations=PARTITIONED),
    )
    verdict = cycle_of(snapshot, "o").filters["n1"]
    assert verdict.plugin == "DeviceShare"
    assert verdict.reasons == (f"Reservation(s) {NO_TABLE}",) * 2
    assert verdict.resolvable


def test_amplified_cpu_counts_without_what_the_reservation_gives() -> None:
    objects = node("n1")
    objects[0]["metadata"]["annotations"] = {
        "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.25}',
        "node.koordinator.sh/raw-allocatable": '{"cpu":"8"}',
    }
    objects[0]["status"]["allocatable"]["cpu"] = "10"
    running = pod("w", 3, bound=False)
    running["spec"]["nodeName"] = "n1"
    # Four bound CPUs count five of ten: beside three that run they fit once the four that are held are gone.
    snapshot = held(
        *objects,
        running,
        reservation("r1", pod("t", 4, bound=False)),
        may(pod("o", 4)),
        pod("stranger", 4),
    )
    result = checked(snapshot)
    assert {(one.pod.name, one.reservation) for one in result.bound} == {("o", "r1")}
    assert cycle_of(snapshot, "stranger").filters["n1"].reasons == ("Insufficient cpu",)


def test_what_the_template_says_is_written_on_the_reservation_as_well() -> None:
    template = pod("t", 2, annotations={SPEC: '{"preferredCPUBindPolicy":"FullPCPUs"}'})
    (one,) = held(*node("n1"), reservation("r1", template)).of(Reservation)
    assert json.loads(one.annotations[SPEC]) == {"preferredCPUBindPolicy": "FullPCPUs"}


def test_of_equal_orders_the_better_filled_reservation_serves() -> None:
    for first, second, expected in ((4, 2, "r2"), (2, 4, "r1")):
        snapshot = held(
            *node("n1"),
            ordered(reservation("r1", pod("t", first, bound=False)), 1),
            ordered(reservation("r2", pod("t", second, bound=False)), 1),
            may(pod("o", 2, bound=False)),
        )
        assert [one.reservation for one in checked(snapshot).bound] == [expected]


def test_a_reservation_for_shared_cpus_serves_an_owner_with_its_own() -> None:
    """It holds amounts of a NUMA node and no CPUs: the owner gets free CPUs of that NUMA node out of it."""
    snapshot = held(
        *node("n1", policy="BestEffort"),
        reservation("r1", pod("t", 4, bound=False), allocatePolicy="Restricted"),
        may(pod("o", 4)),
    )
    (bound,) = checked(snapshot).bound
    assert (bound.node, bound.reservation) == ("n1", "r1")
    status = json.loads(bound.annotations["scheduling.koordinator.sh/resource-status"])
    assert status["cpuset"] == "0-3"
    assert [entry["node"] for entry in status["numaNodeResources"]] == [0]


def test_who_must_sit_in_reservations_is_told_what_each_lacks() -> None:
    spec = {SPEC: '{"requiredCPUBindPolicy":"SpreadByPCPUs"}'}
    many = [reservation(f"r{index}", pod("t", 2), allocatePolicy="Restricted") for index in range(2)]
    snapshot = held(*node("n1"), *many, owner("o", 3, annotations=spec))
    verdict = cycle_of(snapshot, "o").filters["n1"]
    assert verdict.plugin == "NodeNUMAResource"
    assert verdict.reasons == ("Reservation(s) not enough cpus available to satisfy request",) * 2
    snapshot = held(*node("n1"), *many, owner("o", 3, bound=False))
    verdict = cycle_of(snapshot, "o").filters["n1"]
    assert verdict.plugin == "Reservation"
    assert verdict.reasons == ("Reservation(s) Insufficient cpu",) * 2
    assert cycle_of(snapshot, "o").message == "0/1 nodes are available: 2 Reservation(s) Insufficient cpu."


def test_under_best_effort_all_cards_are_scored_wherever_the_reservation_has_its_own() -> None:
    """It has two of four, on one NUMA node: with one of them three are left, and one of two elsewhere."""
    more = cluster(*node("n2", cards=(0, 1)))
    snapshot = held(
        *node("n1", policy="BestEffort", cards=(0, 0, 1, 1)),
        reservation("r1", pod("t", 2, gpus=2)),
        may(pod("o", 2, gpus=1)),
    )
    snapshot = snapshot.with_nodes(*more.layout.nodes).with_records(*more.records)
    scores = cycle_of(snapshot, "o").scores
    assert (scores["n1"]["DeviceShare"], scores["n2"]["DeviceShare"]) == (100, 86)
