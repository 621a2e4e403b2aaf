"""Columns of running pods along a line of snapshots are those of a snapshot made anew."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import numpy as np

from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, SchedulingGroup
from koordcore.model.scheduling_groups import DisruptionMode, SchedulingPodGroup
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator
from koordcore.preemption.running import RunningPods, covers, running_on
from koordcore.preemption.victims import collect_candidates
from koordcore.snapshot import ClusterSnapshot, NodeAdded, NodeRemoved, NodeReplaced, RecordRemoved

GANG = "pod-group.scheduling.sigs.k8s.io"
NODES = 12


def pod(number: int, *, gang: str = "", group: str = "") -> Pod:
    return Pod(
        name=f"pod-{number:02}",
        requests={"cpu": 100 * (number % 3 + 1)},
        priority=number % 4,
        labels={GANG: gang} if gang else {},
        scheduling_group=SchedulingGroup(pod_group=group) if group else None,
        node_name=f"node-{number % NODES:02}",
    )


def cluster(*groups: SchedulingPodGroup) -> ClusterSnapshot:
    pods = [
        pod(one, gang="old" if one % 5 == 1 else "", group="all" if one % 5 == 2 else "") for one in range(30)
    ]
    nodes = [Node(name=f"node-{one:02}", allocatable={"cpu": 4000, "pods": 20}) for one in range(NODES)]
    states = [NodeState(node, tuple(one for one in pods if one.node_name == node.name)) for node in nodes]
    return ClusterSnapshot(nodes=tuple(states), records=groups)


def agree(snapshot: ClusterSnapshot) -> RunningPods:
    fresh = running_on(ClusterSnapshot(nodes=snapshot.nodes, records=snapshot.records))
    found = running_on(snapshot)
    for field in attrs.fields(RunningPods):
        one, other = getattr(found, field.name), getattr(fresh, field.name)
        same = np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
        assert same, field.name
    assert found.by_importance.tolist() == fresh.by_importance.tolist()
    return found


def whole(priority: int) -> SchedulingPodGroup:
    return SchedulingPodGroup(name="all", disruption=DisruptionMode.ALL, priority=priority)


def test_pods_that_come_and_go_are_spliced_in() -> None:
    snapshot = cluster()
    before = agree(snapshot)
    snapshot = snapshot.forget(pod(1).key, pod(6).key).assume(pod(31, gang="new"), pod(18 + 14))
    after = agree(snapshot)
    assert (before.gangs, after.gangs) == (("default/old",), ("default/new", "default/old"))
    assert agree(snapshot.forget(pod(31).key)).gangs == ("default/old",)


def test_what_groups_say_of_running_pods_follows_pods_and_groups() -> None:
    snapshot = cluster(whole(7))
    assert agree(snapshot).whole == {"podgroup:default/all"}
    assert 7 in agree(snapshot.assume(pod(31, group="all"))).priority
    assert 9 in agree(snapshot.with_records(whole(9))).priority
    bare = cluster()
    assert not agree(bare).whole
    assert 9 in agree(bare.with_records(whole(9))).priority
    left = snapshot.forget(*(pod(one).key for one in range(2, 30, 5)))
    assert not agree(left).whole


def test_nodes_that_say_something_else_join_or_leave_and_new_resources_are_followed() -> None:
    snapshot = cluster()
    agree(snapshot)
    node = snapshot.nodes[3].node
    told = snapshot.apply(NodeReplaced(attrs.evolve(node, labels={"a": "b"})))
    agree(told)
    late = attrs.evolve(pod(40), requests={"example.com/new": 1}, started=datetime(2026, 1, 1, tzinfo=UTC))
    assert "example.com/new" in agree(told.assume(late)).resources
    joined = told.apply(NodeAdded(Node(name="node-00a", allocatable={"cpu": 4000, "pods": 20})))
    assert agree(joined).nodes == NODES + 1
    assert agree(joined.apply(NodeRemoved("node-05"))).nodes == NODES


def test_budgets_are_told_by_the_labels_that_they_ask_for() -> None:
    snapshot = cluster()
    agree(snapshot)
    budget = PodDisruptionBudget(name="b", selector=LabelSelector({GANG: "old"}))
    guarded = snapshot.with_records(budget)
    assert agree(guarded).sorts == (("default", ()), ("default", ((GANG, "old"),)))
    assert agree(guarded.assume(pod(31, gang="new"))).told == (GANG,)
    assert agree(guarded.assume(pod(31, gang="new")).forget(pod(1).key)).told == (GANG,)
    asked = LabelSelector(requirements=(Requirement("app", SelectorOperator.EXISTS),))
    other = guarded.with_records(attrs.evolve(budget, selector=asked))
    assert (agree(other).told, agree(other).sorts) == (("app",), (("default", ()),))
    assert agree(guarded.apply(RecordRemoved(budget))).told == ()


def test_evictions_use_up_the_budgets_that_cover_a_pod() -> None:
    """As one pod after another is asked about: by namespace and labels, but for those that are counted."""
    budgets = [
        PodDisruptionBudget(name="all"),
        PodDisruptionBudget(name="old", selector=LabelSelector({GANG: "old"}), disrupted_pods=("pod-01",)),
        PodDisruptionBudget(name="far", namespace="far", selector=LabelSelector({GANG: "old"})),
    ]
    running = running_on(cluster().with_records(*budgets))
    candidates, _ = collect_candidates(
        running, Pod(name="asks", priority=9), minimums={}, budgets=sorted(budgets, key=lambda one: one.name)
    )
    of = [running.pods[one] for one in candidates.source.tolist()]
    wanted = [[covers(one, pod) for pod in of] for one in sorted(budgets, key=lambda one: one.name)]
    assert candidates.covered.tolist() == wanted
    assert candidates.covered.sum() == 5
