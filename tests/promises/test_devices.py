"""Cards: templates, packing, old names, what nodes lack, partitions, designation, unknown holders."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.door import (
    KOORD,
    NODE,
    QUOTA,
    SCHED,
    Door,
    Object,
    available,
    card,
    device,
    held,
    node,
    obj,
    pod,
    quota,
    reservation,
)

CORE, RATIO, GPU = KOORD + "gpu-core", KOORD + "gpu-memory-ratio", KOORD + "gpu"
NPU = "huawei.com/npu-"
ASCEND = {NODE + "gpu-vendor": "huawei", NODE + "gpu-model": "Ascend-310P3"}
CHIP = {
    NPU + "core": "8",
    NPU + "cpu": "7",
    NPU + "dvpp": "100",
    KOORD + "gpu-memory": "24Gi",
    RATIO: "100",
}
SLICES = {
    "vir04": {KOORD + "gpu-memory": "12Gi", NPU + "core": 4, NPU + "cpu": 4, NPU + "dvpp": 50},
    "vir01": {KOORD + "gpu-memory": "3Gi", NPU + "core": 1, NPU + "cpu": 1, NPU + "dvpp": 12},
}


def gpu_node(name: str, cards: int, **parts: Any) -> list[Object]:
    """A node whose Device alone tells its cards, four to a NUMA node and two to a switch."""
    of_device = parts.pop("of_device", {})
    own = [card(minor, numa=minor // 4, pcie=str(minor // 2)) for minor in range(cards)]
    return [node(name, **parts), device(name, *own, **of_device)]


def templates(text: str) -> Object:
    name = "gpu-shared-resource-templates"
    return obj("ConfigMap", name, namespace="koordinator-system", data={"data.yaml": text})


def slice_of(name: str, template: str) -> Object:
    return pod(name, {KOORD + "gpu.shared": 1, **SLICES[template]})


@pytest.mark.parametrize("where", ["node", "device"])
def test_a_virtual_card_is_cut_by_its_template_wherever_vendor_and_model_stand(
    door: Door, where: str
) -> None:
    text = json.dumps({"huawei-Ascend-310P3": SLICES})
    machine = node("npu", labels=ASCEND if where == "node" else {})
    chips = device("npu", *(card(one, CHIP) for one in range(2)), labels=ASCEND if where == "device" else {})
    wanted = [slice_of("small", "vir01"), slice_of("large", "vir04")]
    done = door.schedule(machine, chips, templates(text), wanted)
    for name, template in (("small", "vir01"), ("large", "vir04")):
        held_ = json.loads(done.decision(name)["annotations"][SCHED + "device-allocated"])
        assert held_["gpu"][0]["extension"]["gpuSharedResourceTemplate"] == template
    thirds = {NPU + "core": 3, NPU + "cpu": 3, NPU + "dvpp": 37, KOORD + "gpu-memory": "9Gi"}
    odd = pod("odd", {KOORD + "gpu.shared": 1, **thirds})
    assert "no matched GPU shared resource template" in door.schedule(
        machine, chips, templates(text), odd
    ).why("odd")
    words = ("-o", "patches", "--now", "2026-01-01T00:00:00Z")
    calls = door.ask("schedule", door.file(machine, chips, templates(text), wanted[0]), *words).lines
    assert calls[0]["body"]["metadata"]["annotations"][NPU + "core"] == "0-vir01"


@pytest.mark.parametrize(
    ("policy", "cards"),
    [("default", {"a": 0}), ("binpack", {"a": 0}), ("stock", {"a": 0, "b": 1}), ("spread", {"a": 0, "b": 1})],
)
def test_shares_go_to_one_card_unless_the_policy_spreads(
    door: Door, policy: str, cards: dict[str, int]
) -> None:
    shares = [pod(f"s{one}", {CORE: 40, RATIO: 40}) for one in range(2)]
    done = door.schedule(gpu_node("n", 2), shares, say=("--policy", policy))
    assert {done.minors(f"s{one}")[0] for one in range(2)} == set(cards.values())


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_plain_cards_leave_a_node_whole_for_the_large_job(door: Door, name: str) -> None:
    machines = [node(one, amounts={name: "8"}) for one in ("a", "b")]
    small = [pod(f"s{one}", {name: 1}, priority=10) for one in range(2)]
    assert door.schedule(machines, small, pod("large", {name: 8})).node_of("large")


def test_policies_that_spread_cards_are_told_what_that_costs(door: Door) -> None:
    assert "cards are spread, so that fewer nodes stay whole" in door.ask("policy", "koordinator").out


@pytest.mark.parametrize("key", ["internal." + SCHED + "scheduling-hint", SCHED + "scheduling-hint"])
@pytest.mark.parametrize("asks", [{GPU: 200}, {CORE: 200, RATIO: 200}])
def test_designated_cards_are_given_and_those_of_others_refused(
    door: Door, key: str, asks: dict[str, int]
) -> None:
    hint = {key: {"nodeNames": ["n"], "extensions": {"DeviceShare": {}}}}
    wish = pod("p", asks, annotations={**held(2, 7), **hint})
    assert door.schedule(gpu_node("n", 8), wish).minors("p") == [2, 7]
    other = pod("holder", {GPU: 100}, on="n", annotations=held(7))
    assert "holder" in door.schedule(gpu_node("n", 8), other, wish).why("p")


def test_designated_cpus_are_given(door: Door) -> None:
    detail = [{"id": cpu, "core": cpu // 2, "socket": 0, "node": cpu // 4} for cpu in range(8)]
    topology = obj("NodeResourceTopology", "n", annotations={NODE + "cpu-topology": {"detail": detail}})
    said = {
        SCHED + "resource-spec": {"preferredCPUBindPolicy": "FullPCPUs"},
        SCHED + "resource-status": {"cpuset": "4-5"},
        "internal." + SCHED + "scheduling-hint": {"nodeNames": ["n"], "extensions": {"NodeNUMAResource": {}}},
    }
    bound = pod("p", {"cpu": 2}, annotations=said, labels={KOORD + "qosClass": "LSR"}, priority=9500)
    done = door.schedule(node("n", amounts={"cpu": "8"}), topology, bound)
    status = done.decision("p")["annotations"][SCHED + "resource-status"]
    assert json.loads(status)["cpuset"] == "4-5"


OLD = "kubernetes.io/gpu-"


@pytest.mark.parametrize("old", ["node", "device", "pod", "all"])
def test_names_of_v07_mean_the_new_ones_on_nodes_devices_and_pods(door: Door, old: str) -> None:
    def spelt(who: str, amount: int) -> dict[str, str]:
        prefix = OLD if old in (who, "all") else KOORD + "gpu-"
        return {prefix + "core": str(amount), prefix + "memory-ratio": str(amount)}

    own = {(OLD if old in ("device", "all") else KOORD + "gpu-") + "memory": "80Gi"}
    cards = device("n", *(card(one, {**spelt("device", 100), **own}) for one in range(2)))
    machine = node("n", amounts=spelt("node", 200))
    pods = [pod(f"p{one}", spelt("pod", 100)) for one in range(3)]
    assert len(door.schedule(machine, cards, pods).bound) == 2


@pytest.mark.parametrize(
    ("limit", "asks"),
    [
        ({OLD + "core": 200}, {GPU: 100}),
        ({CORE: 200}, {OLD + "core": 100, OLD + "memory-ratio": 100}),
        ({CORE: 200}, {GPU: 100}),
        ({RATIO: 200}, {GPU: 100}),
        ({"koordinator.sh/batch-cpu": 2000}, {"kubernetes.io/batch-cpu": 1000}),
    ],
)
def test_a_quota_counts_whatever_spelling_its_pods_use(
    door: Door, limit: dict[str, int], asks: dict[str, int]
) -> None:
    batch = {"kubernetes.io/batch-cpu": "9000"}
    pods = [pod(f"p{one}", asks, labels={QUOTA + "name": "q"}) for one in range(3)]
    done = door.schedule(gpu_node("n", 4, amounts=batch), quota("q", limit), pods)
    assert len(done.bound) == 2


def test_cards_that_a_quota_does_not_count_are_warned_of(door: Door) -> None:
    pods = [pod(f"p{one}", {"nvidia.com/gpu": 1}, labels={QUOTA + "name": "q"}) for one in range(3)]
    machine = node("n", amounts={"nvidia.com/gpu": "4"})
    done = door.schedule(machine, quota("q", {CORE: 100}), pods)
    assert len(done.bound) == 3
    assert f"counts {CORE} alone; 3 of its pods ask for nvidia.com/gpu, which it does not limit" in done.err
    agreeing = door.schedule(machine, quota("q", {"nvidia.com/gpu": 2}), pods)
    assert len(agreeing.bound) == 2
    assert not agreeing.err


def test_amounts_that_a_node_lacks_are_taken_from_its_device_with_a_warning(door: Door) -> None:
    sick = device("n", card(0), card(1, health=False))
    done = door.schedule(node("n"), sick, pod("one", {GPU: 100}), pod("two", {GPU: 100}))
    assert list(done.bound.values()) == ["n"]
    assert "taken from its Device, as the manager does" in done.err


TABLE = {
    "2": [
        {"minors": [0, 1], "gpuLinkType": "NVLink", "allocationScore": 1},
        {"minors": [2, 3], "gpuLinkType": "NVLink", "allocationScore": 5},
    ]
}


@pytest.mark.parametrize("where", ["node", "device"])
def test_a_table_binds_where_its_policy_stands_on_node_or_device(door: Door, where: str) -> None:
    honor = {NODE + "gpu-partition-policy": "Honor"}
    of_device = {
        "annotations": {SCHED + "gpu-partitions": TABLE},
        "labels": honor if where == "device" else {},
    }
    cluster = gpu_node("n", 8, labels=honor if where == "node" else {}, of_device=of_device)
    pods = [pod(f"p{one}", {GPU: 200}) for one in range(3)]
    done = door.schedule(cluster, pods)
    assert [done.minors(f"p{one}") for one in range(2)] == [[2, 3], [0, 1]]  # the better score first
    assert not done.node_of("p2")


@pytest.mark.parametrize(("model", "pair"), [("H800", [2, 3]), ("H20", [2, 3]), ("A10", [1, 2])])
def test_a_known_model_on_the_device_alone_brings_its_table(door: Door, model: str, pair: list[int]) -> None:
    labels = {NODE + "gpu-model": model, NODE + "gpu-vendor": "nvidia"}
    busy = pod("busy", {GPU: 100}, on="n", annotations=held(0))
    cards = device("n", *map(card, range(8)), labels=labels)
    done = door.schedule(node("n"), cards, busy, pod("p", {GPU: 200}))
    assert done.minors("p") == pair


def test_cards_held_by_somebody_who_does_not_say_which_are_warned_of(door: Door) -> None:
    silent = pod("silent", {GPU: 100}, on="n")
    done = door.schedule(gpu_node("n", 2), silent, pod("p", {CORE: 100, RATIO: 100}))
    assert "the devices that it holds are not known and count as free" in done.err
    room = available(reservation("r", {CORE: 100, RATIO: 100}), "n")
    done = door.schedule(gpu_node("n", 2), room, pod("p", {"cpu": 1}))
    assert "Reservation r: metadata.annotations" in done.err
    told = {
        **room,
        "metadata": {
            **room["metadata"],
            "annotations": {key: json.dumps(one) for key, one in held(0).items()},
        },
    }
    done = door.schedule(gpu_node("n", 2), told, pod("p", {CORE: 100, RATIO: 100}))
    assert done.minors("p") == [1]
    assert "not known" not in done.err


def test_words_about_devices(door: Door) -> None:
    """Counts are no thousandths, and a type that nobody knows is named."""
    odd = {SCHED + "device-joint-allocate": {"deviceTypes": ["gpu", "nic"]}}
    done = door.schedule(gpu_node("n", 1), pod("p", {GPU: 100}, annotations=odd))
    assert '"nic" is none of fpga, gpu, rdma' in done.err
    text = json.dumps({"huawei-Ascend-310P3": SLICES})
    chips = device("npu", card(0, CHIP), labels=ASCEND)
    table = door.ask("schedule", door.file(node("npu"), chips, templates(text), slice_of("s", "vir04"))).out
    assert "50 npu-dvpp" in table
    wrong = door.schedule(gpu_node("n", 2), pod("p", {GPU: 150}))
    assert wrong.why("p") == "0/1 nodes are available: invalid resource unit koordinator.sh/gpu: 150."
    assert "requested 0" not in wrong.out
