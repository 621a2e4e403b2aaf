"""Equal pods that fit nowhere are refused for the same reasons, which are worked out once."""

from __future__ import annotations

import attrs
from hypothesis import given, strategies as st

from koordcore import ClusterSnapshot, Node, NodeState, Pod, PreemptionRules, Unschedulable, schedule

ROOM = {"cpu": 4000, "memory": 2**33, "pods": 20}


def test_what_comes_in_between_changes_the_reasons_of_the_next() -> None:
    nodes = [Node(name=name, allocatable=ROOM) for name in ("a", "b")]
    pods = [
        Pod(name="1", requests={"cpu": 5000}, priority=5),
        Pod(name="2", requests={"cpu": 5000}, priority=4),
        Pod(name="3", requests={"cpu": 3000, "memory": 2**33}, priority=3),
        Pod(name="4", requests={"cpu": 5000}, priority=2),
    ]
    result = schedule(ClusterSnapshot(nodes=nodes, pending=pods))
    first, second, _, last = result.decisions
    assert isinstance(first, Unschedulable)
    assert isinstance(second, Unschedulable)
    assert isinstance(last, Unschedulable)
    assert attrs.evolve(second, pod=first.pod) == first
    assert [one.nearest and one.nearest.node for one in (first, last)] == ["a", "b"]


@given(
    amounts=st.lists(st.sampled_from([1000, 3000, 5000]), min_size=1, max_size=8),
    priorities=st.lists(st.integers(0, 2), min_size=8, max_size=8),
    running=st.lists(st.tuples(st.sampled_from([1000, 2000]), st.integers(0, 2)), max_size=4),
    preempt=st.booleans(),
)
def test_whoever_is_asked_about_alone_hears_the_same(
    amounts: list[int], priorities: list[int], running: list[tuple[int, int]], preempt: bool
) -> None:
    """Where nobody finds a place, a call for all pods says of each what a call for that one says."""
    there = [
        Pod(name=f"r{number}", node_name="a", requests={"cpu": amount}, priority=priority)
        for number, (amount, priority) in enumerate(running)
    ]
    state = NodeState(Node(name="a", allocatable={"cpu": 4000, "pods": 20}), tuple(there))
    pods = [
        Pod(name=f"p{number}", requests={"cpu": amount}, priority=priority)
        for number, (amount, priority) in enumerate(zip(amounts, priorities, strict=False))
    ]
    snapshot = ClusterSnapshot(nodes=[state], pending=pods)
    rules = PreemptionRules() if preempt else None
    together = schedule(snapshot, preempt=rules)
    if all(isinstance(one, Unschedulable) for one in together.decisions):
        for pod in pods:
            alone = schedule(attrs.evolve(snapshot, pending=[pod]), preempt=rules)
            assert alone.decisions[0] == together.decision(pod.key)
