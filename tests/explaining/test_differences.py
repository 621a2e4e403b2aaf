"""Why two plans differ: what was different when a pod's turn came, and nothing that came later."""

from __future__ import annotations

import attrs

from koordcore import Bound, ClusterSnapshot, Node, Pod, ScheduleResult
from koordcore.explaining.cluster_changes import cluster_differences
from koordcore.explaining.differences import plan_differences
from koordcore.manifests.records import result_from_record, result_record
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric, measured_of
from koordcore.model.resources import make_resources
from koordcore.scheduling import schedule
from tests.reservations.worlds import reservation

ROOM = {"cpu": 64_000, "pods": 110}
NODES = [Node(name=name, allocatable=ROOM) for name in ("n1", "n2", "n3")]


def _pods(*names: str, **said: object) -> list[Pod]:
    return [Pod(name=name, requests={"cpu": 1000}, **said) for name in names]  # type: ignore[arg-type]


def _plan(snapshot: ClusterSnapshot, *places: tuple[str, str]) -> ScheduleResult:
    """Write a plan by hand, all of equal scores, in the order of turns."""
    record = result_record(schedule(snapshot, []))
    record["decisions"] = [
        {"decision": "Bound", "pod": f"default/{pod}", "node": node, "score": 1460} for pod, node in places
    ]
    plan = result_from_record(snapshot, record)
    assert all(isinstance(one, Bound) and one.score == 1460 for one in plan.decisions)
    return plan


def _whys(first: ScheduleResult, second: ScheduleResult) -> list[str]:
    return [one.why for one in plan_differences(first, second)]


def test_equal_scores_are_no_reason_but_other_rules_are_one_and_said_in_full_once() -> None:
    snapshot = ClusterSnapshot(nodes=NODES, pending=_pods("a", "b", "c"))
    first = _plan(snapshot, ("a", "n1"), ("b", "n1"), ("c", "n2"))
    second = _plan(snapshot, ("a", "n2"), ("b", "n1"), ("c", "n3"))
    assert _whys(first, second) == [
        "nothing was different before its turn: the plans follow other rules",
        "n2 is taken by default/a in the second",
    ]


def test_who_was_placed_before_is_the_reason_and_who_came_after_is_not() -> None:
    snapshot = ClusterSnapshot(nodes=NODES, pending=_pods("a", "b", "c"))
    first = _plan(snapshot, ("a", "n1"), ("b", "n1"), ("c", "n3"))
    second = _plan(snapshot, ("b", "n2"), ("a", "n1"), ("c", "n3"))
    # In the first `a` was on n1 before `b`; in the second it came after.
    assert _whys(first, second) == ["n1 held default/a before its turn in the first alone"]


def test_other_nodes_count_where_both_nodes_were_alike() -> None:
    snapshot = ClusterSnapshot(nodes=NODES, pending=_pods("a", "b"))
    first = _plan(snapshot, ("a", "n3"), ("b", "n1"))
    second = _plan(snapshot, ("b", "n2"), ("a", "n3"))
    assert _whys(first, second) == ["both nodes were the same before its turn, others were not"]


def test_the_rest_of_its_gang_is_nobody_who_came_before() -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    snapshot = ClusterSnapshot(nodes=NODES, pending=_pods("a", "b", annotations=gang))
    first = _plan(snapshot, ("a", "n1"), ("b", "n1"))
    second = _plan(snapshot, ("a", "n2"), ("b", "n2"))
    assert _whys(first, second) == [
        "nothing was different before its turn: the plans follow other rules",
        "the plans follow other rules",
    ]


def test_a_plan_that_is_no_schedulers_follows_other_rules() -> None:
    snapshot = ClusterSnapshot(nodes=NODES[:2], pending=_pods("a"))
    busy = snapshot.assume(Pod(name="old", requests={"cpu": 9000}, node_name="n1"))
    assert _whys(schedule(busy), _plan(busy, ("a", "n1"))) == [
        "nothing was different before its turn: the plans follow other rules"
    ]


def _changed(first: ClusterSnapshot, second: ClusterSnapshot) -> list[tuple[str, str, str]]:
    return [(one.kind, one.name, one.what) for one in cluster_differences(first, second)]


def _between(first: ClusterSnapshot, second: ClusterSnapshot) -> dict[str, str]:
    plans = schedule(first, first.pending), schedule(second, second.pending)
    found = plan_differences(*plans, cluster_differences(first, second))
    return {one.pod.name: one.why for one in found}


def test_who_asks_for_other_amounts_is_the_reason_and_no_other_rule() -> None:
    """`a` is on the node in both plans, with more of it in the second."""
    big = [attrs.evolve(one, requests=make_resources({"cpu": 64_000})) for one in _pods("a")]
    first = ClusterSnapshot(nodes=NODES[:2], pending=_pods("a", "b"))
    second = ClusterSnapshot(nodes=NODES[:2], pending=[*big, *_pods("b")])
    plans = _plan(first, ("a", "n1"), ("b", "n1")), _plan(second, ("a", "n1"), ("b", "n2"))
    assert _whys(*plans) == ["default/a on n1 asks for other amounts in the second"]
    assert _changed(first, second) == [("pod", "default/a", "requests of cpu from 1 to 64")]


def test_a_pod_that_is_different_itself() -> None:
    first = ClusterSnapshot(nodes=NODES[:1], pending=_pods("a"))
    second = ClusterSnapshot(nodes=NODES[:1], pending=_pods("a", priority=7, node_selector={"pool": "x"}))
    why = "it is different itself: priority from 0 to 7; another nodeSelector pool"
    assert _between(first, second) == {"a": why}


def test_objects_count_and_are_the_reason_where_nothing_else_is() -> None:
    """The gang of a pod, and anything else where nodes and pods are the same; times are no difference."""
    gang = {"pod-group.scheduling.sigs.k8s.io": "g"}
    pods = _pods("a", "b", labels=gang)
    group, late = PodGroup(name="g", min_member=2), "2026-01-01T00:00:00Z"
    first = ClusterSnapshot(nodes=NODES, pending=pods, records=[group])
    second = first.with_records(attrs.evolve(group, min_member=3))
    assert _changed(first, second) == [("PodGroup", "default/g", "minMember from 2 to 3")]
    assert set(_between(first, second).values()) == {"PodGroup default/g: minMember from 2 to 3"}
    assert _changed(first, first.with_records(attrs.evolve(group, created=late))) == []
    free = ClusterSnapshot(nodes=NODES[:1], pending=_pods("a"))
    held = free.with_records(reservation("r", 64, "n1", "others"))
    assert _changed(free, held) == [("Reservation", "r", "came")]
    assert _between(free, held) == {"a": "beside nodes and pods there is different: Reservation r: came"}
    two = ClusterSnapshot(nodes=NODES, pending=_pods("a", "b"))
    plans = _plan(two, ("a", "n3"), ("b", "n1")), _plan(two, ("b", "n2"), ("a", "n3"))
    assert [one.why for one in plan_differences(*plans, cluster_differences(free, held))] == [
        "both nodes were the same before its turn, others were not"
    ]


def test_all_that_became_of_a_node_is_told() -> None:
    """What it lost and what it gained; a label with another value once."""
    (node,) = NODES[:1]
    was = attrs.evolve(node, labels={"a": "1", "b": "1"}, allocatable={**ROOM, "memory": 1})
    now = attrs.evolve(
        node,
        labels={"a": "2", "b": "1"},
        allocatable={"cpu": 32_000, "pods": 110, "memory": 2},
        unschedulable=True,
        ready=False,
    )
    found = _changed(ClusterSnapshot(nodes=[was]), ClusterSnapshot(nodes=[now]))
    what = "is cordoned; is not ready; offers less cpu; has another label a; offers more memory"
    assert found == [("node", "n1", what)]
    back = _changed(ClusterSnapshot(nodes=[now]), ClusterSnapshot(nodes=[was]))
    text = "offers less memory; has another label a; no longer cordoned; is ready again; offers more cpu"
    assert back == [("node", "n1", text)]


def test_reports_are_one_change() -> None:
    """Usage differs from dump to dump; when a report was written is no difference."""
    usage = measured_of({"cpu": 1})
    reports = [NodeMetric(node=name, update_time=1, node_usage=usage) for name in ("n1", "n2")]
    first = ClusterSnapshot(nodes=NODES, records=reports)
    later = [attrs.evolve(one, update_time=2) for one in reports]
    assert _changed(first, first.with_records(*later)) == []
    hot = [attrs.evolve(one, node_usage=measured_of({"cpu": 9})) for one in later]
    assert _changed(first, first.with_records(*hot)) == [("NodeMetric", "2 nodes", "report other usage")]
