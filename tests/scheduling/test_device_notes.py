"""Manifests of release notes about devices do what the notes say of them, entered as a reader would."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from koordcore import Bound, ScheduleResult
from koordcore.manifests import patches
from tests.scheduling.device_objects import (
    GPU,
    KOORD,
    NPU_CARD,
    Objects,
    bound,
    card,
    given,
    nic,
    node,
    pod,
    refusal,
    run,
)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SCHED = "scheduling.koordinator.sh/"
HINT, JOINT = SCHED + "device-allocate-hint", SCHED + "device-joint-allocate"
PARTITIONS, SPEC = SCHED + "gpu-partitions", SCHED + "gpu-partition-spec"
ISOLATION = KOORD + "gpu-isolation-provider"
EIGHT = [card(minor, numa=minor // 4, pcie=str(minor // 2)) for minor in range(8)]


def placed(result: ScheduleResult) -> dict[str, str]:
    return {one.pod.name: one.node for one in result.decisions if isinstance(one, Bound)}


# --- devices ----------------------------------------------------------------------------------------------


def test_ascend_cards_come_in_partitions_of_four() -> None:
    """The table is flat and its score a text; the policy of the Device insists on it."""
    table = {"4": [{"minors": [0, 1, 2, 3], "gpuLinkType": "HCCS", "allocationScore": "1"}]}
    labels = {
        "node.koordinator.sh/gpu-vendor": "huawei",
        "node.koordinator.sh/gpu-model": "Ascend-910B3",
        "node.koordinator.sh/gpu-partition-policy": "Honor",
    }
    cards = [card(minor, NPU_CARD) for minor in range(8)]
    machine = node("n", *cards, of_device=labels, annotations={PARTITIONS: json.dumps(table)})
    four = pod("four", {"huawei.com/npu-core": "80", KOORD + "gpu-memory-ratio": "400"})
    two = pod("two", {"huawei.com/npu-core": "40", KOORD + "gpu-memory-ratio": "200"})
    loaded, result = run(machine, four, two)
    assert given(result, "four") == {"gpu": [0, 1, 2, 3]}
    assert "Unsupported number of GPU requests" in refusal(result, "two")
    assert any("allocationScore as text" in one.message for one in loaded.warnings)


def test_a_tenth_of_an_mlu() -> None:
    """The plugin's own resources are the node's business, the card DeviceShare's."""
    labels = {"node.koordinator.sh/gpu-vendor": "cambricon", "node.koordinator.sh/gpu-model": "MLU370"}
    own = {"cambricon.com/mlu.smlu.vcore": "100", "cambricon.com/mlu.smlu.vmemory": "96"}
    tenth = {
        KOORD + "gpu.shared": "1",
        KOORD + "gpu-core": "10",
        KOORD + "gpu-memory": "1Gi",
        "cambricon.com/mlu.smlu.vcore": "10",
        "cambricon.com/mlu.smlu.vmemory": "4",
    }
    _, result = run(node("n", card(0), of_device=labels, amounts=own), pod("p", tenth))
    calls = [call for call in patches(result, bound_at=NOON) if not call.subresource]
    lock, annotations = (call.body["metadata"]["annotations"] for call in calls)
    assert list(lock) == ["cambricon.com/dsmlu.lock"]
    assert annotations["CAMBRICON_DSMLU_PROFILE"] == "0_10_4"


def test_an_h20_serves_whole_and_shared() -> None:
    labels = {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "NVIDIA-H20"}
    memory = {KOORD + "gpu-core": "100", KOORD + "gpu-memory": "97871Mi", KOORD + "gpu-memory-ratio": "100"}
    machine = node("worker01", card(0, memory), card(1, memory), of_device=labels)
    part = pod("part", {KOORD + "gpu.shared": "1", KOORD + "gpu-core": "20", KOORD + "gpu-memory": "20Gi"})
    _, result = run(machine, part, pod("whole", {"koordinator.sh/gpu": "100"}))
    assert given(result, "part")["gpu"] != given(result, "whole")["gpu"]
    assert result.snapshot.node("worker01").node.allocatable[KOORD + "gpu-memory"] == 2 * 97871 << 20


def test_a_table_in_the_notes_nested_shape() -> None:
    """Only single cards that stand in it, and of these the best: sizes 2, 4, 8 are empty."""
    nested = {
        "1": [{"NVLINK": {"minors": [0], "gpuLinkType": "NVLink", "allocationScore": "1"}}],
        "2": [],
        "4": [],
    }
    honor = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
    machine = node("n", *EIGHT, of_device=honor, annotations={PARTITIONS: json.dumps(nested)})
    best = {SPEC: {"allocatePolicy": "Restricted"}}
    one = {KOORD + "gpu": "100"}
    _, result = run(machine, pod("a", one, best), pod("b", one, best), pod("c", {KOORD + "gpu": "200"}))
    assert given(result, "a") == {"gpu": [0]}
    assert "Insufficient Partitioned GPU Devices" in refusal(result, "b")
    assert "Unsupported number of GPU requests" in refusal(result, "c")


@pytest.mark.parametrize("minors", [[0, 1, 2], [0], [0, 0], []])
@pytest.mark.parametrize("policy", ["Honor", "Prefer"])
def test_a_partition_under_another_number_is_passed_over(minors: list[int], policy: str) -> None:
    """Under Prefer any two cards do; ``run`` verifies the plan."""
    table = {PARTITIONS: json.dumps({"2": [{"minors": minors, "allocationScore": 9}]})}
    labels = {"node.koordinator.sh/gpu-partition-policy": policy}
    wants = pod("p", {KOORD + "gpu": "200"})
    loaded, result = run(node("n", *EIGHT, of_device=labels, annotations=table), wants)
    assert any(f"{minors} is no set of 2 cards" in one.message for one in loaded.warnings)
    if policy == "Prefer":
        assert given(result, "p") == {"gpu": [0, 1]}
    else:
        assert "Unsupported number of GPU requests" in refusal(result, "p")
    spare = [{"minors": minors, "allocationScore": 9}, {"minors": [6, 7], "allocationScore": 1}]
    table = {PARTITIONS: json.dumps({"2": spare})}
    restricted = pod("p", {KOORD + "gpu": "200"}, {SPEC: {"allocatePolicy": "Restricted"}})
    _, result = run(node("n", *EIGHT, of_device=labels, annotations=table), restricted)
    assert given(result, "p") == {"gpu": [6, 7]}


def test_a_gpu_and_a_virtual_function_beside_it() -> None:
    """The empty selector takes any VF; a node whose NIC has none does not do."""
    annotations = {JOINT: {"deviceTypes": ["gpu", "rdma"]}, HINT: {"rdma": {"vfSelector": {}}}}
    wants = pod("p", {KOORD + "gpu": "100", KOORD + "rdma": "100"}, annotations)
    cards = [card(0, pcie="0"), card(1, pcie="1")]
    without = node("a", *cards, nic(0, pcie="0"), nic(1, pcie="1"))
    with_vfs = node("b", *cards, nic(0, pcie="0"), nic(1, pcie="1", vfs=2))
    _, result = run(without, with_vfs, wants)
    assert placed(result) == {"p": "b"}
    assert given(result, "p") == {"gpu": [1], "rdma": [1]}


def test_a_card_of_which_no_place_is_known_needs_no_nic_of_its_own() -> None:
    """Switches are those of the cards that tell theirs, as upstream has it; ``run`` verifies the plan."""
    wants = {JOINT: {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}}
    placeless = {name: value for name, value in card(1).items() if name != "topology"}
    two = pod("two", {KOORD + "gpu": "200", KOORD + "rdma": "100"}, wants)
    _, result = run(node("n", card(0, pcie="0"), placeless, nic(0, pcie="0"), nic(1, pcie="1")), two)
    assert given(result, "two") == {"gpu": [0, 1], "rdma": [0]}
    _, result = run(node("n", card(0, pcie="0"), placeless, nic(1, pcie="1")), two)
    assert "two" not in placed(result)


@pytest.mark.parametrize("types", [["gpu", "rdma"], ["rdma", "gpu"]])
def test_cards_lead_wherever_they_stand_among_joint_types(types: list[str]) -> None:
    """Every switch of theirs brings a NIC, though one alone was asked for."""
    wants = {JOINT: {"deviceTypes": types, "requiredScope": "SamePCIe"}}
    cards = [card(0, pcie="0"), card(1, pcie="0"), card(2, pcie="1")]
    machine = node("n", *cards, nic(0, pcie="0"), nic(1, pcie="1"))
    three = pod("three", {KOORD + "gpu": "300", KOORD + "rdma": "100"}, wants)
    _, result = run(machine, three)
    assert given(result, "three") == {"gpu": [0, 1, 2], "rdma": [0, 1]}
    without = node("n", *cards, nic(0, pcie="0"))
    _, result = run(without, three)
    assert "three" not in placed(result)


def test_half_a_gpu_isolated_by_hami() -> None:
    """Only a node of that provider, by whatever case; ``gpu-shared`` is read as ``gpu.shared``."""
    half = {KOORD + "gpu-shared": "1", KOORD + "gpu-core": "50", KOORD + "gpu-memory-ratio": "50"}
    nodes = [*node("a", card(0)), *node("b", card(0), labels={ISOLATION: "HAMi-core"})]
    loaded, result = run(nodes, pod("p", half, labels={ISOLATION: "hami-core"}), pod("q", half))
    assert placed(result)["p"] == "b"
    assert any("write that instead" in one.message for one in loaded.warnings)


def test_cards_under_one_switch_and_on_one_numa_node() -> None:
    """Where no switch, or NUMA node, has that many, the pod waits."""

    def within(scope: str, name: str, percent: str) -> Objects:
        return pod(name, {KOORD + "gpu": percent}, {HINT: {"gpu": {"requiredTopologyScope": scope}}})

    _, result = run(node("n", *EIGHT), within("PCIe", "two", "200"), within("NUMANode", "four", "400"))
    assert given(result, "two")["gpu"] in ([0, 1], [2, 3], [4, 5], [6, 7])
    assert given(result, "four")["gpu"] in ([0, 1, 2, 3], [4, 5, 6, 7])
    _, result = run(node("n", *EIGHT), within("PCIe", "three", "300"), within("NUMANode", "five", "500"))
    assert all(
        "Insufficient Topology Scoped GPU Devices" in refusal(result, name) for name in ("three", "five")
    )


@pytest.mark.parametrize(("size", "fit"), [("8Gi", 1), ("16Gi", 2)])
def test_halves_of_a_card_by_names_of_v07(size: str, fit: int) -> None:
    """Memory decides: a whole one and halves of 4Gi."""
    amounts = {
        "kubernetes.io/gpu-core": "200",
        "kubernetes.io/gpu-memory": size,
        "kubernetes.io/gpu-memory-ratio": "100",
    }
    full = pod("full", {"kubernetes.io/gpu-core": "100", "kubernetes.io/gpu-memory": "8Gi"})
    half = pod("half", {"kubernetes.io/gpu-core": "50", "kubernetes.io/gpu-memory": "4Gi"})
    _, result = run(node("n", card(0, amounts)), full, half)
    assert len(placed(result)) == fit


def test_the_share_of_each_card_is_told_where_cards_differ_in_size() -> None:
    """The same memory is half of one card and a quarter of the other; on cards alike it is said once."""
    part = pod("part", {KOORD + "gpu.shared": "2", KOORD + "gpu-memory": "80Gi"})
    for memory, told in (
        ("160Gi", "gpu 0,1 (50%, 25%)"),
        ("80Gi", "gpu 0,1 (50%)"),
        ("40Gi", "gpu 1,0 (100%, 50%)"),
    ):
        _, result = run(node("n", card(0), card(1, {**GPU, KOORD + "gpu-memory": memory})), part)
        assert bound(result, "part").notes == (told,)
    _, result = run(node("n", card(0), card(1)), pod("whole", {KOORD + "gpu": "200"}))
    assert bound(result, "whole").notes == ("gpu 0,1",)


# --- what is asked for in vain ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amounts", "wishes", "note"),
    [
        (
            {"huawei.com/npu-core": "15", KOORD + "gpu-memory-ratio": "200"},
            {},
            "huawei.com/npu-core: 15 does not divide among 2 devices, each gets 7",
        ),
        (
            {KOORD + "rdma": "200"},
            {HINT: {"rdma": {"allocateStrategy": "RequestsAsCount"}}},
            "RequestsAsCount is ignored: koordinator.sh/rdma of 200 is 2 whole devices",
        ),
        (
            {KOORD + "gpu-memory-ratio": "100"},
            {HINT: {"rdma": {"exclusivePolicy": "DeviceLevel"}}},
            "the hint for rdma is ignored: the pod requests none",
        ),
        (
            {KOORD + "gpu-memory-ratio": "100"},
            {JOINT: {"deviceTypes": ["gpu", "rdma"]}},
            "rdma is left out of the joint allocation: the pod requests none",
        ),
        (
            {KOORD + "gpu-memory-ratio": "100", KOORD + "rdma": "50"},
            {
                JOINT: {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"},
                HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}},
            },
            "rdma is left out of the joint allocation: its hint says ApplyForAll",
        ),
        (
            {KOORD + "gpu-memory-ratio": "50"},
            {SPEC: {"allocatePolicy": "Restricted"}},
            "the partition spec is ignored: the pod shares a card",
        ),
    ],
)
def test_what_comes_to_nothing_is_noted(
    amounts: dict[str, str], wishes: dict[str, dict[str, object]], note: str
) -> None:
    """The pod beside it, which asks for the same without that, gets no such note."""
    cards = [card(minor, NPU_CARD, pcie=str(minor)) for minor in range(4)]
    nics = [nic(minor, pcie=str(minor)) for minor in range(4)]
    _, result = run(node("n", *cards, *nics), pod("p", amounts, wishes), pod("plain", {KOORD + "rdma": "50"}))
    one, plain = result.decisions
    assert isinstance(one, Bound)
    assert isinstance(plain, Bound)
    assert note in one.notes
    assert len(plain.notes) == 1
