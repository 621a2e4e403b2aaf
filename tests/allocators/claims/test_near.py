"""What NUMA nodes are worth to the claims of a pod, and which of them leave room for these."""

from __future__ import annotations

import pytest

from benchmarks.claims_data import CLASSES, GPU, claim, request
from koordcore import ClusterSnapshot, Node
from koordcore.allocators.claims import AllocationMode
from koordcore.allocators.claims.cluster import ClusterDevices
from koordcore.allocators.claims.near import ClaimSide
from koordcore.allocators.claims.states import ClaimStates
from koordcore.model.device_slices import AttributeKind, AttributeValue, ResourceSlice, SliceDevice

NEAR = (0, 0, 1)
"""By GPU: the NUMA node that it is near."""


def side(count: int) -> ClaimSide:
    """A pod that asks for so many GPUs, on a node where nobody holds any."""
    gpus = tuple(
        SliceDevice(
            name=f"gpu-{number}",
            attributes={
                "type": AttributeValue(AttributeKind.STRING, ("gpu",)),
                "numaNode": AttributeValue(AttributeKind.INT, (numa,)),
            },
        )
        for number, numa in enumerate(NEAR)
    )
    published = ResourceSlice(name="s", driver=GPU, pool="n1", node_name="n1", devices=gpus)
    snapshot = ClusterSnapshot(
        nodes=[Node(name="n1", allocatable={"cpu": 1})], records=[*CLASSES.values(), published]
    )
    states = ClaimStates(ClusterDevices(snapshot))
    asked = claim("c", [request("gpu", "gpu", count)])
    return ClaimSide(states, states.empty[0], states.answers((asked,), AllocationMode.EXACT))


@pytest.mark.parametrize(
    ("count", "scores"),
    [(1, {0b01: 500, 0b10: 0, 0b11: 500}), (2, {0b01: 500, 0b10: 0, 0b11: 500}), (3, {0b01: 0, 0b11: 500})],
)
def test_numa_nodes_score_where_they_give_the_devices_of_the_whole_node(
    count: int, scores: dict[int, int]
) -> None:
    """The whole node would give the first GPUs."""
    mine = side(count)
    assert {mask: mine.score(mask) for mask in scores} == scores
    for mask in scores:
        assert mine.feasible(mask) is (count <= sum(mask >> numa & 1 for numa in NEAR))


def test_where_nothing_fits_or_all_is_allocated_numa_nodes_score_nothing() -> None:
    crowded = side(4)
    assert not crowded.aligned
    assert [crowded.score(mask) for mask in (0b01, 0b11)] == [0, 0]
    settled = ClaimSide(crowded.states, crowded.number, None, (0b01,))
    assert [settled.score(mask) for mask in (0b01, 0b10)] == [0, 0]
    assert [settled.feasible(mask) for mask in (0b01, 0b10)] == [True, False]
