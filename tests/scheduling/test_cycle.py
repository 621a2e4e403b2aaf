"""A cycle laid open says what ``schedule`` decides."""

from __future__ import annotations

from hypothesis import given

from koordcore import Bound, ClusterSnapshot, Unschedulable, schedule
from koordcore.explaining.cycle import explain_cycle
from tests.property.strategies import clusters


@given(clusters(most_pods=1))
def test_the_first_of_the_best_is_what_schedule_takes(snapshot: ClusterSnapshot) -> None:
    """Same node, same score, same message."""
    for pod in snapshot.pending:
        decision = schedule(snapshot, [pod]).decisions[0]
        if pod.gated:
            continue
        cycle = explain_cycle(snapshot, pod)
        if isinstance(decision, Bound):
            assert cycle.decision == decision
            assert cycle.best[0] == decision.node
            assert not cycle.totals or cycle.totals[decision.node] == decision.score
        else:
            assert isinstance(decision, Unschedulable)
            assert cycle.decision is None
            assert cycle.message == decision.message


@given(clusters(most_pods=1))
def test_every_node_passes_or_says_why(snapshot: ClusterSnapshot) -> None:
    """A node that refuses names its plugin and at least one reason."""
    for pod in snapshot.pending:
        for verdict in explain_cycle(snapshot, pod).filters.values():
            assert verdict.passed or verdict.reasons
