"""Nobody looks for victims where no node would do if nobody ran on it."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore import ClusterSnapshot, Node, Nominated, Pod, PodGroup, PreemptionRules, schedule
from koordcore.preemption import setup
from koordcore.scheduling import eviction_question

GANG = "pod-group.scheduling.sigs.k8s.io"


def cluster(*pods: Pod) -> ClusterSnapshot:
    nodes = [Node(name=name, allocatable={"cpu": 4000, "memory": 1 << 33, "pods": 9}) for name in "ab"]
    running = [Pod(name=f"on-{name}", requests={"cpu": 3000}, priority=0, node_name=name) for name in "ab"]
    group = PodGroup(namespace="default", name="g", min_member=2)
    return ClusterSnapshot(nodes=nodes, records=[group]).assume(*running).with_pending(*pods)


@pytest.mark.parametrize(
    ("asks", "gang", "made"),
    [
        ({"cpu": 4000}, "", True),
        ({"cpu": 4001}, "", False),
        ({"cpu": 1000, "memory": 1 << 34}, "", False),
        ({"cpu": 4000}, "g", True),
        ({"cpu": 4001}, "g", False),
    ],
)
def test_a_question_is_put_together_where_an_empty_node_would_do(
    asks: dict[str, int], gang: str, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = list[object]()

    def putting(*given: Any, **named: Any) -> Any:
        put.append(given)
        return setup.make_problem(*given, **named)

    monkeypatch.setattr(eviction_question, "make_problem", putting)
    labels = {GANG: gang} if gang else {}
    pods = [Pod(name=name, requests=asks, priority=9, labels=labels) for name in ("p", "q")]
    result = schedule(cluster(*pods), pods, preempt=PreemptionRules())
    assert bool(put) == made
    assert [isinstance(one, Nominated) for one in result.decisions] == [made, made]
