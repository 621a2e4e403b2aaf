"""Choices on special terms: devices to be taken first, limits on each, places that are only partly known."""

from __future__ import annotations

import pytest

from koordcore.allocators.device import (
    Terms,
    device_request_of,
    explain_devices,
    score_devices,
)
from koordcore.model.device_requests import DeviceRequest
from tests.allocators.device.build import GPU, card, cards, gpus, machine, nic, std8, take, want

K = "koordinator.sh/"


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu"])
def test_every_vendors_card_is_a_hundred_percent_of_one(name: str) -> None:
    request = device_request_of({name: 3})
    assert isinstance(request, DeviceRequest)
    assert request.gpu is not None
    assert dict(request.gpu.per_device) == {K + "gpu-core": 100, K + "gpu-memory-ratio": 100}
    assert (request.gpu.count, request.warnings) == (3, ())


@pytest.mark.parametrize("minor", range(4))
def test_the_card_to_be_taken_first_is_taken_first_where_places_are_unknown(minor: int) -> None:
    """Whole or shared, by itself or as the first of two."""
    state = machine([card(number, None) for number in range(4)])
    terms = Terms(preferred={GPU: 1 << minor})
    for request in (gpus(1), want({K + "gpu": "50"})):
        assert take(state, request, terms=terms) == {"gpu": [minor]}
    two = sorted({minor, 0 if minor else 1})
    assert sorted(take(state, gpus(2), terms=terms)["gpu"]) == two


def test_a_limit_on_an_idle_card_counts_as_use_where_nodes_are_scored() -> None:
    """The mean of what is left of ratio and of memory, which is not asked for, on cards that may serve.

    Both cards: 150 and 200 of 200 percent, without a limit. One of them to a half: 100 and 150 of 200.
    """
    state = machine([card(0, (0, "0")), card(1, (0, "0"))])
    request = want({K + "gpu": "50"})
    whole = state.shape.types[GPU].totals[0]
    half = tuple(amount // 2 for amount in whole)
    for limits, score in (
        ({0: whole, 1: whole}, (75 + 100) // 2),
        ({0: whole, 1: half}, (50 + 75) // 2),
        ({1: half}, (0 + 50) // 2),
        ({0: whole}, (50 + 100) // 2),
    ):
        assert score_devices(state, request, terms=Terms(limits={GPU: limits})) == score
    assert score_devices(state, request) == (75 + 100) // 2


def test_a_card_beside_the_only_nic_is_found_though_another_card_has_no_known_place() -> None:
    """Neither the first card, whose switch has no NIC, nor the one without a place serves a pod of both."""
    same = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    asked = want({"nvidia.com/gpu": "1", K + "rdma": "1"}, device_joint_allocate=same)
    devices = [card(0, (0, "0")), card(1, (0, "1")), card(2, None), nic(1, (0, "1"))]
    assert take(machine(devices), asked) == {"gpu": [1], "rdma": [1]}


@pytest.mark.parametrize(
    ("scope", "lines"),
    [
        ("NUMANode", ["NUMA node 0 has 2 GPUs free", "NUMA node 1 has 3 GPUs free"]),
        (
            "PCIe",
            [
                f"PCIe switch {switch} has {free} free"
                for switch, free in enumerate(("1 GPU", "1 GPU", "1 GPU", "2 GPUs"))
            ],
        ),
    ],
)
def test_a_scope_that_no_place_can_serve_is_told_place_by_place(scope: str, lines: list[str]) -> None:
    """Cards 0, 2 and 4 are held; four cards are asked of one NUMA node, or three of one switch."""
    state = machine(std8(), {"d/a": cards(0, 2, 4)})
    hint = {"gpu": {"requiredTopologyScope": scope}}
    told = explain_devices(state, gpus(4, device_allocate_hint=hint))
    assert told is not None
    assert list(told.lines) == lines
