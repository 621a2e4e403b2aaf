"""Why two plans differ: what was different when a pod's turn came, and nothing that came later."""

from __future__ import annotations

from koordcore import Bound, ClusterSnapshot, Node, Pod, ScheduleResult
from koordcore.explaining.differences import plan_differences
from koordcore.manifests.records import result_from_record, result_record
from koordcore.scheduling import schedule

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
