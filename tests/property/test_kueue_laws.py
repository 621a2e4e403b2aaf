"""Queues on the library's quota ledger against Kueue's own arithmetic."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from koordcore.model.kueue import ClusterQueue, Cohort, FlavorQuota, ResourceGroup
from koordcore.quota.kueue import QueueLedger, open_queues
from tests.reference.kueue_quota import Node, join

LIMIT = st.none() | st.integers(0, 6)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Node], list[Node]]:
    """Cohorts and queues of a forest."""
    cohorts: list[Node] = []
    queues: list[Node] = []
    for number in range(draw(st.integers(0, 4))):
        cohorts.append(_node(draw, f"c{number}", cohorts, st.sampled_from((0, 0, 3))))
    for number in range(draw(st.integers(1, 4))):
        queues.append(_node(draw, f"q{number}", cohorts, st.integers(0, 8)))
    join((*cohorts, *queues))
    return cohorts, queues


def _node(draw: st.DrawFn, name: str, cohorts: list[Node], nominal: st.SearchStrategy[int]) -> Node:
    parent = draw(st.sampled_from([None, *cohorts]))
    limits = (None, None) if parent is None else (draw(LIMIT), draw(LIMIT))
    return Node(name, draw(nominal), *limits, parent=parent)


def _groups(one: Node) -> tuple[ResourceGroup, ...]:
    limits = [{} if each is None else {"gpu": each} for each in (one.borrowing, one.lending)]
    quota = FlavorQuota(flavor="f", nominal={"gpu": one.nominal}, borrowing=limits[0], lending=limits[1])
    return (ResourceGroup(resources=("gpu",), flavors=(quota,)),)


@settings(max_examples=300, deadline=None)
@given(trees(), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=20))
def test_a_queue_admits_what_kueue_calls_available_and_nothing_else(
    tree: tuple[list[Node], list[Node]], asked: list[tuple[int, int]]
) -> None:
    cohorts, queues = tree
    ledger = open_queues(
        [
            ClusterQueue(name=one.name, cohort=one.parent.name if one.parent else "", groups=_groups(one))
            for one in queues
        ],
        [
            Cohort(name=one.name, parent=one.parent.name if one.parent else "", groups=_groups(one))
            for one in cohorts
        ],
    )
    for number, (place, amount) in enumerate(asked):
        queue = queues[place % len(queues)]
        found = ledger.admit(f"lab/w{number}", queue.name, {"f/gpu": amount})
        assert isinstance(found, QueueLedger) == (amount <= queue.available())
        if isinstance(found, QueueLedger):
            assert ledger.borrows(queue.name, {"f/gpu": amount}) == (queue.own_use + amount > queue.nominal)
            ledger, queue.own_use = found, queue.own_use + amount
