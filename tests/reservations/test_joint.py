"""Pods and reservations matched all together in a call, where the policy asks for that."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore.checking import verify
from koordcore.errors import ManifestError
from koordcore.manifests.policy_args import write_args
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.reservations import Reservation, ReservationArgs, ReservationMatching
from koordcore.protocol.reservation_args import parse_reservation_args
from koordcore.reservations.assign import assign_reservations
from koordcore.reservations.state import reservation_state
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.test_operating_pods import acting
from tests.reservations.worlds import POLICY, must, node, pod, reservation

ARGS = ReservationArgs(matching=ReservationMatching.JOINT)
JOINT = Policy().with_plugin(PluginSetting(name="Reservation", weight=5000, args=ARGS))


def place(policy: Policy, snapshot: ClusterSnapshot, *pods: Any) -> dict[str, str]:
    """Schedule, check, and give the reservation by pod."""
    result = schedule(snapshot, pods, policy=policy)
    assert verify(snapshot, result) == ()
    return {one.pod.name: one.reservation for one in result.bound}


def once(name: str, cpu: int, on: str, **fields: Any) -> Reservation:
    """A reservation for one use."""
    return reservation(name, cpu, on, allocate_once=True, **fields)


def test_a_pod_leaves_the_only_reservation_that_serves_another() -> None:
    # One after another the first takes the fuller reservation, and nothing serves the second.
    records = [once("r1", 4, "n1", labels={"team": "x"}), once("r2", 6, "n2")]
    snapshot = ClusterSnapshot(nodes=[node("n1", 4), node("n2", 6)], records=records)
    only = must('{"reservationSelector":{"team":"x"}}')
    pods = (pod("p1", 3, "a", annotations=must()), pod("p2", 3, "a", annotations=only))
    assert place(POLICY, snapshot, *pods) == {"p1": "r1"}
    assert place(JOINT, snapshot, *pods) == {"p1": "r2", "p2": "r1"}


def test_priority_comes_before_number() -> None:
    records = [reservation("r1", 6, "n1")]
    snapshot = ClusterSnapshot(nodes=[node("n1", 6)], records=records)
    small = [pod(f"small{number}", 3, "a", annotations=must()) for number in range(2)]
    large = pod("large", 5, "a", annotations=must(), priority=10)
    assert place(JOINT, snapshot, *small, large) == {"large": "r1"}
    same = pod("large", 5, "a", annotations=must())
    assert len(place(JOINT, snapshot, *small, same)) == 2
    assert len(place(POLICY, snapshot, *small, same)) == 1


def test_what_comes_of_one_after_another_stays_where_the_plan_is_no_better() -> None:
    records = [once("r1", 4, "n1"), once("r2", 6, "n2")]
    snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2")], records=records)
    pods = (pod("p1", 3, "a"), pod("p2", 5, "a"), pod("other", 2))
    sequential = schedule(snapshot, pods, policy=POLICY)
    joint = schedule(snapshot, pods, policy=JOINT)
    assert joint.decisions == sequential.decisions


def test_a_reservation_on_a_node_that_the_pod_may_not_use_is_not_meant_for_it() -> None:
    zone = {"zone": "z1"}
    nodes = [attrs.evolve(node("n1", 4), labels=zone), node("n2", 6)]
    snapshot = ClusterSnapshot(nodes=nodes, records=[once("r1", 4, "n1"), once("r2", 6, "n2")])
    pinned = pod("p2", 3, "a", annotations=must(), node_selector=zone)
    pods = (pod("p1", 3, "a", annotations=must()), pinned)
    assert place(POLICY, snapshot, *pods) == {"p1": "r1"}
    assert place(JOINT, snapshot, *pods) == {"p1": "r2", "p2": "r1"}


def test_pods_that_act_as_reservations_take_part() -> None:
    records = [once("r1", 4, "n1")]
    snapshot = ClusterSnapshot(nodes=[node("n1", 4), node("n2", 6)], records=records)
    snapshot = snapshot.assume(acting("op", 6, "n2"))
    pods = (pod("p1", 3, "a", annotations=must()), pod("p2", 3, "a", annotations=must('{"name":"r1"}')))
    assert place(POLICY, snapshot, *pods) == {"p1": "r1"}
    assert place(JOINT, snapshot, *pods) == {"p1": "op", "p2": "r1"}


def test_priorities_are_served_from_above_where_each_serves_one() -> None:
    states = [reservation_state(once("r1", 4, "n1"))]
    pods = [pod("low", 4, "a"), pod("high", 4, "a", priority=3), pod("middle", 4, "a", priority=2)]
    found = assign_reservations(pods, states, {"n1": node("n1")})
    assert [key.name for key in found.reservations] == ["high"]
    assert found.certificate.objective[0] == 3  # the places 1 and 2 of the others' priorities


def test_the_argument_is_read_and_written() -> None:
    assert parse_reservation_args({"matching": "Joint"}) == ARGS
    assert write_args("Reservation", ARGS) == {"matching": "Joint"}
    with pytest.raises(ManifestError, match='matching: expected Sequential or Joint, got "both"'):
        parse_reservation_args({"matching": "both"})
