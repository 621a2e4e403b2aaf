"""Pods that are bound to a node which is not there hold their quota until somebody deletes them."""

from __future__ import annotations

import attrs

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.checking.check import check_result
from koordcore.model import ElasticQuota
from koordcore.model.decisions import Bound, Unschedulable
from koordcore.snapshot import RecordAdded, RecordRemoved

LABELS = {"quota.scheduling.koordinator.sh/name": "team"}
TEAM = ElasticQuota(name="team", namespace="q", min={"cpu": 4000}, max={"cpu": 4000})
AWAY = Pod(name="away", uid="u", requests={"cpu": 3000}, labels=LABELS, node_name="gone")


def cluster(*records: ElasticQuota | Pod) -> ClusterSnapshot:
    return ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 9000, "pods": 9})],
        pending=[Pod(name="p", requests={"cpu": 2000}, labels=LABELS)],
        records=records,
    )


def test_a_pod_on_a_node_that_has_gone_counts_until_it_is_deleted() -> None:
    snapshot = cluster(TEAM, AWAY)
    (refused,) = schedule(snapshot).decisions
    assert isinstance(refused, Unschedulable)
    assert "used: cpu:3" in refused.message
    later = snapshot.apply(RecordRemoved(AWAY))
    (placed,) = schedule(later).decisions
    assert isinstance(placed, Bound)
    again = later.apply(RecordAdded(AWAY))
    assert schedule(again).decisions == schedule(snapshot).decisions


def test_the_checker_counts_it_as_well() -> None:
    result = schedule(cluster(TEAM))
    assert verify(cluster(TEAM), result) == ()
    snapshot = cluster(TEAM, AWAY)
    for found in (verify(snapshot, result), check_result(snapshot, result)):
        assert any("max" in one.message for one in found), found


def test_the_max_of_a_quota_binds_where_its_parent_hands_nothing_out() -> None:
    """The runtime of a quota names only what its parent does."""
    parent = ElasticQuota(name="dept", namespace="q", max={"memory": 1}, is_parent=True)
    snapshot = cluster(attrs.evolve(TEAM, min={}, parent="dept"), parent, AWAY)
    (refused,) = schedule(snapshot).decisions
    assert isinstance(refused, Unschedulable)
    assert "used: cpu:3" in refused.message
    (placed,) = schedule(snapshot.apply(RecordRemoved(AWAY))).decisions
    assert isinstance(placed, Bound)
