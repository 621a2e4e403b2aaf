"""Pod slots on nodes that somebody leaves: the checker counts them as the scheduler does."""

from __future__ import annotations

import attrs
import pytest

from koordcore import ClusterSnapshot, Nominated, PreemptionRules, schedule, verify
from tests.reservations.worlds import GIB, POLICY, node, pod, reservation, uses


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_the_checker_counts_slots_once_victims_have_gone_as_the_scheduler_does(
    once: bool, used: bool
) -> None:
    """What stands for a reservation that is over with its first user is no pod; else it keeps a slot."""
    here = [pod("v", 1, priority=1), pod("u", 1, priority=9, annotations=uses("r") if used else {})]
    one = reservation("r", 1, "n", "x", allocate_once=once)
    small = attrs.evolve(node("n"), allocatable={"cpu": 8000, "memory": 32 * GIB, "pods": 2})
    waiting = pod("w", 1, priority=9)
    snapshot = ClusterSnapshot(nodes=[small], records=[one], pending=[waiting]).assume(
        *(each.at("n") for each in here)
    )
    result = schedule(snapshot, policy=POLICY, preempt=PreemptionRules())
    assert isinstance(result.decisions[0], Nominated) == (used and once)
    assert verify(snapshot, result) == ()
