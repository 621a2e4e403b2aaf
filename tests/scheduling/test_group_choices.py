"""Which domain a group of Kubernetes takes, and what of its nominations it goes by."""

from __future__ import annotations

import attrs
import pytest

from koordcore.model.scheduling_groups import CompositePodGroup
from tests.scheduling.test_groups import cluster, decided, group, node, placed, pod, pods

pytestmark = pytest.mark.solver


def test_nominated_members_of_one_part_do_not_start_a_tree_that_needs_two() -> None:
    """The other part has no place, so nobody starts where room was made for the first."""
    root = CompositePodGroup(name="root", min_groups=2)
    first = [attrs.evolve(one, nominated_node="n") for one in pods("x", 2)]
    records = [root, group("x", 2, parent="root"), group("y", 2, parent="root")]
    snapshot = cluster([node("n", 3000)], [*first, *pods("y", 2)], *records)
    assert not decided(snapshot).bound
    assert len(placed(cluster([node("n", 4000)], [*first, *pods("y", 2)], *records))) == 4


def test_unlike_members_go_to_the_domain_that_holds_most_of_them_together() -> None:
    """Rack ``a`` has a node that takes either of them, but not both; in rack ``b`` each has one."""
    nodes = [
        node("a1", 3000, rack="a"),
        node("b1", 3000, pod("x", 1000), rack="b"),
        node("b2", 3000, pod("y", 1000), rack="b"),
    ]
    waiting = [pod("g-0", 2000, "g"), pod("g-1", 1500, "g")]
    assert placed(cluster(nodes[:1], waiting, group("g", 1, "rack"))) != {}
    assert set(placed(cluster(nodes, waiting, group("g", 1, "rack"))).values()) == {"b1", "b2"}


@pytest.mark.parametrize("key", ["", "rack"])
def test_as_many_members_as_fit_are_placed_beside_nominated_ones(key: str) -> None:
    """In their domain, although another is larger."""
    first, *others = pods("g", 3)
    waiting = [attrs.evolve(first, nominated_node="a1"), *others]
    nodes = [node("a1", 2000, rack="a"), node("b1", 9000, rack="b")]
    where = placed(cluster(nodes, waiting, group("g", 1, key)))
    assert where["g-0"] == "a1"
    assert sorted(where.values()) == (["a1", "a1"] if key else ["a1", "b1", "b1"])


def test_another_part_of_a_tree_starts_beside_the_nominated_one() -> None:
    """One part is enough, and both fit."""
    root = CompositePodGroup(name="root", min_groups=1)
    first = [attrs.evolve(one, nominated_node="n") for one in pods("x", 2)]
    records = [root, group("x", 2, parent="root"), group("y", 2, parent="root")]
    assert len(placed(cluster([node("n", 4000)], [*first, *pods("y", 2)], *records))) == 4
    assert len(placed(cluster([node("n", 3000)], [*first, *pods("y", 2)], *records))) == 2
