"""The ledger of a node's devices, scores, hints, node resources, memory."""

from __future__ import annotations

import pytest

from koordcore.allocators.device import (
    DeviceAnswers,
    device_resources,
    device_table,
    node_devices,
    score_devices,
)
from koordcore.allocators.device.wants import fill_memory
from koordcore.errors import ModelError
from koordcore.model.devices import DeviceShortfall
from koordcore.protocol.device_object import device_object_from_manifest, inventory_of
from tests.allocators.device.build import (
    GPU,
    RDMA,
    card,
    cards,
    gpus,
    machine,
    nic,
    nics,
    read,
    std8,
    take,
    want,
)
from tests.reference.device_hints import device_hints

VF = {
    "rdma": [
        {"minor": 1, "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": [{"busID": "1:0"}]}}
    ]
}


def test_memory_and_ratio_are_filled_in_exactly() -> None:
    """29 of 100 is 29 percent; half of 64Gi is 32Gi; what is given is not touched."""
    memory, ratio = "koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio"
    for part in (29, 57, 58):
        assert fill_memory({memory: part}, {memory: 100})[ratio] == part
    assert fill_memory({ratio: 50}, {memory: 64 * 2**30})[memory] == 32 * 2**30
    assert dict(fill_memory({memory: 16, ratio: 60}, {memory: 64})) == {memory: 16, ratio: 60}
    assert fill_memory({memory: 16}, {})[ratio] == 0


def test_conflicts_among_running_pods_are_named() -> None:
    """Too much of a card, one VF twice, a card that is gone."""
    state = machine(
        [card(0, (0, "0")), nic(1, (0, "0"), 1)], {"a": cards(0), "b": cards(0) | VF, "c": VF | cards(7)}
    )
    told = [f"{one.kind} {one.minor}: {one.message}" for one in state.conflicts]
    assert told == [
        "gpu 0: koordinator.sh/gpu-core: 200 of 100 held by a, b",
        f"gpu 0: koordinator.sh/gpu-memory: {160 * 2**30} of {80 * 2**30} held by a, b",
        "gpu 0: koordinator.sh/gpu-memory-ratio: 200 of 100 held by a, b",
        "gpu 7: not on the node, yet held by c",
        "rdma 1: VF 1:0 held by b, c",
    ]
    assert take(state.forget("b").forget("a"), gpus(1)) == {"gpu": [0]}


def test_a_vf_stays_taken_while_anyone_holds_it() -> None:
    """Two pods hold one VF by mistake: it is free when both are gone."""
    state = machine([nic(1, (0, "0"), 1)], {"a": VF, "b": VF})
    assert state.forget("a").use(RDMA).vfs == (1,)
    assert state.forget("a").forget("b").use(RDMA).vfs == (0,)


def test_a_pod_cannot_hold_two_different_things() -> None:
    """Assuming twice is the caller's fault unless it is the same; so is a device that is not there."""
    state = machine(std8()).assume("p", read(cards(0)))
    assert state.assume("p", read(cards(0))) is state
    with pytest.raises(ModelError, match="holds other devices"):
        state.assume("p", read(cards(1)))
    with pytest.raises(ModelError, match="gpu 9"):
        state.assume("q", read(cards(9)))
    assert state.forget("nobody") is state
    assert state.holders(GPU, 0) == ("p",)


def test_nothing_known_is_no_state() -> None:
    """Neither a Device object nor a holder; a holder alone makes the devices known but empty."""
    assert node_devices(None) is None
    ghost = node_devices(None, {"a": read(cards(0))})
    assert ghost is not None
    assert ghost.shape.types[GPU].healthy == 0


def test_scores_add_up_over_types_and_see_the_per_card_request() -> None:
    """Four cards score as one does; two types may pass 100; packing is the other way round."""
    assert score_devices(machine(std8()), gpus(4)) == score_devices(machine(std8()), gpus(1)) == 93
    both = want({"nvidia.com/gpu": "1", "koordinator.sh/rdma": "100"})
    assert score_devices(machine(std8()), both) == 93 + 75
    assert score_devices(machine(std8()), gpus(1), 0b1) == (75 + 100) // 2
    used = machine(std8(), {"a": cards(0) | nics(1)})
    assert score_devices(used, both) == 81 + 50


def test_hints_prefer_the_fewest_nodes_and_the_cards_of_the_whole_node() -> None:
    """One card: each socket alone, the first with the very card that the node would give."""
    hints = device_hints(machine(std8()), gpus(1))
    assert hints is not None
    assert not isinstance(hints, DeviceShortfall)
    assert [(one.mask, one.preferred, one.score) for one in hints[GPU]] == [
        (0b01, True, 500),
        (0b10, True, 0),
        (0b11, False, 500),
    ]
    refused = device_hints(machine(std8()), gpus(9))
    assert isinstance(refused, DeviceShortfall)
    assert refused.reasons == ("Insufficient NUMA Scoped Devices",)


def test_node_resources_follow_the_healthy_devices() -> None:
    """One card and one NIC are broken; unknown names are computed but not written."""
    devices = [
        card(0, (0, "0")),
        card(1, (0, "0"), health=False),
        nic(1, (0, "0")),
        nic(2, (0, "0"), health=False),
    ]
    inventory = inventory_of(device_object_from_manifest({"spec": {"devices": devices}}))
    labels = {"node.koordinator.sh/gpu-model": "H20", "other": "x"}
    done = device_resources(inventory, labels, sync_gpu_shared=True)
    assert dict(done.amounts) == {
        "koordinator.sh/gpu": 100,
        "koordinator.sh/gpu-core": 100,
        "koordinator.sh/gpu-memory": 80 * 2**30,
        "koordinator.sh/gpu-memory-ratio": 100,
        "koordinator.sh/gpu.shared": 100,
        "koordinator.sh/rdma": 100,
    }
    assert dict(done.labels) == {"node.koordinator.sh/gpu-model": "H20"}
    assert done.resets == ()
    gone = device_resources(None, {})
    assert dict(gone.apply_to({"cpu": 1, "koordinator.sh/gpu": 800, "koordinator.sh/rdma": 1})) == {"cpu": 1}


def test_a_table_knows_a_state_again() -> None:
    """A state that comes back has its old number."""
    state = machine(std8())
    taken = state.assume("p", read(cards(0)))
    table = device_table([state, taken, taken.forget("p"), None])
    assert table.ids.tolist() == [0, 1, 0, 2]
    refusal = DeviceAnswers(table, gpus(8)).refusal(1)
    assert refusal is not None
    assert refusal.available == 7
