"""From amounts to what each card must give."""

from __future__ import annotations

import pytest

from koordcore.allocators.device import DevicePolicy, device_request_of
from koordcore.errors import ModelError
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceShortfall,
    DeviceType,
    StatusCode,
)
from koordcore.protocol.device import DEVICE_ALLOCATE_HINT, DEVICE_JOINT_ALLOCATE

K = "koordinator.sh/"


@pytest.mark.parametrize(
    ("amounts", "count", "each", "shared"),
    [
        ({"nvidia.com/gpu": 2}, 2, {K + "gpu-core": 100, K + "gpu-memory-ratio": 100}, False),
        ({"dcu.com/gpu": 1}, 1, {K + "gpu-core": 100, K + "gpu-memory-ratio": 100}, False),
        ({K + "gpu": 50}, 1, {K + "gpu-core": 50, K + "gpu-memory-ratio": 50}, True),
        (
            {K + "gpu-core": 50, K + "gpu-memory-ratio": 100},
            1,
            {K + "gpu-core": 50, K + "gpu-memory-ratio": 100},
            False,
        ),
        ({K + "gpu-core": 200, K + "gpu-memory": 64}, 1, {K + "gpu-core": 200, K + "gpu-memory": 64}, True),
        ({K + "gpu.shared": 2, K + "gpu-memory-ratio": 200}, 2, {K + "gpu-memory-ratio": 100}, False),
        ({K + "gpu-shared": 3, K + "gpu-memory": 10}, 3, {K + "gpu-memory": 3}, True),
        (
            {"huawei.com/npu-core": 15, K + "gpu-memory-ratio": 200},
            2,
            {"huawei.com/npu-core": 7, K + "gpu-memory-ratio": 100},
            False,
        ),
    ],
)
def test_amounts_are_divided_among_cards(
    amounts: dict[str, int], count: int, each: dict[str, int], shared: bool
) -> None:
    """Count, amounts per card, and whether cards are shared."""
    request = device_request_of(amounts)
    assert isinstance(request, DeviceRequest)
    assert request.gpu is not None
    assert (request.gpu.count, dict(request.gpu.per_device), request.gpu.shared) == (count, each, shared)


def test_what_is_lost_by_dividing_is_told() -> None:
    """Rounded down as upstream does, with a warning (ruling 21)."""
    request = device_request_of({"huawei.com/npu-core": 15, K + "gpu-memory-ratio": 200})
    assert isinstance(request, DeviceRequest)
    assert request.warnings == ("huawei.com/npu-core: 15 does not divide among 2 devices, each gets 7",)


@pytest.mark.parametrize(
    ("amounts", "reason"),
    [
        ({K + "gpu": 150}, "invalid resource unit koordinator.sh/gpu: 150"),
        ({K + "gpu-core": 100}, "invalid resource device requests: [koordinator.sh/gpu-core]"),
        (
            {K + "gpu": 100, "nvidia.com/gpu": 1},
            "invalid resource device requests: [koordinator.sh/gpu nvidia.com/gpu]",
        ),
        (
            {"nvidia.com/gpu": 1, K + "fpga": 101, K + "rdma": 201},
            "invalid resource unit koordinator.sh/fpga: 101",
        ),
    ],
)
def test_illegal_combinations_are_refused_for_good(amounts: dict[str, int], reason: str) -> None:
    """Upstream's message; no eviction would help."""
    refused = device_request_of(amounts)
    assert isinstance(refused, DeviceShortfall)
    assert refused.reasons == (reason,)
    assert refused.code is StatusCode.UNRESOLVABLE
    assert [one.resolvable for one in refused.shortfalls] == [False]


def test_a_pod_without_devices_is_no_matter_of_this_room() -> None:
    """Zero counts as nothing."""
    assert device_request_of({"cpu": 1000, K + "gpu": 0}) is None


def test_joint_types_are_those_that_the_pod_asks_for() -> None:
    """Others drop out, and so does a type that takes all devices anyway."""
    joint = {DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["fpga","gpu","rdma"]}'}
    request = device_request_of({K + "gpu": 100, K + "rdma": 1}, annotations=joint)
    assert isinstance(request, DeviceRequest)
    assert request.joint is not None
    assert request.joint.types == (DeviceType.GPU, DeviceType.RDMA)
    hint = {DEVICE_ALLOCATE_HINT: '{"rdma":{"allocateStrategy":"ApplyForAll"}}'}
    alone = device_request_of({K + "rdma": 1}, annotations=joint | hint)
    assert isinstance(alone, DeviceRequest)
    assert alone.joint is None
    assert alone.joint_named


def test_equal_requests_are_equal_values() -> None:
    """So that they are worked out once."""
    first, second = (device_request_of({K + "gpu": 100}), device_request_of({"kubernetes.io/gpu": 100}))
    assert first == second
    assert hash(first) == hash(second)


def test_weights_are_at_least_one() -> None:
    """A policy is checked when it is made."""
    with pytest.raises(ModelError, match=r"weights\[cpu\]"):
        DevicePolicy(weights={"cpu": 0})
