"""Whole streams through ``schedule``: devices, CPUs, spread, anti-affinity, and whole profiles.

The cluster of the profile streams is that of the reference's own measurement: nodes of 64 cores and 256 GiB
in ten zones, ten pods of six shapes on each, a fresh NodeMetric, and plain pods of the same shapes to place.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks.clusters import GIB, busy_cluster
from koordcore import ClusterSnapshot, Container, Pod, Policy, ScheduleResult, schedule, verify
from koordcore.framework.registry import PLUGINS
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import HOSTNAME_LABEL, Node
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.node_metric import parse_node_metric

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
SHAPES = ((500, 1), (1000, 2), (2000, 4), (4000, 8), (1000, 6), (3000, 3))
CARD = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
POLICY = "node.koordinator.sh/numa-topology-policy"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
HINT = "scheduling.koordinator.sh/device-allocate-hint"


def gpu_objects(number: int) -> list[dict[str, Any]]:
    """Nodes of eight cards and four NICs on four switches and two NUMA nodes, with their Device objects."""
    objects: list[dict[str, Any]] = []
    for index in range(number):
        name = f"gpu-{index:05}"
        allocatable = {
            "cpu": "128",
            "memory": "2Ti",
            "pods": "110",
            "koordinator.sh/gpu-core": "800",
            "koordinator.sh/gpu-memory-ratio": "800",
            "koordinator.sh/rdma": "400",
        }
        devices = [
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
        devices += [
            {
                "type": "rdma",
                "minor": minor,
                "id": f"nic-{minor}",
                "health": True,
                "topology": {"nodeID": minor // 2, "pcieID": str(minor)},
                "resources": {"koordinator.sh/rdma": "100"},
                "vfGroups": [{"vfs": [{"minor": -1, "busID": f"{minor}.{vf}"} for vf in range(30)]}],
            }
            for minor in range(4)
        ]
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "status": {"allocatable": allocatable},
            }
        )
        objects.append(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Device",
                "metadata": {"name": name},
                "spec": {"devices": devices},
            }
        )
    return objects


def gpu_pods(number: int, seed: int = 3) -> list[Pod]:
    """Whole cards, shares, partitions of four and cards with a NIC on their switch, in turn at random."""
    draw = random.Random(seed)
    joint = {
        JOINT: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
        HINT: '{"rdma":{"vfSelector":{}}}',
    }
    kinds: tuple[tuple[dict[str, int], dict[str, str]], ...] = (
        (dict.fromkeys(CARD, 50), {}),
        (dict.fromkeys(CARD, 25), {}),
        (dict(CARD), {}),
        (dict.fromkeys(CARD, 200), {}),
        (dict.fromkeys(CARD, 400), {}),
        ({**dict.fromkeys(CARD, 200), "koordinator.sh/rdma": 1}, joint),
    )
    pods = []
    for index in range(number):
        requests, annotations = draw.choices(kinds, weights=(6, 6, 6, 2, 1, 1))[0]
        pods.append(
            Pod(
                name=f"pod-{index:05}",
                requests={"cpu": 1000, "memory": GIB, **requests},
                annotations=annotations,
            )
        )
    return pods


class DeviceStream:
    """5000 mixed device pods on 1000 nodes of eight cards."""

    timeout = 300

    def setup(self) -> None:
        self.snapshot = snapshot_from_objects(gpu_objects(1000)).snapshot
        self.pods = gpu_pods(5000)
        schedule(self.snapshot, self.pods[:1])  # reads the rooms; the columns are made once for a snapshot

    def time_schedule(self) -> None:
        schedule(self.snapshot, self.pods)

    def track_placed(self) -> int:
        result = schedule(self.snapshot, self.pods)
        assert verify(self.snapshot.with_pending(*self.pods), result) == ()
        assert any("rdma" in note for one in result.bound for note in one.notes)
        return len(result.bound)

    track_placed.unit = "pods"  # type: ignore[attr-defined]  # read by asv


def numa_objects(number: int) -> list[dict[str, Any]]:
    """Nodes of two sockets with 32 cores of two threads each, policy Restricted."""
    detail = ",".join(
        f'{{"id":{cpu},"core":{cpu // 2},"node":{cpu // 64},"socket":{cpu // 64}}}' for cpu in range(128)
    )
    zone = [
        {"name": name, "capacity": amount, "allocatable": amount, "available": amount}
        for name, amount in (("cpu", "64"), ("memory", "256Gi"))
    ]
    objects: list[dict[str, Any]] = []
    for index in range(number):
        name = f"numa-{index:05}"
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"node.koordinator.sh/numa-topology-policy": "Restricted"},
                },
                "status": {"allocatable": {"cpu": "128", "memory": "512Gi", "pods": "110"}},
            }
        )
        objects.append(
            {
                "apiVersion": "topology.node.k8s.io/v1alpha1",
                "kind": "NodeResourceTopology",
                "metadata": {
                    "name": name,
                    "annotations": {"node.koordinator.sh/cpu-topology": f'{{"detail":[{detail}]}}'},
                },
                "topologyPolicies": ["None"],
                "zones": [
                    {"name": f"node-{zone_id}", "type": "Node", "resources": zone} for zone_id in (0, 1)
                ],
            }
        )
    return objects


class CPUStream:
    """5000 pods with CPUs of their own on 1000 nodes under Restricted."""

    timeout = 300

    def setup(self) -> None:
        self.snapshot = snapshot_from_objects(numa_objects(1000)).snapshot
        draw = random.Random(4)
        self.pods = [
            Pod(
                name=f"pod-{index:05}",
                uid=f"u-{index}",
                labels={"koordinator.sh/qosClass": "LSR"},
                priority=9500,
                requests={"cpu": 1000 * (cpus := draw.choice((4, 8, 12, 16))), "memory": 2 * cpus * GIB},
            )
            for index in range(5000)
        ]
        schedule(self.snapshot, self.pods[:1])  # reads the rooms; the columns are made once for a snapshot

    def time_schedule(self) -> None:
        schedule(self.snapshot, self.pods)

    def track_placed(self) -> int:
        result = schedule(self.snapshot, self.pods)
        assert verify(self.snapshot.with_pending(*self.pods), result) == ()
        return len(result.bound)

    track_placed.unit = "pods"  # type: ignore[attr-defined]  # read by asv


def named_nodes(number: int, zones: int) -> list[Node]:
    """Empty nodes that carry their own name and one of some zones as labels."""
    room = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110}
    return [
        Node(
            name=(name := f"node-{index:05}"),
            labels={HOSTNAME_LABEL: name, "topology.kubernetes.io/zone": f"zone-{index % zones}"},
            allocatable=room,
        )
        for index in range(number)
    ]


class Spread:
    """5000 pods that must lie evenly over three zones and over hosts, on 5000 nodes."""

    timeout = 300

    def setup(self) -> None:
        self.snapshot = ClusterSnapshot(nodes=named_nodes(5000, 3))
        selector = LabelSelector({"app": "web"})
        constraints = tuple(
            TopologySpreadConstraint(max_skew=1, topology_key=key, selector=selector)
            for key in ("topology.kubernetes.io/zone", HOSTNAME_LABEL)
        )
        self.pods = [
            Pod(
                name=f"pod-{index:05}",
                labels={"app": "web"},
                requests={"cpu": 1000},
                spread_constraints=constraints,
            )
            for index in range(5000)
        ]

    def time_schedule(self) -> None:
        schedule(self.snapshot, self.pods)

    def track_most_on_a_node(self) -> int:
        return max(len(state.pods) for state in schedule(self.snapshot, self.pods).snapshot.nodes)

    track_most_on_a_node.unit = "pods"  # type: ignore[attr-defined]  # read by asv


class AntiAffinity:
    """2000 pods that keep away from each other, on 5000 nodes."""

    timeout = 300

    def setup(self) -> None:
        self.snapshot = ClusterSnapshot(nodes=named_nodes(5000, 10))
        term = PodAffinityTerm(HOSTNAME_LABEL, LabelSelector({"app": "db"}))
        affinity = Affinity(anti=PodAffinity(required=(term,)))
        self.pods = [
            Pod(name=f"pod-{index:05}", labels={"app": "db"}, requests={"cpu": 1000}, affinity=affinity)
            for index in range(2000)
        ]

    def time_schedule(self) -> None:
        schedule(self.snapshot, self.pods)

    def track_most_on_a_node(self) -> int:
        return max(len(state.pods) for state in schedule(self.snapshot, self.pods).snapshot.nodes)

    track_most_on_a_node.unit = "pods"  # type: ignore[attr-defined]  # read by asv


def metric(name: str, draw: random.Random) -> NodeMetric:
    """A fresh report of a node's use."""
    use = {"cpu": f"{draw.randrange(2000, 22000)}m", "memory": f"{draw.randrange(8, 67)}Gi"}
    return parse_node_metric(
        {
            "metadata": {"name": name},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
            "status": {
                "updateTime": (NOW - timedelta(seconds=10)).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "nodeMetric": {"nodeUsage": {"resources": use}},
            },
        }
    )


def koordinator() -> Policy:
    """The profile that Koordinator ships, as far as the library has its plugins."""
    policy = koordinator_policy()
    for setting in policy.plugins:
        if setting.name not in PLUGINS:
            policy = policy.without_plugin(setting.name)
    return policy


class Profile:
    """10,000 plain pods of six shapes on 5000 busy nodes with metrics; every node is looked at."""

    params = ("stock", "koordinator")
    param_names = ("profile",)
    timeout = 300

    def setup(self, profile: str) -> None:
        draw = random.Random(5)
        cluster = busy_cluster(5000, 10)
        self.snapshot = cluster.with_records(*(metric(state.name, draw) for state in cluster.nodes))
        self.policy = Policy() if profile == "stock" else koordinator()
        self.pods = []
        for index in range(10_000):
            cpu, memory = SHAPES[index % 6]
            container = Container("c", {"cpu": cpu, "memory": memory * GIB})
            self.pods.append(Pod(name=f"new-{index:05}", labels={"app": "web"}, containers=(container,)))
        # What the plugins read of the snapshot is compiled here, as a scheduler does once per snapshot.
        schedule(self.snapshot, self.pods[:6], policy=self.policy, now=NOW)

    def _run(self) -> ScheduleResult:
        return schedule(self.snapshot, self.pods, policy=self.policy, now=NOW)

    def time_schedule(self, profile: str) -> None:
        self._run()

    def track_placed(self, profile: str) -> int:
        return len(self._run().bound)

    track_placed.unit = "pods"  # type: ignore[attr-defined]  # read by asv


class OneByOne(Profile):
    """The same pods, a call for each: what a control plane pays that decides as pods come."""

    def setup(self, profile: str) -> None:
        super().setup(profile)
        self.pods = self.pods[:20]

    def _run(self) -> ScheduleResult:
        result = schedule(self.snapshot, self.pods[:1], policy=self.policy, now=NOW)
        for pod in self.pods[1:]:
            assert len(result.bound) == 1
            result = schedule(result.snapshot, [pod], policy=self.policy, now=NOW)
        return result

    def track_placed(self, profile: str) -> int:
        end = self._run().snapshot
        return sum(pod.key in end.location for pod in self.pods)

    track_placed.unit = "pods"  # type: ignore[attr-defined]  # read by asv
