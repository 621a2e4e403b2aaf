"""Whose room a pod would fit into."""

from __future__ import annotations

from koordcore.explain import explain
from koordcore.explain.reserved_room import describe_owners
from koordcore.model.reservations import ControllerReference, ObjectReference, ReservationOwner
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import POLICY, node, pod, reservation


def test_room_of_others_is_named_with_its_owners() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1")],
        records=[reservation("r1", 6, "n1", app="demo"), reservation("r2", 1, "n1", app="tiny")],
    )
    (help_,) = explain(snapshot, pod("p", 5), policy=POLICY).help
    assert help_.details == ("fits only inside reservation r1, which belongs to app=demo",)


def test_owners_in_few_words() -> None:
    owners = (
        ReservationOwner(object=ObjectReference(namespace="ns", name="p")),
        ReservationOwner(controller=ControllerReference(kind="Job", name="j")),
        ReservationOwner(),
    )
    text = describe_owners(reservation("r", 1, owners=owners))
    assert text == "pod ns/p or pods of Job j or everybody"
