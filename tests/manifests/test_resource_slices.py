"""Slices and taint rules: every version of the API, problems with paths, what the server would refuse."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    CapacityPolicy,
    CapacityRange,
    DeviceTaintRule,
    ResourceSlice,
)
from koordcore.model.quantity import NANO
from tests.manifests.builders import obj

V1 = "resource.k8s.io/v1"
GPU = {
    "name": "gpu-0",
    "attributes": {
        "index": {"int": 0},
        "type": {"string": "gpu"},
        "driverVersion": {"version": "570.86.15"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "numa": {"ints": [0, 1]},
        "odd": {},
    },
    "capacity": {
        "memory": {
            "value": "80Gi",
            "requestPolicy": {"default": "10Gi", "validRange": {"min": "10Gi", "step": "5Gi"}},
        },
        "share": {"value": "1500m"},
    },
    "consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": "7"}}}],
    "taints": [{"key": "broken", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
    "allowMultipleAllocations": True,
}


def a_slice(*devices: Any, api_version: str = V1, **spec: Any) -> dict[str, Any]:
    pool = {"name": "n1", "generation": 3, "resourceSliceCount": 1}
    fields = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n1", "devices": list(devices), **spec}
    return obj("ResourceSlice", "n1-gpu", api_version, spec=fields)


def read(raw: dict[str, Any]) -> tuple[ResourceSlice, list[str]]:
    loaded = snapshot_from_objects([raw])
    (record,) = loaded.snapshot.of(ResourceSlice)
    return record, [f"{one.path}: {one.message}" for one in loaded.warnings]


def test_a_device_is_read_with_all_that_it_has() -> None:
    record, _ = read(a_slice(GPU))
    assert (record.driver, record.pool, record.generation, record.slice_count) == (
        "gpu.example.com",
        "n1",
        3,
        1,
    )
    (device,) = record.devices
    assert device.attributes["numa"] == AttributeValue(AttributeKind.INT, (0, 1), listed=True)
    assert device.attributes["driverVersion"] == AttributeValue(AttributeKind.VERSION, ("570.86.15",))
    assert device.attributes["odd"] == AttributeValue(AttributeKind.NONE)
    gibi = 2**30 * NANO
    memory = device.capacity["memory"]
    assert (memory.value, memory.binary) == (80 * gibi, True)
    assert memory.policy == CapacityPolicy(10 * gibi, valid_range=CapacityRange(min=10 * gibi, step=5 * gibi))
    assert device.capacity["share"].value == 1_500_000_000
    assert device.consumes_counters[0].counters == {"slices": 7 * NANO}
    assert (device.taints[0].key, device.taints[0].effect) == ("broken", "NoSchedule")


def test_the_three_versions_of_the_api_give_one_record() -> None:
    basic = {"name": GPU["name"], "basic": {key: value for key, value in GPU.items() if key != "name"}}
    newest, _ = read(a_slice(GPU))
    assert read(a_slice(GPU, api_version="resource.k8s.io/v1beta2"))[0] == newest
    assert read(a_slice(basic, api_version="resource.k8s.io/v1beta1"))[0] == newest


def test_problems_name_the_place() -> None:
    wrong = {
        "name": "gpu-1",
        "attributes": {"index": {"int": "0"}, "numa": {"ints": [0, "1"]}},
        "capacity": {"memory": {"value": "80GiB"}, "none": {}},
    }
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([a_slice(GPU, wrong)], strict=True)
    assert [one.path for one in caught.value.problems] == [
        "spec.devices[1].attributes[index].int",
        "spec.devices[1].attributes[numa].ints[1]",
    ]
    del wrong["attributes"]
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([a_slice(GPU, wrong, driver=None)], strict=True)
    assert [one.path for one in caught.value.problems] == [
        "spec.devices[1].capacity[memory].value",
        "spec.devices[1].capacity[none].value",
        "spec.driver",
    ]


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"allNodes": True}, "spec: needs exactly one of nodeName, nodeSelector, allNodes and"),
        ({"nodeName": None}, "spec: needs exactly one of nodeName, nodeSelector, allNodes and"),
        ({"pool": {"name": "p"}}, "spec.pool.resourceSliceCount: less than 1"),
        (
            {"devices": [GPU], "sharedCounters": [{"name": "card", "counters": {}}]},
            "spec.sharedCounters: may not stand beside",
        ),
        ({"devices": [{"name": f"d{n}"} for n in range(129)]}, "spec.devices: at most 128 devices, got 129"),
        (
            {"devices": [{**GPU, "name": f"d{n}"} for n in range(65)]},
            "spec.devices: at most 64 devices, got 65",
        ),
        (
            {"devices": [{"name": "d", "attributes": {"x": {}}}]},
            "spec.devices[0].attributes[x]: has no value",
        ),
        (
            {"devices": [{"name": "d", "attributes": {"x": {"string": "y" * 65}}}]},
            "spec.devices[0].attributes[x]: texts have at most 64 characters",
        ),
        (
            {"devices": [{**GPU, "allowMultipleAllocations": False}]},
            "spec.devices[0].capacity[memory].requestPolicy: only for devices with allowMultipleAllocations",
        ),
        (
            {"devices": [{"name": "d", "bindingConditions": ["ok"]}]},
            "spec.devices[0].bindingConditions: needs",
        ),
        (
            {"devices": [{"name": "d", "taints": [{"effect": "Never"}]}]},
            "spec.devices[0].taints[0].effect: Never",
        ),
    ],
)
def test_what_the_server_would_refuse_is_warned_of(change: dict[str, Any], warning: str) -> None:
    _, warnings = read(a_slice(**change))
    assert any(one.startswith(warning) for one in warnings), warnings


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ((2, 2), []),
        ((3, 3), []),
        ((2, 3), ["3, where slice s0 of pool d/p of generation 3 says 2: what the pool offers hangs on"]),
        ((1, 1), ["1, but pool d/p of generation 3 has 2 slices"]),
    ],
    ids=["as many as they say", "fewer", "of two minds", "more"],
)
def test_slices_of_a_pool_that_do_not_go_together_are_warned_of(
    counts: tuple[int, int], told: list[str]
) -> None:
    pools = [{"name": "p", "generation": 3, "resourceSliceCount": count} for count in counts]
    slices = [
        obj("ResourceSlice", f"s{number}", V1, spec={"driver": "d", "nodeName": "n", "pool": one})
        for number, one in enumerate(pools)
    ]
    found = snapshot_from_objects(slices).warnings
    assert len(found) == len(told)
    for one, text in zip(found, told, strict=True):
        assert one.path == "spec.pool.resourceSliceCount"
        assert one.message.startswith(text)
    older = {**pools[1], "generation": 2}
    slices[1] = obj("ResourceSlice", "s1", V1, spec={"driver": "d", "nodeName": "n", "pool": older})
    assert snapshot_from_objects(slices).warnings == ()


@pytest.mark.parametrize("name", ["nodeAllocatableResources", "nodeAllocatableResourceMappings"])
@pytest.mark.parametrize("basic", [True, False])
def test_what_devices_take_of_their_node_is_said_not_to_count(basic: bool, name: str) -> None:
    """Once, by the name that the version has, and nothing where a device takes nothing."""
    taking: dict[str, Any] = {name: {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}
    devices = [
        {"name": f"d{n}", **({"basic": own} if basic else own)} for n, own in enumerate(({}, taking, taking))
    ]
    version = "resource.k8s.io/v1beta1" if basic else V1
    _, warnings = read(a_slice(*devices, api_version=version))
    (told,) = [one for one in warnings if name in one]
    assert told == (
        f"spec.devices[1].{name}: what the device takes of its node's own amounts is not "
        "counted before its pod runs (here and for 1 more)"
    )
    _, quiet = read(a_slice({"name": "d"}))
    assert quiet == []


def test_taint_rules_select_by_what_is_given() -> None:
    taint = {"key": "broken", "effect": "NoExecute"}
    specs = {
        "one": {"deviceSelector": {"driver": "gpu.example.com", "device": "gpu-0"}, "taint": taint},
        "all": {"deviceSelector": {}, "taint": taint},
        "none": {"taint": taint},
        "withdrawn": {"deviceSelector": {"deviceClassName": "gpu"}, "taint": taint},
    }
    loaded = snapshot_from_objects(
        [obj("DeviceTaintRule", name, "resource.k8s.io/v1beta2", spec=spec) for name, spec in specs.items()]
    )
    rules = {rule.name: rule for rule in loaded.snapshot.of(DeviceTaintRule)}
    assert (rules["one"].driver, rules["one"].pool, rules["one"].device) == ("gpu.example.com", None, "gpu-0")
    assert {name for name, rule in rules.items() if rule.selects} == {"one", "all"}
    assert [one.path for one in loaded.warnings] == ["spec.deviceSelector.deviceClassName"]
