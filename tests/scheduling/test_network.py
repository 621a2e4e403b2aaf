"""Single pods in the network: nearness by selector, nodes named by a hint."""

from __future__ import annotations

import json

from koordcore import ClusterSnapshot, Node, PluginSetting, Pod, Policy, Unschedulable, schedule
from koordcore.model.network import ClusterNetworkTopology
from koordcore.protocol.gang_names import ANNOTATION_TOPOLOGY_SELECTOR
from koordcore.protocol.hints import ANNOTATION_SCHEDULING_HINT
from koordcore.topology.network import NODE_LAYER, LayerSpec

ROOM = {"cpu": 8_000, "pods": 10}
NODES = [Node(name=name, labels={"block": name[0]}, allocatable=ROOM) for name in ("a1", "a2", "b1", "b2")]


def hinted(**hint: list[str]) -> Pod:
    annotations = {ANNOTATION_SCHEDULING_HINT: json.dumps(hint)}
    return Pod(name="p", requests={"cpu": 1000}, annotations=annotations)


def chosen(pod: Pod) -> str | None:
    result = schedule(ClusterSnapshot(nodes=NODES), [pod])
    return result.bound[0].node if result.bound else None


def test_a_hint_restricts() -> None:
    """Only the nodes that it names; an unknown one is no node."""
    assert chosen(hinted(nodeNames=["b2", "zz"])) == "b2"
    assert chosen(hinted(nodeNames=["zz"])) is None


def test_a_hint_goes_first() -> None:
    """Preferred nodes are tried in their order, before any score."""
    assert chosen(hinted(preferredNodeNames=["zz", "b1", "a2"])) == "b1"


def test_an_illegal_hint_is_refused() -> None:
    """The pod says so itself; no node is asked."""
    pod = Pod(name="p", annotations={ANNOTATION_SCHEDULING_HINT: "["})
    decision = schedule(ClusterSnapshot(nodes=NODES), [pod]).decisions[0]
    assert isinstance(decision, Unschedulable)
    assert decision.refusal


def test_pods_of_one_selector_go_near_each_other() -> None:
    """The second pod goes to the block of the first, although everything is equally empty."""
    network = ClusterNetworkTopology(
        "default", (LayerSpec("BlockLayer", ("block",)), LayerSpec(NODE_LAYER, (), "BlockLayer"))
    )
    mark = {ANNOTATION_TOPOLOGY_SELECTOR: "job"}
    first = Pod(name="first", node_name="b2", requests={"cpu": 8_000}, annotations=mark)
    snapshot = ClusterSnapshot(nodes=NODES, records=(network,)).assume(first)
    policy = Policy().with_plugin(PluginSetting(name="Coscheduling", weight=10))
    result = schedule(snapshot, [Pod(name="p", requests={"cpu": 1000}, annotations=mark)], policy=policy)
    assert result.bound[0].node == "b1"
