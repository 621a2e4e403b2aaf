"""Streams of changes: a snapshot that followed them is one that was made of its contents."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from koordcore import ClusterSnapshot, ModelError, Node, NodeState, Pod, PodKey
from koordcore.model.metrics import NodeMetric
from koordcore.model.records import ClusterRecord
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    PodUpdated,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)
from koordcore.snapshot.following import node_values, per_node
from tests.property.strategies import clusters, nodes, pods


def anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same contents with no past."""
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


@per_node(NodeMetric)
def measured(snapshot: ClusterSnapshot, state: NodeState) -> tuple[object, ...]:
    """A value made of everything that it may be made of."""
    return (state.node.labels, [pod.key for pod in state.pods], snapshot.find(NodeMetric, state.name))


def everything(snapshot: ClusterSnapshot, state: NodeState) -> tuple[object, ...]:
    """A value that may read all records."""
    return (state.name, len(snapshot.records))


def same(snapshot: ClusterSnapshot) -> None:
    """All that was carried along is what a snapshot without a past works out."""
    fresh = anew(snapshot)
    assert snapshot == fresh
    assert dict(snapshot.location) == dict(fresh.location)
    for pod in (*fresh.pending, *fresh.bound_pods()):
        assert snapshot.pod(pod.key) == pod
    assert snapshot.of(NodeMetric) == fresh.of(NodeMetric)
    for one in fresh.of(NodeMetric):
        assert snapshot.find(NodeMetric, one.name) is one
    layout, other = snapshot.layout, fresh.layout
    assert layout.names == other.names
    assert layout.row_of == other.row_of
    assert layout.nodes == other.nodes
    for name in other.resources:
        at, there = layout.index[name], other.index[name]
        assert np.array_equal(layout.allocatable[at], other.allocatable[there])
        assert np.array_equal(snapshot.columns.requested[at], fresh.columns.requested[there])
        assert np.array_equal(snapshot.columns.scored[at], fresh.columns.scored[there])
    for build in (measured, everything):
        assert node_values(snapshot, build) == node_values(fresh, build)


@st.composite
def changes(draw: st.DrawFn, snapshot: ClusterSnapshot, number: int) -> Change:
    """One change that goes with a snapshot."""
    known = [state.name for state in snapshot.nodes]
    waiting = [pod.key for pod in snapshot.pending]
    running = [pod.key for pod in snapshot.bound_pods()]
    metrics = [one.node for one in snapshot.of(NodeMetric)]
    kinds: list[str] = ["node+", "record+", "pending"]
    kinds += ["node-", "node*", "node*"] * bool(known) + ["bound"] * bool(known and waiting)
    kinds += ["ended", "updated"] * bool(waiting or running) + ["record-", "record*"] * bool(metrics)
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "node+":
            return NodeAdded(draw(nodes(f"{draw(st.sampled_from('amz'))}{number}")))
        case "node-":
            return NodeRemoved(draw(st.sampled_from(known)))
        case "node*":
            node = draw(nodes(draw(st.sampled_from(known))))
            return NodeReplaced(NodeState(node) if draw(st.booleans()) else node)
        case "pending":
            return PodPending(draw(pods(f"q{number}")))
        case "bound":
            found = snapshot.pod(draw(st.sampled_from(waiting)))
            assert found is not None
            return PodBound(found.at(draw(st.sampled_from(known))))
        case "ended":
            return PodEnded(draw(st.sampled_from(waiting + running)))
        case "updated":
            found = snapshot.pod(draw(st.sampled_from(waiting + running)))
            assert found is not None
            new = draw(pods(found.name))
            return PodUpdated(new if found.node_name is None else new.at(found.node_name))
        case "record+":
            return RecordAdded(NodeMetric(node=f"{draw(st.sampled_from('anz'))}{number}x"))
        case "record*":
            name = draw(st.sampled_from(metrics))
            return RecordReplaced(NodeMetric(node=name, update_time=draw(st.integers(0, 9))))
        case _:
            return RecordRemoved(NodeMetric(node=draw(st.sampled_from(metrics))))


@given(clusters(most_nodes=3, most_pods=3), st.data())
def test_what_followed_changes_is_what_is_made_of_the_same(
    snapshot: ClusterSnapshot, data: st.DataObject
) -> None:
    """Changes of every kind, one at a time or together, from any snapshot so far."""
    records: list[ClusterRecord] = [NodeMetric(node=state.name) for state in snapshot.nodes[:2]]
    known = [snapshot.apply(*map(RecordAdded, records))]
    for step in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.sampled_from(known))
        if data.draw(st.booleans()):
            same(start)  # what is worked out before is carried along
        after, made = start, []
        for more in range(data.draw(st.integers(1, 3))):
            made.append(data.draw(changes(after, 10 * step + more)))
            after = after.apply(made[-1])
        together = start.apply(*made)
        assert together == after
        assert pickle.loads(pickle.dumps(together)) == after
        same(together)
        same(after)
        known += [after, together]


def test_changes_that_do_not_go_with_what_there_is_are_refused() -> None:
    """Each says what does not fit, and by name."""
    pod, bound = Pod(name="p"), Pod(name="b", node_name="n1")
    snapshot = ClusterSnapshot(nodes=[Node(name="n1"), Node(name="n2")], pending=[pod]).assume(bound)
    refused: list[tuple[Change, str]] = [
        (PodBound(pod), "pod default/p names no node"),
        (PodBound(pod.at("n9")), "no node n9"),
        (PodBound(bound), "pod default/b is bound to n1 already"),
        (PodUpdated(Pod(name="x")), "no pod default/x"),
        (PodUpdated(pod.at("n1")), "pod default/p is pending and cannot become bound to n1 by an update"),
        (PodUpdated(Pod(name="b")), "pod default/b is bound to n1 and cannot become pending by an update"),
        (PodEnded("default/x"), "no pod default/x"),
        (PodPending(bound), "pod default/b is bound to n1 and cannot be pending"),
        (NodeAdded(Node(name="n1")), "node n1 is there already"),
        (NodeReplaced(Node(name="n9")), "no node n9"),
        (NodeRemoved("n9"), "no node n9"),
        (RecordReplaced(NodeMetric(node="n1")), "no record NodeMetric/n1"),
        (RecordRemoved(NodeMetric(node="n1")), "no record NodeMetric/n1"),
        ("n1", "expected a change, got 'n1'"),  # type: ignore[list-item]
    ]
    for change, told in refused:
        with pytest.raises(ModelError, match=told):
            snapshot.apply(change)
    with_metric = snapshot.apply(RecordAdded(NodeMetric(node="n1")))
    with pytest.raises(ModelError, match="record NodeMetric/n1 is there already"):
        with_metric.apply(RecordAdded(NodeMetric(node="n1")))


def test_later_changes_see_earlier_ones() -> None:
    """A node joins, a pod is bound there and updated, another one takes its place, all in one call."""
    pod = Pod(name="p")
    snapshot = ClusterSnapshot(pending=[pod]).apply(
        NodeAdded(Node(name="n1")),
        PodBound(pod.at("n1")),
        PodUpdated(pod.at("n1", labels={"a": "b"})),
        NodeReplaced(Node(name="n1", labels={"zone": "z"})),
        PodPending(Pod(name="q")),
        PodEnded("default/q"),
    )
    assert dict(snapshot.location) == {PodKey("default", "p"): "n1"}
    assert snapshot.pod("default/p") == pod.at("n1", labels={"a": "b"})
    assert snapshot.node("n1").node.labels == {"zone": "z"}
    assert snapshot.pending == ()
