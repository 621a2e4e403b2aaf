"""What vendors' device plugins read, in the patches of a plan; and what they cannot serve."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

from koordcore import Policy, ScheduleResult, schedule
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.plan_patches import patches
from koordcore.model.nodes import NodeState
from tests.scheduling.device_objects import (
    ASCEND,
    KOORD,
    NPU_CARD,
    QUARTER,
    Objects,
    asks,
    card,
    config_map,
    given,
    node,
    pod,
    refusal,
    run,
)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
STAMP = "1777636800000000000"
PART = {KOORD + "gpu.shared": "1", KOORD + "gpu-core": "30", KOORD + "gpu-memory": "2Gi"}
MLU_LOCK = "cambricon.com/dsmlu.lock"


def cards_of(vendor: str, model: str = "M1") -> Objects:
    """Labels stand on the Device alone, as its reporter writes them."""
    labels = {"node.koordinator.sh/gpu-vendor": vendor, "node.koordinator.sh/gpu-model": model}
    return node("n", card(0), card(1), of_device=labels)


def written(result: ScheduleResult, at: datetime | None = NOON) -> dict[str, dict[str, Any]]:
    """Path to metadata of every patch of a pod or node."""
    calls = (call for call in patches(result, bound_at=at) if call.verb == "patch" and not call.subresource)
    return {call.path.rpartition("/")[2]: dict(call.body["metadata"]) for call in calls}


def test_a_virtual_mlu_gets_its_profile_and_locks_its_node() -> None:
    """Minor, core, memory in units of 256Mi; the lock is written before anything else."""
    _, result = run(cards_of("cambricon"), pod("p", PART))
    found = written(result)
    assert list(found) == ["n", "p"]
    assert found["n"]["annotations"] == {MLU_LOCK: "2026-05-01T12:00:00Z,default,p"}
    said = found["p"]["annotations"]
    assert said["CAMBRICON_DSMLU_PROFILE"] == "0_30_8"
    assert said["CAMBRICON_DSMLU_ASSIGHED"] == "false"
    assert said["scheduling.koordinator.sh/bind-timestamp"] == STAMP
    assert said["scheduling.koordinator.sh/gpu-minors"] == "0"


def test_a_share_of_a_metax_card_is_listed() -> None:
    _, result = run(cards_of("metax"), pod("p", PART))
    found = written(result)
    listed = found["p"]["annotations"]["metax-tech.com/gpu-devices-allocated"]
    assert listed == '[[{"uuid":"GPU-0","compute":30,"vRam":2048}]]'
    assert found["n"]["annotations"] == {"hami.io/mutex.lock": "2026-05-01T12:00:00Z,default,p"}


def test_ascend_cards_are_named_whole_and_virtual() -> None:
    machine = node("n", card(0, NPU_CARD), card(1, NPU_CARD), card(2, NPU_CARD), of_device=ASCEND)
    two = pod("whole", {"huawei.com/npu-core": "40", KOORD + "gpu-memory-ratio": "200"})
    _, result = run(machine, config_map(), asks("virtual", QUARTER), two)
    found = written(result)
    assert found["virtual"]["annotations"]["huawei.com/npu-core"] == "0-vir05"
    assert found["whole"]["annotations"]["huawei.com/npu-core"] == "1,2"
    assert found["whole"]["annotations"]["predicate-time"] == STAMP
    assert "n" not in found


def test_pods_isolated_by_hami_name_their_node() -> None:
    labels = {KOORD + "gpu-isolation-provider": "HAMi-core"}
    machine = node("n", card(0), labels=labels)
    _, result = run(machine, pod("p", PART, labels=labels), pod("q", PART))
    found = written(result)
    assert found["p"]["labels"] == {"hami.io/vgpu-node": "n"}
    assert "labels" not in found["q"]


@pytest.mark.parametrize(("gate", "there"), [(None, False), (True, True), (False, False)])
def test_the_gate_decides_for_vendors_who_need_nothing(gate: bool | None, there: bool) -> None:
    """Off by default there, as upstream has it; on it writes the time and the minors."""
    policy = Policy() if gate is None else Policy(feature_gates={"DevicePluginAdaption": gate})
    _, result = run(cards_of("nvidia"), pod("p", PART), policy=policy)
    assert ("scheduling.koordinator.sh/gpu-minors" in written(result)["p"]["annotations"]) is there


def test_the_gate_switches_off_what_is_on_by_default() -> None:
    policy = Policy(feature_gates={"DevicePluginAdaption": False})
    twice = {name: str(2 * int(text.rstrip("Gi"))) + text.lstrip("0123456789") for name, text in PART.items()}
    _, result = run(cards_of("cambricon"), pod("p", twice), policy=policy)
    assert list(written(result)) == ["p"]
    assert list(written(result)["p"]["annotations"]) == ["scheduling.koordinator.sh/device-allocated"]


def test_without_a_time_only_what_is_made_of_it_is_left_out() -> None:
    _, result = run(cards_of("cambricon"), pod("p", PART))
    found = written(result, None)
    assert list(found) == ["p"]
    assert found["p"]["annotations"]["CAMBRICON_DSMLU_PROFILE"] == "0_30_8"
    assert "scheduling.koordinator.sh/bind-timestamp" not in found["p"]["annotations"]


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ({**PART, KOORD + "gpu.shared": "2"}, "serves one card per pod, got 2"),
        ({**PART, KOORD + "gpu-memory": "100Mi"}, "needs at least 256Mi of koordinator.sh/gpu-memory"),
        ({KOORD + "gpu-memory": "2Gi"}, "needs koordinator.sh/gpu-core"),
    ],
)
def test_what_the_plugin_cannot_serve_is_refused_before_it_is_bound(
    requests: dict[str, str], why: str
) -> None:
    """On a node of another vendor the pod runs."""
    _, result = run(cards_of("cambricon"), pod("p", requests))
    assert f"1 the device plugin of cambricon {why}" in refusal(result, "p")
    other = [{**one, "metadata": {**one["metadata"], "name": "other"}} for one in cards_of("nvidia")]
    _, result = run(cards_of("cambricon"), other, pod("p", requests))
    assert given(result, "p")["gpu"]
    assert result.decisions[0].pod.name == "p"


@pytest.mark.parametrize(
    ("value", "blocks"),
    [
        ("2026-05-01T11:58:00Z,default,holder", True),
        ("2026-05-01T11:50:00Z,default,holder", False),
        ("2026-05-01T11:58:00Z,default,gone", False),
        ("yesterday", True),
    ],
)
def test_a_node_is_locked_for_five_minutes_or_until_its_pod_is_gone(value: str, blocks: bool) -> None:
    objects = [*cards_of("cambricon"), *pod("holder", {"cpu": "1"}, on="n"), *pod("p", PART)]
    objects[0]["metadata"]["annotations"] = {MLU_LOCK: value}
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot, now=NOON)
    if blocks:
        assert "lock" in refusal(result, "p")
        (verdict,) = explain(snapshot, "default/p", now=NOON).verdicts
        assert [one.resolvable for one in verdict.shortfalls if "lock" in one.reason] == [False]
        assert result.decisions[0] == schedule(snapshot, now=NOON + timedelta(seconds=1)).decisions[0]
    else:
        assert given(result, "p") == {"gpu": [0]}


def test_locks_that_come_and_go_between_calls_are_followed() -> None:
    """What one call learnt about nodes is not held against a later one."""
    loaded = snapshot_from_objects(
        [*cards_of("cambricon"), *pod("holder", {"cpu": "1"}, on="n"), *pod("p", PART)]
    )
    free = loaded.snapshot
    state = free.node("n")
    lock = {MLU_LOCK: "2026-05-01T11:58:00Z,default,holder"}
    held = free.with_nodes(NodeState(attrs.evolve(state.node, annotations=lock), state.pods))
    assert given(schedule(free, now=NOON), "p")["gpu"]
    assert "lock" in refusal(schedule(held, now=NOON), "p")
    assert given(schedule(held, now=NOON + timedelta(minutes=4)), "p")["gpu"]
    assert given(schedule(held.forget("default/holder"), now=NOON), "p")["gpu"]
    assert given(schedule(held.with_nodes(state), now=NOON), "p")["gpu"]
