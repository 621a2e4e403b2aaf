"""A control plane that lives on a stream: one decision per call, on a line of snapshots.

Each beside the same at an eighth of the size, because the growth is the point.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from koordcore import Bound, ClusterSnapshot, Node, NodeState, Pod, schedule, verify
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy

GIB = 2**30
START = datetime(2026, 1, 1, tzinfo=UTC)


def cluster(number: int) -> ClusterSnapshot:
    """Nodes with ten plain pods each."""
    room = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110}
    nodes = []
    for row in range(number):
        labels = {"topology.kubernetes.io/zone": f"z{row % 8}", "kubernetes.io/hostname": f"n{row:05}"}
        node = Node(name=f"n{row:05}", labels=labels, allocatable=room)
        pods = [
            Pod(name=f"p{row}-{k}", requests={"cpu": 1000 + 500 * (k % 4), "memory": (2 + k % 3) * GIB})
            for k in range(10)
        ]
        nodes.append(NodeState(node, tuple(pod.at(node.name) for pod in pods)))
    return ClusterSnapshot(nodes=nodes)


class Decisions:
    """Koordinator's shipped policy, the clock moving in every call."""

    params = (1000, 8000)
    param_names = ("nodes",)

    def setup(self, number: int) -> None:
        self.policy = koordinator_policy(known_plugins())
        self.snapshot = cluster(number)
        self.step = 0
        for _ in range(5):
            self.time_decision(number)
        self.time_pod_ends(number)

    def time_decision(self, number: int) -> None:
        """One pod arrives and is decided."""
        self.step += 1
        pod = Pod(name=f"new-{self.step}", requests={"cpu": 1000, "memory": GIB})
        result = schedule(self.snapshot, [pod], policy=self.policy, now=START + timedelta(seconds=self.step))
        assert isinstance(result.decisions[0], Bound)
        self.snapshot = result.snapshot

    def time_pod_ends(self, number: int) -> None:
        """One pod ends, another one is decided."""
        gone = self.snapshot.nodes[(self.step * 37) % number].pods[0].key
        self.snapshot = self.snapshot.forget(gone)
        self.time_decision(number)


class Verified(Decisions):
    """One decision, checked: the check alone, on a line that moves on."""

    def setup(self, number: int) -> None:
        super().setup(number)
        self.before = self.snapshot
        pod = Pod(name="checked", requests={"cpu": 1000, "memory": GIB})
        self.result = schedule(
            self.before, [pod], policy=self.policy, now=START + timedelta(seconds=self.step)
        )
        self.time_verify(number)

    def time_verify(self, number: int) -> None:
        """Check the same decision again: the checker steps back and forth by one node."""
        assert verify(self.before, self.result) == ()
