"""Overcommit of a whole cluster, and updates of many histograms.

10,000 nodes of 96 cores and 512 GiB with ten pods each, every node another state; see the guide for figures.
"""

from __future__ import annotations

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore.colocation.cluster import lend
from koordcore.colocation.columns import Outcome, compile_loads, compile_strategies, lend_cluster
from koordcore.colocation.config import completed_config
from koordcore.colocation.prediction import NO_MODELS, update
from koordcore.model.colocation import ColocationConfig, ColocationStrategy, NodeLoad, PodLoad
from koordcore.model.durations import MINUTE, SECOND
from koordcore.model.metrics import NodeMetric, PodMetric, rounded
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodPhase
from koordcore.snapshot import ClusterSnapshot

NOW = 1_800_000_000 * SECOND
MILLI_CORE = 10**6
BYTE = 10**9
GIB = 2**30
CLASSES = ("koord-prod", "koord-prod", "koord-mid", "koord-batch")


def synthetic_loads(nodes: int, pods_per_node: int) -> list[NodeLoad]:
    """Nodes whose pods ask for 1 to 8 cores and use a part of them; one pod in ten has no metric yet."""
    draw = np.random.default_rng(20261121)
    cores = draw.integers(1000, 8001, size=(nodes, pods_per_node))
    gib = draw.integers(2, 33, size=(nodes, pods_per_node))
    share = draw.integers(5, 95, size=(nodes, pods_per_node))
    capacity = immutabledict({"cpu": 96_000 * MILLI_CORE, "memory": 512 * GIB * BYTE})
    loads = []
    for row in range(nodes):
        pods, metrics = [], []
        for index in range(pods_per_node):
            name = f"p{row}-{index}"
            cpu, memory = int(cores[row, index]), int(gib[row, index]) * GIB
            priority = CLASSES[(row + index) % len(CLASSES)]
            request = immutabledict({"cpu": cpu * MILLI_CORE, "memory": memory * BYTE})
            pods.append(PodLoad(namespace="d", name=name, request=request, priority_class=priority))
            if (row + index) % 10:
                part = int(share[row, index])
                usage = {"cpu": cpu * part * MILLI_CORE // 100, "memory": memory * part // 100 * BYTE}
                metrics.append(
                    PodMetric(namespace="d", name=name, priority=priority, usage=immutabledict(usage))
                )
        metric = NodeMetric(
            node=f"n{row:05d}",
            update_time=NOW - MINUTE,
            node_usage=immutabledict({"cpu": 30_000 * MILLI_CORE, "memory": 200 * GIB * BYTE}),
            system_usage=immutabledict({"cpu": 3_000 * MILLI_CORE, "memory": 12 * GIB * BYTE}),
            pods=tuple(metrics),
            prod_reclaimable=immutabledict({"cpu": 8_000 * MILLI_CORE, "memory": 40 * GIB * BYTE}),
        )
        loads.append(
            NodeLoad(
                name=f"n{row:05d}", capacity=capacity, allocatable=capacity, pods=tuple(pods), metric=metric
            )
        )
    return loads


class Overcommit:
    """Batch and mid for 10,000 nodes with 100,000 pods."""

    def setup(self) -> None:
        self.nodes = synthetic_loads(10_000, 10)
        self.loads = compile_loads(self.nodes)
        self.strategies = compile_strategies(
            [ColocationStrategy(enable=True)] * len(self.nodes), enabled=[True] * len(self.nodes)
        )
        lending = lend_cluster(self.loads, self.strategies, NOW)
        assert (lending.batch_outcome == Outcome.LENT).all()
        assert (lending.mid_outcome == Outcome.LENT).all()

    def time_lend_compiled(self) -> None:
        lend_cluster(self.loads, self.strategies, NOW)

    def time_compile(self) -> None:
        compile_loads(self.nodes)

    def track_lent_share(self) -> float:
        lending = lend_cluster(self.loads, self.strategies, NOW)
        return float(100 * lending.batch[0].sum() / lending.capacity[0].sum())

    track_lent_share.unit = "percent of cpu lent to batch"  # type: ignore[attr-defined]  # asv reads it


PRIORITIES = {"koord-prod": 9500, "koord-mid": 7500, "koord-batch": 5500}


def synthetic_snapshot(nodes: int, pods_per_node: int) -> ClusterSnapshot:
    """Put the nodes of :func:`synthetic_loads` in a snapshot."""
    states, metrics = [], []
    for load in synthetic_loads(nodes, pods_per_node):
        pods = [
            Pod(
                name=pod.name,
                namespace=pod.namespace,
                node_name=load.name,
                phase=PodPhase.RUNNING,
                priority=PRIORITIES[pod.priority_class],
                requests=rounded(pod.request),
            )
            for pod in load.pods
        ]
        capacity = rounded(load.capacity)
        states.append(NodeState(Node(name=load.name, capacity=capacity, allocatable=capacity), tuple(pods)))
        assert load.metric is not None
        metrics.append(load.metric)
    return ClusterSnapshot().with_nodes(*states).with_records(*metrics)


class Snapshot:
    """The same cluster as a snapshot: read, lent and written back."""

    def setup(self) -> None:
        self.snapshot = synthetic_snapshot(10_000, 10)
        self.config = completed_config(ColocationConfig(ColocationStrategy(enable=True)))

    def time_lend(self) -> None:
        # A snapshot remembers what was read from it, so each round gets one of its own.
        lend(attrs.evolve(self.snapshot), self.config, now=NOW)


class Histograms:
    """One minute of samples of 50,000 pods: 100,000 histogram updates."""

    def setup(self) -> None:
        draw = np.random.default_rng(20261122)
        cores = draw.gamma(2.0, 1.0, size=50_000).tolist()
        memory = draw.gamma(2.0, 4.0 * GIB, size=50_000).tolist()
        self.samples = {f"uid-{row:05d}": pair for row, pair in enumerate(zip(cores, memory, strict=True))}
        self.state = update(NO_MODELS, self.samples, NOW)
        assert len(self.state.names) == 50_000

    def time_update(self) -> None:
        update(self.state, self.samples, NOW + MINUTE)

    def time_percentiles(self) -> None:
        self.state.cpu.percentile(0.95)
        self.state.memory.percentile(0.98)
