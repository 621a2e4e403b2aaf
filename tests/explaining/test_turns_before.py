"""Who has a turn before: pods that are refused, and reservations that wait."""

from __future__ import annotations

import attrs

from koordcore import ClusterSnapshot, schedule
from koordcore.explaining.advice import Advice, advise
from koordcore.explaining.remedy import RemedyKind
from tests.reservations.worlds import node, pod, reservation


def advice(snapshot: ClusterSnapshot) -> Advice:
    return advise(snapshot, schedule(snapshot), "default/p")


def helps(found: Advice) -> dict[RemedyKind, str]:
    return {one.kind: one.text for one in found.remedies}


def test_nobody_is_said_to_take_room_that_another_before_would_take_as_well() -> None:
    """Without the first one the second, refused so far, takes the node."""
    first, second, last = pod("a", 4, priority=9), pod("b", 8, priority=5), pod("p", 6)
    snapshot = ClusterSnapshot(nodes=[node("n")], pending=[first, second, last])
    assert advice(snapshot).ahead == ()
    (ahead,) = advice(attrs.evolve(snapshot, pending=(first, last))).ahead
    assert (ahead.pod, ahead.node) == (first.key, "n")


def waits(*nodes: str, asks: int = 8) -> ClusterSnapshot:
    """A reservation whose turn is before that of the pod, and a cordoned node."""
    closed = attrs.evolve(node("c"), unschedulable=True)
    there = [*map(node, nodes), closed]
    held = reservation("res", 8, app="nobody")
    return ClusterSnapshot(nodes=there, pending=[pod("p", asks)], records=[held])


def test_a_reservation_that_waits_before_takes_what_comes_free() -> None:
    snapshot = waits("n").assume(pod("r", 8, node_name="n"))
    told = helps(advice(snapshot))
    assert told == {
        RemedyKind.GROW: "2 more like c (8 cpu, 32Gi memory); "
        "reservation res, before it in the queue, gets its own first"
    }
    more = [attrs.evolve(node("c"), name=f"c-{row}") for row in range(2)]
    assert len(schedule(snapshot.with_nodes(*more)).bound) == 2
    assert not any(one.pod.name == "p" for one in schedule(snapshot.with_nodes(more[0])).bound)


def test_a_reservation_that_gets_its_node_before_keeps_it() -> None:
    """Four of the node's CPUs would be free if nobody held any for it."""
    told = helps(advice(waits("n", asks=4)))
    assert told[RemedyKind.UNCORDON] == "c, which is cordoned"
    assert RemedyKind.SHRINK not in told
    assert told[RemedyKind.GROW].startswith("1 more like c")
