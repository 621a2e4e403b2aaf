"""Nodes in equal states: numbered alike, and answered for as if each had been asked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordcore import ClusterSnapshot, FeatureSetting, Node, Pod, Policy, schedule
from koordcore._workspace import Workspace
from koordcore.model.pods import HostPort
from koordcore.schedule import states
from koordcore.schedule.states import AmountStates

POLICY = Policy(
    name="amounts",
    features=(
        FeatureSetting(name="TaintToleration"),
        FeatureSetting(name="NodeResourcesFit", weight=2),
        FeatureSetting(name="NodePorts"),
        FeatureSetting(name="NodeResourcesBalancedAllocation", filters=False),
    ),
)
SHAPES = (
    {"cpu": 1000},
    {"cpu": 3000, "memory": 2**30},
    {"memory": 5 * 2**30},
    {"cpu": 7000, "acme.com/x": 1},
)


def nodes(number: int, kinds: int = 2) -> list[Node]:
    return [
        Node(
            name=f"n{index:02}",
            allocatable={"cpu": 8000 + 8000 * (index % kinds), "memory": 2**34, "pods": 6, "acme.com/x": 2},
        )
        for index in range(number)
    ]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "WARM_UP", 0)
    monkeypatch.setattr(states, "LARGEST_SHARE", 0)


@pytest.mark.usefixtures("eager")
def test_equal_nodes_share_a_number_until_one_is_used() -> None:
    workspace = Workspace(ClusterSnapshot(nodes=nodes(4)))
    table = AmountStates(workspace)
    numbers = table.numbers()
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 0, 1]
    pod = Pod(name="p", requests={"cpu": 1000})
    mark = workspace.checkpoint()
    workspace.bind(pod.at("n02"), 2)
    numbers = table.numbers()
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 2, 1]
    workspace.rollback(mark)
    numbers = table.numbers()
    assert numbers is not None
    assert numbers.tolist() == [0, 1, 0, 1]


def test_numbering_ends_for_good_when_nodes_are_too_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "WARM_UP", 0)
    workspace = Workspace(ClusterSnapshot(nodes=nodes(8, kinds=8)))
    table = AmountStates(workspace)
    assert table.numbers() is None
    assert table.numbers() is None


@given(
    shapes=st.lists(st.integers(0, len(SHAPES) - 1), min_size=20, max_size=60),
    ports=st.lists(st.booleans(), min_size=60, max_size=60),
    kinds=st.integers(1, 3),
)
@settings(max_examples=30)
def test_states_change_no_decision(shapes: list[int], ports: list[bool], kinds: int) -> None:
    pods = [
        Pod(
            name=f"p{index:02}",
            requests=SHAPES[shape],
            host_ports=(HostPort(80),) if ports[index] else (),
        )
        for index, shape in enumerate(shapes)
    ]
    snapshot = ClusterSnapshot(nodes=nodes(12, kinds), pending=pods)
    plain = schedule(snapshot, policy=POLICY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "WARM_UP", 0)
        patch.setattr(states, "LARGEST_SHARE", 0)
        assert schedule(snapshot, policy=POLICY) == plain
