"""Reservations placed over running pods that hold CPUs, NUMA amounts and cards of their own."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore.checking import verify
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.records import result_from_record, result_record
from koordcore.model.decisions import Unschedulable
from koordcore.model.pods import PodKey
from koordcore.model.reservations import Reservation
from koordcore.protocol.reservation import allocated_reservation
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.cpu import parse_cpulist
from tests.reference.cpu_masks import cpu_ids
from tests.reservations.test_fine import ALLOCATED, OWNER, STATUS, owner, reservation
from tests.scheduling.test_numa import node, pod


def running(
    name: str,
    cpu: int,
    *,
    cards: tuple[int, ...] = (),
    cpus: str = "",
    numa: int | None = None,
    **labels: str,
) -> dict[str, Any]:
    """A pod of the reservation's application that holds cards, CPUs, or amounts of a NUMA node."""
    made = pod(name, cpu, gpus=len(cards), bound=bool(cpus))
    made["metadata"]["labels"] = {**made["metadata"]["labels"], **OWNER, **labels}
    annotations: dict[str, Any] = {}
    if cards:
        amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
        annotations[ALLOCATED] = {"gpu": [{"minor": card, "resources": amounts} for card in cards]}
    if cpus or numa is not None:
        status: dict[str, Any] = {"cpuset": cpus} if cpus else {}
        if numa is not None:
            amounts = {"cpu": str(cpu), "memory": "1Gi"}
            status["numaNodeResources"] = [{"node": numa, "resources": amounts}]
        annotations[STATUS] = status
    made["metadata"]["annotations"] = {key: json.dumps(value) for key, value in annotations.items()}
    made["spec"]["nodeName"] = "n1"
    made["status"] = {"phase": "Running"}
    return made


def over(cpu: int, *, gpus: int = 0, bound: bool = False, several: bool = True) -> dict[str, Any]:
    """A reservation that may only be placed over running pods."""
    made = reservation(
        "r1",
        pod("t", cpu, gpus=gpus, bound=bound),
        allocatePolicy="Restricted",
        preAllocation=True,
        preAllocationPolicy={"enableMultiple": several},
    )
    made["metadata"]["labels"] = {"scheduling.koordinator.sh/pre-allocation-required": "true"}
    return made


def placed(*objects: dict[str, Any]) -> ScheduleResult:
    """Place the reservation and whoever waits, and check."""
    snapshot = snapshot_from_objects(list(objects)).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


def owners(result: ScheduleResult) -> list[str]:
    """Names of the pods over which the reservation was placed."""
    users = (one for one in result.snapshot.bound_pods() if allocated_reservation(one.annotations))
    return sorted(one.name for one in users)


def held(result: ScheduleResult, key: str) -> Any:
    """What is written on the reservation."""
    (one,) = result.snapshot.of(Reservation)
    assert one.status.node_name == "n1"
    return json.loads(one.annotations[key])


def cards(result: ScheduleResult) -> set[int]:
    """Minors that the reservation holds."""
    return {entry["minor"] for entry in held(result, ALLOCATED)["gpu"]}


def test_the_card_of_a_running_pod_is_part_of_what_the_reservation_holds() -> None:
    result = placed(*node("n1", cards=(0, 0, 1, 1)), over(2, gpus=2), running("x", 2, cards=(3,)))
    assert owners(result) == ["x"]
    assert 3 in cards(result)
    assert len(cards(result)) == 2


def test_a_node_whose_cards_are_all_in_use_takes_it_over_the_pods_that_use_them() -> None:
    objects = (*node("n1", cards=(0, 1)), running("x", 2, cards=(0,)), running("y", 2, cards=(1,)))
    result = placed(*objects, over(4, gpus=2))
    assert owners(result) == ["x", "y"]
    assert cards(result) == {0, 1}
    alone = placed(*objects, over(4, gpus=2, several=False)).decisions[0]
    assert isinstance(alone, Unschedulable)


def test_the_pods_are_chosen_whose_cards_lie_together() -> None:
    # By amounts any two would do; only y and z have their cards on one NUMA node.
    labels = {"x": 0, "y": 2, "z": 3}
    result = placed(
        *node("n1", policy="SingleNUMANode", cards=(0, 0, 1, 1)),
        over(4, gpus=2),
        *(running(name, 2, cards=(card,), numa=card // 2) for name, card in labels.items()),
        {**running("other", 2, cards=(1,), numa=0), "metadata": other_metadata(1)},
    )
    assert owners(result) == ["y", "z"]
    assert cards(result) == {2, 3}


def other_metadata(card: int) -> dict[str, Any]:
    """Metadata of a pod of another application with one card."""
    made = running("other", 2, cards=(card,), numa=card // 2)["metadata"]
    return {**made, "labels": {"app": "b"}}


@pytest.mark.parametrize("policy", ["", "SingleNUMANode", "Restricted", "BestEffort"])
def test_the_cpus_of_a_running_pod_are_part_of_what_the_reservation_holds(policy: str) -> None:
    result = placed(
        *node("n1", policy=policy),
        over(4, bound=True),
        running("x", 2, cpus="6-7", numa=1 if policy else None),
    )
    assert owners(result) == ["x"]
    cpus = cpu_ids(parse_cpulist(held(result, STATUS)["cpuset"]))
    assert len(cpus) == 4
    assert {6, 7} <= set(cpus)


def test_one_whose_cpus_cannot_be_part_of_it_is_passed_over() -> None:
    result = placed(
        *node("n1", policy="SingleNUMANode"),
        over(2, bound=True, several=False),
        running("a-wide", 2, cpus="1,7"),
        running("near", 2, cpus="4-5", numa=1),
    )
    assert owners(result) == ["near"]
    assert held(result, STATUS)["cpuset"] == "4-5"


def test_amounts_move_to_the_numa_node_where_the_pod_has_them() -> None:
    # Filled by id, NUMA node 0 would give four CPUs and the other one; three have to be on the other.
    result = placed(*node("n1", policy="Restricted"), over(5), running("x", 3, numa=1))
    amounts = {one["node"]: one["resources"]["cpu"] for one in held(result, STATUS)["numaNodeResources"]}
    assert owners(result) == ["x"]
    assert amounts == {0: "2", 1: "3"}


def test_what_the_pods_and_the_reservation_hold_together_counts_once() -> None:
    stranger = pod("s", 1, gpus=1, bound=False)
    late = pod("late", 1, gpus=1, bound=False)
    user = owner("o", 1, gpus=1, bound=False)
    for one in (late, user):
        one["spec"]["priority"] = 9000
    result = placed(
        *node("n1", cards=(0, 0, 1, 1)),
        over(3, gpus=2),
        running("x", 2, cards=(3,)),
        stranger,
        late,
        user,
    )
    bound = {one.pod.name: one.reservation for one in result.bound if one.pod.name != "uid-r1"}
    assert bound == {"s": "", "late": "", "o": "r1"}
    again = ClusterSnapshot(nodes=result.snapshot.nodes, records=result.snapshot.records)
    refused = schedule(
        again, [snapshot_from_objects([pod("more", 1, gpus=1, bound=False)]).snapshot.pending[0]]
    )
    assert isinstance(refused.decisions[0], Unschedulable)


@pytest.mark.parametrize("change", ["card", "cpus"])
def test_a_reservation_that_leaves_out_what_its_first_owners_hold_is_found(change: str) -> None:
    objects = (
        *node("n1", cards=(0, 1)),
        over(4, gpus=1, bound=True),
        running("x", 2, cards=(1,), cpus="6-7"),
    )
    snapshot = snapshot_from_objects(list(objects)).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    (one,) = result.snapshot.of(Reservation)
    key, wrong = {
        "card": (ALLOCATED, one.annotations[ALLOCATED].replace('"minor":1', '"minor":0')),
        "cpus": (STATUS, json.dumps({"cpuset": "0-3"})),
    }[change]
    bad = attrs.evolve(
        result,
        snapshot=result.snapshot.with_records(attrs.evolve(one, annotations={**one.annotations, key: wrong})),
        decisions=tuple(
            attrs.evolve(decision, annotations={**decision.annotations, key: wrong})
            for decision in result.bound
        ),
    )
    told = [found.message for found in verify(snapshot, bad)]
    assert any("first owners" in text or "does not hold the CPUs" in text for text in told)


def test_a_plan_that_was_written_down_names_the_pods_and_says_the_same() -> None:
    objects = (*node("n1", cards=(0, 1)), over(4, gpus=2), running("x", 2, cards=(0,)))
    snapshot = snapshot_from_objects(list(objects)).snapshot
    result = schedule(snapshot)
    assert [str(key) for one in result.bound for key in one.over] == ["default/x"]
    again = result_from_record(snapshot, json.loads(json.dumps(result_record(result))), policy=result.policy)
    assert again == result
    assert verify(snapshot, again) == ()
    wrong = attrs.evolve(result.bound[0], over=(PodKey("default", "y"),))
    bad = attrs.evolve(result, decisions=(wrong,))
    assert any("is placed over default/y" in one.message for one in verify(snapshot, bad))
