"""Synthetic clusters, the same at every call."""

from __future__ import annotations

import random

from koordcore import ClusterSnapshot, Container, Node, NodeState, PluginSetting, Pod, Policy

GIB = 2**30

FIT_AND_FOUR_SCORES = Policy(
    name="fit-and-four-scores",
    plugins=(
        PluginSetting(name="TaintToleration", weight=3),
        PluginSetting(name="NodeAffinity", weight=2),
        PluginSetting(name="NodeResourcesFit"),
        PluginSetting(name="NodeResourcesBalancedAllocation", filters=False),
    ),
)
"""The filter of resources with the four classical scores."""


def empty_nodes(number: int) -> list[Node]:
    """Nodes of 64 cores and 256 GiB in ten zones."""
    room = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110}
    return [
        Node(name=f"node-{index:05}", labels={"zone": f"zone-{index % 10}"}, allocatable=room)
        for index in range(number)
    ]


def pod_stream(number: int, classes: int, seed: int = 1) -> list[Pod]:
    """Pods of some shapes in turn, one container each."""
    draw = random.Random(seed)
    shapes = [
        {"cpu": draw.randrange(1, 40) * 100 + index % 7, "memory": draw.randrange(1, 64) * GIB // 4}
        for index in range(classes)
    ]
    return [
        Pod(name=f"pod-{index:06}", containers=(Container("main", shapes[index % classes]),))
        for index in range(number)
    ]


def busy_cluster(nodes: int, pods_per_node: int) -> ClusterSnapshot:
    """A cluster in use: each node runs some pods of six shapes in turn."""
    shapes = ((500, 1), (1000, 2), (2000, 4), (4000, 8), (1000, 6), (3000, 3))
    states = []
    for index, node in enumerate(empty_nodes(nodes)):
        pods = []
        for turn in range(pods_per_node):
            cpu, memory = shapes[(index + turn) % len(shapes)]
            pods.append(
                Pod(
                    name=f"run-{index:05}-{turn}",
                    node_name=node.name,
                    requests={"cpu": cpu, "memory": memory * GIB},
                )
            )
        states.append(NodeState(node, tuple(pods)))
    return ClusterSnapshot(nodes=states)
