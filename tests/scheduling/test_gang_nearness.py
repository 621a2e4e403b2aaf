"""Gangs go near the pods that share the network-topology selector of their first member."""

from __future__ import annotations

import attrs
import pytest

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.model.network import ClusterNetworkTopology
from koordcore.protocol.gang_names import ANNOTATION_TOPOLOGY_SELECTOR
from koordcore.topology.network import NODE_LAYER, LayerSpec
from tests.scheduling.test_gangs import MUST, members

pytestmark = pytest.mark.solver

NETWORK = ClusterNetworkTopology(
    "default",
    (
        LayerSpec("SpineLayer", ("spine",)),
        LayerSpec("BlockLayer", ("block",), "SpineLayer"),
        LayerSpec(NODE_LAYER, (), "BlockLayer"),
    ),
)


def node(name: str, **labels: str) -> Node:
    return Node(name=name, labels=labels, allocatable={"cpu": 8000, "pods": 10})


@pytest.mark.parametrize(
    ("first", "second", "there", "block"),
    [
        ("job", "job", "job", "b"),
        ("job", "job", "other", "a"),
        ("", "job", "job", "a"),
        ("job", "", "job", "b"),
    ],
)
def test_a_gang_goes_to_the_block_of_the_pods_of_its_first_members_selector(
    first: str, second: str, there: str, block: str
) -> None:
    """A pod of the selector on a node outside of the network draws nobody, and holds nobody up."""
    nodes = [node("bare"), *(node(name, spine="s", block=name[0]) for name in ("a1", "a2", "b1", "b2"))]
    gang = [
        attrs.evolve(pod, annotations={**pod.annotations, ANNOTATION_TOPOLOGY_SELECTOR: selector})
        for pod, selector in zip(members("g", 2, 1000, 2, spec=MUST), (first, second), strict=True)
    ]
    running = [
        Pod(name="near", requests={"cpu": 1000}, annotations={ANNOTATION_TOPOLOGY_SELECTOR: there}).at("b1"),
        Pod(name="outside", annotations={ANNOTATION_TOPOLOGY_SELECTOR: "job"}).at("bare"),
    ]
    snapshot = ClusterSnapshot(nodes=nodes, records=[NETWORK], pending=gang).assume(*running)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert [one.node[0] for one in result.bound] == [block, block]
