"""From a snapshot to the question: who may leave, who belongs together, what is free, who may ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs
import numpy as np
import pytest
from immutabledict import immutabledict

from koordcore.model.affinity import Taint
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PreemptionPolicy, SchedulingGroup
from koordcore.model.preemption import NotHelpful, PreemptionPlan
from koordcore.model.scheduling_groups import DisruptionMode, SchedulingPodGroup
from koordcore.model.selectors import LabelSelector
from koordcore.preemption import make_problem, plan_preemption
from koordcore.preemption.eligible import NEVER, NO_PENDING, TERMINATING, check_eligible
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.running import running_pods
from koordcore.preemption.setup import leaving_pods
from koordcore.protocol.preemption import DISABLE_PREEMPTIBLE, EVICTED_REASON, PREEMPTED_REASON
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import build_tree
from tests.preemption.worlds import LAYERS

GANG = "pod-group.scheduling.sigs.k8s.io"
HIGH = Pod(name="high", requests={"cpu": 4000}, priority=10)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, *pods: Pod, cpu: int = 4000, **more: Any) -> NodeState:
    there = Node(name=name, allocatable={"cpu": cpu, "pods": 10}, **more)
    return NodeState(there, tuple(pod.at(name) for pod in pods))


def pod(name: str, cpu: int = 4000, priority: int = 0, gang: str = "") -> Pod:
    return Pod(name=name, requests={"cpu": cpu}, priority=priority, labels={GANG: gang} if gang else {})


def dying(one: Pod, disruption: str = "") -> Pod:
    return attrs.evolve(one, deleted=NOW, disruption=disruption)


def question(
    snapshot: ClusterSnapshot,
    pending: Mapping[str, tuple[Sequence[Pod], int]] | None = None,
    *,
    minimums: Mapping[str, int] = immutabledict(),
    leaving: Sequence[Pod] | None = None,
) -> PreemptionProblem:
    asked = {"default/high": ([HIGH], 1)} if pending is None else pending
    return make_problem(snapshot, HIGH, asked, minimums=minimums, leaving=leaving)


def victims(problem: PreemptionProblem) -> list[str] | None:
    plan = plan_preemption(problem)
    return None if isinstance(plan, NotHelpful) else sorted(one.pod.name for one in plan.victims)


@pytest.mark.parametrize(
    ("first", "asks"),
    [
        pytest.param({"labels": {"size": "small"}}, {"node_selector": {"size": "large"}}, id="labels"),
        pytest.param({"unschedulable": True}, {}, id="cordon"),
        pytest.param({"taints": (Taint("busy"),)}, {}, id="taint"),
    ],
)
def test_nobody_leaves_a_node_to_which_the_member_may_not_go(
    first: dict[str, Any], asks: dict[str, Any]
) -> None:
    high = attrs.evolve(HIGH, **asks)
    nodes = [
        node("a", pod("low", 4000, 0), **first),
        node("b", pod("mid", 4000, 5), labels={"size": "large"}),
    ]
    snapshot = ClusterSnapshot(nodes=nodes)
    assert victims(question(snapshot, {"default/high": ([high], 1)})) == ["mid"]


def test_nobody_leaves_for_what_no_node_has() -> None:
    high = attrs.evolve(HIGH, requests={"cpu": 4000, "example.com/card": 1})
    snapshot = ClusterSnapshot(nodes=[node("a", pod("low"))])
    assert victims(question(snapshot, {"default/high": ([high], 1)})) is None


def test_room_of_pods_that_leave_anyhow_is_free_unless_said_otherwise() -> None:
    snapshot = ClusterSnapshot(nodes=[node("a", dying(pod("going"))), node("b", pod("low"))])
    assert victims(question(snapshot)) == []
    assert victims(question(snapshot, leaving=())) == ["low"]


def test_only_those_who_leave_are_listed_and_not_those_who_have_left() -> None:
    going, also = dying(pod("going", 1000)), dying(pod("also", 1000))
    snapshot = ClusterSnapshot(nodes=[node("a", going, also, pod("low", 1000))])
    assert [one.name for one in leaving_pods(snapshot, HIGH)] == ["also", "going"]
    assert [one.name for one in leaving_pods(snapshot, HIGH, [(also.key, 0)])] == ["going"]
    assert leaving_pods(snapshot, pod("least", priority=-1)) == ()


def test_only_less_important_pods_that_may_leave_and_are_there_are_candidates() -> None:
    guarded = attrs.evolve(pod("guarded"), labels={DISABLE_PREEMPTIBLE: "true"})
    nodes = [node("a", pod("low"), pod("equal", priority=10), guarded, dying(pod("going")))]
    nodes.append(node("b", pod("gone"), pod("mine"), pod("also-low")))
    snapshot = ClusterSnapshot(nodes=nodes)
    problem = make_problem(
        snapshot,
        HIGH,
        {"default/high": ([HIGH], 1)},
        minimums={},
        gone=[(pod("gone").key, 1)],
        own=[(pod("mine").key, 1)],
    )
    assert list(problem.candidates.keys) == ["default/low", "default/also-low"]
    assert list(problem.jobs.names) == ["default/low", "default/also-low"]


def test_running_pods_come_by_node_then_name_however_they_are_listed() -> None:
    snapshot = ClusterSnapshot(nodes=[node("a", pod("x"), pod("z")), node("b", pod("w"), pod("y"))])
    nowhere = pod("v").at("unknown")
    listed = [pod("y").at("b"), pod("z").at("a"), nowhere, pod("w").at("b"), pod("x").at("a")]
    assert [one.name for one in running_pods(snapshot.layout, listed).pods] == ["x", "z", "w", "y"]


def test_gangs_are_counted_with_those_of_them_who_may_not_leave() -> None:
    """Pods of a gang that nobody knows are jobs of their own; who leaves already does not count."""
    nodes = [
        node("a", pod("x0", 100, gang="x"), pod("y0", 100, gang="y"), pod("lone", 100)),
        node("b", pod("x1", 100, 99, gang="x"), dying(pod("y1", 100, gang="y")), pod("z0", 100, gang="z")),
    ]
    problem = question(ClusterSnapshot(nodes=nodes), minimums={"default/x": 1, "default/y": 2})
    assert list(problem.jobs.names) == ["default/x", "default/y", "default/lone", "default/z0"]
    assert problem.jobs.running.tolist() == [2, 1, 1, 1]
    assert problem.jobs.protected.tolist() == [1, 0, 0, 0]
    assert problem.jobs.least.tolist() == [1, 2, 1, 1]
    assert problem.jobs.gang.tolist() == [True, True, False, False]


def test_a_group_that_runs_whole_needs_everybody_who_is_there() -> None:
    def member(name: str) -> Pod:
        return attrs.evolve(pod(name, 2000), scheduling_group=SchedulingGroup(pod_group="all"))

    group = SchedulingPodGroup(name="all", disruption=DisruptionMode.ALL, priority=3, min_count=1)
    nodes = [node("a", member("m0"), cpu=2000), node("b", member("m1"), pod("y0", 2000, gang="y"))]
    problem = question(ClusterSnapshot(nodes=nodes, records=[group]), minimums={"default/y": 0})
    least = dict(zip(problem.jobs.names, problem.jobs.least.tolist(), strict=True))
    assert least == {"podgroup:default/all": 2, "default/y": 0}
    assert problem.candidates.priority.tolist() == [3, 3, 0]


@pytest.mark.parametrize(("least", "leave"), [(2, ["l0", "l1"]), (1, ["l0"]), (-1, [])])
def test_as_many_leave_as_the_gang_still_needs(least: int, leave: list[str]) -> None:
    members = [attrs.evolve(HIGH, name=f"m{number}") for number in range(2)]
    snapshot = ClusterSnapshot(nodes=[node("a", pod("l0")), node("b", pod("l1"))])
    assert victims(question(snapshot, {"default/g": (members, least)})) == leave


@pytest.mark.parametrize(("priority", "leaves"), [(10, "mid"), (9, "low")])
def test_who_is_promised_a_node_and_as_important_counts_as_running_there(priority: int, leaves: str) -> None:
    """``low`` would make room for one of the two."""
    other = attrs.evolve(pod("other", 4000, priority), nominated_node="a")
    nodes = [node("a", pod("low")), node("b", pod("mid", 4000, 5))]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[other])
    assert victims(question(snapshot)) == [leaves]


def test_a_job_gathers_where_a_network_and_a_wish_are_given() -> None:
    """n4 is in no block: no gathered member goes there; without a wish it is as good as any."""
    names = ["n1", "n2", "n3", "n4"]
    nodes = [node(name, pod(f"on-{name}", 4000, at)) for at, name in zip((1, 3, 3, 0), names, strict=True)]
    snapshot = ClusterSnapshot(nodes=nodes)
    blocks = {"n1": "a", "n2": "b", "n3": "b"}
    tree = build_tree(LAYERS, {name: {"block": block} for name, block in blocks.items()})
    spec = NetworkTopologySpec((GatherRule("BlockLayer", "MustGather"),))
    members = [attrs.evolve(HIGH, name=f"m{number}") for number in range(2)]
    pending = {"default/g": (members, 2)}
    problem = make_problem(snapshot, HIGH, pending, minimums={}, tree=tree, spec=spec)
    plan = plan_preemption(problem)
    assert isinstance(plan, PreemptionPlan)
    assert (plan.layer, plan.domain) == ("BlockLayer", "b")
    assert victims(make_problem(snapshot, HIGH, pending, minimums={}, tree=tree)) == ["on-n1", "on-n4"]
    assert victims(make_problem(snapshot, HIGH, pending, minimums={}, spec=spec)) == ["on-n1", "on-n4"]
    beside = make_problem(
        snapshot, HIGH, {"default/g": (members[:1], 1)}, minimums={}, tree=tree, spec=spec, bound=["n3"]
    )
    assert beside.bound.tolist() == [0, 0, 1, 0]
    assert problem.bound.tolist() == []
    assert victims(beside) == ["on-n2"] or victims(beside) == ["on-n3"]


def test_budgets_cover_whom_they_select_and_who_is_not_counted_already() -> None:
    selector = LabelSelector(immutabledict(app="db"))
    budgets = [
        PodDisruptionBudget(name="db", selector=selector, disruptions_allowed=1, disrupted_pods=("away",)),
        PodDisruptionBudget(name="none"),
        PodDisruptionBudget(name="other", namespace="other", selector=selector),
    ]
    named = [attrs.evolve(pod(name, 100), labels={"app": "db"}) for name in ("away", "here")]
    snapshot = ClusterSnapshot(nodes=[node("a", *named, pod("web", 100))], records=budgets)
    problem = question(snapshot)
    assert list(problem.candidates.keys) == ["default/away", "default/here", "default/web"]
    first, *others = problem.covered.tolist()
    assert first == [False, True, False]
    assert not np.array(others).any()
    assert problem.budgets.tolist() == [1, 0, 0]


# -- may it preempt at all -----------------------------------------------------------------------------------


def reason(*running: Pod, asks: Pod = HIGH, status: str = "Unschedulable", jobs: Sequence[str] = ()) -> str:
    waiting = attrs.evolve(asks, nominated_node="a")
    return check_eligible(waiting, [waiting], {"a": running}, {"a": status}, jobs).reason


@pytest.mark.parametrize("why", [PREEMPTED_REASON, EVICTED_REASON])
def test_a_job_waits_for_victims_that_are_on_their_way_out(why: str) -> None:
    assert reason(pod("stays"), dying(pod("going"), why)) == TERMINATING
    assert reason(dying(pod("going"), "DeletionByTaintManager")) == ""
    assert reason(dying(pod("going"))) == ""
    assert reason(attrs.evolve(pod("told"), disruption=why)) == ""
    assert reason(dying(pod("going"), why), status="UnschedulableAndUnresolvable") == ""


def test_who_leaves_for_another_is_waited_for_only_if_it_is_the_jobs_or_less_important() -> None:
    """An important pod that leaves for somebody else is none of the job's business."""
    important = dying(attrs.evolve(pod("going", 4000, 99), preempted_by="default/other"), PREEMPTED_REASON)
    assert reason(important) == ""
    assert reason(important, jobs=["default/other"]) == TERMINATING
    assert reason(dying(pod("going", 4000, 10), PREEMPTED_REASON)) == ""
    assert reason(dying(pod("going", 4000, 9), PREEMPTED_REASON)) == TERMINATING


def test_whoever_never_preempts_or_waits_for_nothing_is_told_so() -> None:
    assert reason(asks=attrs.evolve(HIGH, preemption_policy=PreemptionPolicy.NEVER)) == NEVER
    assert check_eligible(HIGH, [], {}, {}).reason == NO_PENDING
    assert check_eligible(HIGH, [HIGH], {}, {}).eligible
