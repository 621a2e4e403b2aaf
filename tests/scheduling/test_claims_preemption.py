"""Evictions for pods with claims on fifty nodes with eight cards each."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from benchmarks.claims_data import mig_cards, whole_gpus
from koordcore import ClusterSnapshot, Pod, PreemptionRules, ScheduleResult, schedule, verify
from tests.scheduling.test_claims_gangs import GANG, cluster, member

NODES = 50


def running(kind: str) -> ClusterSnapshot:
    """Fifty nodes that less important pods fill: two partitions on each card, or one pod on each GPU."""
    build, wish, count = (mig_cards, "3g-40gb", 16) if kind == "mig" else (whole_gpus, "gpu", 8)
    slices = [build(f"n{number:02}", 8) for number in range(NODES)]
    pods = [
        attrs.evolve(member(f"low-{n:04}", wish, least=1), annotations={}, priority=1 + n % 7)
        for n in range(NODES * count)
    ]
    placed = schedule(cluster(slices, pods))
    assert len(placed.bound) == NODES * count
    return placed.snapshot


def high(count: int, wish: str) -> list[Pod]:
    notes = {f"{GANG}name": "g", f"{GANG}min-available": str(count)} if count > 1 else {}
    ones = [member(f"high-{number}", wish, least=count) for number in range(count)]
    return [attrs.evolve(one, annotations=notes, priority=100) for one in ones]


def evicting(snapshot: ClusterSnapshot, pods: Sequence[Pod]) -> ScheduleResult:
    asked = snapshot.with_pending(*pods)
    result = schedule(asked, preempt=PreemptionRules())
    assert verify(asked, result) == ()
    return result


@pytest.mark.parametrize("wish", ["7g-80gb", "gpu"])
def test_one_pod(wish: str) -> None:
    """A whole card has its two partitions leave; nobody is named whose card would not be free then."""
    (plan,) = evicting(running("mig"), high(1, wish)).preemptions
    assert len({one.node for one in plan.victims}) == 1
    assert len(plan.victims) == 2
    assert plan.certificate.proven


def test_a_gang_that_wants_whole_nodes() -> None:
    (plan,) = evicting(running("whole"), high(2, "eight")).preemptions
    assert len(plan.victims) == 16
    assert len(plan.nominations) == 2
    assert plan.certificate.proven


def test_nobody_leaves_for_what_no_node_has() -> None:
    result = evicting(running("whole"), high(1, "pair"))
    assert not result.preemptions
