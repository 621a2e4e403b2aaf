"""Small clusters of different kinds, the same at every call."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from koordcore.model.affinity import Taint, Toleration
from koordcore.model.containers import Container
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import HostPort, Pod
from koordcore.snapshot import ClusterSnapshot

_GIB: Final = 2**30
_GPU: Final = "nvidia.com/gpu"


def _node(name: str, cpu: int, memory: int, gpus: int = 0) -> Node:
    room = {"cpu": cpu, "memory": memory * _GIB, "pods": 10, "ephemeral-storage": 100 * _GIB}
    return Node(name=name, allocatable={**room, **({_GPU: gpus} if gpus else {})})


def _pod(name: str, cpu: int = 0, memory: int = 0, gpus: int = 0) -> Pod:
    asked = {"cpu": cpu, "memory": memory * _GIB, _GPU: gpus}
    return Pod(
        name=name,
        containers=(Container("main", {resource: amount for resource, amount in asked.items() if amount}),),
    )


def _waiting() -> tuple[Pod, ...]:
    tolerant = (Toleration(key="gpu"),)
    return (
        evolve(_pod("web-1", 500, 1), labels={"app": "web"}),
        evolve(_pod("web-2", 500, 1), labels={"app": "web"}),
        evolve(_pod("batch", 2000, 4), labels={"app": "batch"}, priority=-5),
        evolve(_pod("urgent", 1000, 2), priority=1000),
        evolve(_pod("train", 4000, 16, 2), labels={"app": "train"}, tolerations=tolerant),
        _pod("nothing"),
        _pod("huge", 10_000_000, 10_000),
        evolve(_pod("listens", 100, 1), host_ports=(HostPort(8080),)),
        evolve(_pod("picky", 100, 1), node_selector={"zone": "z1"}),
        evolve(_pod("told", 100, 1), annotations={"example.com/note": "text"}, namespace="team"),
    )


def _even() -> ClusterSnapshot:
    nodes = [
        evolve(_node(f"node-{number}", 8000, 32), labels={"zone": f"z{number % 2}"}) for number in range(4)
    ]
    return ClusterSnapshot(nodes=nodes, pending=_waiting())


def _uneven() -> ClusterSnapshot:
    """Nodes of all sizes, some of them in use and one of them full."""
    nodes = (
        evolve(_node("big", 64_000, 256), labels={"zone": "z1", "disk": "ssd"}),
        evolve(_node("cards", 32_000, 128, 8), labels={"zone": "z1"}, taints=(Taint("gpu"),)),
        evolve(_node("full", 1000, 2), labels={"zone": "z2"}),
        evolve(_node("small", 2000, 4), annotations={"example.com/rack": "r1"}),
    )
    running = {
        "big": (
            evolve(_pod("run-1", 4000, 8), labels={"app": "web"}),
            evolve(_pod("run-2", 100, 1), priority=2000),
        ),
        "cards": (evolve(_pod("run-3", 8000, 32, 4), labels={"app": "train"}),),
        "full": (evolve(_pod("run-4", 1000, 2), namespace="team"),),
        "small": (),
    }
    states = [NodeState(node, tuple(pod.at(node.name) for pod in running[node.name])) for node in nodes]
    return ClusterSnapshot(nodes=states, pending=_waiting())


def _single() -> ClusterSnapshot:
    return ClusterSnapshot(nodes=[_node("only", 4000, 8, 1)], pending=_waiting())


def varied_snapshots() -> tuple[ClusterSnapshot, ...]:
    """Give small clusters to ask plugins about: even, uneven and in use, and one of a single node."""
    return _even(), _uneven(), _single()
