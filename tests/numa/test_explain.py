"""Why a pod does not fit on the NUMA nodes of a node."""

from __future__ import annotations

from koordcore.allocators.node import NodeAllocation, NodeOffer
from koordcore.allocators.numa_explain import explain_node
from koordcore.allocators.numa_request import NUMARefusal
from koordcore.allocators.numa_state import NUMAState
from koordcore.topology.numa import NUMATopologyPolicy
from tests.numa.test_node import cards, held, node_of, pod


def test_each_side_fits_elsewhere() -> None:
    """CPUs on node 0, cards on node 1; without the other pod both are on node 1."""
    state = NUMAState.of(node_of(NUMATopologyPolicy.SINGLE_NUMA_NODE), [held(*range(8, 16))])
    told = explain_node(NodeOffer(state, cards(0, 1, 1)), pod(8, 2))
    assert isinstance(told.answer, NUMARefusal)
    assert [one.served for one in told.nodes] == [("cpu", "memory"), ("gpu", "memory")]
    assert [[short.resource for short in one.shortfalls] for one in told.nodes] == [["gpu"], ["cpu"]]
    assert told.leaving == ("held",)
    assert told.then_on == (1,)
    assert "NUMA node 0 has enough cpu and memory" in told.text
    assert told.lines == (
        "NUMA node 0 has enough cpu and memory, lacks gpu (1 of 2)",
        "NUMA node 1 has enough gpu and memory, lacks cpu (0 of 8)",
        "without held (8 CPUs) it would fit on NUMA node 1",
    )


def test_a_card_that_another_pod_holds() -> None:
    """The holder of the card is named."""
    state = NUMAState.of(node_of(NUMATopologyPolicy.SINGLE_NUMA_NODE))
    told = explain_node(NodeOffer(state, cards(0, 0, 1, taken=(1,))), pod(4, 2))
    assert told.leaving == ("default/other",)
    assert told.lines[-1] == "without default/other (gpu 1) it would fit on NUMA node 0"
    assert told.then_on == (0,)


def test_a_pod_that_fits_needs_nobody_to_leave() -> None:
    """The answer is the allocation."""
    state = NUMAState.of(node_of(NUMATopologyPolicy.RESTRICTED))
    told = explain_node(NodeOffer(state, cards(0, 1)), pod(4, 1))
    assert isinstance(told.answer, NodeAllocation)
    assert told.leaving == ()
    assert told.text == "fits on NUMA node 0"
    assert all(one.fits for one in told.nodes)


def test_nobody_who_leaves_would_help() -> None:
    """More than the node has: the reasons alone."""
    state = NUMAState.of(node_of(NUMATopologyPolicy.RESTRICTED), [held(0)])
    told = explain_node(NodeOffer(state, cards(0, 1)), pod(40, 1))
    assert told.leaving == ()
    assert told.text.startswith("Unsatisfied NUMA cpu")
    assert explain_node(NodeOffer(state), pod(40, 0), trials=0).leaving == ()
