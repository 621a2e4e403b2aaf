"""Kubernetes' own groups at the sizes of scheduler_perf's group workloads.

Upstream's workloads have 5000 nodes of 4 cpu in 50 racks and pods of 100m and 100Mi: thousands of groups of
three, a few of thousands, gangs of four under a topology key. All pods are placed; what counts is pods a
second, and that it does not fall with the size of the group.
"""

from __future__ import annotations

import random

from koordcore import ClusterSnapshot, Node, Pod, PreemptionRules, schedule, verify
from koordcore.model.nodes import NodeState
from koordcore.model.pods import SchedulingGroup
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup

RACKS = 50
KEY = "topology.kubernetes.io/rack"


def nodes(number: int) -> list[Node]:
    """Nodes of 4 cpu in racks of neighbours."""
    return [
        Node(
            name=f"n{one:05}",
            labels={KEY: f"r{one * RACKS // number:02}"},
            allocatable={"cpu": 4000, "memory": 32 << 30, "pods": 110},
        )
        for one in range(number)
    ]


def groups(count: int, size: int, key: str = "") -> tuple[list[SchedulingPodGroup], list[Pod]]:
    """Gangs of which everybody is needed."""
    records = [
        SchedulingPodGroup(name=f"g{number:04}", min_count=size, topology_keys=(key,) if key else ())
        for number in range(count)
    ]
    pods = [
        Pod(
            name=f"{one.name}-{rank:05}",
            requests={"cpu": 100, "memory": 100 << 20},
            scheduling_group=SchedulingGroup(one.name),
        )
        for one in records
        for rank in range(size)
    ]
    return records, pods


class Sizes:
    """Seconds for a whole queue of groups."""

    params = ("3000 of 3", "10 of 5000", "1 of 20000")
    param_names = ("groups",)
    number, repeat, timeout = 1, 3, 300

    def setup(self, sizes: str) -> None:
        count, size = (int(part) for part in sizes.split(" of "))
        records, pods = groups(count, size)
        cluster = nodes(3000 if size == 20000 else 5000)
        self.snapshot = ClusterSnapshot(nodes=cluster, pending=pods, records=records)

    def time_schedule(self, sizes: str) -> None:
        assert len(schedule(self.snapshot).bound) == len(self.snapshot.pending)


class UnderAKey:
    """Seconds for gangs each of which needs a rack; ``first`` with nothing known but the objects."""

    params = (("500 of 4", "2250 of 4", "9 of 1000"), ("first", "next"))
    param_names = ("gangs", "call")
    number, repeat, rounds, warmup_time, timeout = 1, 3, 1, 0, 300

    def setup(self, sizes: str, call: str) -> None:
        count, size = (int(part) for part in sizes.split(" of "))
        records, pods = groups(count, size, KEY)
        self.snapshot = ClusterSnapshot(nodes=nodes(5000), pending=pods, records=records)
        if call == "next":
            assert len(schedule(self.snapshot).bound) == len(pods)
        few = range(min(10, count) * min(4, size))
        small = ClusterSnapshot(nodes=nodes(200), pending=[pods[one] for one in few], records=records[:10])
        assert verify(small, schedule(small)) == ()

    def time_schedule(self, sizes: str, call: str) -> None:
        assert len(schedule(self.snapshot).bound) == len(self.snapshot.pending)


class Trees:
    """Seconds for 200 trees of three groups of four, each group in a rack of its own, all in one zone."""

    number, repeat, timeout = 1, 3, 300

    def setup(self) -> None:
        records: list[CompositePodGroup | SchedulingPodGroup] = []
        pods: list[Pod] = []
        for tree in range(200):
            root = f"t{tree:03}"
            records.append(CompositePodGroup(name=root, min_groups=3))
            for part in range(3):
                name = f"{root}-{part}"
                records.append(SchedulingPodGroup(name=name, parent=root, min_count=4, topology_keys=(KEY,)))
                pods += [
                    Pod(
                        name=f"{name}-{rank}",
                        requests={"cpu": 1000},
                        scheduling_group=SchedulingGroup(name),
                    )
                    for rank in range(4)
                ]
        self.snapshot = ClusterSnapshot(nodes=nodes(1000), pending=pods, records=records)

    def time_schedule(self) -> None:
        assert len(schedule(self.snapshot).bound) == len(self.snapshot.pending)


class Preemption:
    """Seconds until a gang of 100 has room on 100 nodes that 1000 less important pods fill."""

    number, repeat, timeout = 1, 3, 300

    def setup(self) -> None:
        rng = random.Random(1)
        states = []
        for node in nodes(100):
            running = tuple(
                Pod(name=f"{node.name}-{one}", requests={"cpu": 400}, priority=rng.randrange(5)).at(node.name)
                for one in range(10)
            )
            states.append(NodeState(node, running))
        record = SchedulingPodGroup(name="big", min_count=100, priority=10)
        pods = [
            Pod(
                name=f"big-{rank:03}",
                requests={"cpu": 4000},
                priority=10,
                scheduling_group=SchedulingGroup("big"),
            )
            for rank in range(100)
        ]
        self.snapshot = ClusterSnapshot(nodes=states, pending=pods, records=[record])

    def time_schedule(self) -> None:
        result = schedule(self.snapshot, preempt=PreemptionRules())
        assert len(result.preemptions[0].victims) == 1000
