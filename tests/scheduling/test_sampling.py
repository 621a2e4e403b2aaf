"""Looking at a part of the nodes."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from koordcore import ClusterSnapshot, Node, Pod, schedule
from koordcore._arrays import BoolVector
from koordcore.framework.sampling import NodeSample, nodes_to_find
from koordcore.model.affinity import Affinity, NodeAffinity
from koordcore.model.pods import PodKey
from koordcore.model.policy import Policy
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator


@pytest.mark.parametrize(
    ("number", "percentage", "expected"),
    [
        (99, 1, 99),
        (100, 1, 100),
        (5000, 0, 500),
        (6000, 0, 300),
        (20000, 0, 1000),
        (1000, 30, 300),
        (500, 1, 100),
    ],
)
def test_how_many_are_enough(number: int, percentage: int, expected: int) -> None:
    assert nodes_to_find(number, percentage) == expected


def searched(sample: NodeSample, feasible: BoolVector, allowed: BoolVector | None = None) -> list[int]:
    among = np.ones_like(feasible) if allowed is None else allowed
    search = sample.search(feasible, among, 1)
    seen = search.among(among)
    sample.end(PodKey("default", "p"), search, seen)
    return np.flatnonzero(seen & feasible).tolist()


def test_the_search_goes_on_where_it_stopped() -> None:
    sample = NodeSample(250)
    feasible = np.ones(250, np.bool_)
    feasible[::2] = False
    assert searched(sample, feasible) == list(range(1, 200, 2))
    assert searched(sample, feasible) == sorted([*range(201, 250, 2), *range(1, 150, 2)])


def test_too_few_feasible_nodes_are_all_kept_and_the_start_stays() -> None:
    sample = NodeSample(200)
    few = np.zeros(200, np.bool_)
    few[7] = True
    assert searched(sample, few) == [7]
    assert searched(sample, np.ones(200, np.bool_)) == list(range(100))


def test_of_few_nodes_that_are_looked_at_all_are_and_the_start_moves_by_as_many() -> None:
    sample = NodeSample(200)
    every, some = np.ones(200, np.bool_), np.zeros(200, np.bool_)
    some[[3, 150, 190]] = True
    assert searched(sample, every, some) == [3, 150, 190]
    assert searched(sample, every) == list(range(3, 103))


def test_the_policy_says_how_many_nodes_are_looked_at() -> None:
    nodes = [Node(name=f"n{index:03d}", allocatable={"cpu": 1000 + index, "pods": 9}) for index in range(300)]
    snapshot = ClusterSnapshot(nodes=nodes)
    pods = [Pod(name=f"p{index}", requests={"cpu": 100}) for index in range(2)]
    everywhere = schedule(snapshot, pods).bound
    assert {one.feasible for one in everywhere} == {300}
    sampled = schedule(snapshot, pods, policy=Policy(percentage_of_nodes=10)).bound
    assert [(int(one.node[1:]) // 100, one.feasible) for one in sampled] == [(0, 100), (1, 100)]


NODES = [Node(name=f"n{index:03d}", allocatable={"cpu": 8000, "pods": 110}) for index in range(200)]
ROOM = ClusterSnapshot(nodes=NODES)
HALF = Policy(percentage_of_nodes=50)


def test_all_profiles_search_from_where_the_last_search_stopped() -> None:
    policy = attrs.evolve(
        HALF, scheduler_names=("a",), others=(attrs.evolve(HALF, name="b", scheduler_names=("b",)),)
    )
    pods = [
        Pod(name=f"p{index}", requests={"cpu": 1000}, scheduler_name=who) for index, who in enumerate("aba")
    ]
    assert [one.node for one in schedule(ROOM, pods, policy=policy).bound] == ["n000", "n100", "n001"]


@pytest.mark.parametrize("fits", [True, False])
def test_a_pod_that_names_its_node_moves_the_start_by_one(fits: bool) -> None:
    """Whether it fits there or not, and whether one that wants the same was refused before."""
    term = NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("n150",)),))
    own = Affinity(node=NodeAffinity(required=NodeSelector((term,))))
    pinned = [
        Pod(name=f"p{index}", requests={"cpu": 1000 if fits else 9000}, affinity=own) for index in (0, 1)
    ]
    result = schedule(ROOM, [*pinned, Pod(name="p2", requests={"cpu": 1000})], policy=HALF)
    assert [one.node for one in result.bound] == [*(["n150"] * 2 if fits else []), "n002"]


def test_a_node_that_was_nominated_in_vain_counts_for_the_start() -> None:
    """The search for the second pod begins behind the node that would be the best."""
    large = Node(name="n100", allocatable={"cpu": 16000, "pods": 110})
    nodes = [large if one.name == large.name else one for one in NODES]
    room = ClusterSnapshot(nodes=nodes).assume(Pod(name="x", requests={"cpu": 1000}, node_name="n150"))
    for nominated, second in ((None, "n100"), ("n150", "n001")):
        first = Pod(name="p0", priority=9, requests={"cpu": 8000}, nominated_node=nominated)
        result = schedule(room, [first, Pod(name="p1", requests={"cpu": 1000})], policy=HALF)
        assert [one.node for one in result.bound] == ["n000", second]
