"""Plans that start members of Kubernetes' own groups wrongly are refused, each for its own reason."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from immutabledict import immutabledict

from koordcore import Bound, ClusterSnapshot, Node, Nominated, Pod, ScheduleResult, ViolationKind, verify
from koordcore.checking.groups import group_priorities, units_of
from koordcore.model.cluster import PriorityClass
from koordcore.model.pods import SchedulingGroup
from koordcore.model.scheduling_groups import (
    CompositePodGroup,
    DisruptionMode,
    SchedulingPodGroup,
    SchedulingWorkload,
)

RACK = "rack"


def pod(name: str, of: str = "g", **more: Any) -> Pod:
    asked = {"requests": {"cpu": 100}, "scheduling_group": SchedulingGroup(of), **more}
    return Pod(name=name, **asked)


def cluster(*pods: Pod, records: tuple[Any, ...]) -> ClusterSnapshot:
    room = {"cpu": 8000, "pods": 20}
    nodes = [Node(name=f"n{number}", labels={RACK: f"r{number}"}, allocatable=room) for number in range(2)]
    return ClusterSnapshot(nodes=[*nodes, Node(name="bare", allocatable=room)], pending=pods, records=records)


def told(snapshot: ClusterSnapshot, **places: str) -> list[tuple[str, str]]:
    """What is wrong with a plan that puts pods on nodes and leaves the others waiting."""
    pods = {one.name: one for one in snapshot.pending}
    decisions = tuple(Bound(pod=pods[name].key, node=node) for name, node in places.items())
    after = snapshot.assume(*(pods[name].at(node) for name, node in places.items()))
    found = verify(snapshot, ScheduleResult(decisions=decisions, snapshot=after))
    assert all(one.kind is ViolationKind.GROUP for one in found), found
    return [(one.subject, one.message) for one in found]


def group(name: str = "g", least: int | None = None, parent: str = "", **more: Any) -> SchedulingPodGroup:
    return SchedulingPodGroup(name=name, min_count=least, parent=parent, **more)


def test_a_group_starts_with_its_minimum_and_not_below_it() -> None:
    snapshot = cluster(pod("a"), pod("b"), pod("c"), records=(group(least=2),))
    assert told(snapshot, a="n0", b="n0") == []
    assert told(snapshot, a="n0") == [("default/g", "somebody starts below its minimum of 2")]


def test_a_group_that_names_no_minimum_may_start_with_one() -> None:
    assert told(cluster(pod("a"), pod("b"), records=(group(),)), a="n0") == []


def test_below_two_groups_that_fail_both_are_named() -> None:
    records = (
        group(least=2, parent="all"),
        group("h", parent="all"),
        CompositePodGroup(name="all", min_groups=2),
    )
    snapshot = cluster(pod("a"), pod("b"), pod("c", "h"), records=records)
    assert told(snapshot, a="n0", b="n0", c="n1") == []
    assert told(snapshot, a="n0", b="n0") == [("default/all", "somebody starts below its minimum of 2")]
    assert told(snapshot, a="n0", c="n1") == [
        ("default/all", "somebody starts below its minimum of 2"),
        ("default/g", "somebody starts below its minimum of 2"),
    ]


def test_a_group_above_without_a_minimum_needs_one_of_its_groups() -> None:
    records = (group(parent="all"), group("h", least=2, parent="all"), CompositePodGroup(name="all"))
    snapshot = cluster(pod("a"), pod("b", "h"), records=records)
    assert told(snapshot, a="n0") == []
    assert told(snapshot, b="n0") == [
        ("default/all", "somebody starts below its minimum of 1"),
        ("default/h", "somebody starts below its minimum of 2"),
    ]


def test_nobody_starts_below_a_group_that_is_not_there() -> None:
    missing = "starts although a group above is missing"
    assert told(cluster(pod("a"), records=()), a="n0") == [("default/g", missing)]
    orphan = cluster(pod("a"), records=(group(parent="all"),))
    assert told(orphan, a="n0") == [("default/g", missing)]


def test_members_lie_in_one_domain_of_the_label() -> None:
    snapshot = cluster(pod("a"), pod("b"), records=(group(topology_keys=(RACK,)),))
    assert told(snapshot, a="n0", b="n0") == []
    assert told(snapshot, a="n0", b="n1") == [("default/g", "members lie in ['r0', 'r1'] of rack")]
    assert told(snapshot, a="bare", b="bare") == [("default/g", "members lie in ['no label'] of rack")]


def test_a_member_that_is_gated_holds_the_group_back() -> None:
    snapshot = cluster(pod("a"), pod("b", gates=("wait",)), records=(group(),))
    assert told(snapshot, a="n0") == [("default/g", "starts although default/b is gated")]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"priority": 5}, "starts although its pods have several priorities: ['0', '5']"),
        (
            {"scheduler_name": "koord-scheduler"},
            "starts although its pods have several schedulers: ['default-scheduler', 'koord-scheduler']",
        ),
    ],
)
def test_members_agree_in_scheduler_and_priority(other: dict[str, Any], message: str) -> None:
    snapshot = cluster(pod("a"), pod("b", **other), records=(group(),))
    found = told(snapshot, a="n0")
    assert found == [("default/g", message)]


def test_each_tree_is_asked_whether_its_members_agree() -> None:
    """Also the second of two groups that start in one call."""
    snapshot = cluster(pod("a"), pod("c", "h"), pod("d", "h", priority=5), records=(group(), group("h")))
    assert told(snapshot, a="n0", c="n0") == [
        ("default/h", "starts although its pods have several priorities: ['0', '5']")
    ]


def in_workload(name: str, of: str) -> Pod:
    return pod(name, scheduling_group=SchedulingGroup(of, workload="w"))


def test_members_of_a_workload_start_with_the_minimum_that_it_names() -> None:
    workload = SchedulingWorkload(name="w", pod_groups=immutabledict({"g": 2, "free": None}))
    pods = [
        in_workload("a", "g"),
        in_workload("b", "g"),
        in_workload("c", "free"),
        in_workload("x", "nobody"),
    ]
    snapshot = cluster(*pods, pod("own", "g"), records=(workload, group(least=2)))
    assert told(snapshot, a="n0", b="n0", c="n1") == []
    assert told(snapshot, a="n0") == [("default/w/g", "starts below its minimum")]
    assert told(snapshot, x="n0") == [("default/w/nobody", "starts although the object is missing")]
    # One of a workload does not keep the others of the plan from being looked at.
    found = told(snapshot, a="n0", b="n0", x="n0")
    assert found == [("default/w/nobody", "starts although the object is missing")]
    assert ("default/g", "somebody starts below its minimum of 2") in told(snapshot, c="n0", own="n0")


def test_a_group_does_not_bind_and_wait_for_victims_in_one_cycle() -> None:
    victim = Pod(name="v", requests={"cpu": 8000})
    snapshot = cluster(pod("a", priority=5), pod("b", priority=5), records=(group(least=2),)).assume(
        victim.at("n1")
    )
    a, b = snapshot.pending
    bound = Bound(pod=a.key, node="n0")
    waits = Nominated(pod=b.key, node="bare")
    after = snapshot.assume(a.at("n0"))
    found = verify(snapshot, ScheduleResult(decisions=(bound, waits), snapshot=after))
    assert ("default//g/", "binds and evicts in one cycle") in [(one.subject, one.message) for one in found]


def test_the_topmost_group_says_which_priority_counts() -> None:
    top = CompositePodGroup(name="all", priority=70)
    records = (
        group(priority=3, parent="all"),
        group("h", priority=4),
        group("k"),
        group("m", parent="all"),
        top,
    )
    pods = [pod("a", priority=9), pod("b", "h", priority=9), pod("c", "k", priority=9), pod("d", "m")]
    snapshot = cluster(*pods, records=records)
    found = {key.name: value for key, value in group_priorities(snapshot, pods).items()}
    assert found["a"] == found["d"] == 70
    assert found["b"] == 4
    lone = Pod(name="lone", priority=8)
    assert group_priorities(snapshot, [lone]) == {lone.key: 8}
    classes = (PriorityClass(name="usual", value=50, global_default=True),)
    usual = group_priorities(cluster(*pods, records=(*records, *classes)), pods)
    assert usual[pods[2].key] == 50


def test_who_leaves_together_is_told_by_the_topmost_group_that_says_so() -> None:
    whole = attrs.evolve(group(parent="all"), disruption=DisruptionMode.ALL)
    running = [pod("a"), pod("b", "h"), pod("c", "k")]
    records = (whole, group("h", parent="all"), group("k"), CompositePodGroup(name="all"))
    found = units_of(cluster(records=records), running)
    assert {name: [one.name for one in some] for name, some in found.items()} == {
        "SchedulingPodGroup default/g": ["a"]
    }
    top = CompositePodGroup(name="all", disruption=DisruptionMode.ALL)
    above = units_of(cluster(records=(*records[:3], top)), running)
    assert {name: [one.name for one in some] for name, some in above.items()} == {
        "CompositePodGroup default/all": ["a", "b"]
    }
