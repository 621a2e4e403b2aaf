"""What vendors' plugins find on a bound pod."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from koordcore.errors import ModelError
from koordcore.model.pods import PodKey
from koordcore.protocol.device_plugins import PluginPatch, adapt_to_plugin, lock_blocks
from tests.allocators.device.build import nics, read

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
K = "koordinator.sh/"
BIND = "scheduling.koordinator.sh/bind-timestamp"
MINORS = "scheduling.koordinator.sh/gpu-minors"


def patch(parts: Any, vendor: str, model: str = "", labels: dict[str, str] | None = None) -> PluginPatch:
    return adapt_to_plugin(
        read(parts),
        pod=PodKey("default", "p"),
        pod_labels=labels or {},
        node="n1",
        vendor=vendor,
        model=model,
        now=NOON,
    )


def gpu(*minors: int, template: str = "", **amounts: str) -> dict[str, Any]:
    parts = []
    for minor in minors:
        part: dict[str, Any] = {
            "minor": minor,
            "id": f"U{minor}",
            "resources": {K + key.replace("_", "-"): value for key, value in amounts.items()},
        }
        if template:
            part["extension"] = {"gpuSharedResourceTemplate": template}
        parts.append(part)
    return {"gpu": parts}


def test_every_vendor_gets_the_time_and_the_minors() -> None:
    """Nanoseconds of binding; minors in the order of selection; nothing about cards without cards."""
    assert dict(patch(gpu(1, 0), "nvidia").annotations) == {BIND: "1767268800000000000", MINORS: "1,0"}
    assert dict(patch(nics(1), "huawei").annotations) == {BIND: "1767268800000000000"}


def test_hami_core_pods_name_their_node() -> None:
    """By label of the pod, whatever its case."""
    labels = {"koordinator.sh/gpu-isolation-provider": "hami-core"}
    assert dict(patch(gpu(0), "nvidia", labels=labels).labels) == {"hami.io/vgpu-node": "n1"}


def test_ascend_cards_are_named_as_the_plugin_expects() -> None:
    """Full cards by minor, virtual ones with their template, the Duo by its own name."""
    assert patch(gpu(0, 1), "huawei").annotations["huawei.com/npu-core"] == "0,1"
    assert patch(gpu(0, template="vir02"), "huawei").annotations["huawei.com/npu-core"] == "0-vir02"
    duo = patch(gpu(0, 1), "huawei", "Ascend-310P3-300I-DUO")
    assert duo.annotations["huawei.com/Ascend310P"] == "Ascend310P-0,Ascend310P-1"
    assert duo.annotations["predicate-time"] == "1767268800000000000"


def test_one_virtual_mlu() -> None:
    """Minor, core and memory in units of 256 MiB; the node is locked."""
    done = patch(gpu(0, gpu_core="5", gpu_memory="1Gi"), "cambricon")
    assert done.annotations["CAMBRICON_DSMLU_PROFILE"] == "0_5_4"
    assert done.lock is not None
    assert (done.lock.key, done.lock.value) == ("cambricon.com/dsmlu.lock", "2026-01-01T12:00:00Z,default,p")
    with pytest.raises(ModelError, match="one card per pod"):
        patch(gpu(0, 1, gpu_core="5", gpu_memory="1Gi"), "cambricon")
    with pytest.raises(ModelError, match="gpu-memory"):
        patch(gpu(0, gpu_core="5", gpu_memory="1Mi"), "cambricon")
    with pytest.raises(ModelError, match="gpu-core"):
        patch(gpu(0, gpu_memory="1Gi"), "cambricon")


def test_metax_cards_are_listed_with_their_shares() -> None:
    """Id, core, MiB."""
    done = patch(gpu(2, gpu_core="25", gpu_memory="1Gi"), "metax")
    expected = '[[{"uuid":"U2","compute":25,"vRam":1024}]]'
    assert done.annotations["metax-tech.com/gpu-devices-allocated"] == expected
    assert done.lock is not None
    assert done.lock.key == "hami.io/mutex.lock"


def test_locks_end_with_time_or_with_their_pod() -> None:
    """Five minutes, or a pod that is gone; what is no lock is an error."""
    fresh = "2026-01-01T11:56:00Z,default,p"
    assert lock_blocks(fresh, now=NOON, holder_exists=True)
    assert not lock_blocks(fresh, now=NOON, holder_exists=False)
    assert not lock_blocks("", now=NOON, holder_exists=True)
    for broken in ("x", "2026-01-01T11:56:00Z,default"):
        with pytest.raises(ModelError, match="expected"):
            lock_blocks(broken, now=NOON, holder_exists=True)


@pytest.mark.parametrize("time", ["2026-01-01T11:58:00", "2026-01-01"])
@pytest.mark.parametrize("there", [True, False])
def test_a_lock_whose_time_has_no_zone_is_no_lock(time: str, there: bool) -> None:
    with pytest.raises(ModelError, match="expected"):
        lock_blocks(f"{time},default,p", now=NOON, holder_exists=there)
