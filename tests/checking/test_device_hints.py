"""What a pod's hints say of its devices is kept to, and what is written of a device is the device's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, PodKey, ScheduleResult, ViolationKind, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.devices import DeviceObject

Json = dict[str, Any]
K = "koordinator.sh/"
S = "scheduling.koordinator.sh/"
ALLOCATED = S + "device-allocated"
HELD = {K + "rdma": "10"}


def card(minor: int) -> Json:
    return {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": True,
        "resources": {K + "gpu-core": "100", K + "gpu-memory": "80Gi", K + "gpu-memory-ratio": "100"},
        "topology": {"nodeID": minor // 4, "pcieID": str(minor // 2)},
    }


def nic(minor: int) -> Json:
    groups = [
        {"labels": {"type": kind}, "vfs": [{"minor": at, "busID": f"{minor}.{at}"} for at in numbers]}
        for kind, numbers in (("fast", (1, 2)), ("slow", (3,)))
    ]
    return {
        "type": "rdma",
        "minor": minor,
        "id": f"nic-{minor}",
        "health": minor != 4,
        "labels": {"rail": str(minor // 2)},
        "resources": {K + "rdma": "100"},
        "topology": {"nodeID": minor // 2, "pcieID": str(minor // 2)},
        "vfGroups": groups,
    }


def pod(name: str, asks: Json, hint: Json | None = None, given: Json | None = None) -> Json:
    notes = {S + "device-allocate-hint": json.dumps(hint)} if hint else {}
    notes |= {ALLOCATED: json.dumps(given)} if given else {}
    box = {"name": "c", "resources": {"requests": asks, "limits": asks}}
    spec: Json = {"containers": [box], **({"nodeName": "n"} if given else {})}
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def cluster(*pods: Json) -> ClusterSnapshot:
    devices = [*map(card, range(8)), *map(nic, range(5))]
    room = {"cpu": "64", "pods": "50", K + "rdma": "500"}
    room |= {K + name: "800" for name in ("gpu-core", "gpu-memory-ratio", "gpu")} | {
        K + "gpu-memory": "640Gi"
    }
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}},
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": "n"},
            "spec": {"devices": devices},
        },
        *pods,
    ]
    return snapshot_from_objects(objects).snapshot


def written(result: ScheduleResult, text: str) -> ScheduleResult:
    """Give the result with other devices for the pod, in the decision and in the cluster."""
    key = PodKey("default", "p")
    decisions = [
        attrs.evolve(one, annotations={**one.annotations, ALLOCATED: text})
        if isinstance(one, Bound) and one.pod == key
        else one
        for one in result.decisions
    ]
    after = result.snapshot.pod(key)
    assert after is not None
    changed = attrs.evolve(after, annotations={**after.annotations, ALLOCATED: text})
    there = result.snapshot.forget(key).assume(changed)
    return attrs.evolve(result, decisions=tuple(decisions), snapshot=there)


def told(change: Callable[[Json], object], *pods: Json) -> list[str]:
    """What is wrong once the devices that ``schedule`` gave are changed; nothing was before."""
    snapshot = cluster(*pods)
    result = schedule(snapshot)
    decision = result.decision("default/p")
    assert isinstance(decision, Bound)
    assert verify(snapshot, result) == ()
    held = json.loads(decision.annotations[ALLOCATED])
    change(held)
    found = verify(snapshot, written(result, json.dumps(held)))
    assert {one.kind for one in found} <= {ViolationKind.DEVICE}
    return [one.message for one in found]


def goes(minor: int, kind: str = "rdma", at: int = 0) -> Callable[[Json], object]:
    """Move one device of the pod, with its id."""
    name = "GPU" if kind == "gpu" else "nic"
    return lambda held: held[kind][at].update(minor=minor, id=f"{name}-{minor}")


def gets(name: str, minor: int = 0) -> Callable[[Json], object]:
    """Give another VF, and the NIC that it is said to be of."""

    def change(held: Json) -> None:
        goes(minor)(held)
        held["rdma"][0]["extension"] = {"vfs": [{"busID": name}]}

    return change


NIC, HALF = {K + "rdma": "10"}, {K + "gpu-core": "50", K + "gpu-memory-ratio": "50"}
FAST = {"rdma": {"vfSelector": {"matchLabels": {"type": "fast"}}}}


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (gets("3.2", 3), []),
        (gets("0.9"), ["VF 0.9 of rdma 0 of n does not exist"]),
        (gets("1.1"), ["VF 1.1 of rdma 0 of n does not exist"]),
        (gets("0.3"), ["VF 0.3 of rdma 0 of n has not the labels that are asked for"]),
        (lambda held: held["rdma"][0].pop("extension"), ["asked for VFs, and is given none of rdma 0 of n"]),
    ],
)
def test_virtual_functions_exist_and_are_those_asked_for(
    change: Callable[[Json], object], wrong: list[str]
) -> None:
    assert told(change, pod("p", NIC, FAST)) == wrong


def test_nobody_is_given_more_virtual_functions_than_he_asks_for() -> None:
    """One of each device, unless the amount is a number of them; and none where none is asked for."""

    def also(name: str) -> Callable[[Json], object]:
        return lambda held: (
            held["rdma"][0].setdefault("extension", {}).setdefault("vfs", []).append({"busID": name})
        )

    assert told(also("0.2"), pod("p", NIC, FAST)) == [
        "asked for 1 VF of a device, and is given 2 of rdma 0 of n"
    ]
    assert told(also("0.1"), pod("p", NIC)) == ["asked for no VF of a device, and is given 1 of rdma 0 of n"]


def test_a_device_is_told_by_its_own_id() -> None:
    assert told(goes(5, "gpu"), pod("p", HALF)) == []
    wrong = told(lambda held: held["gpu"][0].update(minor=5), pod("p", HALF))
    assert wrong == ["gpu 5 of n is GPU-5, and not GPU-0"]
    assert told(lambda held: held["gpu"][0].pop("id"), pod("p", HALF)) == []


@pytest.mark.parametrize(
    ("asks", "wrong"),
    [
        (HALF, f"holds 8589934592 {K}gpu-memory of gpu 0, 50 of 100 are 42949672960"),
        ({K + "gpu-memory": "8Gi"}, f"holds 50 {K}gpu-memory-ratio of gpu 0, its memory is 10"),
    ],
)
def test_memory_and_its_ratio_agree(asks: Json, wrong: str) -> None:
    off = {K + "gpu-memory": "8Gi", K + "gpu-memory-ratio": "50"}
    assert told(lambda held: held["gpu"][0]["resources"].update(off), pod("p", asks)) == [wrong]


def test_devices_have_the_labels_of_the_selector() -> None:
    hint = {"rdma": {"selector": {"matchLabels": {"rail": "1"}}}}
    assert told(goes(3), pod("p", NIC, hint)) == []
    assert told(goes(0), pod("p", NIC, hint)) == ["rdma 0 of n has not the labels that are asked for"]


def test_requests_as_count_are_so_many_devices() -> None:
    asks = pod("p", {K + "rdma": "2"}, {"rdma": {"allocateStrategy": "RequestsAsCount"}})
    assert told(goes(3, at=1), asks) == []
    assert told(goes(0, at=1), asks) == ["holds one rdma twice"]

    def one_for_both(held: Json) -> None:
        held["rdma"].pop()
        held["rdma"][0]["resources"][K + "rdma"] = "2"

    assert told(one_for_both, asks) == [
        "asked for 2 rdma devices, holds 1",
        f"holds 2 {K}rdma of rdma 0, a share is 1",
    ]


def test_several_functions_of_one_device_count_each() -> None:
    """All other NICs are taken, so that one gives two of its VFs (ruling 4)."""
    others = {"rdma": [{"minor": minor, "resources": {K + "rdma": "100"}} for minor in range(1, 4)]}
    hint = {"rdma": {**FAST["rdma"], "allocateStrategy": "RequestsAsCount"}}
    running = pod("r", {K + "rdma": "300"}, given=others)
    asks = pod("p", {K + "rdma": "2"}, hint)
    assert told(lambda held: None, running, asks) == []
    wrong = told(lambda held: held["rdma"][0]["extension"]["vfs"].pop(), running, asks)
    assert wrong == ["asked for 2 rdma devices, holds 1", f"holds 2 {K}rdma of rdma 0, a share is 1"]


def test_all_healthy_devices_that_match_are_given_where_all_are_asked_for() -> None:
    """The last of five is broken."""
    hint = {"rdma": {"allocateStrategy": "ApplyForAll"}}
    asks = pod("p", {K + "rdma": "20"}, hint)
    assert told(lambda held: held["rdma"].pop(), asks) == ["asked for 4 rdma devices, holds 3"]
    hint["rdma"]["selector"] = {"matchLabels": {"rail": "0"}}  # type: ignore[assignment]
    asks = pod("p", {K + "rdma": "20"}, hint)
    more = {"minor": 2, "id": "nic-2", "resources": {K + "rdma": "20"}}
    assert told(lambda held: held["rdma"].append(more), asks) == [
        "asked for 2 rdma devices, holds 3",
        "rdma 2 of n has not the labels that are asked for",
    ]


def test_a_device_with_nothing_to_give_is_none_of_all() -> None:
    asks = pod("p", {K + "rdma": "20"}, {"rdma": {"allocateStrategy": "ApplyForAll"}})
    snapshot = cluster(asks)
    (device,) = snapshot.of(DeviceObject)
    empty = [attrs.evolve(one, resources={}) if one.id == "nic-3" else one for one in device.devices]
    snapshot = snapshot.with_records(attrs.evolve(device, devices=tuple(empty)))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    (bound,) = result.bound
    assert [one["minor"] for one in json.loads(bound.annotations[ALLOCATED])["rdma"]] == [0, 1, 2]


def test_all_devices_of_a_type_are_given_on_every_switch() -> None:
    """The type leaves the joint allocation: its devices need not be on the switch of the card."""
    asks = pod("p", {**HALF, K + "rdma": "20"}, {"rdma": {"allocateStrategy": "ApplyForAll"}})
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    asks["metadata"]["annotations"][S + "device-joint-allocate"] = json.dumps(joint)
    assert told(goes(5, "gpu"), asks) == []


def test_nothing_is_given_that_was_not_asked_for() -> None:
    more = {"rdma": [{"minor": 2, "id": "nic-2", "resources": {K + "rdma": "1"}}]}
    assert told(lambda held: held.update(more), pod("p", HALF)) == ["holds rdma, for which it did not ask"]


def test_two_devices_are_not_given_where_one_is_asked_for() -> None:
    more = {"minor": 2, "id": "nic-2", "resources": {K + "rdma": "10"}}
    wrong = told(lambda held: held["rdma"].append(more), pod("p", NIC))
    assert wrong == ["asked for 1 rdma devices, holds 2"]


@pytest.mark.parametrize(
    ("policy", "minor", "wrong"),
    [
        ("DeviceLevel", 0, True),
        ("DeviceLevel", 1, False),
        ("PCIeLevel", 0, True),
        ("PCIeLevel", 1, True),
        ("PCIeLevel", 3, False),
    ],
)
@pytest.mark.parametrize("kind", ["rdma", "gpu"])
def test_who_wants_a_device_for_himself_goes_where_nobody_is(
    policy: str, minor: int, wrong: bool, kind: str
) -> None:
    asks, part = (NIC, HELD) if kind == "rdma" else (HALF, {**HALF, K + "gpu-memory": "40Gi"})
    there = pod("r", asks, given={kind: [{"minor": 0, "resources": part}]})
    asking = pod("p", asks, {kind: {"exclusivePolicy": policy}})
    found = [f"wants {kind} {minor} of n for itself ({policy}), default/r is there"]
    assert told(goes(minor, kind), there, asking) == (found if wrong else [])


def test_whoever_comes_later_is_not_kept_away() -> None:
    """Decided first, the exclusive pod has the NIC for itself; the other one shares it (DEV-13)."""
    first = pod("first", NIC, {"rdma": {"exclusivePolicy": "DeviceLevel"}})
    first["spec"]["priority"] = 9
    assert told(goes(0), first, pod("p", NIC)) == []


def test_what_runs_is_not_judged_by_hints() -> None:
    """Labels of devices may have changed since, and their ids."""
    part = {"rdma": [{"minor": 0, "id": "gone", "resources": HELD}]}
    hint = {"rdma": {"selector": {"matchLabels": {"rail": "7"}}}}
    assert verify(cluster(pod("p", NIC, hint, part))) == ()
