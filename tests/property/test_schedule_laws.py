"""Laws of ``schedule``: agreement with the slow reference, legality, determinism, purity, monotonicity."""

from __future__ import annotations

import pickle
import random

import attrs
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, schedule, verify
from koordcore._arrays import compile_columns, compile_layout
from tests.property.strategies import clusters, nodes, pods
from tests.reference.schedule import reference_schedule


@given(clusters())
def test_same_choices_as_node_by_node(snapshot: ClusterSnapshot) -> None:
    """The kernels choose what the blackboard version chooses, pod by pod."""
    result = schedule(snapshot)
    chosen = [(str(one.pod), one.node if isinstance(one, Bound) else None) for one in result.decisions]
    assert chosen == reference_schedule(snapshot, snapshot.pending)


@given(clusters())
def test_result_is_legal_and_input_unchanged(snapshot: ClusterSnapshot) -> None:
    """No rule is broken, and the input is what it was."""
    before = pickle.dumps(snapshot)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert pickle.dumps(snapshot) == before


@given(clusters(), st.randoms(use_true_random=False))
def test_order_of_the_dump_is_irrelevant(snapshot: ClusterSnapshot, shuffle: random.Random) -> None:
    """Shuffled nodes and pods give an equal snapshot and a result equal to the byte."""
    states, waiting = list(snapshot.nodes), list(snapshot.pending)
    shuffle.shuffle(states)
    shuffle.shuffle(waiting)
    shuffled = ClusterSnapshot(nodes=states, pending=waiting)
    assert shuffled == snapshot
    assert repr(schedule(shuffled)) == repr(schedule(snapshot))


@given(clusters(most_pods=1), st.data())
def test_more_room_never_loses_a_lone_pod(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """A pod that has a place keeps one when a node is added."""
    more = snapshot.with_nodes(data.draw(nodes("extra")))
    if schedule(snapshot).bound:
        assert schedule(more).bound


@given(clusters())
def test_derived_columns_equal_compiled_ones(snapshot: ClusterSnapshot) -> None:
    """What the fork carries along is what compiling from scratch gives."""
    after = schedule(snapshot).snapshot
    fresh = ClusterSnapshot(nodes=after.nodes, pending=after.pending)
    layout = compile_layout(fresh.nodes)
    columns = compile_columns(layout, fresh.nodes)
    assert after == fresh
    assert after.layout.resources == layout.resources
    assert (after.columns.requested == columns.requested).all()
    assert (after.columns.scored == columns.scored).all()


@given(clusters())
def test_scheduling_the_rest_again_changes_nothing(snapshot: ClusterSnapshot) -> None:
    """What found no place finds none on the cluster as it was left."""
    after = schedule(snapshot).snapshot
    assert schedule(after).snapshot == after


@given(clusters(), st.data())
@settings(max_examples=8)
def test_one_call_equals_pod_by_pod(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """One call over the queue decides as one call for each pod in turn."""
    extra = data.draw(pods("late"))
    snapshot = snapshot.with_pending(attrs.evolve(extra, priority=-1))
    together = schedule(snapshot)
    apart = snapshot
    for decision in together.decisions:
        waiting = next(pod for pod in apart.pending if pod.key == decision.pod)
        result = schedule(apart, [waiting])
        assert result.decisions[0] == decision
        apart = result.snapshot
    assert apart == together.snapshot
