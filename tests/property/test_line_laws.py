"""A line of snapshots: what is carried along equals what is built anew, whatever happened on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, strategies as st

from koordcore import Bound, ClusterSnapshot, Policy, schedule
from koordcore._line import KEPT, Delta, Line, Place
from koordcore._table import Table
from koordcore.model.policy import PluginSetting
from tests.property.strategies import clusters, pods

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = (
    Policy(),
    Policy(name="load").with_plugin(PluginSetting(name="LoadAwareScheduling")),
    Policy(name="plain", plugins=Policy().plugins[:6]),
)


def anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same contents with no past."""
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


def same(snapshot: ClusterSnapshot) -> None:
    """Tables and columns that were carried along are those of a snapshot without a past."""
    fresh = anew(snapshot)
    assert snapshot == fresh
    assert dict(snapshot.location) == dict(fresh.location)
    assert len(snapshot.location) == len(fresh.location)
    for pod in (*fresh.pending, *fresh.bound_pods()):
        assert snapshot.pod(pod.key) == pod
    assert np.array_equal(snapshot.columns.requested, fresh.columns.requested)
    assert np.array_equal(snapshot.columns.scored, fresh.columns.scored)


@given(clusters(most_nodes=4, most_pods=4), st.data())
def test_calls_on_a_line_decide_as_calls_without_a_past(
    snapshot: ClusterSnapshot, data: st.DataObject
) -> None:
    """Pods come and end, snapshots fork, the clock moves: every call says what one without a past says."""
    known = [snapshot]
    for step in range(data.draw(st.integers(1, 8))):
        now = known[-1] if data.draw(st.booleans()) else data.draw(st.sampled_from(known))
        action = data.draw(st.sampled_from(["arrive", "end", "decide", "decide", "some"]))
        if action == "arrive":
            now = now.with_pending(data.draw(pods(f"q{step}")))
        elif action == "end":
            running = [pod.key for pod in now.bound_pods()]
            if running:
                now = now.forget(data.draw(st.sampled_from(running)))
        else:
            asked = [pod for pod in now.pending if data.draw(st.booleans())] if action == "some" else None
            policy = data.draw(st.sampled_from(POLICIES))
            moment = START + timedelta(seconds=data.draw(st.integers(0, 5)))
            warm = schedule(now, asked, policy=policy, now=moment)
            cold = schedule(anew(now), asked, policy=policy, now=moment)
            assert warm == cold
            now = warm.snapshot
        known.append(now)
        same(now)


def test_steps_lead_back_and_across_forks() -> None:
    """Between two snapshots of forks the way leads back to where they parted, and on from there."""
    a, b, c = (Delta(()), Delta(()), Delta(()))
    start = Place(Line(), 0)
    one = start.next(a)
    two, fork = one.next(b), one.next(c)
    assert two.path(two) == []
    assert start.path(two) == [a, b]
    assert two.path(start) == [b.back(), a.back()]
    assert two.path(fork) == [b.back(), c]
    assert start.path(Place(Line(), 1)) is None


def test_a_long_line_forgets_how_it_began() -> None:
    """Only the last steps are kept; from further back there is no way."""
    place = start = Place(Line(), 0)
    for _ in range(2 * KEPT + 1):
        place = place.next(Delta(()))
    assert start.path(place) is None
    assert len(place.line.deltas) <= 2 * KEPT


@given(st.lists(st.tuples(st.sets(st.integers(0, 5)), st.dictionaries(st.integers(0, 5), st.integers()))))
def test_a_table_in_parts_is_a_table(changes: list[tuple[set[int], dict[int, int]]]) -> None:
    """Keys that went and came, in whatever order, read as in a table that was written anew each time."""
    plain = {0: 0, 1: 1}
    table = Table(dict(plain))
    for gone, new in changes:
        plain = {key: value for key, value in plain.items() if key not in gone} | new
        table = table.changed(gone, new)
        assert dict(table) == plain
        assert len(table) == len(plain)
        assert all((key in table) == (key in plain) and table.get(key) == plain.get(key) for key in range(6))


def test_what_was_learnt_is_used_and_not_needed() -> None:
    """A second call on the result goes on with the state of the first one; forgetting it changes nothing."""
    from koordcore import Node, Pod

    nodes = [Node(name=f"n{number}", allocatable={"cpu": 4000, "pods": 9}) for number in range(8)]
    first = schedule(ClusterSnapshot(nodes=nodes, pending=[Pod(name="a", requests={"cpu": 1000})]))
    pool = first.snapshot.place.line.pool
    state = pool.take(first.policy)
    assert state is not None
    assert pool.take(first.policy) is None  # whoever comes second builds anew
    pod = Pod(name="b", requests={"cpu": 1000})
    cold = schedule(first.snapshot, [pod])
    pool.put(first.policy, state)
    warm = schedule(first.snapshot, [pod])
    assert warm == cold
    assert isinstance(warm.decisions[0], Bound)
