"""Nodes in equal states: numbered alike, and answered for as if each had been asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, PluginSetting, Pod, Policy, schedule
from koordcore.framework import node_states
from koordcore.framework.node_states import FAR, AmountStates, StateTables
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import HostPort

POLICY = Policy(
    name="amounts",
    plugins=(
        PluginSetting(name="TaintToleration"),
        PluginSetting(name="NodeAffinity"),
        PluginSetting(name="NodeResourcesFit", weight=2),
        PluginSetting(name="NodePorts"),
        PluginSetting(name="NodeResourcesBalancedAllocation", filters=False),
    ),
)
SHAPES = (
    {"cpu": 1000},
    {"cpu": 3000, "memory": 2**30},
    {"memory": 5 * 2**30},
    {"cpu": 7000, "acme.com/x": 1},
)


def nodes(number: int, sizes: int = 2) -> list[Node]:
    return [
        Node(
            name=f"n{index:02}",
            labels={"zone": "ab"[index % 5 % 2]},
            allocatable={"cpu": 8000 + 8000 * (index % sizes), "memory": 2**34, "pods": 6, "acme.com/x": 2},
        )
        for index in range(number)
    ]


def kinds(*numbers: int) -> bytes:
    return np.array(numbers, np.int64).tobytes()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_states, "WARM_UP", 0)
    monkeypatch.setattr(node_states, "LARGEST_PART", 100.0)


def shown(table: AmountStates) -> list[tuple[int, int]]:
    """The first node of each state, and how many are in it."""
    assert table.ready()
    size = table.size
    return list(zip(table.first[:size].tolist(), table.count[:size].tolist(), strict=True))


@pytest.mark.usefixtures("eager")
def test_a_state_knows_its_first_node_and_how_many_there_are() -> None:
    workspace = Workspace(ClusterSnapshot(nodes=nodes(4)))
    table = AmountStates(workspace, kinds(0, 0, 0, 0))
    assert shown(table) == [(0, 2), (1, 2)]
    mark = workspace.checkpoint()
    workspace.bind(Pod(name="p", requests={"cpu": 1000}).at("n00"), 0)
    assert shown(table) == [(2, 1), (1, 2), (0, 1)]
    workspace.bind(Pod(name="q", requests={"cpu": 1000}).at("n02"), 2)
    assert shown(table) == [(FAR, 0), (1, 2), (0, 2)]
    workspace.rollback(mark)
    assert shown(table) == [(0, 2), (1, 2), (FAR, 0)]
    assert table.new_states.tolist() == [0, 1, 2, 0], "the first state came up twice"


@pytest.mark.usefixtures("eager")
def test_nodes_of_different_kinds_are_never_alike() -> None:
    workspace = Workspace(ClusterSnapshot(nodes=nodes(4, sizes=1)))
    assert shown(AmountStates(workspace, kinds(0, 1, 1, 0))) == [(0, 2), (1, 2)]


def test_grouping_ends_for_good_when_nodes_are_too_different(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_states, "WARM_UP", 0)
    workspace = Workspace(ClusterSnapshot(nodes=nodes(8, sizes=8)))
    table = AmountStates(workspace, kinds(*[0] * 8))
    assert not table.ready()
    assert table.over
    assert not table.ready()


def test_only_so_many_ways_to_tell_nodes_apart_are_followed() -> None:
    tables = StateTables(Workspace(ClusterSnapshot(nodes=nodes(8))))
    ways = [kinds(*[number] * 8) for number in range(node_states.MOST_TABLES + 1)]
    known = [tables.of(way) for way in ways]
    assert known[-1] is None
    assert [tables.of(way) for way in ways] == known
    assert len({id(one) for one in known}) == len(ways)


@given(
    shapes=st.lists(st.integers(0, len(SHAPES) - 1), min_size=20, max_size=60),
    ports=st.lists(st.booleans(), min_size=60, max_size=60),
    zones=st.lists(st.sampled_from(["", "a", "b"]), min_size=60, max_size=60),
    sizes=st.integers(1, 3),
)
@settings(max_examples=13)
def test_states_change_no_decision(
    shapes: list[int], ports: list[bool], zones: list[str], sizes: int
) -> None:
    pods = [
        Pod(
            name=f"p{index:02}",
            requests=SHAPES[shape],
            host_ports=(HostPort(80),) if ports[index] else (),
            node_selector={"zone": zones[index]} if zones[index] else {},
        )
        for index, shape in enumerate(shapes)
    ]
    snapshot = ClusterSnapshot(nodes=nodes(12, sizes), pending=pods)
    plain = schedule(snapshot, policy=POLICY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_states, "WARM_UP", 0)
        patch.setattr(node_states, "LARGEST_PART", 100.0)
        assert schedule(snapshot, policy=POLICY) == plain
