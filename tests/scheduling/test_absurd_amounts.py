"""Amounts that no node can have: the pod that asks for them finds no place, and nobody else is hurt."""

from __future__ import annotations

import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    PreemptionRules,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.explaining.pod import explain

NODE = Node(name="n", allocatable={"cpu": 4000, "memory": 2**34, "pods": 10, "nvidia.com/gpu": 8})


@pytest.mark.parametrize("amount", [2**53 + 1, 2**63 - 1, 2**63, 10**40])
@pytest.mark.parametrize("name", ["cpu", "memory", "nvidia.com/gpu", "koordinator.sh/gpu-core", "pods"])
@pytest.mark.parametrize("preempt", [None, PreemptionRules()])
def test_an_absurd_request_finds_no_place(amount: int, name: str, preempt: PreemptionRules | None) -> None:
    running = Pod(name="low", requests={"cpu": 1000}, priority=-5).at("n")
    absurd = Pod(name="absurd", requests={"cpu": 100, name: amount}, priority=10)
    snapshot = ClusterSnapshot(
        nodes=[NodeState(NODE, (running,))], pending=[absurd, Pod(name="good", requests={"cpu": 100})]
    )
    result = schedule(snapshot, preempt=preempt)
    assert isinstance(result.decision(absurd.key), Bound if name == "pods" else Unschedulable)
    assert [one.pod.name for one in result.bound][-1] == "good"
    assert verify(snapshot, result) == ()
    assert explain(snapshot, absurd).best == ("n" if name == "pods" else None)
