"""Laws of device allocation.

* A placement is found exactly where trying everything finds one; it is legal, and none is better.
* Taking and giving back restores the state; what is written is read back.
* No device is given out beyond its capacity, no VF twice, no card to two pods that want it whole.
* Names do not matter: renumbered devices give an answer of the same worth.
* More room never refuses what was served.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from hypothesis import given, settings, strategies as st

from koordcore.allocators.device import (
    NodeDevices,
    allocate_devices,
    device_request_of,
    node_devices,
    score_devices,
)
from koordcore.allocators.device.allocate import refusal_of
from koordcore.allocators.device.answers import DeviceAnswers, device_table
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    DeviceType,
)
from koordcore.model.resources import parse_resources
from koordcore.protocol.device import (
    DEVICE_ALLOCATED,
    allocation_to_json,
    format_allocation,
    parse_allocation,
)
from koordcore.protocol.device_object import device_object_from_manifest, inventory_of
from tests.reference.device_hints import device_hints
from tests.reference.devices import objective, violations
from tests.reference.devices_brute import best_placement

PREFIX = "scheduling.koordinator.sh/"
Case = dict[str, Any]

TABLE = {
    "1": [{"minors": [minor], "allocationScore": 1} for minor in range(4)],
    "2": [
        {"minors": [0, 1], "allocationScore": 2},
        {"minors": [0, 2], "allocationScore": 1},
        {"minors": [1, 3], "allocationScore": 1},
        {"minors": [2, 3], "allocationScore": 2},
    ],
    "4": [{"minors": [0, 1, 2, 3], "allocationScore": 1}],
}


def card(minor: int, numa: int, pcie: str, healthy: bool = True) -> dict[str, Any]:
    return {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": healthy,
        "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "16Gi",
            "koordinator.sh/gpu-memory-ratio": "100",
        },
        "topology": {"nodeID": numa, "pcieID": pcie},
    }


def nic(minor: int, numa: int, pcie: str, vfs: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "type": "rdma",
        "minor": minor,
        "id": f"nic-{minor}",
        "health": True,
        "resources": {"koordinator.sh/rdma": "100"},
        "topology": {"nodeID": numa, "pcieID": pcie},
    }
    if vfs:
        entry["vfGroups"] = [{"vfs": [{"busID": f"{minor}:{vf}", "minor": -1} for vf in range(vfs)]}]
    return entry


@st.composite
def nodes(draw: st.DrawFn) -> Case:
    """A node of up to 6 cards and 4 NICs on up to 4 switches, in some use."""
    devices: list[dict[str, Any]] = []
    minor = number = 0
    switches = draw(st.integers(1, 4))
    vfs = draw(st.integers(0, 2))
    for switch in range(switches):
        numa, pcie = switch * 2 // switches if draw(st.booleans()) else 0, str(switch)
        for _ in range(draw(st.integers(0 if minor else 1, 2))):
            devices.append(card(minor, numa, pcie, healthy=draw(st.integers(0, 7)) > 0))
            minor += 1
        for _ in range(draw(st.integers(0, 2))):
            devices.append(nic(number, numa, pcie, vfs))
            number += 1
    pods = []
    for device in devices:
        kind, own = device["type"], device["minor"]
        use = draw(st.sampled_from((0, 0, 0, 100, 100, 50)))
        if not use:
            continue
        if kind == "gpu":
            amounts = {
                "koordinator.sh/gpu-core": str(use),
                "koordinator.sh/gpu-memory": f"{16 * use // 100}Gi",
                "koordinator.sh/gpu-memory-ratio": str(use),
            }
        else:
            amounts = {"koordinator.sh/rdma": str(use)}
        held = {kind: [{"minor": own, "resources": amounts}]}
        pods.append(
            {
                "metadata": {"name": f"{kind}{own}", "annotations": {DEVICE_ALLOCATED: json.dumps(held)}},
                "spec": {"nodeName": "n", "containers": []},
            }
        )
    annotations = {}
    if minor >= 4 and draw(st.booleans()):
        annotations[PREFIX + "gpu-partitions"] = json.dumps(TABLE)
    return {
        "node": {"metadata": {"name": "n"}},
        "device": {"metadata": {"name": "n", "annotations": annotations}, "spec": {"devices": devices}},
        "pods": pods,
    }


WISHES: tuple[tuple[dict[str, str], dict[str, Any]], ...] = (
    ({"koordinator.sh/gpu": "100"}, {}),
    ({"koordinator.sh/gpu": "200"}, {}),
    ({"koordinator.sh/gpu": "300"}, {}),
    ({"koordinator.sh/gpu": "50"}, {}),
    ({"koordinator.sh/gpu.shared": "2", "koordinator.sh/gpu-memory-ratio": "100"}, {}),
    (
        {"koordinator.sh/gpu": "200"},
        {"device-allocate-hint": {"gpu": {"requiredTopologyScope": "PCIe"}}},
    ),
    (
        {"koordinator.sh/gpu": "200"},
        {"device-allocate-hint": {"gpu": {"requiredTopologyScope": "NUMANode"}}},
    ),
    ({"koordinator.sh/gpu": "200"}, {"gpu-partition-spec": {"allocatePolicy": "Restricted"}}),
    ({"koordinator.sh/gpu": "200"}, {"gpu-partition-spec": {}}),
)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """A pod that asks for cards, NICs or both."""
    drawn = draw(st.sampled_from(WISHES))
    asked, annotations = dict(drawn[0]), dict(drawn[1])
    if draw(st.booleans()):
        asked["koordinator.sh/rdma"] = draw(st.sampled_from(("1", "50", "100", "200")))
        if draw(st.booleans()):
            types = draw(st.permutations(("gpu", "rdma")))
            joint: dict[str, Any] = {"deviceTypes": types}
            if draw(st.booleans()):
                joint["requiredScope"] = "SamePCIe"
            annotations["device-joint-allocate"] = joint
        if draw(st.booleans()):
            hint = dict(annotations.get("device-allocate-hint", {}))
            annotations["device-allocate-hint"] = {**hint, "rdma": {"vfSelector": {}}}
    return {
        "metadata": {
            "name": "p",
            "annotations": {PREFIX + key: json.dumps(value) for key, value in annotations.items()},
        },
        "spec": {"containers": [{"resources": {"requests": asked}}]},
    }


@st.composite
def cases(draw: st.DrawFn) -> Case:
    case = draw(nodes())
    case["pod"] = draw(pods())
    return case


def state_of(case: Mapping[str, Any]) -> NodeDevices:
    holders = {
        f"default/{pod['metadata']['name']}": parse_allocation(pod["metadata"]["annotations"])
        for pod in case["pods"]
    }
    inventory = inventory_of(device_object_from_manifest(case["device"]), {})
    state = node_devices(inventory, {name: held for name, held in holders.items() if held}, node="n")
    assert state is not None
    return state


def request_of(pod: Mapping[str, Any]) -> DeviceRequest:
    amounts = parse_resources(pod["spec"]["containers"][0]["resources"]["requests"])
    request = device_request_of(amounts, annotations=pod["metadata"]["annotations"])
    assert isinstance(request, DeviceRequest)
    return request


@given(cases())
@settings(max_examples=37)
def test_a_placement_is_found_exactly_where_one_exists_and_none_is_better(case: Case) -> None:
    """Trying every set of devices agrees on whether there is a placement, and finds no better one."""
    found = allocate_devices(state_of(case), request_of(case["pod"]))
    best = best_placement(case)
    if isinstance(found, DeviceShortfall):
        assert best is None, f"{found} although {best} exists"
        return
    placed = json.loads(json.dumps(allocation_to_json(found)))
    assert violations(case, placed) == []
    assert best is not None
    assert objective(case, placed)[:-1] == best[:-1]


@given(cases())
def test_taking_and_giving_back_restores_the_state(case: Case) -> None:
    """``forget`` undoes ``assume``, and neither changes the state that it is asked of."""
    state, request = state_of(case), request_of(case["pod"])
    before = state.signature
    found = allocate_devices(state, request)
    if isinstance(found, DeviceAllocation):
        taken = state.assume("default/p", found)
        assert taken != state
        assert taken.assume("default/p", found) is taken
        assert taken.forget("default/p") == state
    assert state.signature == before


@given(cases())
def test_what_is_written_is_read_back(case: Case) -> None:
    """The annotation of an allocation holds all of it."""
    found = allocate_devices(state_of(case), request_of(case["pod"]))
    if isinstance(found, DeviceAllocation):
        assert parse_allocation({DEVICE_ALLOCATED: format_allocation(found)}) == found


@given(nodes(), st.lists(pods(), min_size=1, max_size=6))
def test_a_stream_of_pods_never_takes_more_than_there_is(node: Case, stream: list[dict[str, Any]]) -> None:
    """Nothing is given out twice; giving everything back leaves nothing taken."""
    start = state_of(node)
    state = start
    for index, pod in enumerate(stream):
        found = allocate_devices(state, request_of(pod))
        if isinstance(found, DeviceAllocation):
            state = state.assume(f"default/new{index}", found)
            assert state.conflicts == start.conflicts
    for index in range(len(stream)):
        state = state.forget(f"default/new{index}")
    assert state == start


@given(cases(), st.randoms(use_true_random=False))
def test_the_numbers_of_devices_do_not_change_the_worth_of_the_answer(case: Case, rng: Any) -> None:
    """Renumbering the devices of a node gives an answer of the same worth."""
    case["device"]["metadata"]["annotations"] = {}
    if any("gpu-partition-spec" in key for key in case["pod"]["metadata"]["annotations"]):
        return
    new: dict[tuple[str, int], int] = {}
    for kind in ("gpu", "rdma"):
        own = [one["minor"] for one in case["device"]["spec"]["devices"] if one["type"] == kind]
        shuffled = list(own)
        rng.shuffle(shuffled)
        new.update({(kind, old): number for old, number in zip(own, shuffled, strict=True)})
    other = json.loads(json.dumps(case))
    for one in other["device"]["spec"]["devices"]:
        one["minor"] = new[one["type"], one["minor"]]
    for pod in other["pods"]:
        held = json.loads(pod["metadata"]["annotations"][DEVICE_ALLOCATED])
        for kind, parts in held.items():
            for part in parts:
                part["minor"] = new[kind, part["minor"]]
        pod["metadata"]["annotations"][DEVICE_ALLOCATED] = json.dumps(held)
    worth: list[tuple[Any, ...]] = []
    for one in (case, other):
        found = allocate_devices(state_of(one), request_of(one["pod"]))
        if isinstance(found, DeviceAllocation):
            worth.append(objective(one, json.loads(json.dumps(allocation_to_json(found))))[:-1])
    assert worth[:1] == worth[1:]


@given(cases())
def test_more_room_never_refuses_what_was_served(case: Case) -> None:
    """Without one of the holders, whatever fitted still fits."""
    request = request_of(case["pod"])
    state = state_of(case)
    if refusal_of(state, request) is None:
        for holder in state.holdings:
            assert refusal_of(state.forget(holder), request) is None


@given(cases())
def test_equal_states_answer_as_the_functions_do(case: Case) -> None:
    """Verdicts and scores by number equal those by state, anywhere and on a set of NUMA nodes."""
    state, request = state_of(case), request_of(case["pod"])
    table = device_table([state, None, state_of(case)])
    answers = DeviceAnswers(table, request)
    assert table.ids.tolist() == [0, 1, 0]
    for mask in (None, 1):
        refusal = refusal_of(state, request, mask)
        assert answers.refusal(0, mask) == refusal
        expected = -1 if refusal else score_devices(state, request, mask)
        assert np.array_equal(answers.scores(table.ids, mask), [expected, 0, expected])


@given(cases())
def test_equal_states_give_what_the_allocator_gives(case: Case) -> None:
    """Choice and following state are the node's own, also where the choice was made for another node."""
    state, twin, request = state_of(case), state_of(case), request_of(case["pod"])
    twin = attrs.evolve(
        twin,
        names=type(twin.names)(tuple(attrs.evolve(one, id=f"twin-{one.id}") for one in twin.names.devices)),
    )
    answers = DeviceAnswers(device_table([state]), request)
    for node in (state, twin, state):
        alone = allocate_devices(node, request)
        taken = answers.take(node, "d/new")
        if isinstance(alone, DeviceShortfall):
            assert taken == alone
        else:
            assert taken == (alone, node.assume("d/new", alone))


@given(cases())
def test_hints_name_exactly_the_masks_that_serve(case: Case) -> None:
    """A mask is hinted where a placement exists inside it; the fewest nodes are preferred."""
    state, request = state_of(case), request_of(case["pod"])
    hints = device_hints(state, request)
    if isinstance(hints, DeviceShortfall):
        assert refusal_of(state, request, state.shape.numa_nodes) is not None
        return
    assert hints is not None
    for entries in hints.values():
        fewest = min(len(one.numa_nodes) for one in entries)
        for one in entries:
            assert refusal_of(state, request, one.mask) is None
            assert one.preferred == (len(one.numa_nodes) == fewest)


@given(cases())
def test_equal_nodes_share_a_signature_whatever_their_names(case: Case) -> None:
    """UUIDs and bus ids do not tell nodes apart."""
    other = json.loads(json.dumps(case["device"]))
    for one in other["spec"]["devices"]:
        one["id"] = "other-" + one["id"]
    twin = node_devices(inventory_of(device_object_from_manifest(other), {}))
    state = node_devices(inventory_of(device_object_from_manifest(case["device"]), {}))
    assert state is not None
    assert twin is not None
    assert state.signature == twin.signature
    assert {twin.id_of(DeviceType.GPU, 0)} == {"other-GPU-0"}
