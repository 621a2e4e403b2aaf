"""Several threads may ask about one line of snapshots at once: none sees what another has only begun.

Nothing here runs threads: what another one would do is done in the midst of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import koordcore.scheduling.cycle as cycle_module
from koordcore import ClusterSnapshot, Node, Pod, schedule
from koordcore.allocators.claims.cluster import ClusterDevices
from koordcore.model.device_slices import DeviceId
from koordcore.model.nodes import NodeState
from koordcore.snapshot.changes import NodeAdded, PodBound
from koordcore.snapshot.following import node_values

ROOM = {"cpu": 8_000, "pods": 10}
BUSY: list[ClusterSnapshot] = []


def label(snapshot: ClusterSnapshot, state: NodeState) -> str:
    """Say who is on a node; while that is worked out, somebody else asks the snapshot before for more."""
    for other in BUSY:
        node_values(other, size)
    return ",".join(str(pod.key) for pod in state.pods)


def size(snapshot: ClusterSnapshot, state: NodeState) -> int:
    return len(state.pods)


@pytest.mark.parametrize("change", [PodBound(Pod(name="p", node_name="a")), NodeAdded(Node(name="b"))])
def test_a_snapshot_can_be_asked_for_more_while_another_is_made_from_it(change: Any) -> None:
    """What is carried over is what was known as it began; the dictionary that grows is not walked."""
    snapshot = ClusterSnapshot(nodes=[Node(name="a", allocatable=ROOM)])
    assert snapshot.layout.names == ("a",)
    assert tuple(node_values(snapshot, label)) == ("",)
    BUSY.append(snapshot)
    try:
        after = snapshot.apply(change)
    finally:
        BUSY.clear()
    assert node_values(after, label)[0] == ("default/p" if isinstance(change, PodBound) else "")


def test_a_result_says_nothing_of_what_was_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call goes on with the state of this one before its result is written."""
    snapshot = ClusterSnapshot(nodes=[Node(name="a", allocatable=ROOM)], pending=[Pod(name="p")])
    larger = snapshot.with_nodes(Node(name="b", allocatable=ROOM))
    hand_back = cycle_module.hand_back

    def hurried(*state: Any) -> None:
        hand_back(*state)
        monkeypatch.undo()
        schedule(larger)

    monkeypatch.setattr(cycle_module, "hand_back", hurried)
    assert schedule(snapshot).stats["nodes"] == 1


class Devices(list[Any]):
    """Devices of a node; while they are gone through, somebody else asks for their places."""

    def __init__(self, asked: ClusterDevices) -> None:
        super().__init__(SimpleNamespace(id=DeviceId("d", "p", name)) for name in ("x", "y"))
        self.asked: ClusterDevices | None = asked
        self.seen: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            yield one
            asked, self.asked = self.asked, None
            if asked is not None:
                self.seen.append({pool: dict(names) for pool, names in asked.places(0).items()})


def test_places_of_devices_are_told_when_all_are_known() -> None:
    """Devices that are not among the places yet would count as those of another node."""
    found = ClusterDevices(ClusterSnapshot(nodes=[Node(name="a", allocatable=ROOM)]))
    devices = Devices(found)
    found.pools = [SimpleNamespace(devices=devices)]  # type: ignore[list-item]  # all that is asked of them
    assert found.places(0) == {("d", "p"): {"x": 0, "y": 1}}
    assert devices.seen == [{("d", "p"): {"x": 0, "y": 1}}]
