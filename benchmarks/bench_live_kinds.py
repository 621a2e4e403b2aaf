"""What single kinds of pods cost on a line of snapshots, and what a very large cluster does.

As in ``bench_live.py``: a call after each change, the shipped policy, ``now`` moving in every call.
"""

from __future__ import annotations

import resource
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import attrs

from benchmarks.bench_live import GIB, START, _Line, cluster
from koordcore import ClusterSnapshot, Node, NodeState, Nominated, Pod, PreemptionRules, explain, schedule
from koordcore.framework.registry import known_plugins
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.gangs import PodGroup
from koordcore.protocol.gang_names import LABEL_POD_GROUP
from koordcore.snapshot import PodEnded, RecordAdded

CARDS = {"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 200}
LSR = {"koordinator.sh/qosClass": "LSR"}
BOUND = {"scheduling.koordinator.sh/resource-spec": '{"preferredCPUBindPolicy":"FullPCPUs"}'}


def machine(row: int) -> list[dict[str, Any]]:
    """A node of eight cards, two NUMA nodes and 64 CPUs that tells of all of them."""
    name = f"n{row:05}"
    cards = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"GPU-{minor}",
            "health": True,
            "topology": {"nodeID": minor // 4, "pcieID": str(minor // 2)},
            "resources": {
                "koordinator.sh/gpu-core": "100",
                "koordinator.sh/gpu-memory-ratio": "100",
                "koordinator.sh/gpu-memory": "80Gi",
            },
        }
        for minor in range(8)
    ]
    cpus = [{"id": cpu, "core": cpu // 2, "socket": cpu // 32, "node": cpu // 32} for cpu in range(64)]
    zones = [
        {
            "name": f"node-{zone}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": "32", "allocatable": "32", "available": "32"},
                {"name": "memory", "capacity": "128Gi", "allocatable": "128Gi", "available": "128Gi"},
            ],
        }
        for zone in (0, 1)
    ]
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    amounts |= {"koordinator.sh/gpu-core": "800", "koordinator.sh/gpu-memory-ratio": "800"}
    told = {"node.koordinator.sh/cpu-topology": str({"detail": cpus}).replace("'", '"')}
    return [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}},
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name},
            "spec": {"devices": cards},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {"name": name, "annotations": told},
            "topologyPolicies": ["None"],
            "zones": zones,
        },
    ]


class Cards(_Line):
    """A pod of two cards and CPUs of its own; every node tells its cards and its topology."""

    def world(self, number: int) -> ClusterSnapshot:
        return snapshot_from_objects([one for row in range(number) for one in machine(row)]).snapshot

    def pod(self, name: str, **fields: Any) -> Pod:
        requests = {"cpu": 4000, "memory": GIB, **CARDS}
        fields |= {"requests": requests, "limits": requests, "labels": LSR, "annotations": BOUND}
        return Pod(name=name, priority=9500, **fields)


class Gang(_Line):
    """A gang of eight."""

    def arrive(self) -> Sequence[Pod]:
        gang = f"gang-{self.step}"
        self.snapshot = self.snapshot.apply(
            RecordAdded(PodGroup(namespace="default", name=gang, min_member=8))
        )
        return [self.pod(f"{gang}-{k}", labels={LABEL_POD_GROUP: gang}) for k in range(8)]


class Members(_Line):
    """A plain pod after one has ended, where all that run are members of gangs of eight."""

    def world(self, number: int) -> ClusterSnapshot:
        start = cluster(number)
        pods = [(one.name, pod) for one in start.nodes for pod in one.pods]
        gangs = [f"g{place // 8:05}" for place in range(len(pods))]
        held: dict[str, list[Pod]] = {one.name: [] for one in start.nodes}
        for gang, (node, pod) in zip(gangs, pods, strict=True):
            held[node].append(pod.at(node, labels={LABEL_POD_GROUP: gang}))
        groups = [PodGroup(namespace="default", name=gang, min_member=8) for gang in sorted({*gangs})]
        states = [NodeState(one.node, tuple(held[one.name])) for one in start.nodes]
        return ClusterSnapshot(nodes=states, records=[*start.records, *groups])

    def happen(self) -> Sequence[PodEnded]:
        return [PodEnded(self.state().pods[0].key)]


class Explained(_Line):
    """One ``explain`` of a pod that waits, after one pod has ended."""

    def happen(self) -> Sequence[PodEnded]:
        return [PodEnded(self.state().pods[0].key)]

    def turn(self) -> None:
        now = START + timedelta(seconds=60 + self.step * 0.01)
        self.snapshot = self.snapshot.apply(*self.changes)
        assert explain(self.snapshot, self.pods[0], policy=self.policy, now=now).decision


class Preempts(_Line):
    """A pod that finds no room and preempts, in a cluster of equal nodes; the clock alone moves on."""

    def world(self, number: int) -> ClusterSnapshot:
        start = cluster(number)
        states = [
            NodeState(
                one.node,
                tuple(
                    attrs.evolve(pod, requests={"cpu": 6400, "memory": GIB}, priority=5500)
                    for pod in one.pods
                ),
            )
            for one in start.nodes
        ]
        return ClusterSnapshot(nodes=states)

    def turn(self) -> None:
        now = START + timedelta(seconds=60 + self.step * 0.01)
        result = schedule(self.snapshot, self.pods, policy=self.policy, now=now, preempt=PreemptionRules())
        assert all(isinstance(one, Nominated) for one in result.decisions)


class Huge(_Line):
    """One decision among 64,000 nodes with 640,000 pods, and what memory it takes."""

    params = (8000, 64_000)
    timeout = 600

    def turn(self) -> None:
        super().turn()
        assert self.snapshot.pod(self.pods[0].key) is not None

    def track_peak_mib(self, number: int) -> float:
        """The most memory that the process has had, in MiB."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Many:
    """Very many pods in one call: a gang of 20,000 on 3000 nodes, read already; 100,000 on one node."""

    number = 1
    timeout = 600

    def setup(self) -> None:
        self.policy = koordinator_policy(known_plugins())
        group = PodGroup(namespace="default", name="g", min_member=20_000)
        self.wide = cluster(3000).apply(RecordAdded(group))
        self.members = [self._pod(f"g-{row}", labels={LABEL_POD_GROUP: "g"}) for row in range(20_000)]
        room = {"cpu": 10**9, "memory": 2**50, "pods": 200_000}
        self.narrow = ClusterSnapshot(nodes=[Node(name="n", allocatable=room)])
        self.pods = [self._pod(f"p-{row}") for row in range(100_000)]
        assert schedule(self.wide, [self._pod("first")], policy=self.policy, now=START).bound

    def _pod(self, name: str, **fields: Any) -> Pod:
        return Pod(name=name, requests={"cpu": 1000, "memory": GIB}, priority=9500, **fields)

    def time_gang(self) -> None:
        """All members start."""
        assert len(schedule(self.wide, self.members, policy=self.policy, now=START).bound) == 20_000

    def time_one_node(self) -> None:
        """All of them fit."""
        assert len(schedule(self.narrow, self.pods, policy=self.policy, now=START).bound) == 100_000


ROWS: tuple[type[_Line], ...] = (Cards, Gang, Members, Explained, Preempts)
"""Those of two usual sizes, for a table."""
