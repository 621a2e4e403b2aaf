"""A pod is at one place: what says otherwise is no snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore import ClusterSnapshot, ModelError, Node, NodeState, Pod
from koordcore.model.pods import PodKey
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodPending,
    PodUpdated,
)

THERE = Pod(name="p", node_name="a")
A = NodeState(Node(name="a"), (THERE,))
B = NodeState(Node(name="b"), (THERE.at("b"),))


@pytest.mark.parametrize(("nodes", "pending"), [([A, B], []), ([A], [THERE.at(None)])])
def test_a_new_snapshot_takes_no_pod_twice(nodes: list[NodeState], pending: list[Pod]) -> None:
    with pytest.raises(ModelError, match="default/p"):
        ClusterSnapshot(nodes=nodes, pending=pending)


@pytest.mark.parametrize("change", [NodeAdded(B), NodeReplaced(B), PodPending(THERE.at(None))])
def test_no_change_takes_a_pod_to_a_second_place(change: Change) -> None:
    nodes: list[NodeState | Node] = [A] if isinstance(change, NodeAdded) else [A, Node(name="b")]
    with pytest.raises(ModelError, match="pod default/p is bound to a already"):
        ClusterSnapshot(nodes=nodes).apply(change)


def test_a_waiting_pod_that_a_node_brings_waits_no_more() -> None:
    cluster = ClusterSnapshot(nodes=[Node(name="a")], pending=[THERE.at(None)]).apply(NodeReplaced(A))
    assert cluster.pending == ()
    assert cluster.location == {THERE.key: "a"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (PodBound, "pod"),
        (PodUpdated, "pod"),
        (PodPending, "pod"),
        (NodeAdded, "node"),
        (NodeReplaced, "node"),
        (NodeRemoved, "name"),
    ],
)
@pytest.mark.parametrize("given", [None, 5, PodKey("default", "p")])
def test_a_change_says_what_it_cannot_be_made_of(change: Any, field: str, given: Any) -> None:
    with pytest.raises(ModelError, match=f"^{change.__name__}: {field}: expected "):
        change(given)
