"""One cycle for everybody: nominated pods count, and ``explain`` says what ``schedule`` does."""

from __future__ import annotations

import attrs
from hypothesis import given, strategies as st

from koordcore import Bound, ClusterSnapshot, Node, Pod, Unschedulable, schedule
from koordcore.explaining import explain
from tests.property.strategies import clusters

GANG = "gang.scheduling.koordinator.sh/"


@st.composite
def clusters_with_nominations(draw: st.DrawFn, *, gangs: bool) -> ClusterSnapshot:
    """Clusters in which some of the pods that wait have a nomination, or a gang."""
    snapshot = draw(clusters())
    names = [state.name for state in snapshot.nodes]
    pending = []
    for pod in snapshot.pending:
        gang = draw(st.sampled_from(["", "", "g"])) if gangs else ""
        annotations = {f"{GANG}name": gang, f"{GANG}min-available": "2"} if gang else {}
        node = draw(st.sampled_from([None, None, *names]))
        pending.append(attrs.evolve(pod, nominated_node=node, annotations=annotations))
    return snapshot.with_pending(*pending)


@given(clusters_with_nominations(gangs=True))
def test_explain_says_what_schedule_does(snapshot: ClusterSnapshot) -> None:
    """For every pod that waits, in the queue, in its gang and beside nominations, the decisions are equal."""
    result = schedule(snapshot)
    for pod in snapshot.pending:
        found = explain(snapshot, pod)
        assert found.decision == result.decision(pod.key)
        if isinstance(found.decision, Bound):
            assert found.best == found.decision.node
            assert found.best in found.fitting
        told = explain(result, str(pod.key))
        assert told.decision == result.decision(pod.key)


@given(clusters_with_nominations(gangs=False), st.data())
def test_asking_about_a_part_takes_no_nominated_room(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """Whoever is asked about leaves the amounts that as important nominated pods wait for."""
    asked = [pod for pod in snapshot.pending if data.draw(st.booleans())]
    result = schedule(snapshot, asked)
    layout = result.snapshot.layout  # pods may have brought resources along
    free = layout.allocatable - result.snapshot.columns.requested
    for one in result.bound:
        pod = snapshot.pod(one.pod)
        assert pod is not None
        waiting = [
            other
            for other in result.snapshot.pending
            if other.nominated_node == one.node and other.priority >= pod.priority
        ]
        for name, amount in pod.requests.items():
            if amount and waiting:
                left = int(free[layout.index[name], layout.row_of[one.node]])
                assert left >= sum(other.requests.get(name, 0) for other in waiting)


def test_room_of_a_more_important_nomination_is_kept_when_others_are_asked_alone() -> None:
    """``lo`` does not get the node that ``hi`` was nominated to, whether or not ``hi`` is asked about."""
    node = Node(name="n1", allocatable={"cpu": 4000, "pods": 9})
    hi = Pod(name="hi", requests={"cpu": 4000}, priority=1000, nominated_node="n1")
    for priority in (0, 1000):
        low = Pod(name="lo", requests={"cpu": 2000}, priority=priority)
        snapshot = ClusterSnapshot(nodes=[node], pending=[hi, low])
        (alone,) = schedule(snapshot, [low]).decisions
        assert isinstance(alone, Unschedulable)
        assert alone.message == "0/1 nodes are available: 1 Insufficient cpu."
        assert isinstance(schedule(snapshot).decision("default/hi"), Bound)
    above = Pod(name="lo", requests={"cpu": 2000}, priority=1001)
    assert schedule(ClusterSnapshot(nodes=[node], pending=[hi, above]), [above]).bound
