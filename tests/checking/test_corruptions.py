"""Every corruption of a legal plan is found."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    ScheduleResult,
    ViolationKind,
    schedule,
    verify,
)
from koordcore.model.affinity import Affinity, NodeAffinity, Taint
from koordcore.model.pods import HostPort
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator

SSD = NodeSelector((NodeSelectorTerm((Requirement("disk", SelectorOperator.IN, ("ssd",)),)),))


def cluster() -> ClusterSnapshot:
    room = {"cpu": 4000, "memory": 2**33, "pods": 3}
    return ClusterSnapshot(
        nodes=[
            NodeState(
                Node(name="a", allocatable=room, labels={"disk": "ssd"}),
                (Pod(name="old", node_name="a", requests={"cpu": 1000}, host_ports=(HostPort(80),)),),
            ),
            Node(name="b", allocatable=room, taints=(Taint("gpu"),)),
            Node(name="c", allocatable=room, unschedulable=True),
            Node(name="d", allocatable=room),
        ],
        pending=[
            Pod(name="big", requests={"cpu": 3000}, priority=2),
            Pod(name="web", requests={"cpu": 500}, host_ports=(HostPort(80),), priority=1),
            Pod(
                name="fast",
                requests={"cpu": 100},
                affinity=Affinity(node=NodeAffinity(required=SSD)),
            ),
            Pod(name="picky", requests={"cpu": 100}, node_selector={"disk": "ssd"}),
            Pod(name="held", requests={"cpu": 100}, gates=("example.com/wait",)),
        ],
    )


def moved(result: ScheduleResult, name: str, node: str) -> ScheduleResult:
    """The same plan with one pod on another node, consistently in decision and snapshot."""
    decision = next(one for one in result.bound if one.pod.name == name)
    decisions = tuple(attrs.evolve(one, node=node) if one is decision else one for one in result.decisions)
    pod = result.snapshot.pod(decision.pod)
    assert pod is not None
    there = result.snapshot.forget(pod.key).assume(pod.at(node))
    return attrs.evolve(result, decisions=decisions, snapshot=there)


def bind_anyway(result: ScheduleResult, name: str, node: str) -> ScheduleResult:
    """A plan that binds a pod which the legal one left waiting."""
    pod = next(pod for pod in result.snapshot.pending if pod.name == name)
    kept = tuple(one for one in result.decisions if one.pod != pod.key)
    decisions = (*kept, Bound(pod=pod.key, node=node))
    return attrs.evolve(result, decisions=decisions, snapshot=result.snapshot.assume(pod.at(node)))


def with_snapshot(
    change: Callable[[ClusterSnapshot], ClusterSnapshot],
) -> Callable[[ScheduleResult], ScheduleResult]:
    return lambda result: attrs.evolve(result, snapshot=change(result.snapshot))


def forget(name: str) -> Callable[[ScheduleResult], ScheduleResult]:
    return with_snapshot(lambda snapshot: snapshot.forget(Pod(name=name).key))


def written(result: ScheduleResult) -> ScheduleResult:
    decisions = tuple(
        attrs.evolve(one, annotations={"x": "y"}) if isinstance(one, Bound) else one
        for one in result.decisions
    )
    return attrs.evolve(result, decisions=decisions)


CORRUPTIONS: dict[str, tuple[Callable[[ScheduleResult], ScheduleResult], ViolationKind]] = {
    "too much cpu": (lambda r: moved(r, "big", "a"), ViolationKind.RESOURCE),
    "untolerated taint": (lambda r: moved(r, "big", "b"), ViolationKind.TAINT),
    "cordoned node": (lambda r: moved(r, "big", "c"), ViolationKind.CORDON),
    "node selector": (lambda r: moved(r, "picky", "d"), ViolationKind.AFFINITY),
    "required affinity": (lambda r: moved(r, "fast", "d"), ViolationKind.AFFINITY),
    "port taken": (lambda r: moved(r, "web", "a"), ViolationKind.PORT),
    "closed gate": (lambda r: bind_anyway(r, "held", "d"), ViolationKind.GATED),
    "decision for nobody": (
        lambda r: attrs.evolve(r, decisions=(*r.decisions, Bound(pod=Pod(name="ghost").key, node="d"))),
        ViolationKind.UNKNOWN_POD,
    ),
    "decided twice": (
        lambda r: attrs.evolve(r, decisions=(*r.decisions, r.decisions[0])),
        ViolationKind.DECIDED_TWICE,
    ),
    "decision for a bound pod": (
        lambda r: attrs.evolve(r, decisions=(*r.decisions, Bound(pod=Pod(name="old").key, node="d"))),
        ViolationKind.ALREADY_BOUND,
    ),
    "unknown node": (
        lambda r: attrs.evolve(
            r,
            decisions=tuple(
                attrs.evolve(one, node="z") if isinstance(one, Bound) else one for one in r.decisions
            ),
        ),
        ViolationKind.UNKNOWN_NODE,
    ),
    "bound without decision": (
        lambda r: attrs.evolve(r, decisions=r.decisions[1:]),
        ViolationKind.NOT_DECIDED,
    ),
    "decided but not bound": (forget("big"), ViolationKind.SNAPSHOT),
    "running pod gone": (forget("old"), ViolationKind.SNAPSHOT),
    "pending pod lost": (forget("held"), ViolationKind.SNAPSHOT),
    "running pod changed": (
        with_snapshot(
            lambda s: s.forget(Pod(name="old").key).assume(
                Pod(name="old", node_name="a", requests={"cpu": 1})
            )
        ),
        ViolationKind.SNAPSHOT,
    ),
    "node changed": (
        with_snapshot(
            lambda s: s.with_nodes(
                NodeState(attrs.evolve(s.node("d").node, labels={"x": "y"}), s.node("d").pods)
            )
        ),
        ViolationKind.SNAPSHOT,
    ),
    "annotation not written": (written, ViolationKind.SNAPSHOT),
}


def test_the_plan_itself_is_legal() -> None:
    """The plan that the corruptions start from breaks no rule."""
    snapshot = cluster()
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert len(result.bound) == 4


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corruption_is_found(name: str) -> None:
    """The corrupted plan is refused for the rule that it breaks."""
    corrupt, kind = CORRUPTIONS[name]
    snapshot = cluster()
    found = verify(snapshot, corrupt(schedule(snapshot)))
    assert kind in {violation.kind for violation in found}, found


def test_pod_count() -> None:
    """A node takes no more pods than it allows."""
    node = Node(name="n", allocatable={"cpu": 1000, "pods": 1})
    snapshot = ClusterSnapshot(nodes=[node], pending=[Pod(name="a"), Pod(name="b")])
    result = schedule(snapshot)
    assert [violation.kind for violation in verify(snapshot, bind_anyway(result, "b", "n"))] == [
        ViolationKind.POD_COUNT
    ]


def test_old_overcommitment_is_not_held_against_the_plan() -> None:
    """A node that was overcommitted before may stay so, and may not get worse."""
    held = Pod(name="old", node_name="n", requests={"cpu": 3000})
    state = NodeState(Node(name="n", allocatable={"cpu": 1000, "memory": 2**30, "pods": 9}), (held,))
    snapshot = ClusterSnapshot(
        nodes=[state], pending=[Pod(name="a", requests={"memory": 1}), Pod(name="b", requests={"cpu": 1})]
    )
    result = schedule(snapshot)
    assert [str(one.pod) for one in result.bound] == ["default/a"]
    assert verify(snapshot, result) == ()
    assert verify(snapshot, bind_anyway(result, "b", "n"))


def test_a_pod_of_the_queue_without_a_decision_is_missed() -> None:
    """Whatever the decision was: one that waits stands in the snapshot afterwards as before."""
    before, message = cluster(), "5 pods were asked about, and 4 have a decision"
    result = schedule(before)
    assert result.stats["pods"] == 5
    for one in result.decisions:
        less = attrs.evolve(result, decisions=tuple(other for other in result.decisions if other is not one))
        assert (ViolationKind.NOT_DECIDED, "queue", message) in [
            (found.kind, found.subject, found.message) for found in verify(before, less)
        ]
    asked = [pod for pod in before.pending if pod.name == "web"]
    assert verify(before, schedule(before, asked)) == ()
