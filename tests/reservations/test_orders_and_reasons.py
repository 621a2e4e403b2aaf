"""Which reservation serves a pod when several could, and what is said of those that cannot."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, Unschedulable, named_policy, schedule, verify
from koordcore.explaining import explain
from koordcore.model.decisions import PodDecision
from koordcore.model.reservations import AllocatePolicy, Reservation
from tests.reservations.worlds import GIB, must, node, pod, reservation

SHIPPED = named_policy("koordinator")
STRICT = AllocatePolicy.RESTRICTED


def ordered(one: Reservation, order: int) -> Reservation:
    return attrs.evolve(one, labels={"scheduling.koordinator.sh/reservation-order": str(order)})


def decided(nodes: Sequence[Node], records: Sequence[Reservation], waits: Pod, *running: Pod) -> PodDecision:
    snapshot = ClusterSnapshot(nodes=nodes, records=records, pending=[waits]).assume(*running)
    result = schedule(snapshot, policy=SHIPPED)
    assert verify(snapshot, result) == ()
    return result.decisions[0]


@pytest.mark.parametrize("order", [1, 2])
def test_on_a_node_the_reservation_with_an_order_serves_before_one_without(order: int) -> None:
    both = [reservation("a", 2, on="n1"), ordered(reservation("b", 4, on="n1"), order)]
    found = decided([node("n1")], both, pod("p", 2, app="a"))
    assert isinstance(found, Bound)
    assert found.reservation == "b"


@pytest.mark.parametrize("order", [1, 2])
def test_the_node_of_the_reservation_with_an_order_comes_before_that_of_a_fuller_one(order: int) -> None:
    both = [reservation("a", 2, on="n1"), ordered(reservation("b", 4, on="n2"), order)]
    found = decided([node("n1"), node("n2")], both, pod("p", 2, app="a"))
    assert isinstance(found, Bound)
    assert (found.node, found.reservation) == ("n2", "b")


def test_a_node_that_has_just_enough_beside_the_reservation_is_not_said_to_lack_anything() -> None:
    """One core is free and one is lent: two are enough for the node, and more than the reservation has."""
    found = decided(
        [node("n1", 4)],
        [reservation("a", 1, on="n1", policy=STRICT)],
        pod("p", 2, app="a", annotations=must()),
        pod("other", 2).at("n1"),
    )
    assert isinstance(found, Unschedulable)
    assert found.message == "0/1 nodes are available: 1 Reservation(s) Insufficient cpu."


def test_each_reservation_that_lacks_something_is_counted_once() -> None:
    """Two on one node and one on the other."""
    records = [
        reservation(name, 1, on=where, policy=STRICT)
        for name, where in (("a", "n1"), ("b", "n1"), ("c", "n2"))
    ]
    found = decided([node("n1", 8), node("n2", 8)], records, pod("p", 2, app="a", annotations=must()))
    assert isinstance(found, Unschedulable)
    assert found.message == "0/2 nodes are available: 3 Reservation(s) Insufficient cpu."


def test_a_node_that_lacks_something_beside_each_single_reservation_is_told_so_once() -> None:
    """One core is free and each of two reservations lends one more: three are there, two for any one pod."""
    records = [reservation(name, 1, on="n1", policy=STRICT) for name in ("a", "b")]
    waits = pod("p", 3, app="a", annotations=must())
    found = decided([node("n1", 4)], records, waits, pod("other", 1).at("n1"))
    assert isinstance(found, Unschedulable)
    assert found.message == (
        "0/1 nodes are available: 1 Insufficient cpu by node, 2 Reservation(s) Insufficient cpu."
    )


def test_a_node_is_told_to_lack_what_no_account_gives_and_it_has_not_itself() -> None:
    """The node would do with what is lent, which is less than the pod asks for; others take what is free."""
    waits = pod("p", 2, app="a", amounts={"memory": 4 * GIB})
    records = [reservation("a", 1, on="n1", policy=STRICT, amounts={"memory": 8 * GIB})]
    found = decided([node("n1", 4)], records, waits, pod("other", 2, amounts={"memory": 8 * GIB}).at("n1"))
    assert isinstance(found, Unschedulable)
    assert found.message == "0/1 nodes are available: 1 Insufficient cpu by node."


def test_what_each_reservation_lends_beside_the_node_is_not_said_to_be_missing_there() -> None:
    """All memory is held: each of two reservations has enough of it, and half of the cores."""
    records = [reservation(name, 2, on="n1", amounts={"memory": 16 * GIB}) for name in ("a", "b")]
    waits = pod("p", 4, app="a", amounts={"memory": 16 * GIB})
    found = decided([node("n1", 4)], records, waits)
    assert isinstance(found, Unschedulable)
    assert found.message == "0/1 nodes are available: 1 Insufficient cpu by node."


def test_a_reservation_of_one_resource_is_as_full_as_one_of_two_of_which_both_are_used_alike() -> None:
    waits = pod("p", 2, app="a", amounts={"memory": 4 * GIB})
    records = [reservation("a", 4, on="n1"), reservation("b", 4, on="n2", amounts={"memory": 8 * GIB})]
    snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2")], records=records, pending=[waits])
    verdicts = explain(snapshot, waits.key, policy=SHIPPED).verdicts
    assert [one.scores["Reservation"] for one in verdicts] == [100, 100]
