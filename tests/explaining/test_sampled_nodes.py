"""Under a policy that looks at a share of the nodes, what is said of a pod is said of its share."""

from __future__ import annotations

import pytest

from koordcore import ClusterSnapshot, Node, Pod, Policy, explain, schedule
from koordcore.explaining.cycle import explain_cycle
from koordcore.model.affinity import Affinity, NodeAffinity
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.protocol.gang import ANNOTATION_MIN_AVAILABLE
from koordcore.protocol.gang_names import ANNOTATION_GANG_NAME

HALF = Policy(percentage_of_nodes=50)
NAMES = [f"n{index:03d}" for index in range(200)]
# Those of the second half are larger, so that each is better than any of the first one.
CLUSTER = ClusterSnapshot(
    nodes=[
        Node(name=name, allocatable={"cpu": 8000 if name < "n100" else 16000, "pods": 110}) for name in NAMES
    ]
)


def waiting(number: int, **fields: object) -> list[Pod]:
    return [
        Pod(name=f"p{index}", requests={"cpu": 1000}, **fields)  # type: ignore[arg-type]
        for index in range(number)
    ]


def gang() -> list[Pod]:
    return waiting(3, annotations={ANNOTATION_GANG_NAME: "g", ANNOTATION_MIN_AVAILABLE: "2"})


@pytest.mark.parametrize("pods", [waiting(3), gang()])
def test_the_table_is_of_the_nodes_that_were_looked_at_in_the_turn(pods: list[Pod]) -> None:
    snapshot = ClusterSnapshot(nodes=[state.node for state in CLUSTER.nodes], pending=pods)
    bound = schedule(snapshot, policy=HALF).bound
    assert [one.node for one in bound] == ["n000", "n100", "n001"]
    for decision, share in zip(bound, (NAMES[:100], NAMES[100:], NAMES[:100]), strict=True):
        told = explain(snapshot, decision.pod, policy=HALF)
        assert (told.best, len(told.fitting)) == (decision.node, decision.feasible)
        assert [one.node for one in told.verdicts if one.looked_at] == list(told.fitting)
        assert sorted(told.fitting) == share
        assert not any(one.looked_at or one.fits for one in told.verdicts[100:])
        assert told.table()["looked_at"] == [True] * 100 + [False] * 100
        # Beside members that come first, theirs are not the best any more.
        first = told.verdicts[0]
        assert (first.node, first.total) == (decision.node, decision.score) or pods[0].annotations


def test_a_pod_that_looks_at_all_nodes_is_told_of_all() -> None:
    """One that fits nowhere, one with a node of its own, and one that was decided about in another call."""
    (large,) = waiting(1)
    too_large = Pod(name="p", requests={"cpu": 99000})
    assert all(one.looked_at for one in explain(CLUSTER, too_large, policy=HALF).verdicts)
    term = NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("n150",)),))
    own = Affinity(node=NodeAffinity(required=NodeSelector((term,))))
    told = explain(CLUSTER, *waiting(1, affinity=own), policy=HALF)
    assert (told.fitting, all(one.looked_at for one in told.verdicts)) == (("n150",), True)
    after = explain(schedule(CLUSTER, [large], policy=HALF), large)
    assert (after.best, len(after.fitting)) == ("n000", 200)


def test_a_cycle_looks_at_the_share_that_a_call_with_the_pod_alone_looks_at() -> None:
    (pod,) = waiting(1)
    (decision,) = schedule(CLUSTER, [pod], policy=HALF).bound
    cycle = explain_cycle(CLUSTER, pod, policy=HALF)
    assert cycle.decision == decision
    assert cycle.best[0] == decision.node
    assert sorted(cycle.filters) == sorted(cycle.totals) == NAMES[:100]
