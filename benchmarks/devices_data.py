"""A fleet of 8-GPU nodes in 200 states of use, after the reference's own benchmark of device scheduling."""

from __future__ import annotations

import random

from immutabledict import immutabledict

from koordcore.allocators.device import NodeDevices, device_request_of, node_devices
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    Device,
    DeviceAllocation,
    DeviceHolding,
    DeviceInventory,
    DeviceTopology,
    DeviceType,
    VFGroup,
    VirtualFunction,
)
from koordcore.protocol.device import DEVICE_ALLOCATE_HINT, DEVICE_JOINT_ALLOCATE

CARD = 80 * 2**30
JOINT = {
    DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
    DEVICE_ALLOCATE_HINT: '{"rdma":{"vfSelector":{}}}',
}


def inventory() -> DeviceInventory:
    """8 GPUs, 4 NICs of 30 VFs, 4 switches (2 GPUs and 1 NIC each), 2 NUMA nodes."""
    cards = [
        Device(
            type=DeviceType.GPU,
            minor=minor,
            id=f"GPU-{minor}",
            resources=immutabledict({GPU_CORE: 100, GPU_MEMORY: CARD, GPU_MEMORY_RATIO: 100}),
            topology=DeviceTopology(minor // 4, f"pci{minor // 2}"),
        )
        for minor in range(8)
    ]
    nics = [
        Device(
            type=DeviceType.RDMA,
            minor=minor,
            id=f"0000:{minor}f:00.0",
            resources=immutabledict({RDMA: 100}),
            topology=DeviceTopology((minor - 1) // 2, f"pci{minor - 1}"),
            vf_groups=(
                VFGroup(
                    vfs=tuple(VirtualFunction(f"0000:{minor}f:{vf // 8:02}.{vf % 8}", -1) for vf in range(30))
                ),
            ),
        )
        for minor in range(1, 5)
    ]
    return DeviceInventory(devices=(*cards, *nics))


def states(count: int = 200, seed: int = 7) -> list[NodeDevices]:
    """Make states: each card full with p=0.4, half full with p=0.1; each NIC with 0 to 7 VFs taken."""
    rng = random.Random(seed)
    build = inventory()
    made = []
    for _ in range(count):
        holders: dict[str, DeviceAllocation] = {}
        for minor in range(8):
            draw = rng.random()
            percent = 100 if draw < 0.4 else 50 if draw < 0.5 else 0
            if percent:
                amounts = {GPU_CORE: percent, GPU_MEMORY: CARD * percent // 100, GPU_MEMORY_RATIO: percent}
                holders[f"d/g{minor}"] = held(DeviceType.GPU, minor, amounts)
        for device in build.devices[8:]:
            taken = rng.randrange(8)
            if taken:
                vfs = device.vf_groups[0].vfs[:taken]
                holders[f"d/n{device.minor}"] = held(DeviceType.RDMA, device.minor, {RDMA: taken}, vfs)
        state = node_devices(build, holders)
        assert state is not None
        made.append(state)
    return made


def held(
    kind: DeviceType, minor: int, amounts: dict[str, int], vfs: tuple[VirtualFunction, ...] = ()
) -> DeviceAllocation:
    """One device in one pair of hands."""
    holding = DeviceHolding(minor=minor, resources=immutabledict(amounts), vfs=vfs)
    return DeviceAllocation({kind: (holding,)})


def request(*, joint: bool = True, gpu: int = 200) -> DeviceRequest:
    """2 GPUs with a NIC on the same switches, or 2 GPUs alone."""
    amounts = {"koordinator.sh/gpu": gpu, "cpu": 16000} | ({RDMA: 1} if joint else {})
    made = device_request_of(amounts, annotations=JOINT if joint else {})
    assert isinstance(made, DeviceRequest)
    return made
