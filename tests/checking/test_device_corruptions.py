"""Corrupted device allocations are found."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, Pod, ScheduleResult, ViolationKind, schedule, verify
from koordcore.manifests import snapshot_from_objects

JOINT = "scheduling.koordinator.sh/device-joint-allocate"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory-ratio": "100",
    "koordinator.sh/gpu-memory": "80Gi",
}


def device(kind: str, minor: int, *, pcie: str, healthy: bool = True) -> dict[str, Any]:
    nic = {
        "resources": {"koordinator.sh/rdma": "100"},
        "vfGroups": [{"vfs": [{"minor": -1, "busID": f"{minor}.1"}, {"minor": -1, "busID": f"{minor}.2"}]}],
    }
    return {
        "type": kind,
        "minor": minor,
        "id": f"{kind}-{minor}",
        "health": healthy,
        "topology": {"nodeID": 0, "pcieID": pcie},
        **({"resources": CARD} if kind == "gpu" else nic),
    }


def pod(
    name: str, requests: dict[str, str], annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": requests}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {"containers": containers, **spec},
    }


def cluster() -> ClusterSnapshot:
    """One node, four cards on two switches (the last one broken), two NICs; one card is half taken."""
    half = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    allocatable = {
        "cpu": "64",
        "memory": "1Ti",
        "pods": "110",
        "koordinator.sh/gpu-core": "400",
        "koordinator.sh/gpu-memory-ratio": "400",
        "koordinator.sh/rdma": "200",
    }
    return snapshot_from_objects(
        [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {"allocatable": allocatable},
            },
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {"name": "n"},
                "spec": {
                    "devices": [
                        device("gpu", 0, pcie="a"),
                        device("gpu", 1, pcie="a"),
                        device("gpu", 2, pcie="b"),
                        device("gpu", 3, pcie="b", healthy=False),
                        device("rdma", 0, pcie="a"),
                        device("rdma", 1, pcie="b"),
                    ]
                },
            },
            pod(
                "old", half, {ALLOCATED: json.dumps({"gpu": [{"minor": 2, "resources": half}]})}, nodeName="n"
            ),
            pod(
                "joint",
                {
                    "koordinator.sh/gpu-core": "200",
                    "koordinator.sh/gpu-memory-ratio": "200",
                    "koordinator.sh/rdma": "1",
                },
                {
                    JOINT: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
                    "scheduling.koordinator.sh/device-allocate-hint": '{"rdma":{"vfSelector":{}}}',
                },
            ),
            pod("half", half),
        ]
    ).snapshot


def rewritten(
    name: str, change: Callable[[dict[str, Any]], None]
) -> Callable[[ScheduleResult], ScheduleResult]:
    """The plan with one pod's allocation changed, consistently in decision and snapshot."""

    def corrupt(result: ScheduleResult) -> ScheduleResult:
        decision = next(one for one in result.bound if one.pod.name == name)
        raw = json.loads(decision.annotations[ALLOCATED])
        change(raw)
        annotations = {**decision.annotations, ALLOCATED: json.dumps(raw)}
        decisions = tuple(
            attrs.evolve(one, annotations=annotations) if one is decision else one for one in result.decisions
        )
        old = result.snapshot.pod(decision.pod)
        assert old is not None
        after = result.snapshot.forget(old.key).assume(old.at("n", annotations=annotations))
        return attrs.evolve(result, decisions=decisions, snapshot=after)

    return corrupt


def set_minor(kind: str, index: int, minor: int) -> Callable[[dict[str, Any]], None]:
    return lambda raw: raw[kind][index].update(minor=minor)


CORRUPTIONS = {
    "card that does not exist": rewritten("joint", set_minor("gpu", 0, 9)),
    "broken card": rewritten("joint", set_minor("gpu", 0, 3)),
    "card of another pod": rewritten("joint", set_minor("gpu", 0, 2)),
    "one card twice": rewritten("joint", set_minor("gpu", 0, 1)),
    "NIC on the other switch": rewritten("joint", set_minor("rdma", 0, 1)),
    "fewer cards than asked": rewritten("joint", lambda raw: raw["gpu"].pop()),
    "a resource that the card does not have": rewritten(
        "half", lambda raw: raw["gpu"][0]["resources"].update({"koordinator.sh/rdma": "1"})
    ),
    "nothing at all": rewritten("half", lambda raw: raw.clear()),
    "no JSON object": rewritten("half", lambda raw: raw.update(gpu="all of them")),
}


def test_the_plan_itself_is_legal() -> None:
    """Both pods get what they ask for, and the joint one a NIC on the switch of its cards."""
    snapshot = cluster()
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    joint = next(one for one in result.bound if one.pod.name == "joint")
    raw = json.loads(joint.annotations[ALLOCATED])
    assert [one["minor"] for one in raw["gpu"]] == [0, 1]
    assert [one["minor"] for one in raw["rdma"]] == [0]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_is_found(name: str) -> None:
    """Each is refused as a device violation."""
    snapshot = cluster()
    found = verify(snapshot, CORRUPTIONS[name](schedule(snapshot)))
    assert ViolationKind.DEVICE in {violation.kind for violation in found}, found


def test_a_virtual_function_is_given_once() -> None:
    """Two pods with the same VF are told apart from two pods on one NIC."""
    wish = {"scheduling.koordinator.sh/device-allocate-hint": '{"rdma":{"vfSelector":{}}}'}
    snapshot = cluster().forget(Pod(name="joint").key)
    more = snapshot_from_objects(
        [pod(f"vf{number}", {"koordinator.sh/rdma": "1"}, wish) for number in (1, 2)]
    ).snapshot
    snapshot = snapshot.with_pending(*more.pending)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    first = json.loads(next(one for one in result.bound if one.pod.name == "vf1").annotations[ALLOCATED])

    def same(raw: dict[str, Any]) -> None:
        raw.clear()
        raw.update(first)

    assert verify(snapshot, rewritten("vf2", same)(result))


TABLE = {
    "1": [{"minors": [minor], "allocationScore": 1} for minor in range(4)],
    "2": [
        {"minors": [0, 2], "allocationScore": 2, "ringBusBandwidth": "100Gi"},
        {"minors": [1, 3], "allocationScore": 1},
    ],
}
SPEC = "scheduling.koordinator.sh/gpu-partition-spec"
HINT = "scheduling.koordinator.sh/device-allocate-hint"


def placed_on_a_table(annotations: dict[str, str], *, honor: bool) -> tuple[ClusterSnapshot, ScheduleResult]:
    """Four idle cards on two switches with a table of partitions, and a pod that wants two of them."""
    two = {"koordinator.sh/gpu-core": "200", "koordinator.sh/gpu-memory-ratio": "200"}
    labels = {"node.koordinator.sh/gpu-partition-policy": "Honor"} if honor else {}
    table = {"scheduling.koordinator.sh/gpu-partitions": json.dumps(TABLE)}
    devices = [device("gpu", minor, pcie=str(minor // 2)) for minor in range(4)]
    for one in devices:
        one["topology"]["nodeID"] = one["minor"] // 2
    snapshot = snapshot_from_objects(
        [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {
                    "allocatable": {
                        "pods": "10",
                        "koordinator.sh/gpu-core": "400",
                        "koordinator.sh/gpu-memory-ratio": "400",
                    }
                },
            },
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {"name": "n", "labels": labels, "annotations": table},
                "spec": {"devices": devices},
            },
            pod("two", two, annotations),
        ]
    ).snapshot
    result = schedule(snapshot)
    assert len(result.bound) == 1
    return snapshot, result


@pytest.mark.parametrize(
    ("annotations", "honor", "minors", "message"),
    [
        ({}, True, (0, 1), "cards {0, 1} are no partition of the node"),
        ({SPEC: "{}"}, False, (1, 2), "cards {1, 2} are no partition of the node"),
        (
            {SPEC: '{"allocatePolicy":"Restricted"}'},
            False,
            (1, 3),
            "partition {1, 3} is not of the best score 2",
        ),
        (
            {SPEC: '{"ringBusBandwidth":"50Gi"}'},
            True,
            (1, 3),
            "partition {1, 3} has too little bandwidth",
        ),
    ],
    ids=["honoured table", "demanded partition", "restricted", "bandwidth"],
)
def test_cards_outside_a_partition_are_found(
    annotations: dict[str, str], honor: bool, minors: tuple[int, int], message: str
) -> None:
    """The plan itself is legal; with other cards it is not, and the message says why."""
    snapshot, result = placed_on_a_table(annotations, honor=honor)
    assert verify(snapshot, result) == ()

    def move(raw: dict[str, Any]) -> None:
        for entry, minor in zip(raw["gpu"], minors, strict=True):
            entry["minor"] = minor

    assert message in [one.message for one in verify(snapshot, rewritten("two", move)(result))]


@pytest.mark.parametrize("scope", ["NUMANode", "PCIe"])
def test_cards_out_of_scope_are_found(scope: str) -> None:
    """Two cards on two NUMA nodes are neither inside one of them nor on one switch."""
    wish = {HINT: json.dumps({"gpu": {"requiredTopologyScope": scope}})}
    # No partition of the table lies inside one scope, so the pod goes by topology.
    snapshot, result = placed_on_a_table(wish, honor=False)
    assert verify(snapshot, result) == ()
    found = verify(snapshot, rewritten("two", set_minor("gpu", 1, 2))(result))
    assert f"cards 0, 2 are not inside one {scope}" in [one.message for one in found]
