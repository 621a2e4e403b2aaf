"""Plans that put pods on busy nodes are found out; legal ones never are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeMetric,
    PluginSetting,
    Pod,
    Policy,
    ScheduleResult,
    Violation,
    ViolationKind,
    schedule,
    verify,
)
from koordcore.model import LoadAwareArgs, measured_of
from koordcore.model.durations import SECOND
from koordcore.model.metrics import PodMetric
from koordcore.model.nodes import NodeState
from koordcore.model.pods import OwnerReference
from tests.property.test_load_laws import NOW, arguments, cases, pods
from tests.reference.load_aware import Load, reference_filter

MOMENT = datetime.fromtimestamp(NOW, UTC)
Case = tuple[list[Node], dict[str, NodeMetric], list[tuple[Pod, int]]]


def by(args: LoadAwareArgs) -> Policy:
    return Policy(plugins=(PluginSetting(name="LoadAwareScheduling", args=args),))


def world(case: Case, *new: Pod) -> ClusterSnapshot:
    nodes, measured, placed = case
    states = [
        NodeState(node, tuple(pod.at(node.name) for pod, row in placed if row == number))
        for number, node in enumerate(nodes)
    ]
    return ClusterSnapshot(nodes=states, pending=new, records=tuple(measured.values()))


def forced(snapshot: ClusterSnapshot, policy: Policy, *places: tuple[str, str]) -> ScheduleResult:
    """A plan that somebody else made, in this order."""
    waiting = {pod.name: pod for pod in snapshot.pending}
    after = snapshot.assume(*(waiting[name].at(node) for name, node in places))
    decisions = tuple(Bound(pod=waiting[name].key, node=node) for name, node in places)
    return ScheduleResult(decisions=decisions, snapshot=after, policy=policy)


def of_load(violations: tuple[Violation, ...]) -> list[tuple[str, str]]:
    return [(one.subject, one.message) for one in violations if one.kind is ViolationKind.LOAD]


@given(cases(), arguments(), st.lists(st.sampled_from("abcde"), unique=True, max_size=5), st.data())
def test_what_schedule_places_is_legal_at_its_moment_and_at_any(
    case: Case, args: LoadAwareArgs, names: list[str], data: st.DataObject
) -> None:
    snapshot = world(case, *(data.draw(pods(name)) for name in names))
    now = data.draw(st.none() | st.integers(-300, 300).map(lambda late: MOMENT + timedelta(seconds=late)))
    result = schedule(snapshot, policy=by(args), now=now)
    assert verify(snapshot, result) == ()
    assert now is None or verify(snapshot, result, now=now) == ()


@given(cases(), arguments(), pods("new"))
def test_one_pod_is_refused_exactly_where_the_rule_refuses_it(
    case: Case, args: LoadAwareArgs, pod: Pod
) -> None:
    nodes, measured, placed = case
    snapshot = world(case, pod)
    for row, node in enumerate(nodes):
        there = [one for one, at in placed if at == row]
        refused = reference_filter(node, Load(measured.get(node.name), there, args, NOW * SECOND), pod)
        plan = forced(snapshot, by(args), ("new", node.name))
        assert bool(of_load(verify(snapshot, plan, now=MOMENT))) == bool(refused)
        if of_load(verify(snapshot, plan)):
            assert refused, "and where nobody knows the moment nothing is refused that might be right"


def busy(cpu: int, **fields: Any) -> NodeMetric:
    return attrs.evolve(
        NodeMetric(node="a", update_time=NOW * SECOND, node_usage=measured_of({"cpu": cpu})), **fields
    )


def told(
    metric: NodeMetric, *waiting: Pod, running: tuple[Pod, ...] = (), late: int | None = None, **args: Any
) -> list[tuple[str, str]]:
    node = Node(name="a", allocatable={"cpu": 1000, "memory": 2**34})
    state = NodeState(node, tuple(pod.at("a") for pod in running))
    snapshot = ClusterSnapshot(nodes=[state], pending=waiting, records=[metric])
    policy = by(LoadAwareArgs(**{"usage_thresholds": {"cpu": 65}, **args}))
    plan = forced(snapshot, policy, *((pod.name, "a") for pod in waiting))
    now = None if late is None else MOMENT + timedelta(seconds=late)
    return of_load(verify(snapshot, plan, now=now))


def asks(name: str, cpu: int = 100, **fields: Any) -> Pod:
    return attrs.evolve(Pod(name=name, requests={"cpu": cpu}, priority=5500), **fields)


BATCH = {"kubernetes.io/batch-cpu": 100}
TOO_MUCH = "is put on a, where pods are expected to use 700 of 1000 cpu, more than 65%"


def test_a_pod_on_a_node_that_is_too_busy_with_it_is_named() -> None:
    pod = asks("p", requests=BATCH)
    assert told(busy(564), pod) == []
    assert told(busy(615), pod) == [("default/p", TOO_MUCH)]


def test_of_several_that_came_the_last_is_named_and_daemons_may_come() -> None:
    several = [asks(name, requests=BATCH) for name in "pqr"]
    assert told(busy(395), *several) == []
    assert told(busy(445), *several) == [("default/r", TOO_MUCH)]
    daemon = asks("r", requests=BATCH, owners=(OwnerReference("DaemonSet", "d"),))
    assert told(busy(445), *several[:2], daemon) == []
    assert told(busy(900), daemon) == []


def test_prod_pods_are_held_to_what_prod_pods_use() -> None:
    running = Pod(name="r", priority=9500, requests={"cpu": 1}, scheduled=MOMENT - timedelta(hours=1))
    row = PodMetric(namespace="default", name="r", priority="koord-prod", usage=measured_of({"cpu": 300}))
    pod = Pod(name="p", priority=9500, requests={"cpu": 200})
    metric = busy(900, pods=(row,))
    for percent, faults in ((47, []), (46, ["prod pods are expected to use 470 of 1000 cpu, more than 46%"])):
        found = told(metric, pod, running=(running,), prod_usage_thresholds={"cpu": percent})
        assert [message.partition("where ")[2] for _, message in found] == faults


@pytest.mark.parametrize(
    ("late", "args", "message"),
    [
        (None, {}, ""),
        (179, {}, ""),
        (180, {}, "is put on a, whose NodeMetric is 180 s old"),
        (180, {"filter_expired_node_metrics": False}, ""),
        (180, {"enable_schedule_when_node_metrics_expired": True}, ""),
        (180, {"usage_thresholds": {"cpu": 0}}, ""),
    ],
)
def test_a_measurement_that_is_too_old_refuses_whom_thresholds_hold(
    late: int | None, args: dict[str, Any], message: str
) -> None:
    found = told(busy(100), asks("p", requests=BATCH), late=late, **args)
    assert found == ([("default/p", message)] if message else [])


def test_whoever_another_profile_lets_pass_does_not_make_a_node_too_busy_for_others() -> None:
    mine, other = asks("p", requests=BATCH), asks("q", requests=BATCH, scheduler_name="plain")
    policy = attrs.evolve(
        by(LoadAwareArgs(usage_thresholds={"cpu": 65})),
        others=(Policy(name="plain", plugins=(), scheduler_names=("plain",)),),
    )
    node = Node(name="a", allocatable={"cpu": 1000, "memory": 2**34})
    snapshot = ClusterSnapshot(nodes=[node], pending=[mine, other], records=[busy(500)])
    assert of_load(verify(snapshot, forced(snapshot, policy, ("p", "a"), ("q", "a")))) == []


def test_a_moment_is_that_of_a_result() -> None:
    with pytest.raises(TypeError, match="now: only a result is made at a moment"):
        verify(ClusterSnapshot(), now=MOMENT)
    with pytest.raises(TypeError, match="now: expected datetime, got 7"):
        verify(ClusterSnapshot(), ScheduleResult(decisions=(), snapshot=ClusterSnapshot()), now=7)  # type: ignore[arg-type]


def test_what_runs_is_not_held_to_what_is_measured_now() -> None:
    node = NodeState(Node(name="a", allocatable={"cpu": 1000, "pods": 9}), (asks("p").at("a"),))
    snapshot = ClusterSnapshot(nodes=[node], records=[busy(999)])
    assert of_load(verify(snapshot, policy=by(LoadAwareArgs()))) == []
