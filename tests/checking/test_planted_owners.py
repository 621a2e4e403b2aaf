"""Who draws from a reservation: owners that it is meant for, within its account, for what they ask for."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    NodeState,
    PluginSetting,
    Pod,
    Policy,
    schedule,
    verify,
)
from koordcore.model.affinity import Taint, TaintEffect
from koordcore.model.reservations import (
    AllocatePolicy,
    ObjectReference,
    ReservationArgs,
    ReservationPhase,
    ReservationStatus,
)
from tests.checking.test_planted_reservations import AFFINITY, MINE, cluster, placed, pod, reservation, using

ZONE = {"labels": {"zone": "x"}}
TAINTED: dict[str, Any] = {"taints": (Taint("t", "v"),)}
KEEPS = {
    "allocate_policy": AllocatePolicy.RESTRICTED,
    "annotations": {"node.koordinator.sh/reservation": '{"resources": {"cpu": "3500m"}}'},
}


def terms(operator: str) -> dict[str, Any]:
    """An affinity with one term about the label ``zone``."""
    wanted = {"key": "zone", "operator": operator, "values": ["x"]}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {key: {"reservationSelectorTerms": [{"matchExpressions": [wanted]}]}}


@pytest.mark.parametrize(
    ("held", "affinity", "wrong"),
    [
        (ZONE, {"reservationSelector": {"zone": "x"}}, ""),
        ({}, {"reservationSelector": {"zone": "x"}}, "u wants a reservation with zone=x, r has None"),
        (ZONE, {"reservationSelector": {"zone": "y"}}, "u wants a reservation with zone=y, r has x"),
        ({}, {"reservationSelector": {"rack": "n7"}}, ""),
        (
            {"labels": {"rack": "n8"}},
            {"reservationSelector": {"rack": "n7"}},
            "u wants a reservation with rack=n7",
        ),
        (ZONE, terms("In"), ""),
        (ZONE, terms("NotIn"), "u uses r, which none of the terms selects that it requires"),
        ({}, terms("In"), "u uses r, which none of the terms selects that it requires"),
        ({}, terms("NotIn"), ""),
        (TAINTED, None, ""),
        (TAINTED, {}, "u uses r and does not tolerate its taint {t: v}"),
        (TAINTED, {"tolerations": [{"key": "t", "operator": "Exists"}]}, ""),
        (TAINTED, {"tolerations": [{"key": "t", "value": "w"}]}, "u uses r and does not tolerate its taint"),
        ({"taints": (Taint("t", "v", TaintEffect.PREFER_NO_SCHEDULE),)}, {}, ""),
        (
            {"taints": (Taint("t", "v", TaintEffect.NO_EXECUTE),)},
            {},
            "u uses r and does not tolerate its taint",
        ),
        (TAINTED, {"name": "r", "reservationSelector": {"zone": "x"}}, ""),
        (KEEPS, None, "r cpu: 1000 used of 4000, which keeps 3500 back"),
        ({**KEEPS, "allocate_policy": AllocatePolicy.ALIGNED}, None, ""),
    ],
)
def test_owners_use_a_reservation_that_they_want_and_what_it_does_not_keep_back(
    held: dict[str, Any], affinity: dict[str, Any] | None, wrong: str
) -> None:
    """The scheduler lends it to exactly those of whom nothing is found wrong."""
    annotations = {} if affinity is None else {AFFINITY: json.dumps(affinity)}
    found = using(reservation(**held), pod("u", uses="uid-r", annotations=annotations))
    assert len(found) == bool(wrong)
    assert all(text.removeprefix("default/").startswith(wrong) for text in found)
    snapshot = cluster(reservation(**held), pending=(pod("u", annotations=annotations),))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert [one.reservation for one in result.bound if one.reservation] == ([] if wrong else ["r"])


@pytest.mark.parametrize(
    ("options", "policy", "affinity", "fine"),
    [
        ("memory", AllocatePolicy.RESTRICTED, None, False),
        ("memory", AllocatePolicy.RESTRICTED, "{}", True),
        ("memory", AllocatePolicy.ALIGNED, None, True),
        ("cpu", AllocatePolicy.RESTRICTED, None, True),
        ("nothing", AllocatePolicy.RESTRICTED, None, True),
    ],
)
def test_who_need_not_use_a_reservation_asks_for_something_that_it_keeps_account_of(
    options: str, policy: AllocatePolicy, affinity: str | None, fine: bool
) -> None:
    listed = {
        "scheduling.koordinator.sh/reservation-restricted-options": json.dumps({"resources": [options]})
    }
    status = ReservationStatus(
        phase=ReservationPhase.AVAILABLE, node_name="n", allocatable={"cpu": 4000, "memory": 4}
    )
    one = reservation(status=status, annotations=listed, allocate_policy=policy)
    annotations = {} if affinity is None else {AFFINITY: affinity}
    user = pod("u", annotations=annotations)
    wrong = ["default/u uses r and asks for nothing that it keeps account of"]
    assert using(one, pod("u", uses="uid-r", annotations=annotations)) == ([] if fine else wrong)
    result = schedule(cluster(one, pending=(user,)))
    assert [each.reservation for each in result.bound] == ["r" if fine else ""]


def test_a_reservation_is_placed_over_pods_that_want_it() -> None:
    old = reservation(status=ReservationStatus(), pre_allocation=True, **TAINTED)
    new = attrs.evolve(
        old,
        status=attrs.evolve(
            reservation().status,
            allocated={"cpu": 1000},
            current_owners=(ObjectReference(namespace="default", name="u", uid="uid-u"),),
        ),
    )
    for affinity, messages in (
        (None, []),
        ({"tolerations": [{"operator": "Exists"}]}, []),
        ({}, ["default/u uses r and does not tolerate its taint {t: v}"]),
        ({"name": "s"}, ["default/u names the reservation s and uses r"]),
    ):
        annotations = {} if affinity is None else {AFFINITY: json.dumps(affinity)}
        user = pod("u", uses="uid-r", annotations=annotations)
        assert placed(old, new, running=(user,), over=(user.key,)) == messages


def test_what_others_have_too_much_of_keeps_out_only_who_asks_for_it() -> None:
    """Three CPUs of two are used; memory is left."""
    held = {"cpu": 2000, "memory": 4}
    available = ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="n", allocatable=held)
    strict = reservation(
        allocate_policy=AllocatePolicy.RESTRICTED, template=Pod(name="t", requests=held), status=available
    )
    full = pod("a", 3000, uses="uid-r", requests={"memory": 1})
    room = Node(name="n", allocatable={"cpu": 16_000, "memory": 16, "pods": 20})
    for asked in ({"memory": 3}, {"memory": 3, "cpu": 0}):
        waits = Pod(name="u", uid="uid-u", labels=MINE, requests=asked)
        snapshot = ClusterSnapshot(
            nodes=[NodeState(room, (full.at("n"),))], pending=[waits], records=[strict]
        )
        result = schedule(snapshot)
        assert [(one.node, one.reservation) for one in result.bound] == [("n", "r")]
        assert verify(snapshot, result) == ()
    user = pod("u", 0, uses="uid-r")

    def told(**asked: int) -> list[str]:
        found = using(strict, attrs.evolve(user, requests=asked), running=(full,))
        return [text for text in found if "used of" in text and ":" in text]

    assert told(memory=3) == told(memory=3, cpu=0) == []
    assert told(memory=4) == told(memory=4, cpu=0) == ["r memory: 5 used of 4"]
    assert told(memory=3, cpu=1) == ["r cpu: 3001 used of 2000"]


def test_no_account_is_kept_of_resources_that_the_policy_ignores() -> None:
    held = {"cpu": 2000, "example.com/x": 1}
    available = ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="n", allocatable=held)
    strict = reservation(
        allocate_policy=AllocatePolicy.RESTRICTED, template=Pod(name="t", requests=held), status=available
    )
    room = Node(name="n", allocatable={"cpu": 16_000, "pods": 20, "example.com/x": 9})
    waits = Pod(name="u", uid="uid-u", labels=MINE, requests={"cpu": 1000, "example.com/x": 2})
    snapshot = ClusterSnapshot(nodes=[room], pending=[waits], records=[strict])
    for args, used in (
        (ReservationArgs(), ""),
        (ReservationArgs(ignored_resources=("example.com/x",)), "r"),
        (ReservationArgs(ignored_groups=("example.com",)), "r"),
    ):
        policy = Policy().with_plugin(PluginSetting(name="Reservation", args=args))
        result = schedule(snapshot, policy=policy)
        assert [one.reservation for one in result.bound] == [used]
        assert verify(snapshot, result) == ()


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize(("asked", "fine"), [(2000, True), (2001, False), (4000, False)])
def test_owners_draw_on_a_node_with_too_much_on_it_what_it_has_beside_the_others(
    once: bool, asked: int, fine: bool
) -> None:
    """Others have six CPUs of eight, and four are held: two of these are there."""
    room = Node(name="n", allocatable={"cpu": 8000, "pods": 20})
    other, user = pod("x", 6000, labels={}), pod("u", asked)
    one = reservation(allocate_once=once)
    snapshot = ClusterSnapshot(nodes=[NodeState(room, (other.at("n"),))], pending=[user], records=[one])
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert [each.reservation for each in result.bound] == ["r"] * fine
    # The same plan where the node has as much as it takes.
    large = NodeState(attrs.evolve(room, allocatable={"cpu": 16_000, "pods": 20}), (other.at("n"),))
    planned = schedule(snapshot.with_nodes(large))
    (state,) = planned.snapshot.nodes
    planted = attrs.evolve(planned, snapshot=planned.snapshot.with_nodes(attrs.evolve(state, node=room)))
    message = f"cpu: {6000 + asked} requested without what is left for it, 8000 allocatable"
    found = [(each.subject, each.message) for each in verify(snapshot, planted)]
    assert found == ([] if fine else [("default/u", message)])


@pytest.mark.parametrize("options", ["memory", "cpu"])
def test_what_a_reservation_keeps_no_account_of_it_holds_for_its_next_owner(options: str) -> None:
    """Of eight CPUs an owner has two, and four are held: those that are not counted go on being held."""
    listed = {
        "scheduling.koordinator.sh/reservation-restricted-options": json.dumps({"resources": [options]})
    }
    held = {"cpu": 4000, "memory": 4}
    one = reservation(
        template=Pod(name="t", requests=held),
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="n", allocatable=held),
        annotations=listed,
        allocate_policy=AllocatePolicy.RESTRICTED,
    )
    owner = pod("o", 2000, uses="uid-r", requests={"memory": 1})
    room = Node(name="n", allocatable={"cpu": 8000, "memory": 9, "pods": 20})
    large = attrs.evolve(room, allocatable={"cpu": 16_000, "memory": 9, "pods": 20})
    free = 2000 if options == "memory" else 4000
    for cpu, labels, fine in (
        (free, {}, True),
        (free + 1, {}, False),
        (2000, MINE, True),
        (6000, MINE, options == "memory"),
        (6001, MINE, False),
    ):
        user = pod("u", cpu, labels=labels, requests={"memory": 1})
        snapshot = ClusterSnapshot(nodes=[NodeState(room, (owner.at("n"),))], pending=[user], records=[one])
        result = schedule(snapshot)
        assert verify(snapshot, result) == ()
        assert len(result.bound) == fine
        planned = schedule(snapshot.with_nodes(NodeState(large, (owner.at("n"),))))
        (state,) = planned.snapshot.nodes
        planted = attrs.evolve(planned, snapshot=planned.snapshot.with_nodes(attrs.evolve(state, node=room)))
        assert bool(verify(snapshot, planted)) != fine
