"""Load-aware filter and score, spread constraints and anti-affinity on large clusters.

Every node is in a state of its own; nothing is grouped. See the guide for figures.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import numpy as np

from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from koordcore.model.durations import SECOND
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import HOSTNAME_LABEL, ZONE_LABEL, Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.selectors import LabelSelector
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.scoring.load import LoadState
from koordcore.snapshot import ClusterSnapshot

GIB = 2**30
NOW = 1_800_000_000


def loaded_cluster(nodes: int) -> ClusterSnapshot:
    """Nodes of 96 cpu and 512 GiB, each with five pods: three are in the metric, two came after it."""
    draw = np.random.default_rng(20261121)
    usage = draw.integers(0, 70_000, nodes)
    memory = draw.integers(0, 500, nodes)
    cores = draw.integers(1000, 5000, (nodes, 5))
    sizes = draw.integers(1, 17, (nodes, 5))
    states, metrics = [], []
    for row in range(nodes):
        name = f"n{row:05d}"
        pods, rows = [], []
        for index in range(5):
            requests = {"cpu": int(cores[row, index]), "memory": int(sizes[row, index]) * GIB}
            age = 3600 if index < 3 else 5
            pod = Pod(
                name=f"p{row}-{index}",
                requests=requests,
                node_name=name,
                scheduled=datetime.fromtimestamp(NOW - age, UTC),
            )
            pods.append(pod)
            if index < 3:
                used = {key: amount // 2 for key, amount in requests.items()}
                rows.append(
                    PodMetric(
                        namespace="default", name=pod.name, priority="koord-prod", usage=measured_of(used)
                    )
                )
        node = Node(name=name, allocatable={"cpu": 96_000, "memory": 512 * GIB, "pods": 110})
        states.append(NodeState(node, tuple(pods)))
        metrics.append(
            NodeMetric(
                node=name,
                update_time=(NOW - 10) * SECOND,
                node_usage=measured_of({"cpu": int(usage[row]), "memory": int(memory[row]) * GIB}),
                pods=tuple(rows),
            )
        )
    return ClusterSnapshot(nodes=states, records=metrics)


class LoadAware:
    """One pod of 4 cpu and 8 GiB on 10,000 nodes; thresholds 65 and 95, weights 1 and 1."""

    def setup(self) -> None:
        self.snapshot = loaded_cluster(10_000)
        self.state = LoadState.of_snapshot(self.snapshot, LoadAwareArgs(), NOW * SECOND)
        self.pod = Pod(name="new", requests={"cpu": 4000, "memory": 8 * GIB})
        self.request = self.state.request_of(self.pod)
        assert 0 < int(self.state.allows(self.request).sum()) < 10_000

    def time_compile(self) -> None:
        LoadState.of_snapshot(self.snapshot, LoadAwareArgs(), NOW * SECOND)

    def time_filter(self) -> None:
        self.state.allows(self.request)

    def time_filter_with_reasons(self) -> None:
        self.state.fit(self.request)

    def time_filter_and_score(self) -> None:
        self.state.allows(self.request)
        self.state.score(self.request)

    def time_place_and_remove(self) -> None:
        self.state.place(self.pod, 5)
        self.state.remove(self.pod, 5)

    def track_fitting(self) -> int:
        return int(self.state.allows(self.request).sum())

    track_fitting.unit = "nodes"  # type: ignore[attr-defined]  # asv reads it


def zoned_cluster(nodes: int) -> ClusterSnapshot:
    """Empty nodes in three zones."""
    return ClusterSnapshot(
        nodes=[
            Node(
                name=f"n{row:05d}",
                labels={HOSTNAME_LABEL: f"n{row:05d}", ZONE_LABEL: f"z{row % 3}"},
                allocatable={"cpu": 64_000, "memory": 256 * GIB, "pods": 110},
            )
            for row in range(nodes)
        ]
    )


def spread_pods(number: int, workloads: int) -> list[Pod]:
    """Pods that must lie evenly over zones and should over hosts."""
    pods = []
    for index in range(number):
        app = f"a{index % workloads}"
        selector = LabelSelector({"app": app})
        rules = (
            TopologySpreadConstraint(max_skew=1, topology_key=ZONE_LABEL, selector=selector),
            TopologySpreadConstraint(max_skew=1, topology_key=HOSTNAME_LABEL, selector=selector),
        )
        pods.append(
            Pod(
                name=f"p{index:05d}",
                labels={"app": app},
                requests={"cpu": 1000, "memory": 2 * GIB},
                spread_constraints=rules,
            )
        )
    return pods


def lonely_pods(number: int, workloads: int) -> list[Pod]:
    """Pods that bear no other of their workload on the same host."""
    pods = []
    for index in range(number):
        app = f"a{index % workloads}"
        term = PodAffinityTerm(HOSTNAME_LABEL, LabelSelector({"app": app}))
        pods.append(
            Pod(
                name=f"p{index:05d}",
                labels={"app": app},
                requests={"cpu": 1000, "memory": 2 * GIB},
                affinity=Affinity(anti=PodAffinity(required=(term,))),
            )
        )
    return pods


def zone_skew(result: ScheduleResult) -> int:
    """The largest difference between two zones, over all workloads."""
    counts: dict[str, Counter[str]] = {}
    for state in result.snapshot.nodes:
        for pod in state.pods:
            counts.setdefault(pod.labels["app"], Counter())[state.node.labels[ZONE_LABEL]] += 1
    return max(max(zones.values()) - min(zones.values()) for zones in counts.values())


class Spread:
    """5000 pods of ten workloads on 5000 nodes: three zones and hosts, both hard."""

    def setup(self) -> None:
        self.snapshot = zoned_cluster(5000)
        _ = self.snapshot.columns
        self.pods = spread_pods(5000, 10)

    def time_place(self) -> None:
        assert len(schedule(self.snapshot, self.pods).bound) == 5000

    def track_zone_skew(self) -> int:
        return zone_skew(schedule(self.snapshot, self.pods))

    track_zone_skew.unit = "pods"  # type: ignore[attr-defined]  # asv reads it


class AntiAffinity:
    """2000 pods on 5000 nodes, of ten workloads or of one each."""

    params = (10, 2000)
    param_names = ("workloads",)

    def setup(self, workloads: int) -> None:
        self.snapshot = zoned_cluster(5000)
        _ = self.snapshot.columns
        self.pods = lonely_pods(2000, workloads)

    def time_place(self, workloads: int) -> None:
        assert len(schedule(self.snapshot, self.pods).bound) == 2000

    def track_shared_hosts(self, workloads: int) -> int:
        result = schedule(self.snapshot, self.pods)
        found = Counter(
            (state.name, pod.labels["app"]) for state in result.snapshot.nodes for pod in state.pods
        )
        return sum(count > 1 for count in found.values())

    track_shared_hosts.unit = "hosts"  # type: ignore[attr-defined]  # asv reads it
