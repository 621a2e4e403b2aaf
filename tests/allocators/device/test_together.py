"""Several pods' devices on one node: partitions, NICs beside cards, virtual functions."""

from __future__ import annotations

import pytest

from koordcore.allocators.device import NodeDevices
from koordcore.allocators.joint.together import devices_together
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY
from koordcore.model.device_requests import DeviceRequest
from koordcore.model.devices import DeviceAllocation
from tests.allocators.device.build import GPU, RDMA, gpus, machine, std8, want

PAIRS = {"2": [{"minors": [first, first + 1], "allocationScore": 1} for first in (0, 2, 4)]}
HONOR = {"node.koordinator.sh/gpu-partition-policy": "Honor"}


def together(state: NodeDevices, request: DeviceRequest, pods: int) -> list[DeviceAllocation]:
    """Give so many equal pods their devices; nobody gets any where they do not fit."""
    found = devices_together(state, {f"p{number}": request for number in range(pods)}, DEFAULT_DEVICE_POLICY)
    assert found is not None
    return list(found.values())


def beside(*types: str, cards: int, nics: int) -> DeviceRequest:
    """Ask for cards with NICs on each of their switches, the first type leading."""
    joint = {"deviceTypes": list(types), "requiredScope": "SamePCIe"}
    amounts = {"nvidia.com/gpu": str(cards), "koordinator.sh/rdma": str(100 * nics if nics > 1 else 1)}
    return want(amounts, device_joint_allocate=joint)


def test_pods_of_whole_cards_get_a_partition_each() -> None:
    """Cards 6 and 7 are in none: three pods of two cards are served and not a fourth one."""
    state = machine(std8(), labels=HONOR, table=PAIRS)
    given = together(state, gpus(2), 3)
    assert sorted(one.minors(GPU) for one in given) == [(0, 1), (2, 3), (4, 5)]
    assert together(state, gpus(2), 4) == []


@pytest.mark.parametrize(
    ("types", "nics_asked", "given"),
    [
        (("gpu", "rdma"), 1, [2, 2]),
        (("gpu", "rdma"), 2, [2, 2]),
        (("rdma", "gpu"), 2, [2, 2]),
        (("rdma", "gpu"), 1, []),
    ],
)
def test_nics_of_pods_together_grow_to_one_per_switch_where_cards_lead(
    types: tuple[str, ...], nics_asked: int, given: list[int]
) -> None:
    """Four cards each, on two switches; where NICs lead a pod has as many as it asks for."""
    found = together(machine(std8(0)), beside(*types, cards=4, nics=nics_asked), 2)
    assert [len(one.minors(RDMA)) for one in found] == given


def test_pods_together_get_virtual_functions_that_nobody_has() -> None:
    """Of three on one NIC the first is taken; two pods get one each of the others, and there is no third."""
    taken = {
        "rdma": [
            {"minor": 1, "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": [{"busID": "1:0"}]}}
        ]
    }
    state = machine(std8(3)[:2] + std8(3)[8:9], {"a": taken})
    request = want({"koordinator.sh/rdma": "1"}, device_allocate_hint={"rdma": {"vfSelector": {}}})
    found = together(state, request, 2)
    assert [[vf.bus_id for one in given.devices[RDMA] for vf in one.vfs] for given in found] == [
        ["1:1"],
        ["1:2"],
    ]
    assert together(state, request, 3) == []
