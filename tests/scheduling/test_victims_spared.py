"""Pods that stay, or move, although somebody leaves; rooms of reservations and of promises that count."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    Nominated,
    Pod,
    PreemptionRules,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.model.certificates import Limits
from koordcore.model.gangs import PodGroup
from koordcore.model.preemption import Relocation
from koordcore.protocol.gang import ANNOTATION_MIN_AVAILABLE
from koordcore.protocol.gang_names import ANNOTATION_GANG_NAME
from tests.preemption import test_flow as flow
from tests.reservations.worlds import POLICY, must, node, pod, reservation, uses

pytestmark = pytest.mark.solver


@pytest.mark.parametrize("how", [must(), uses("r"), {}], ids=["must", "uses", "may"])
def test_an_owner_counts_on_its_reservation_beside_who_leaves(how: dict[str, str]) -> None:
    """Three of five CPUs are held for it, so that the other two are all that it has somebody leave for."""
    low = [pod(name, cpu, node_name="n1") for name, cpu in (("a", 2), ("b", 2), ("c", 1))]
    owner = pod("p", 5, "a", annotations=how, priority=9)
    snapshot = ClusterSnapshot(
        nodes=[node("n1")], records=[reservation("r", 3, "n1")], pending=[owner]
    ).assume(*low)
    result = schedule(snapshot, policy=POLICY, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    (decision,) = result.decisions
    assert isinstance(decision, Nominated)
    assert [victim.pod.name for victim in decision.victims] == ["a"]


def test_victims_that_fit_elsewhere_move_although_there_is_no_time_to_search() -> None:
    snapshot = ClusterSnapshot(
        nodes=[
            flow.node("n1", 4000, flow.pod("a", 1500), flow.pod("c", 1500)),
            flow.node("n2", 4000, flow.pod("b", 2000, 99), flow.pod("e", 500)),
            flow.node("n3", 4000, flow.pod("d", 2000, 99)),
            flow.node("n4", 4000, flow.pod("f", 4000, 3)),
        ],
        pending=[flow.pod("p1", 3500, 10, "g"), flow.pod("p2", 3000, 10, "g")],
        records=[PodGroup(namespace="default", name="g", min_member=2)],
    )
    rules = PreemptionRules(relocation=Relocation.FIRST)
    result = schedule(snapshot, preempt=rules, limits=Limits(deterministic_time=1e-6))
    assert verify(snapshot, result) == ()
    (plan,) = result.preemptions
    assert {move.victim.pod.name: move.node for move in plan.moves} == {"a": "n2", "c": "n3"}


@pytest.mark.parametrize("cpu", [1500, 3000], ids=["bound", "nominated"])
@pytest.mark.parametrize("least", [2, 3], ids=["no room", "lacks members"])
def test_whoever_comes_after_a_gang_that_gives_its_promise_up_counts_on_that_room(
    cpu: int, least: int
) -> None:
    """Who came before it could not; of the same kind, and next in the queue, is who can."""
    waiting = [
        flow.pod("before", 3000, 10),
        attrs.evolve(flow.pod("g-0", 2000, 10, "g"), nominated_node="n1"),
        flow.pod("g-1", 9000, 10, "g"),
        flow.pod("next", cpu, 10),
    ]
    created = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 2, 3)]
    snapshot = ClusterSnapshot(
        nodes=[flow.node("n1", 4000, flow.pod("low", 2000))],
        pending=[attrs.evolve(one, created=time) for one, time in zip(waiting, created, strict=True)],
        records=[PodGroup(namespace="default", name="g", min_member=least)],
    )
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert [one.name for one in result.withdrawn] == ["g-0"]
    before, *_, last = result.decisions
    assert isinstance(before, Unschedulable)
    assert isinstance(last, Bound if cpu == 1500 else Nominated)
    assert flow.victims(result) == ([] if cpu == 1500 else ["low"])


@pytest.mark.parametrize("promised", [5, 0], ids=["to the more important", "to the less important"])
def test_nobody_moves_into_room_that_is_promised_to_who_is_more_important(promised: int) -> None:
    """The preemptor need not heed that promise; who moves for it has to."""
    waiting = attrs.evolve(flow.pod("waiting", 2000, promised), nominated_node="n2")
    asking = attrs.evolve(flow.pod("p", 2000, 10), node_selector={"name": "n1"})
    states = [
        flow.node("n1", 4000, flow.pod("low", 2000, 1), flow.pod("high", 2000, 99)),
        flow.node("n2", 4000, flow.pod("other", 2000, 99)),
    ]
    named = [attrs.evolve(one, node=attrs.evolve(one.node, labels={"name": one.name})) for one in states]
    snapshot = ClusterSnapshot(nodes=named, pending=[asking, waiting])
    rules = PreemptionRules(relocation=Relocation.FIRST)
    result = schedule(snapshot, [asking], preempt=rules)
    assert verify(snapshot, result) == ()
    assert flow.victims(result) == ["low"]
    (plan,) = result.preemptions
    assert [move.node for move in plan.moves] == ([] if promised else ["n2"])


def test_a_plan_names_whose_room_its_moves_count_on() -> None:
    """Who leaves anyhow, as less important than the preemptor, though not than who moves there."""
    gone = datetime(2026, 1, 1, tzinfo=UTC)
    ends = attrs.evolve(flow.pod("ends", 3000, 1), deleted=gone, disruption="PreemptionByScheduler")
    asking = attrs.evolve(flow.pod("p", 2000, 10), node_selector={"name": "n1"})
    states = [
        flow.node("n1", 4000, flow.pod("low", 2000, 1), flow.pod("high", 2000, 99)),
        flow.node("n2", 4000, ends),
    ]
    named = [attrs.evolve(one, node=attrs.evolve(one.node, labels={"name": one.name})) for one in states]
    snapshot = ClusterSnapshot(nodes=named, pending=[asking])
    result = schedule(snapshot, preempt=PreemptionRules(relocation=Relocation.FIRST))
    assert verify(snapshot, result) == ()
    (plan,) = result.preemptions
    assert [move.node for move in plan.moves] == ["n2"]
    assert [one.pod.name for one in plan.leaving] == ["ends"]


@pytest.mark.parametrize(("least", "moves"), [(1, ["n2"]), (2, [])])
def test_who_is_left_of_a_gang_below_its_minimum_moves_nowhere(least: int, moves: list[str]) -> None:
    """It runs, and could not start again: its gang needs more at once than there are."""
    asking = attrs.evolve(flow.pod("p", 2000, 10), node_selector={"name": "n1"})
    states = [
        flow.node("n1", 4000, flow.pod("g-0", 2000, 1, "g"), flow.pod("high", 2000, 99)),
        flow.node("n2", 4000),
    ]
    named = [attrs.evolve(one, node=attrs.evolve(one.node, labels={"name": one.name})) for one in states]
    gang = PodGroup(namespace="default", name="g", min_member=least)
    snapshot = ClusterSnapshot(nodes=named, pending=[asking], records=[gang])
    result = schedule(snapshot, preempt=PreemptionRules(relocation=Relocation.FIRST))
    assert verify(snapshot, result) == ()
    assert flow.victims(result) == ["g-0"]
    (plan,) = result.preemptions
    assert [move.node for move in plan.moves] == moves


def test_a_gang_that_moves_whole_may_break_where_one_member_would_otherwise_leave_for_good() -> None:
    """One of two may leave it; but room on ``here`` is had by moves alone only where both of them move."""

    def runs(name: str, cpu: int, gang: str = "", priority: int = 0) -> Pod:
        notes = {ANNOTATION_GANG_NAME: gang, ANNOTATION_MIN_AVAILABLE: "1"} if gang else {}
        return Pod(name=name, requests={"cpu": cpu}, annotations=notes, priority=priority)

    here = Node(name="here", labels={"zone": "b"}, allocatable={"cpu": 4000, "pods": 3})
    there = Node(name="there", allocatable={"cpu": 500, "pods": 20})
    running = [
        *(
            one.at("here")
            for one in (runs("small", 100), runs("g-0", 100, "g"), runs("stays", 0, priority=9))
        ),
        runs("g-1", 500, "g").at("there"),
    ]
    asks = Pod(name="asks", requests={"cpu": 100}, priority=9, node_selector={"zone": "b"})
    snapshot = ClusterSnapshot(nodes=[here, there], pending=[asks]).assume(*running)
    result = schedule(snapshot, preempt=PreemptionRules(relocation=Relocation.FIRST))
    assert verify(snapshot, result) == ()
    (plan,) = result.preemptions
    assert {one.victim.pod.name: one.node for one in plan.moves} == {
        "small": "there",
        "g-0": "there",
        "g-1": "here",
    }
    assert len(plan.victims) == len(plan.moves)
