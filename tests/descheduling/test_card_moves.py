"""Fewer idle cards in vain on a snapshot: under whatever name its nodes and pods count cards."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from koordcore import ClusterSnapshot, Node, Pod
from koordcore.descheduling.card_moves import fragments_of, plan_less_fragmentation
from koordcore.model import OwnerReference
from koordcore.model.devices import (
    ALL_GPU_RESOURCES,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    Device,
    DeviceObject,
    DeviceType,
)
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.scheduling.plain_cards import WHOLE
from koordcore.scoring.fragmentation import workload_mix
from koordcore.scoring.gpu_share import CARD, GpuDemand

OWNER = (OwnerReference("ReplicaSet", "w", "w", controller=True),)
WHOLE_NODES = workload_mix([GpuDemand(gpus=4)])
ROOM = {"cpu": 8000, "pods": 10}
PLACES = (("p", "a", (0,)), ("q", "b", (0,)), ("r", "b", (1, 2)))
"""Pods with their nodes and cards: beside p three cards are in vain, and one beside the others."""


def moved(snapshot: ClusterSnapshot) -> list[tuple[str, str]]:
    moving = plan_less_fragmentation(snapshot, fragments_of(snapshot, mix=WHOLE_NODES))
    assert moving.legal
    return [(move.pod.name, move.target) for move in moving.plan.moves]


@pytest.mark.parametrize("name", [name for name in ALL_GPU_RESOURCES if name in WHOLE])
def test_cards_that_are_counted_under_any_name_are_brought_together(name: str) -> None:
    unit = CARD // WHOLE[name]
    nodes = [Node(name=node, allocatable={**ROOM, name: 4 * unit}) for node in "ab"]
    pods = [
        Pod(name=pod, owners=OWNER, requests={"cpu": 1, name: len(cards) * unit}, node_name=node)
        for pod, node, cards in PLACES
    ]
    assert moved(ClusterSnapshot(nodes=nodes).assume(*pods)) == [("p", "b")]


WHOLE_GPU = {GPU_CORE: 100, GPU_MEMORY: 2**36, GPU_MEMORY_RATIO: 100}
WHOLE_NPU = {NPU_CORE: 20, GPU_MEMORY: 2**36, GPU_MEMORY_RATIO: 100}


@pytest.mark.parametrize(
    ("card", "asked"),
    [
        (WHOLE_GPU, (GPU_CORE, GPU_MEMORY_RATIO)),
        (WHOLE_GPU, (GPU_MEMORY_RATIO,)),
        (WHOLE_NPU, (NPU_CORE, GPU_MEMORY_RATIO)),
    ],
    ids=["core and memory", "memory alone", "NPU"],
)
def test_cards_of_any_kind_of_device_are_brought_together(
    card: Mapping[str, int], asked: tuple[str, ...]
) -> None:
    """A card without core of its own name is idle by its memory, and so is who asks for memory alone."""
    cards_of_node = tuple(
        Device(type=DeviceType.GPU, minor=minor, id=str(minor), resources=card) for minor in range(4)
    )
    devices = [DeviceObject(name=node, devices=cards_of_node) for node in "ab"]
    offered = {**ROOM, GPU_SHARED: 400, **{name: 4 * amount for name, amount in card.items()}}
    nodes = [Node(name=node, allocatable=offered) for node in "ab"]
    held = {name: str(card[name]) for name in (*asked, GPU_MEMORY)}
    pods = [
        Pod(
            name=pod,
            owners=OWNER,
            requests={"cpu": 1, **{name: len(cards) * card[name] for name in asked}},
            node_name=node,
            annotations={
                DEVICE_ALLOCATED: json.dumps({"gpu": [{"minor": m, "resources": held} for m in cards]})
            },
        )
        for pod, node, cards in PLACES
    ]
    assert moved(ClusterSnapshot(nodes=nodes, records=devices).assume(*pods)) == [("p", "b")]


def test_who_has_part_of_a_plain_card_stays_and_the_card_is_not_idle() -> None:
    name = "koordinator.sh/gpu"
    part = Pod(name="part", owners=OWNER, requests={name: 50}, node_name="a")
    snapshot = ClusterSnapshot(nodes=[Node(name="a", allocatable={**ROOM, name: 400})]).assume(part)
    aim = fragments_of(snapshot)
    assert [one.cards for one in aim.nodes] == [(CARD // 2, CARD, CARD, CARD)]
    assert not aim.slots
