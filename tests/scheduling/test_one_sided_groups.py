"""A gang group that only one of its gangs names."""

from __future__ import annotations

import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, PodGroup, PreemptionRules, schedule, verify

GROUPS = {"gang.scheduling.koordinator.sh/groups": '["default/g1", "default/g2"]'}


def member(name: str, gang: str, cpu: int = 1000) -> Pod:
    return Pod(name=name, labels={"pod-group.scheduling.sigs.k8s.io": gang}, requests={"cpu": cpu})


@pytest.mark.parametrize("preempt", [None, PreemptionRules()])
@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a")])
def test_nobody_has_two_turns(names: tuple[str, ...], preempt: PreemptionRules | None) -> None:
    """``g1`` starts for itself; ``g2`` asks for both, and finds that ``g1`` has started."""
    first, second, third = names
    pods = [member(first, "g1"), member(second, "g1"), member(third, "g2")]
    records = (PodGroup(name="g1", min_member=2), PodGroup(name="g2", min_member=1, annotations=GROUPS))
    node = Node(name="n", allocatable={"cpu": 3000, "pods": 9})
    snapshot = ClusterSnapshot(nodes=[node], pending=pods, records=records)
    result = schedule(snapshot, preempt=preempt)
    assert verify(snapshot, result) == ()
    assert [type(one) for one in result.decisions] == [Bound] * 3
    small = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 1000, "pods": 9})], pending=pods, records=records
    )
    result = schedule(small, preempt=preempt)
    assert verify(small, result) == ()
    assert len({one.pod for one in result.decisions}) == len(result.decisions) == 3
    assert not result.bound
