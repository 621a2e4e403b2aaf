"""Pods that stay, or move, although somebody leaves: rooms of reservations, and moves without any search."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Nominated, PreemptionRules, schedule, verify
from koordcore.model.certificates import Limits
from koordcore.model.gangs import PodGroup
from koordcore.model.preemption import Relocation
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
