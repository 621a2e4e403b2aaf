"""Nodes that lack what their Devices offer, and pods that do not say which devices they hold."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, schedule
from koordcore.manifests import EventReader, snapshot_from_objects
from koordcore.model.nodes import Node
from tests.scheduling.device_objects import (
    ALLOCATED,
    KOORD,
    Objects,
    card,
    given,
    nic,
    node,
    pod,
    refusal,
    run,
)

MODEL = {"node.koordinator.sh/gpu-model": "H800", "node.koordinator.sh/gpu-driver-version": "550.54"}
VENDOR = {"node.koordinator.sh/gpu-vendor": "nvidia"}
WHOLE = {KOORD + "gpu": "100"}


def only(*objects: Objects) -> tuple[Node, list[str]]:
    loaded = snapshot_from_objects([one for each in objects for one in each])
    (state,) = loaded.snapshot.nodes
    return state.node, [str(one) for one in loaded.warnings]


def test_amounts_of_a_device_are_summed_up_for_its_node() -> None:
    """Healthy ones only; a NIC counts 100."""
    broken = {**card(2), "health": False}
    found, warnings = only(node("n", card(0), card(1), broken, nic(0), nic(1)))
    offered = {name.removeprefix(KOORD): amount for name, amount in found.allocatable.items() if "/" in name}
    assert offered == {
        "gpu": 200,
        "gpu-core": 200,
        "gpu-memory": 160 << 30,
        "gpu-memory-ratio": 200,
        "gpu.shared": 200,
        "rdma": 200,
    }
    assert all(found.capacity[KOORD + name] == amount for name, amount in offered.items())
    (warning,) = warnings
    assert "Node n: status.allocatable: lacks" in warning
    assert "taken from its Device" in warning


def test_what_a_node_says_stays_as_it_is() -> None:
    """An amount of zero says something, too."""
    said = {KOORD + name: "0" for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio")}
    found, warnings = only(node("n", card(0), amounts=said))
    assert [found.allocatable[name] for name in said] == [0] * 4
    assert not warnings


def test_a_vendor_whose_cards_are_no_gpus_gets_no_gpu() -> None:
    vendor = {"node.koordinator.sh/gpu-vendor": "huawei"}
    amounts = {"huawei.com/npu-core": "20", KOORD + "gpu-memory-ratio": "100"}
    found, _ = only(node("n", card(0, amounts), of_device=vendor))
    assert KOORD + "gpu" not in found.allocatable
    assert found.allocatable["huawei.com/npu-core"] == 20
    assert found.labels["node.koordinator.sh/gpu-vendor"] == "huawei"


def test_labels_are_mirrored_where_the_node_has_none() -> None:
    found, warnings = only(
        node("n", card(0), labels=VENDOR, of_device={**MODEL, "node.koordinator.sh/gpu-vendor": "x"})
    )
    assert dict(found.labels) == {**VENDOR, **MODEL}
    assert any("metadata.labels: lacks" in one and "node.koordinator.sh/gpu-model" in one for one in warnings)


def test_nodes_that_lack_the_same_are_said_once() -> None:
    objects = [one for number in range(5) for one in node(f"n{number}", card(0))]
    loaded = snapshot_from_objects(objects)
    (warning,) = loaded.warnings
    assert "Node n0" in str(warning)
    assert "here and on 4 more nodes" in warning.message


def test_sharing_that_a_manager_never_wrote_is_said_where_a_pod_asks_for_it() -> None:
    amounts = {KOORD + name: "100" for name in ("gpu", "gpu-core", "gpu-memory-ratio")}
    machine = node("n", card(0), amounts={**amounts, KOORD + "gpu-memory": "80Gi"})
    shared = {KOORD + "gpu.shared": "1", KOORD + "gpu-core": "30", KOORD + "gpu-memory-ratio": "30"}
    assert only(machine)[1] == []
    loaded, result = run(machine, pod("p", shared))
    assert given(result, "p") == {"gpu": [0]}
    assert [one.message.partition(";")[0] for one in loaded.warnings] == [f"lacks {KOORD}gpu.shared"]


def test_a_pod_is_placed_on_cards_that_only_the_device_tells() -> None:
    """No more of them than there are."""
    _, result = run(node("n", card(0), card(1)), pod("a", WHOLE), pod("b", WHOLE), pod("c", WHOLE))
    assert (given(result, "a"), given(result, "b")) == ({"gpu": [0]}, {"gpu": [1]})
    assert refusal(result, "c") == "0/1 nodes are available: 1 Insufficient koordinator.sh/gpu."


def test_running_pods_that_do_not_say_what_they_hold_are_warned_of() -> None:
    held = {ALLOCATED: {"gpu": [{"minor": 1, "resources": {KOORD + "gpu-core": "100"}}]}}
    objects = [
        *node("n", card(0), card(1), card(2)),
        *node("without"),
        *pod("silent", WHOLE, on="n"),
        *pod("said", WHOLE, held, on="n"),
        *pod("web", {"cpu": "1"}, on="n"),
        *pod("elsewhere", {"nvidia.com/gpu": "1"}, on="without"),
        *pod("pending", WHOLE),
    ]
    warnings = [one for one in snapshot_from_objects(objects).warnings if ALLOCATED in one.path]
    assert [one.object_name for one in warnings] == ["Pod default/silent"]
    assert "count as free" in warnings[0].message


PARTITIONS = '{"1": [{"minors": [0]}, {"minors": [1]}]}'


@pytest.mark.parametrize("place", ["labels", "of_device"])
def test_the_policy_of_a_node_counts_beside_a_table_on_its_device(place: str) -> None:
    """Upstream looks at the Device's alone; which of the two says Honor makes no difference here."""
    honor = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
    table = {"scheduling.koordinator.sh/gpu-partitions": PARTITIONS}
    machine = node("n", card(0), card(1), annotations=table, **{place: honor})
    loaded, result = run(machine, pod("one", WHOLE), pod("two", {KOORD + "gpu": "200"}))
    assert given(result, "one")["gpu"]
    assert "Unsupported number of GPU requests" in refusal(
        run(machine, pod("two", {KOORD + "gpu": "200"}))[1], "two"
    )
    said = [one for one in loaded.warnings if "absent beside a table" in one.message]
    assert len(said) == (place == "labels")


def test_the_policy_of_a_node_counts_on_a_watch_too() -> None:
    """It is not a matter of who reads the objects: the label may come and go under a table that stays."""
    table = {"scheduling.koordinator.sh/gpu-partitions": PARTITIONS}
    offered = {KOORD + name: "200" for name in ("gpu", "gpu-core", "gpu-memory-ratio")}
    machine, device = node("n", card(0), card(1), annotations=table, amounts=offered)
    reader, live = EventReader(), ClusterSnapshot()
    for one in (machine, device, *pod("two", {KOORD + "gpu": "200"})):
        live = live.apply(*reader.event("ADDED", one))
    assert given(schedule(live), "two") == {"gpu": [0, 1]}
    labels = {"node.koordinator.sh/gpu-partition-policy": "Honor"}
    labelled = {**machine, "metadata": {**machine["metadata"], "labels": labels}}
    after = live.apply(*reader.event("MODIFIED", labelled))
    assert "Unsupported number of GPU requests" in refusal(schedule(after), "two")


@pytest.mark.parametrize("place", ["labels", "of_device"])
def test_the_model_counts_wherever_it_stands(place: str) -> None:
    """Eight cards of a known model have its partitions, so two of them are a pair of the table."""
    model = {"node.koordinator.sh/gpu-model": "H800", "node.koordinator.sh/gpu-partition-policy": "Honor"}
    machine = node("n", *[card(minor, pcie=str(minor)) for minor in range(8)], **{place: model})
    _, result = run(machine, pod("two", {KOORD + "gpu": "200"}))
    assert given(result, "two") == {"gpu": [0, 1]}
    assert "Unsupported number" in refusal(run(machine, pod("three", {KOORD + "gpu": "300"}))[1], "three")


def test_pods_that_only_the_webhook_would_have_helped_are_told_what_to_ask_for() -> None:
    vendor = {"node.koordinator.sh/gpu-vendor": "metax"}
    loaded, result = run(node("n", card(0), of_device=vendor), pod("p", WHOLE))
    assert "Insufficient koordinator.sh/gpu" in refusal(result, "p")
    (said,) = [one for one in loaded.warnings if one.object_name == "Pod default/p"]
    assert said.message.startswith("no node offers it; ask for koordinator.sh/gpu-core")
