"""Batches of device pods that are hard to place: fragmented nodes, and more work than room.

Every batch is of 16 pods and 8 nodes in use. What is tracked beside time is how many pods stay out, and
whether the answer is proven.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from benchmarks.devices_data import CARD, JOINT, held, inventory, states
from koordcore.allocators.device import NodeDevices, device_request_of, node_devices
from koordcore.allocators.joint import DeviceBatch, place_devices_jointly
from koordcore.model.devices import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    DeviceAllocation,
    DeviceInventory,
    DeviceRequest,
    DeviceTopology,
    DeviceType,
    GPUPartition,
)
from koordcore.protocol.device import DEVICE_ALLOCATE_HINT, DEVICE_JOINT_ALLOCATE, GPU_PARTITION_SPEC

Instance = tuple[Mapping[str, NodeDevices], Mapping[str, DeviceRequest]]

NEAR: Final = {DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"]}'}
WHOLE_NIC: Final = {DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'}
RESTRICTED: Final = {GPU_PARTITION_SPEC: '{"allocatePolicy":"Restricted"}'}
ONE_NUMA: Final = {DEVICE_ALLOCATE_HINT: '{"gpu":{"requiredTopologyScope":"NUMANode"}}'}


def pod(percent: int, annotations: Mapping[str, str] | None = None, *, rdma: int = 0) -> DeviceRequest:
    """One request: percent points of cards, and of NICs."""
    amounts = {"koordinator.sh/gpu": percent} | ({RDMA: rdma} if rdma else {})
    made = device_request_of(amounts, annotations=annotations or {})
    assert isinstance(made, DeviceRequest)
    return made


def fabric(*, honor: bool) -> DeviceInventory:
    """The same cards, each on a switch of its own with a NIC, joined by a table of partitions."""
    build = inventory()
    nic = build.devices[8]
    cards = [
        attrs.evolve(card, topology=DeviceTopology(card.minor // 4, f"pci{card.minor}"))
        for card in build.devices[:8]
    ]
    nics = [
        attrs.evolve(
            nic, minor=minor + 1, id=f"nic-{minor}", topology=DeviceTopology(minor // 4, f"pci{minor}")
        )
        for minor in range(8)
    ]

    def group(size: int, score: int) -> tuple[GPUPartition, ...]:
        firsts = range(0, 8, size)
        return tuple(
            GPUPartition(minors=tuple(range(first, first + size)), allocation_score=score + (first == 0))
            for first in firsts
        )

    table = immutabledict({size: group(size, size) for size in (1, 2, 4, 8)})
    return DeviceInventory(devices=(*cards, *nics), partitions=table, honor=honor)


def used(build: DeviceInventory, seed: int, number: int = 8) -> list[NodeDevices]:
    """Put holders on nodes: each card full with p=0.35, half full with p=0.1, each NIC full with p=0.2."""
    draw = random.Random(seed)
    made = []
    for _ in range(number):
        holders: dict[str, DeviceAllocation] = {}
        for device in build.devices:
            chance = draw.random()
            if device.type is DeviceType.GPU:
                percent = 100 if chance < 0.35 else 50 if chance < 0.45 else 0
                amounts = {GPU_CORE: percent, GPU_MEMORY: CARD * percent // 100, GPU_MEMORY_RATIO: percent}
            else:
                percent = 100 if chance < 0.2 else 0
                amounts = {RDMA: percent}
            if percent:
                holders[f"d/{device.type}{device.minor}"] = held(device.type, device.minor, amounts)
        state = node_devices(build, holders)
        assert state is not None
        made.append(state)
    return made


KINDS: Final = {
    "plain": [pod(400), pod(200), pod(100), pod(50)],
    "samepcie": [pod(400, JOINT, rdma=1), pod(200, JOINT, rdma=1), pod(100), pod(50)],
    "whole-nic": [
        pod(300, WHOLE_NIC, rdma=100),
        pod(200, WHOLE_NIC, rdma=100),
        pod(100, NEAR, rdma=50),
        pod(25),
    ],
    "one-numa": [pod(300, ONE_NUMA), pod(200, ONE_NUMA), pod(100, NEAR, rdma=100), pod(50)],
    "partition": [pod(400), pod(200), pod(100), pod(50)],
    "restricted": [pod(400, RESTRICTED), pod(200, RESTRICTED), pod(200, JOINT, rdma=1), pod(50)],
}
"""Four kinds of pods each; the first ones are large."""


def instance(kind: str, seed: int) -> Instance:
    """Make a batch; the later the seed, the more of the pods are large."""
    draw = random.Random(f"{kind}/{seed}")
    if kind in ("plain", "samepcie"):
        nodes = states(8, seed=100 + seed)
    else:
        build = fabric(honor=seed % 2 == 0) if kind in ("partition", "restricted") else inventory()
        nodes = used(build, 200 + seed)
    weights = (2 * seed, 2 * seed + 1, 2, 2)
    wanted = draw.choices(KINDS[kind], weights, k=16)
    return (
        {f"n{index}": state for index, state in enumerate(nodes)},
        {f"p{index:02}": request for index, request in enumerate(wanted)},
    )


NAMES: Final = tuple(f"{kind}-{seed}" for kind in KINDS for seed in range(5))


class HardBatches:
    """One batch each."""

    params = NAMES
    param_names = ("batch",)
    timeout = 300

    def setup(self, name: str) -> None:
        kind, _, seed = name.rpartition("-")
        self.nodes, self.pods = instance(kind, int(seed))
        self.place()  # reads the solver

    def place(self) -> DeviceBatch:
        return place_devices_jointly(self.nodes, self.pods)

    def time_place(self, name: str) -> None:
        self.place()

    def track_left_out(self, name: str) -> int:
        batch = self.place()
        assert batch.certificate.proven
        return len(batch.unplaced)

    track_left_out.unit = "pods"  # type: ignore[attr-defined]  # read by asv
