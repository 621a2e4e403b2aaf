"""Broken cards are no held ones."""

from __future__ import annotations

from koordcore import ClusterSnapshot, Node, NodeState, Pod
from koordcore.explaining.node_states import cards_of
from koordcore.model.devices import Device, DeviceObject, DeviceType


def test_a_broken_card_is_counted_as_such() -> None:
    whole = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
    cards = tuple(
        Device(type=DeviceType.GPU, minor=minor, health=minor != 1, resources=whole) for minor in range(4)
    )
    given = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":2,"resources":%s}]}'}
    amounts = '{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory-ratio":"100"}'
    notes = {key: text % amounts for key, text in given.items()}
    holder = Pod(name="p", requests=whole, annotations=notes, node_name="n")
    node = Node(name="n", allocatable=dict.fromkeys(whole, 400))
    snapshot = ClusterSnapshot(
        nodes=[NodeState(node, (holder,))], records=[DeviceObject(name="n", devices=cards)]
    )
    counts = cards_of(snapshot, snapshot.node("n"))
    assert (counts.total, counts.broken, counts.held, counts.free) == (4, 1, 1, 2)
