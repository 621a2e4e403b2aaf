"""Whose room a pod would fit into."""

from __future__ import annotations

import attrs
import pytest

from koordcore.checking import verify
from koordcore.cli.plan_tables import nearest_text
from koordcore.errors import ModelError
from koordcore.explaining import explain
from koordcore.manifests.records import result_from_record, result_record
from koordcore.model.decisions import Bound, Unschedulable
from koordcore.model.policy import Policy
from koordcore.model.reservations import ControllerReference, ObjectReference, ReservationOwner
from koordcore.scheduling import schedule
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
    text = reservation("r", 1, owners=owners).owners_text
    assert text == "pod ns/p or pods of Job j or everybody"


def test_the_decision_itself_says_whose_room_would_do() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6, "n1", app="demo")])
    result = schedule(snapshot, [pod("p", 5)], policy=POLICY)
    (decision,) = result.decisions
    assert isinstance(decision, Unschedulable)
    assert decision.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert nearest_text(decision) == (
        "n1: lacks 3 cpu; fits only inside reservation r1, which belongs to app=demo"
    )
    assert result_from_record(snapshot, result_record(result)).decisions == result.decisions
    lent = schedule(snapshot, [pod("o", 6, "demo"), pod("p", 5)], policy=POLICY).decisions[1]
    assert isinstance(lent, Unschedulable)
    assert lent.nearest is not None
    assert lent.nearest.remarks == ()


def test_the_checker_says_whose_room_a_wrong_plan_takes() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[reservation("r1", 6, "n1", app="demo")])
    stranger = pod("p", 5)
    plain = Policy()
    plain = attrs.evolve(plain, plugins=tuple(one for one in plain.plugins if one.name != "Reservation"))
    result = schedule(snapshot, [stranger], policy=plain)
    assert result.bound
    (wrong,) = verify(snapshot, attrs.evolve(result, policy=POLICY))
    assert wrong.message == (
        "cpu: 11000 requested, 8000 allocatable; 6000 is kept by reservation r1, which belongs to app=demo"
    )


def test_reservations_that_wait_are_explained_as_they_are_decided() -> None:
    """By the key of the pods that stand for them, each in its turn."""
    waits = [reservation(f"r{number}", 4) for number in range(3)]
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=waits, pending=[pod("p", 1)])
    result = schedule(snapshot, policy=POLICY)
    keys = [one.pod_key for one in waits]
    assert [isinstance(result.decision(key), Bound) for key in keys] == [True, True, False]
    for key in (*keys, pod("p", 1).key):
        assert explain(snapshot, key, policy=POLICY).decision == result.decision(key)
    with pytest.raises(ModelError, match="no pod"):
        explain(snapshot, "default/nobody", policy=POLICY)
