"""Small clusters and pods with everything that the stock plugins look at."""

from __future__ import annotations

from hypothesis import strategies as st

from koordcore.model.affinity import (
    Affinity,
    NodeAffinity,
    PreferredNodeTerm,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from koordcore.model.containers import Container
from koordcore.model.nodes import Node
from koordcore.model.pods import HostPort, Pod
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.snapshot import ClusterSnapshot

GIB = 2**30
LABELS = ("zone", "disk")
VALUES = ("a", "b")
GPU = "nvidia.com/gpu"

labels = st.dictionaries(st.sampled_from(LABELS), st.sampled_from(VALUES))
taints = st.lists(
    st.builds(Taint, st.sampled_from(LABELS), st.sampled_from(VALUES), st.sampled_from(TaintEffect)),
    max_size=2,
).map(tuple)
tolerations = st.lists(
    st.builds(
        Toleration,
        st.sampled_from(LABELS),
        st.sampled_from([TolerationOperator.EQUAL, TolerationOperator.EXISTS]),
        st.sampled_from(VALUES),
        st.sampled_from([None, *TaintEffect]),
    ),
    max_size=2,
).map(tuple)
requirements = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from(LABELS),
        st.sampled_from([SelectorOperator.IN, SelectorOperator.NOT_IN]),
        st.lists(st.sampled_from(VALUES), min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(
        Requirement,
        st.sampled_from(LABELS),
        st.sampled_from([SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST]),
    ),
)
terms = st.builds(NodeSelectorTerm, st.lists(requirements, min_size=1, max_size=2).map(tuple))
node_affinities = st.builds(
    NodeAffinity,
    st.none() | st.builds(NodeSelector, st.lists(terms, min_size=1, max_size=2).map(tuple)),
    st.lists(st.builds(PreferredNodeTerm, st.integers(1, 100), terms), max_size=2).map(tuple),
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    allocatable = {
        "cpu": draw(st.integers(0, 8)) * 1000,
        "memory": draw(st.integers(0, 16)) * GIB,
        "pods": draw(st.integers(0, 6)),
    }
    gpus = draw(st.sampled_from([0, 0, 4, 8]))
    if gpus:
        allocatable[GPU] = gpus
    return Node(
        name=name,
        labels=draw(labels),
        taints=draw(taints),
        unschedulable=draw(st.sampled_from([False, False, False, True])),
        allocatable=allocatable,
    )


@st.composite
def containers(draw: st.DrawFn) -> Container:
    requests = {}
    if draw(st.booleans()):
        requests["cpu"] = draw(st.integers(0, 30)) * 100
    if draw(st.booleans()):
        requests["memory"] = draw(st.integers(0, 8)) * GIB // 2
    if draw(st.sampled_from([False, False, True])):
        requests[GPU] = draw(st.integers(0, 4))
    return Container("c", requests)


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    affinity = draw(st.none() | node_affinities)
    return Pod(
        name=name,
        containers=draw(st.lists(containers(), min_size=1, max_size=2).map(tuple)),
        priority=draw(st.integers(0, 2)),
        tolerations=draw(tolerations),
        node_selector=draw(st.just({}) | labels),
        affinity=None if affinity is None else Affinity(node=affinity),
        host_ports=draw(st.just(()) | st.builds(HostPort, st.integers(80, 81)).map(lambda port: (port,))),
        gates=draw(st.sampled_from([(), (), (), ("example.com/wait",)])),
    )


@st.composite
def clusters(draw: st.DrawFn, *, most_nodes: int = 5, most_pods: int = 8) -> ClusterSnapshot:
    """A snapshot of empty nodes with pending pods."""
    number = draw(st.integers(1, most_nodes))
    made = [draw(nodes(f"n{index}")) for index in range(number)]
    waiting = [draw(pods(f"p{index}")) for index in range(draw(st.integers(0, most_pods)))]
    return ClusterSnapshot(nodes=made, pending=waiting)
