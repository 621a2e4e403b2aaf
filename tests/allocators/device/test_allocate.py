"""Which devices a pod gets on one node, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from immutabledict import immutabledict

from koordcore.allocators.device import (
    DevicePolicy,
    ScoringStrategy,
    allocate_devices,
    device_request_of,
    score_devices,
)
from koordcore.errors import ManifestError
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    StatusCode,
)
from koordcore.model.resources import make_resources, parse_resources
from tests.allocators.device.build import (
    GPU,
    RDMA,
    card,
    cards,
    gpus,
    machine,
    nic,
    nics,
    reason,
    std8,
    take,
    want,
)

SAME = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
NEAR = {"deviceTypes": ["gpu", "rdma"]}
PAIRS = {
    "2": [
        {"minors": [0, 1], "allocationScore": 5},
        {"minors": [2, 3], "allocationScore": 1},
        {"minors": [4, 5], "allocationScore": 1},
    ]
}
MOST = DevicePolicy(strategy=ScoringStrategy.MOST_ALLOCATED)


def test_cards_come_from_the_fewest_switches_and_the_tightest_fit() -> None:
    """Five cards out of {0, 2, 4..7} span three switches; a lone card is the last one of its switch."""
    state = machine(std8(), {"a": cards(1, 3)})
    assert take(state, gpus(5)) == {"gpu": [0, 4, 5, 6, 7]}
    wide = [card(minor, (0, "a" if minor < 4 else "b")) for minor in range(8)]
    assert take(machine(wide, {"a": cards(0, 4, 5, 6)}), gpus(1)) == {"gpu": [7]}


def test_a_shared_card_is_chosen_by_its_fill() -> None:
    """Spreading takes the emptiest card of a touched switch, packing the fullest."""
    devices = [card(minor, (0, "0")) for minor in range(4)]
    state = machine(devices, {"a": cards(0, percent=80), "b": cards(1, 2, 3, percent=10)})
    half = want({"koordinator.sh/gpu": "20"})
    assert take(state, half) == {"gpu": [1]}
    assert take(state, half, policy=MOST) == {"gpu": [0]}


def test_a_shared_card_stands_beside_cards_in_use() -> None:
    """On a touched switch of a touched NUMA node, before a switch that nobody uses yet."""
    half = want({"koordinator.sh/gpu": "50"})
    assert take(machine(std8(), {"a": cards(6)}), half) == {"gpu": [7]}
    assert take(machine(std8(), {"a": cards(6, 7)}), half) == {"gpu": [4]}


def test_scope_device_means_one_card() -> None:
    """One card satisfies the scope, two cannot."""
    hint = {"gpu": {"requiredTopologyScope": "Device"}}
    assert take(machine(std8()), gpus(1, device_allocate_hint=hint)) == {"gpu": [0]}
    assert (
        reason(machine(std8()), gpus(2, device_allocate_hint=hint))
        == "Insufficient Topology Scoped GPU Devices"
    )


def test_a_required_scope_needs_a_known_topology() -> None:
    """Where places are unknown, a scope cannot be promised."""
    state = machine([card(0, None), card(1, (0, "0"))])
    hint = {"gpu": {"requiredTopologyScope": "Node"}}
    assert reason(state, gpus(1, device_allocate_hint=hint)) == "node(s) missing GPU Device Topology Tree"
    assert take(state, gpus(2)) == {"gpu": [0, 1]}


def test_the_best_partition_is_taken_and_restricted_takes_no_other() -> None:
    """The score decides; a restricted pod waits for the best group."""
    table = {"2": PAIRS["2"]}
    assert take(machine(std8(), table=table), gpus(2)) == {"gpu": [0, 1]}
    busy = machine(std8(), {"a": cards(0)}, table=table)
    restricted = gpus(2, gpu_partition_spec={"allocatePolicy": "Restricted"})
    assert take(busy, gpus(2, gpu_partition_spec={})) == {"gpu": [2, 3]}
    assert reason(busy, restricted) == "Insufficient Partitioned GPU Devices"


def test_a_partition_must_have_the_amounts_and_the_scope() -> None:
    """More core than a card has does not fit in a partition either, and a scope binds it too."""
    greedy = want({"koordinator.sh/gpu-core": "300", "koordinator.sh/gpu-memory-ratio": "200"})
    assert reason(machine(std8(), table=PAIRS), greedy) == "Insufficient GPU Devices"
    apart = machine([card(minor, (0, str(minor))) for minor in range(6)], table=PAIRS)
    hint = {"gpu": {"requiredTopologyScope": "PCIe"}}
    honored = gpus(2, device_allocate_hint=hint, gpu_partition_spec={})
    assert reason(apart, honored) == "Insufficient Topology Scoped GPU Devices"


def test_the_policy_of_the_device_counts_where_the_node_has_none() -> None:
    """Honor on the Device binds with a built-in table, and without any table it refuses."""
    honor = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
    hopper = machine(std8(), labels=honor, node_labels={"node.koordinator.sh/gpu-model": "H800"})
    assert reason(hopper, gpus(3)) == "node(s) Unsupported number of GPU requests"
    assert reason(machine(std8(), labels=honor), gpus(2)) == "node(s) missing GPU Partition Table"
    prefer = {"node.koordinator.sh/gpu-model": "H800", "node.koordinator.sh/gpu-partition-policy": "Prefer"}
    assert take(machine(std8(), labels=honor, node_labels=prefer), gpus(3)) == {"gpu": [0, 1, 2]}


def test_models_as_the_driver_names_them() -> None:
    """The built-in table is found under the driver's name, and not for cards without a switch."""
    spec: dict[str, Any] = {"gpu_partition_spec": {}}
    for model in ("H20", "NVIDIA-H20", "H100-80GB-HBM3", "H20-3e"):
        state = machine(std8(), node_labels={"node.koordinator.sh/gpu-model": model})
        assert take(state, gpus(4, **spec)) == {"gpu": [0, 1, 2, 3]}
    for model in ("H200", "H100-PCIe", "H100-NVL", "A100-SXM4-80GB"):
        state = machine(std8(), node_labels={"node.koordinator.sh/gpu-model": model})
        assert reason(state, gpus(4, **spec)) == "node(s) missing GPU Partition Table"


def test_what_a_card_does_not_report_does_not_fit() -> None:
    """An Ascend card has no gpu-core to give."""
    ascend = {
        "huawei.com/npu-core": "20",
        "koordinator.sh/gpu-memory": "64Gi",
        "koordinator.sh/gpu-memory-ratio": "100",
    }
    state = machine([card(0, (0, "0"), resources=ascend)])
    assert reason(state, gpus(1)) == "Insufficient GPU Devices"
    assert take(state, want({"huawei.com/npu-core": "20", "koordinator.sh/gpu-memory-ratio": "100"})) == {
        "gpu": [0]
    }


def test_no_card_is_given_out_beyond_its_memory() -> None:
    """Bytes that round to a small ratio still count as bytes."""
    state = machine(
        [card(0, (0, "0"))], {"a": {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-memory": "1Gi"}}]}}
    )
    assert reason(state, want({"koordinator.sh/gpu-memory-ratio": "99"})) == "Insufficient GPU Devices"
    assert take(state, want({"koordinator.sh/gpu-memory-ratio": "98"})) == {"gpu": [0]}


def test_no_remote_nic_beyond_what_was_asked() -> None:
    """One NIC per switch where there is one; a remote NIC only where it was asked for, near before far."""
    devices = [card(minor, (0, str(minor // 2))) for minor in range(4)]
    far = [nic(1, (0, "0")), nic(2, (1, "9")), nic(3, (0, "8"))]
    one = want({"nvidia.com/gpu": "4", "koordinator.sh/rdma": "1"}, device_joint_allocate=NEAR)
    two = want({"nvidia.com/gpu": "4", "koordinator.sh/rdma": "200"}, device_joint_allocate=NEAR)
    assert take(machine(devices + far), one)["rdma"] == [1]
    assert take(machine(devices + far), two)["rdma"] == [1, 3]


def test_nics_grow_to_one_per_switch() -> None:
    """Four cards on two switches get two NICs although one was asked for."""
    request = want({"nvidia.com/gpu": "4", "koordinator.sh/rdma": "1"}, device_joint_allocate=SAME)
    assert take(machine(std8()), request) == {"gpu": [0, 1, 2, 3], "rdma": [1, 2]}


def test_joint_dead_ends_are_avoided() -> None:
    """GPU 0 and NIC 1 are gone: the other socket serves three cards, whichever type is listed first."""
    state = machine(std8(), {"a": cards(0), "b": nics(1)})
    for types in (["gpu", "rdma"], ["rdma", "gpu"]):
        joint = {"deviceTypes": types, "requiredScope": "SamePCIe"}
        request = want({"nvidia.com/gpu": "3", "koordinator.sh/rdma": "200"}, device_joint_allocate=joint)
        assert take(state, request) == {"gpu": [4, 5, 6], "rdma": [3, 4]}


def test_a_joint_refusal_speaks_of_the_cards_that_are_free_first() -> None:
    """Five cards need three switches at least; the first five free ones touch four, for which NICs lack.

    Where a partition of the table is free, the refusal is about the NICs beside that one.
    """
    request = want({"nvidia.com/gpu": "5", "koordinator.sh/rdma": "1"}, device_joint_allocate=SAME)
    held = {"a": cards(0, 3), "b": nics(4)}
    assert reason(machine(std8(), held), request) == "Insufficient rdma devices"
    table = {"5": [{"minors": [1, 4, 5, 6, 7], "allocationScore": 1}]}
    refused = reason(machine(std8(), held, table=table), request)
    assert refused == "node(s) Device Joint-Allocate rules violation"


def test_several_vfs_of_one_device() -> None:
    """Four VFs on two NICs: two of each, written as one part per NIC."""
    hint = {"rdma": {"allocateStrategy": "RequestsAsCount", "vfSelector": {}}}
    state = machine([nic(1, (0, "0"), 4), nic(2, (0, "1"), 4)])
    found = allocate_devices(state, want({"koordinator.sh/rdma": "4"}, device_allocate_hint=hint))
    assert isinstance(found, DeviceAllocation)
    parts = found.devices[RDMA]
    assert [[vf.bus_id for vf in part.vfs] for part in parts] == [["1:0", "1:1"], ["2:0", "2:1"]]
    assert [dict(part.resources) for part in parts] == [{"koordinator.sh/rdma": 2}] * 2
    assert state.assume("p", found).forget("p") == state
    nine = want({"koordinator.sh/rdma": "9"}, device_allocate_hint=hint)
    assert reason(state, nine) == "Insufficient rdma devices"


def test_apply_for_all_means_all_healthy_matching_devices() -> None:
    """An unhealthy NIC is left out, and so is one that does not match."""
    devices = [
        nic(1, (0, "0"), labels={"use": "data"}),
        nic(2, (0, "1"), labels={"use": "data"}, health=False),
        nic(3, (0, "2")),
    ]
    everything = {"rdma": {"allocateStrategy": "ApplyForAll"}}
    chosen = {"rdma": {"allocateStrategy": "ApplyForAll", "selector": {"matchLabels": {"use": "data"}}}}
    one = {"koordinator.sh/rdma": "1"}
    assert take(machine(devices), want(one, device_allocate_hint=everything)) == {"rdma": [1, 3]}
    assert take(machine(devices), want(one, device_allocate_hint=chosen)) == {"rdma": [1]}


def test_exclusive_policies_keep_away_from_touched_devices() -> None:
    """A touched NIC is refused by DeviceLevel, its whole switch by PCIeLevel."""
    devices = [nic(1, (0, "0")), nic(2, (0, "0")), nic(3, (0, "1"))]
    state = machine(devices, {"a": nics(1, percent=1)})
    one = {"koordinator.sh/rdma": "1"}
    assert take(state, want(one), policy=MOST) == {"rdma": [1]}
    device = want(one, device_allocate_hint={"rdma": {"exclusivePolicy": "DeviceLevel"}})
    switch = want(one, device_allocate_hint={"rdma": {"exclusivePolicy": "PCIeLevel"}})
    assert take(state, device, policy=MOST) == {"rdma": [2]}
    assert take(state, switch, policy=MOST) == {"rdma": [3]}


def test_a_vf_selector_counts_for_every_type() -> None:
    """A card without the wanted VF is passed over."""
    groups = [{"labels": {"kind": "v"}, "vfs": [{"busID": "7:1", "minor": 1}]}]
    devices = [card(0, (0, "0")), card(1, (0, "0"), vfGroups=groups)]
    hint = {"gpu": {"vfSelector": {"matchLabels": {"kind": "v"}}}}
    assert take(machine(devices), gpus(1, device_allocate_hint=hint)) == {"gpu": [1]}


def test_the_isolation_provider_is_compared_without_case() -> None:
    """The spelling of the release notes qualifies; another provider does not; whole cards do not care."""
    state = machine(std8(), node_labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})

    def ask(percent: str, provider: str) -> DeviceRequest:
        labels = {"koordinator.sh/gpu-isolation-provider": provider}
        made = device_request_of(parse_resources({"koordinator.sh/gpu": percent}), labels=labels)
        assert isinstance(made, DeviceRequest)
        return made

    assert take(state, ask("50", "hami-core")) == {"gpu": [0]}
    assert take(state, ask("100", "other")) == {"gpu": [0]}
    refused = allocate_devices(state, ask("50", "other"))
    assert isinstance(refused, DeviceShortfall)
    assert refused.code is StatusCode.ERROR


def test_of_equal_templates_the_first_is_written() -> None:
    """Two templates of one model that are the same: the first by name."""
    amounts = make_resources(
        {"huawei.com/npu-core": 2, "huawei.com/npu-cpu": 2, "koordinator.sh/gpu-memory": 6}
    )
    request = device_request_of(
        {**amounts, "koordinator.sh/gpu.shared": 1},
        templates=immutabledict({"huawei-310P": immutabledict({"b": amounts, "a": amounts})}),
    )
    assert isinstance(request, DeviceRequest)
    capacity = {"huawei.com/npu-core": "8", "huawei.com/npu-cpu": "7", "koordinator.sh/gpu-memory": "24"}
    labels = {"node.koordinator.sh/gpu-vendor": "huawei", "node.koordinator.sh/gpu-model": "310P"}
    state = machine([card(0, (0, "0"), resources=capacity)], node_labels=labels)
    found = allocate_devices(state, request)
    assert isinstance(found, DeviceAllocation)
    assert found.devices[GPU][0].template == "a"
    other = machine(
        [card(0, (0, "0"), resources=capacity)], node_labels={**labels, "node.koordinator.sh/gpu-model": "x"}
    )
    assert reason(other, request) == "no matched GPU shared resource template"


def test_a_well_planned_node_is_still_checked_for_all_types() -> None:
    """The label only narrows the score to the primary type."""
    label = {"node.koordinator.sh/secondary-device-well-planned": "true"}
    request = want({"nvidia.com/gpu": "1", "koordinator.sh/rdma": "100"}, device_joint_allocate=NEAR)
    full = machine(std8(), {"a": nics(1, 2, 3, 4)}, labels=label)
    assert reason(full, request) == "Insufficient rdma devices"
    assert score_devices(machine(std8(), labels=label), request) == score_devices(machine(std8()), gpus(1))


def test_a_node_without_devices_serves_by_plain_resources() -> None:
    """Nothing is known, nothing is chosen, nothing is scored."""
    assert allocate_devices(None, gpus(1)) == DeviceAllocation()
    assert score_devices(None, gpus(1)) == 0


def test_large_minors_are_fine_and_absurd_ones_refused() -> None:
    """Card 200 can be allocated; card 5000 is a typing error."""
    assert take(machine([card(200, (0, "0"))]), gpus(1)) == {"gpu": [200]}
    with pytest.raises(ManifestError, match=r"spec.devices\[0\].minor"):
        machine([card(5000, (0, "0"))])


def test_numa_affinity_narrows_the_choice() -> None:
    """Only cards of NUMA node 1; an unknown node is admitted, an unknown place is not."""
    assert take(machine(std8()), gpus(1), numa_mask=0b10) == {"gpu": [4]}
    odd = machine([card(0, None), card(1, (-1, "0"))])
    assert take(odd, gpus(1), numa_mask=0b10) == {"gpu": [1]}
