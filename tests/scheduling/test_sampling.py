"""Looking at a part of the nodes."""

from __future__ import annotations

import numpy as np
import pytest

from koordcore import ClusterSnapshot, Node, Pod, schedule
from koordcore.framework.sampling import NodeSample, nodes_to_find
from koordcore.model.policy import Policy


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


def test_the_search_goes_on_where_it_stopped() -> None:
    sample = NodeSample(250, 1)
    feasible = np.ones(250, np.bool_)
    feasible[::2] = False
    first, second = sample.narrow(feasible), sample.narrow(feasible)
    assert np.flatnonzero(first).tolist() == list(range(1, 200, 2))
    assert np.flatnonzero(second).tolist() == sorted([*range(201, 250, 2), *range(1, 150, 2)])


def test_too_few_feasible_nodes_are_all_kept_and_the_start_stays() -> None:
    sample = NodeSample(200, 1)
    few = np.zeros(200, np.bool_)
    few[7] = True
    assert sample.narrow(few).tolist() == few.tolist()
    assert np.flatnonzero(sample.narrow(np.ones(200, np.bool_)))[[0, -1]].tolist() == [0, 99]


def test_the_policy_says_how_many_nodes_are_looked_at() -> None:
    nodes = [Node(name=f"n{index:03d}", allocatable={"cpu": 1000 + index, "pods": 9}) for index in range(300)]
    snapshot = ClusterSnapshot(nodes=nodes)
    pods = [Pod(name=f"p{index}", requests={"cpu": 100}) for index in range(2)]
    everywhere = schedule(snapshot, pods).bound
    assert {one.feasible for one in everywhere} == {300}
    sampled = schedule(snapshot, pods, policy=Policy(percentage_of_nodes=10)).bound
    assert [(int(one.node[1:]) // 100, one.feasible) for one in sampled] == [(0, 100), (1, 100)]
