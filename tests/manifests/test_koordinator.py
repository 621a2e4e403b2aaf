"""Devices, templates and configurations of the control plane."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.model.cluster import ConfigMap, RawObject
from koordcore.model.devices import DeviceObject, SharedTemplates
from koordcore.protocol.profile import ColocationProfile
from tests.manifests.builders import node, obj

DEVICES = "scheduling.koordinator.sh/v1alpha1"


def device(name: str = "n1", *entries: Any, **metadata: Any) -> dict[str, Any]:
    return obj("Device", name, DEVICES, metadata=metadata, spec={"devices": list(entries)})


def card(minor: Any, **fields: Any) -> dict[str, Any]:
    resources = {"koordinator.sh/gpu-core": "100", "kubernetes.io/gpu-memory-ratio": "100"}
    return {"type": "gpu", "minor": minor, "health": True, "resources": resources, **fields}


def problems(*objects: Any) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects(objects, strict=True)
    return [str(problem) for problem in caught.value.problems]


def test_devices_become_records_with_their_nodes_name() -> None:
    loaded = snapshot_from_objects([device("n1", card(1), card(0)), node("n1")])
    record = loaded.snapshot.find(DeviceObject, "n1")
    assert record is not None
    assert [(one.minor, dict(one.resources)) for one in record.devices] == [
        (minor, {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}) for minor in (0, 1)
    ]


def test_problems_of_devices_name_the_entry() -> None:
    assert problems(device("n1", card(0), card(1), card(2), card("a"))) == [
        'object 1: Device n1: spec.devices[3].minor: expected int, got "a"'
    ]


def test_odd_entries_of_a_device_are_warned_about() -> None:
    loaded = snapshot_from_objects([device("n1", card(0), card(0), {"type": "tpu", "minor": 0})])
    assert [str(one).removeprefix("object 1: Device n1: ") for one in loaded.warnings] == [
        "spec.devices[1].minor: gpu 0 is given twice",
        "spec.devices[2].type: unknown device type, the device is passed over",
    ]


def test_the_configuration_of_the_controllers_is_kept_as_text() -> None:
    data = {"colocation-config": '{"enable": true}', "cpu-normalization-config": "{", "other": "x"}
    loaded = snapshot_from_objects(
        [
            obj(
                "ConfigMap",
                "slo-controller-config",
                metadata={"namespace": "koordinator-system"},
                data=data,
            ),
            obj("ConfigMap", "kube-root-ca.crt", data={"ca.crt": "…"}),
        ]
    )
    (config,) = loaded.snapshot.of(ConfigMap)
    assert (config.namespace, dict(config.data)) == ("koordinator-system", data)
    warning, idle = loaded.warnings
    assert warning.path == "data[cpu-normalization-config]"
    assert idle.message == "has no effect here: other"
    assert warning.message.endswith("; the defaults count")
    assert loaded.unread == {"ConfigMap": 1}
    assert loaded.snapshot.of(RawObject)[0].name == "kube-root-ca.crt"


TEMPLATES = {"huawei-Ascend-310P": {"vir01": {"huawei.com/npu-core": 1, "koordinator.sh/gpu-memory": "3Gi"}}}
AS_YAML = "huawei-Ascend-310P:\n  vir01: {huawei.com/npu-core: 1, koordinator.sh/gpu-memory: 3Gi}\n"


@pytest.mark.parametrize("text", [json.dumps(TEMPLATES), AS_YAML])
def test_templates_of_virtual_cards(text: str) -> None:
    loaded = snapshot_from_objects(
        [obj("ConfigMap", "gpu-shared-resource-templates", data={"data.yaml": text})]
    )
    (record,) = loaded.snapshot.of(SharedTemplates)
    assert dict(record.templates["huawei-Ascend-310P"]["vir01"]) == {
        "huawei.com/npu-core": 1,
        "koordinator.sh/gpu-memory": 3 << 30,
    }


def test_colocation_profiles() -> None:
    raw = obj("ClusterColocationProfile", "p", "config.koordinator.sh/v1alpha1", spec={"qosClass": "BE"})
    assert snapshot_from_objects([raw]).snapshot.of(ColocationProfile)[0].qos_class == "BE"


@pytest.mark.parametrize(
    ("effect", "warned"), [("NoSchedule", True), ("NoExecute", True), ("PreferNoSchedule", False)]
)
def test_taints_of_a_reservation_are_warned_of(effect: str, warned: bool) -> None:
    """They keep out owners with a reservation affinity alone."""
    raw = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r", "uid": "u"},
        "spec": {
            "template": {"spec": {"containers": [{"name": "c"}]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "o"}}}],
            "taints": [{"key": "k", "effect": effect}],
        },
    }
    found = [str(one) for one in snapshot_from_objects([raw]).warnings]
    assert ["spec.taints: keep out owners with" in one for one in found] == [True] * warned
