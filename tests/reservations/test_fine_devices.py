"""Reservations of virtual functions and of partitions: held, drawn from exactly, and given back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.checking import verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Unschedulable
from koordcore.model.pods import PodKey
from koordcore.model.reservations import Reservation
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.test_fine import ALLOCATED, given, held, owner, reservation
from tests.reservations.test_preallocated_fine import over
from tests.scheduling.test_numa import node, pod

JOINT = {
    "scheduling.koordinator.sh/device-joint-allocate": '{"deviceTypes":["gpu","rdma"]}',
    "scheduling.koordinator.sh/device-allocate-hint": '{"rdma":{"vfSelector":{}}}',
}
PARTITIONED = {"scheduling.koordinator.sh/gpu-partition-spec": "{}"}


def wired(name: str) -> list[dict[str, Any]]:
    """A node of two cards, each with a NIC of two virtual functions on its switch."""
    objects = node(name, cards=(0, 1))
    made, device = objects[0], objects[2]
    made["status"]["allocatable"]["koordinator.sh/rdma"] = "200"
    for minor in range(2):
        functions = [{"busID": f"0000:{minor}f:00.{rank}", "minor": rank} for rank in range(2)]
        device["spec"]["devices"].append(
            {
                "type": "rdma",
                "minor": minor,
                "id": f"NIC-{minor}",
                "health": True,
                "topology": {"nodeID": minor, "socketID": 0, "pcieID": str(minor)},
                "resources": {"koordinator.sh/rdma": "100"},
                "vfGroups": [{"vfs": functions}],
            }
        )
    return objects


def asking(made: dict[str, Any], annotations: dict[str, str], rdma: int = 0) -> dict[str, Any]:
    """Add annotations and a share of a NIC to a pod or a template."""
    made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **annotations}
    for amounts in made["spec"]["containers"][0]["resources"].values():
        if rdma:
            amounts["koordinator.sh/rdma"] = str(rdma)
    return made


def functions(entries: dict[str, Any]) -> list[str]:
    """Bus ids of the virtual functions in an allocation."""
    return [vf["busID"] for nic in entries["rdma"] for vf in nic["extension"]["vfs"]]


def placed(snapshot: ClusterSnapshot) -> ScheduleResult:
    """Schedule and check."""
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


@pytest.mark.parametrize("policy", ["", "Aligned", "Restricted"])
def test_owners_draw_exactly_the_card_and_the_function_that_are_held(policy: str) -> None:
    snapshot = held(
        *wired("n1"),
        reservation("r1", asking(pod("t", 2, gpus=1, bound=False), JOINT, 100), allocatePolicy=policy),
        asking(owner("o", 2, gpus=1, bound=False), JOINT, 100),
        asking(pod("s", 2, gpus=1, bound=False), JOINT, 100),
    )
    (one,) = snapshot.of(Reservation)
    kept = json.loads(one.annotations[ALLOCATED])
    result = placed(snapshot)
    mine, other = given(result, "o", ALLOCATED), given(result, "s", ALLOCATED)
    assert functions(mine) == functions(kept)
    assert [card["minor"] for card in mine["gpu"]] == [card["minor"] for card in kept["gpu"]]
    assert not set(functions(other)) & set(functions(kept))


def test_functions_come_back_with_their_user_to_the_reservation() -> None:
    snapshot = held(
        *wired("n1"),
        reservation("r1", asking(pod("t", 2, gpus=1, bound=False), JOINT, 100)),
        asking(owner("o", 2, gpus=1, bound=False), JOINT, 100),
    )
    used = placed(snapshot).snapshot
    gone = used.forget(PodKey("default", "o"))
    again = asking(owner("again", 2, gpus=1, bound=False), JOINT, 100)
    late = gone.with_pending(*snapshot_from_objects([again]).snapshot.pending)
    (one,) = snapshot.of(Reservation)
    result = placed(late)
    assert functions(given(result, "again", ALLOCATED)) == functions(json.loads(one.annotations[ALLOCATED]))


def test_a_reservation_over_a_pod_holds_its_function() -> None:
    running = asking(owner("x", 2, gpus=1, bound=False), JOINT, 100)
    del running["metadata"]["annotations"]["scheduling.koordinator.sh/reservation-affinity"]
    first = placed(snapshot_from_objects([*wired("n1"), running]).snapshot)
    taken = given(first, "x", ALLOCATED)
    made = over(3, gpus=2)
    asking(made["spec"]["template"], JOINT, 200)
    more = snapshot_from_objects([made]).snapshot
    after = first.snapshot.with_records(*more.records)
    running_pod = next(iter(after.bound_pods()))
    ready = after.forget(running_pod.key).assume(running_pod.at("n1"))
    result = placed(ready)
    (one,) = result.snapshot.of(Reservation)
    assert one.status.current_owners[0].name == "x"
    assert set(functions(taken)) <= set(functions(json.loads(one.annotations[ALLOCATED])))


def test_a_partition_is_held_and_drawn_from_as_a_whole() -> None:
    objects = node("n1", cards=(0, 0, 1, 1))
    table = {
        "2": [
            {"minors": minors, "gpuLinkType": "NVLink", "ringBusBandwidth": "400Gi", "allocationScore": 1}
            for minors in ([0, 2], [1, 3])
        ]
    }
    objects[2]["metadata"]["annotations"] = {"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)}
    objects[2]["metadata"]["labels"] = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
    snapshot = held(
        *objects,
        reservation("r1", asking(pod("t", 2, gpus=2, bound=False), PARTITIONED), allocatePolicy="Restricted"),
        asking(owner("o", 2, gpus=2, bound=False), PARTITIONED),
        asking(pod("s", 2, gpus=2, bound=False), PARTITIONED),
        asking(pod("tardy", 1, gpus=2, bound=False), PARTITIONED),
    )
    (one,) = snapshot.of(Reservation)
    kept = {card["minor"] for card in json.loads(one.annotations[ALLOCATED])["gpu"]}
    result = placed(snapshot)
    assert kept in ({0, 2}, {1, 3})
    assert {card["minor"] for card in given(result, "o", ALLOCATED)["gpu"]} == kept
    assert {card["minor"] for card in given(result, "s", ALLOCATED)["gpu"]} == {0, 1, 2, 3} - kept
    assert isinstance(next(d for d in result.decisions if d.pod.name == "tardy"), Unschedulable)


def test_ignoring_pods_take_the_cards_and_cpus_that_owners_have_not() -> None:
    ignoring = [pod(name, 2, gpus=1) for name in ("i1", "i2")]
    for one in ignoring:
        one["metadata"]["labels"]["scheduling.koordinator.sh/reservation-ignored"] = "true"
        one["spec"]["priority"] = 9000
    snapshot = held(
        *node("n1", cards=(0, 1)), reservation("r1", pod("t", 4, gpus=2)), owner("o", 2, gpus=1), *ignoring
    )
    result = placed(snapshot)
    assert [one.pod.name for one in result.bound] == ["o", "i1"]
    mine, other = given(result, "o", ALLOCATED), given(result, "i1", ALLOCATED)
    assert mine["gpu"][0]["minor"] != other["gpu"][0]["minor"]
