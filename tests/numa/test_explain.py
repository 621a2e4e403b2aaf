"""Why a pod does not fit on the NUMA nodes of a node."""

from __future__ import annotations

import attrs
import pytest

from koordcore import explain, load, schedule
from koordcore.allocators.device import device_request_of
from koordcore.allocators.node import NodeAllocation, NodeOffer
from koordcore.allocators.numa_explain import explain_node
from koordcore.allocators.numa_request import NUMARefusal
from koordcore.allocators.numa_state import NUMAState
from koordcore.model.device_requests import DeviceRequest
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


@pytest.mark.parametrize(
    ("asked", "spec", "told"),
    [
        ({"koordinator.sh/rdma": 1}, {}, "lacks rdma devices"),
        (
            {"koordinator.sh/gpu": 200},
            {"scheduling.koordinator.sh/gpu-partition-spec": "{}"},
            "serves no devices: node(s) missing GPU Partition Table",
        ),
    ],
)
def test_what_is_no_amount_is_told_in_a_sentence(
    asked: dict[str, int], spec: dict[str, str], told: str
) -> None:
    """Reasons of devices are words: those of too little end the sentence, others are quoted."""
    devices = device_request_of(asked, annotations=spec)
    assert isinstance(devices, DeviceRequest)
    state = NUMAState.of(node_of(NUMATopologyPolicy.SINGLE_NUMA_NODE))
    found = explain_node(NodeOffer(state, cards(0, 0, 1)), attrs.evolve(pod(4, 0), devices=devices))
    assert found.lines[0] == f"NUMA node 0 has enough cpu and memory, {told}"


def test_nobody_is_said_to_make_room_where_something_else_stays_in_the_way() -> None:
    """Without its holder the node would have the CPUs; a label is lacking all the same."""
    after = schedule(load(["examples/numa.yaml"]).snapshot).snapshot
    (waits,) = after.pending

    def leaving(labels: dict[str, str]) -> list[str]:
        found = explain(after, attrs.evolve(waits, node_selector=labels))
        return [line for one in found.help for line in one.details if line.startswith("without ")]

    assert leaving({}) == ["without default/solver-0 (6 CPUs) it would fit on NUMA node 0"]
    assert leaving({"disk": "fast"}) == []
