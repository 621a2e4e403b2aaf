"""Resources: what is said of a node that lacks some."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Node, NodeState, Pod, Shortfall, Unschedulable, schedule


@pytest.mark.parametrize("bystander", [{}, {"nvidia.com/gpu": 0}])
def test_what_a_node_never_has_is_not_resolved_by_evictions(bystander: dict[str, int]) -> None:
    """Whether or not some pod names the resource and asks for none of it."""
    there = Pod(name="there", node_name="n", requests=bystander)
    node = Node(name="n", allocatable={"cpu": 1000, "pods": 1})
    wanted = Pod(name="p", requests={"cpu": 500, "nvidia.com/gpu": 1})
    result = schedule(ClusterSnapshot(nodes=[NodeState(node, (there,))], pending=[wanted]))
    (decision,) = result.decisions
    assert isinstance(decision, Unschedulable)
    assert decision.nearest is not None
    assert {one.resource: one.resolvable for one in decision.nearest.shortfalls} == {
        "pods": True,
        "nvidia.com/gpu": False,
    }


def test_shortfalls_stand_in_the_order_of_names_whatever_nodes_there_were() -> None:
    """A line of snapshots keeps the columns of resources whose last node has left."""
    nodes = [
        Node(name="cards", allocatable={"example.com/b": 1, "cpu": 100, "pods": 1}),
        Node(name="plain", allocatable={"cpu": 100, "pods": 1}),
    ]
    wanted = Pod(name="p", requests={"cpu": 500, "example.com/a": 1, "example.com/b": 1, "memory": 1})
    first = schedule(ClusterSnapshot(nodes=nodes, pending=[wanted])).snapshot
    line = first.without_nodes("cards")
    schedule(line)
    anew = ClusterSnapshot(nodes=line.nodes, pending=line.pending)
    assert schedule(line) == schedule(anew)


@pytest.mark.parametrize(("asked", "resolvable"), [(1000, True), (1001, False)])
def test_evictions_help_a_pod_up_to_all_that_a_node_has(asked: int, resolvable: bool) -> None:
    there = Pod(name="there", node_name="n", requests={"cpu": 300})
    node = Node(name="n", allocatable={"cpu": 1000, "pods": 9})
    wanted = Pod(name="p", requests={"cpu": asked})
    (decision,) = schedule(ClusterSnapshot(nodes=[NodeState(node, (there,))], pending=[wanted])).decisions
    assert isinstance(decision, Unschedulable)
    assert decision.nearest is not None
    assert decision.nearest.shortfalls == (
        Shortfall("Insufficient cpu", "cpu", asked, available=700, resolvable=resolvable),
    )
