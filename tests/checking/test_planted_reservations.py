"""What reservations still hold, who may use them, and plans that use them wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Nominated,
    Pod,
    Policy,
    PreemptionRules,
    ScheduleResult,
    schedule,
    verify,
)
from koordcore.checking.holders import owned_holders, owns, used_by, with_remainders
from koordcore.checking.reservations import check_reservations
from koordcore.model.pods import OwnerReference, PodKey
from koordcore.model.reservations import (
    AllocatePolicy,
    ControllerReference,
    ObjectReference,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.reservation import OPERATING_MODE

USED = "scheduling.koordinator.sh/reservation-allocated"
AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
IGNORED = "scheduling.koordinator.sh/reservation-ignored"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
STATUS = "scheduling.koordinator.sh/resource-status"
CORE = "koordinator.sh/gpu-core"
MINE = {"app": "a"}


def pod(name: str, cpu: int = 1000, *, uses: str = "", **fields: Any) -> Pod:
    annotations = {**fields.pop("annotations", {}), **({USED: json.dumps({"uid": uses})} if uses else {})}
    labels = fields.pop("labels", MINE)
    asked = {"cpu": cpu, **fields.pop("requests", {})}
    return Pod(name=name, uid=f"uid-{name}", requests=asked, labels=labels, annotations=annotations, **fields)


def reservation(name: str = "r", cpu: int = 4000, *, at: str = "n", **fields: Any) -> Reservation:
    held = {"cpu": cpu}
    given: dict[str, Any] = {
        "uid": f"uid-{name}",
        "template": Pod(name="t", requests=held),
        "owners": (ReservationOwner(selector=LabelSelector(MINE)),),
        "allocate_once": False,
        "ttl": 0,
        "status": ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=at, allocatable=held),
    }
    return Reservation(name=name, **{**given, **fields})


def cluster(
    *records: Reservation, running: tuple[Pod, ...] = (), pending: tuple[Pod, ...] = ()
) -> ClusterSnapshot:
    room = {"cpu": 16_000, "pods": 20}
    states = [
        NodeState(
            Node(name="n", allocatable=room, labels={"rack": "n7"}), tuple(one.at("n") for one in running)
        ),
        NodeState(Node(name="m", allocatable=room)),
    ]
    return ClusterSnapshot(nodes=states, pending=pending, records=records)


def left(one: Reservation, *running: Pod) -> Pod:
    """The pod that stands for what is left of a reservation."""
    found = with_remainders(cluster(one, running=running)).pod(PodKey("default", one.uid))
    assert found is not None
    return found


def test_what_users_and_those_who_ignore_reservations_took_is_not_held_any_more() -> None:
    assert left(reservation()).requests["cpu"] == 4000
    assert left(reservation(), pod("u", 1500, uses="uid-r")).requests["cpu"] == 2500
    assert left(reservation(), pod("u", 9000, uses="uid-r")).requests["cpu"] == 0
    assert left(reservation(), pod("i", 500, labels={IGNORED: "true"})).requests["cpu"] == 3500
    assert left(reservation(), pod("x", 500, uses="uid-other")).requests["cpu"] == 4000
    assert left(reservation(), pod("x", 500)).requests["cpu"] == 4000
    assert left(reservation(allocate_once=True), pod("u", 1, uses="uid-r")).requests == {}


def cards(*entries: tuple[int, int], vfs: tuple[str, ...] = ()) -> dict[str, str]:
    extension = {"extension": {"vfs": [{"busID": one} for one in vfs]}} if vfs else {}
    return {
        ALLOCATED: json.dumps(
            {
                "gpu": [
                    {"minor": minor, "resources": {CORE: str(core)}, **extension} for minor, core in entries
                ]
            }
        )
    }


def test_cards_and_functions_that_users_took_are_not_held_any_more() -> None:
    holds = reservation(annotations=cards((0, 100), (1, 100), (2, 100)))
    user = pod("u", uses="uid-r", annotations=cards((0, 100), (1, 40)))
    rest = json.loads(left(holds, user).annotations[ALLOCATED])["gpu"]
    assert [(one["minor"], one["resources"]) for one in rest] == [(1, {CORE: 60}), (2, {CORE: 100})]
    functions = reservation(annotations=cards((0, 100), vfs=("0.1", "0.2")))
    one = pod("u", uses="uid-r", annotations=cards((0, 1), vfs=("0.1",)))
    (entry,) = json.loads(left(functions, one).annotations[ALLOCATED])["gpu"]
    assert entry["extension"]["vfs"] == [{"busID": "0.2"}]


def test_a_card_with_anything_left_is_held_and_one_with_nothing_is_not() -> None:
    both = {
        ALLOCATED: json.dumps(
            {"gpu": [{"minor": 0, "resources": {CORE: "100", "koordinator.sh/gpu-memory": "8"}}]}
        )
    }
    part = {ALLOCATED: json.dumps({"gpu": [{"minor": 0, "resources": {CORE: "100"}}]})}
    rest = left(reservation(annotations=both), pod("u", uses="uid-r", annotations=part))
    (entry,) = json.loads(rest.annotations[ALLOCATED])["gpu"]
    assert entry["resources"] == {CORE: 0, "koordinator.sh/gpu-memory": 8}
    assert (
        json.loads(
            left(reservation(annotations=both), pod("u", uses="uid-r", annotations=both)).annotations[
                ALLOCATED
            ]
        )
        == {}
    )


def zones(cpus: str, **amounts: int) -> dict[str, str]:
    listed = [{"node": int(name[1:]), "resources": {"cpu": f"{amount}m"}} for name, amount in amounts.items()]
    return {STATUS: json.dumps({"cpuset": cpus, "numaNodeResources": listed})}


def test_cpus_and_amounts_of_zones_that_users_took_are_not_held_any_more() -> None:
    holds = reservation(annotations=zones("0-3", z0=4000, z1=1000))
    users = [
        pod("u", uses="uid-r", annotations=zones("0,2", z0=1500)),
        pod("v", uses="uid-r", annotations=zones("", z0=500, z1=2000)),
        pod("w", uses="uid-r"),
    ]
    rest = json.loads(left(holds, *users).annotations[STATUS])
    assert rest["cpuset"] == "1,3"
    assert rest["numaNodeResources"] == [
        {"node": 0, "resources": {"cpu": "2000m"}},
        {"node": 1, "resources": {"cpu": "0m"}},
    ]


def test_a_reservation_that_has_no_node_waits_and_one_elsewhere_is_not_taken_in() -> None:
    waits = reservation(status=ReservationStatus())
    found = with_remainders(cluster(waits, reservation("s", at="gone")))
    assert [one.name for one in found.pending] == ["uid-r"]
    assert not list(found.bound_pods())


def test_a_pod_that_acts_as_a_reservation_holds_what_others_left_of_it() -> None:
    acts = pod("acts", 4000, labels={OPERATING_MODE: "Reservation"})
    for other, rest in (
        (pod("u", 1500, uses="uid-acts"), 2500),
        (pod("i", 500, labels={IGNORED: "true"}), 3500),
        (pod("x", 700), 4000),
    ):
        held = with_remainders(cluster(running=(acts, other)))
        found = held.pod(acts.key)
        assert found is not None
        assert found.requests["cpu"] == rest
    alone = with_remainders(cluster(running=(acts,))).pod(acts.key)
    assert alone is not None
    assert alone.requests["cpu"] == 4000


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        ('{"uid": "u"}', "u"),
        ('{"name": "n"}', "n"),
        ("{", ""),
        ("[]", ""),
        ("", ""),
        ('{"uid": "u", "name": "n"}', "u"),
    ],
)
def test_which_reservation_a_pod_says_it_uses(text: str, uid: str) -> None:
    assert used_by(Pod(name="p", annotations={USED: text})) == uid
    assert used_by(Pod(name="p")) == ""


OWNED = pod("p", namespace="x", owners=(OwnerReference("ReplicaSet", "s", "u", controller=True),))


@pytest.mark.parametrize(
    ("term", "fine"),
    [
        (ReservationOwner(), True),
        (ReservationOwner(selector=LabelSelector(MINE)), True),
        (ReservationOwner(selector=LabelSelector({"app": "b"})), False),
        (ReservationOwner(object=ObjectReference(name="p")), True),
        (ReservationOwner(object=ObjectReference(name="q")), False),
        (ReservationOwner(object=ObjectReference(namespace="x", uid="uid-p")), True),
        (ReservationOwner(object=ObjectReference(namespace="y", uid="uid-p")), False),
        (ReservationOwner(object=ObjectReference(api_version="v2")), False),
        (ReservationOwner(controller=ControllerReference(kind="ReplicaSet")), True),
        (ReservationOwner(controller=ControllerReference(kind="Job")), False),
        (ReservationOwner(controller=ControllerReference(name="s", namespace="x")), True),
        (ReservationOwner(controller=ControllerReference(name="s", namespace="y")), False),
        (ReservationOwner(controller=ControllerReference(name="s", namespace="")), True),
        (ReservationOwner(controller=ControllerReference(uid="v")), False),
        (ReservationOwner(controller=ControllerReference(controller=True)), True),
        (ReservationOwner(controller=ControllerReference(controller=False)), False),
        (ReservationOwner(object=ObjectReference(name="p"), selector=LabelSelector({"app": "b"})), False),
    ],
)
def test_whom_an_owner_term_means(term: ReservationOwner, fine: bool) -> None:
    assert owns(term, OWNED) is fine


def test_whose_reservations_are_not_in_the_way() -> None:
    mine, other = (
        reservation(),
        reservation("s", owners=(ReservationOwner(selector=LabelSelector({"app": "b"})),)),
    )
    snapshot = cluster(mine, other)
    assert {one.name for one in owned_holders(snapshot, [pod("p")])} == {"uid-r"}
    assert {one.name for one in owned_holders(snapshot, [pod("p", labels={})])} == set()
    assert {one.name for one in owned_holders(snapshot, [pod("p", labels={IGNORED: "true"})])} == {
        "uid-r",
        "uid-s",
    }


# -- plans -----------------------------------------


def using(
    one: Reservation,
    user: Pod,
    *,
    at: str = "n",
    says: str = "r",
    running: tuple[Pod, ...] = (),
    change: Callable[[Reservation], Reservation] = lambda after: after,
) -> list[str]:
    """What is wrong once a pod was put on a node and the reservation says so."""
    snapshot = cluster(one, running=running, pending=(attrs.evolve(user, annotations={}),))
    users = sorted([*running, user], key=lambda each: each.uid)
    named = [each for each in users if used_by(each) == one.uid]
    status = attrs.evolve(
        one.status,
        allocated={"cpu": sum(each.requests.get("cpu", 0) for each in named)},
        current_owners=tuple(
            ObjectReference(namespace=each.namespace, name=each.name, uid=each.uid) for each in named
        ),
    )
    after = snapshot.assume(user.at(at)).with_records(
        change(attrs.evolve(one, status=status) if used_by(user) else one)
    )
    decision = Bound(pod=user.key, node=at, reservation=says)
    result = ScheduleResult(decisions=(decision,), snapshot=after, policy=Policy())
    return [f"{each.subject} {each.message}" for each in check_reservations(snapshot, result)]


USER = pod("u", uses="uid-r")


def test_an_owner_uses_its_reservation_on_its_node() -> None:
    assert using(reservation(), USER) == []
    assert using(reservation(), pod("u", uses="uid-r", labels={})) == ["default/u is no owner of r"]
    assert "default/u uses r, which is not available on m" in using(reservation(), USER, at="m")
    assert using(reservation(), USER, says="") == ['default/u the decision says "", the pod says r']
    assert using(reservation(), pod("u"), says="r") == ["default/u uses r, which is not written on it"]
    assert using(reservation(), pod("u"), says="") == []
    assert using(reservation(), pod("u", uses="uid-z"), change=lambda _: reservation())[-1] == (
        "default/u uses a reservation that does not exist"
    )
    broken = reservation(owners_error="cannot be read")
    assert using(broken, USER) == ["default/u is no owner of r"]


def test_who_ignores_reservations_and_must_use_one_is_where_one_is() -> None:
    both = pod("u", annotations={AFFINITY: "{}"}, labels={IGNORED: "true"})
    assert using(reservation(), both, says="") == []
    text = "default/u must go where a reservation is, and none is there"
    assert using(reservation(), both, says="", at="m") == [text]
    assert using(reservation(), pod("u", labels={IGNORED: "true"}), says="", at="m") == []


def test_who_must_use_a_reservation_uses_the_one_that_is_named() -> None:
    must = {AFFINITY: "{}"}
    assert using(reservation(), pod("u", annotations=must), says="") == [
        "default/u must use a reservation and uses none"
    ]
    assert using(reservation(), pod("u", annotations=must, labels={IGNORED: "true"}), says="") == []
    assert using(reservation(), pod("u", uses="uid-r", annotations={AFFINITY: '{"name": "r"}'})) == []
    assert using(reservation(), pod("u", uses="uid-r", annotations={AFFINITY: '{"name": "s"}'})) == [
        "default/u names the reservation s and uses r"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"current_owners": ()}, "r does not name the pods that use it"),
        ({"allocated": {"cpu": 1}}, "r does not say what is used of it"),
        ({"phase": ReservationPhase.SUCCEEDED}, "default/u uses r, which is not available on n"),
        ({"allocatable": {"cpu": 9000}}, "r changed in what no decision is about"),
    ],
)
def test_a_reservation_says_who_uses_it_and_how_much(change: dict[str, Any], message: str) -> None:
    found = using(
        reservation(), USER, change=lambda one: attrs.evolve(one, status=attrs.evolve(one.status, **change))
    )
    assert message in found


def test_nothing_else_of_a_reservation_changes() -> None:
    wrong = using(reservation(), USER, change=lambda one: attrs.evolve(one, ttl=7))
    assert "r is not the same before and after" in wrong


def test_a_restricted_reservation_gives_no_more_than_it_holds() -> None:
    strict = reservation(allocate_policy=AllocatePolicy.RESTRICTED)
    before = pod("a", 2500, uses="uid-r")
    assert using(strict, pod("u", 1500, uses="uid-r"), running=(before,)) == []
    assert using(strict, pod("u", 1501, uses="uid-r"), running=(before,)) == ["r cpu: 4001 used of 4000"]
    assert using(reservation(), pod("u", 1501, uses="uid-r"), running=(before,)) == []
    strange = attrs.evolve(
        strict,
        annotations={"scheduling.koordinator.sh/reservation-restricted-options": '{"resources": ["memory"]}'},
    )
    assert using(strange, pod("u", 1501, uses="uid-r"), running=(before,)) == ["r cpu: 4001 used of 4000"]


def test_a_reservation_for_one_is_used_by_one() -> None:
    once = reservation(allocate_once=True)
    found = using(once, USER, running=(pod("a", uses="uid-r"),))
    assert "r may be used once and is used by 2 pods" in found
    assert "r is Available after it was used" in using(once, USER)


def placed(
    old: Reservation,
    new: Reservation,
    node: str = "n",
    running: tuple[Pod, ...] = (),
    over: tuple[PodKey, ...] = (),
) -> list[str]:
    """What is wrong once a reservation that waited was given a node."""
    snapshot = cluster(old, running=running)
    decision = Bound(pod=PodKey("default", old.uid), node=node, over=over)
    result = ScheduleResult(decisions=(decision,), snapshot=snapshot.with_records(new), policy=Policy())
    return [f"{each.subject} {each.message}" for each in check_reservations(snapshot, result)]


def test_a_reservation_is_given_one_node_as_decided() -> None:
    old, new = reservation(status=ReservationStatus()), reservation()
    assert placed(old, new) == []
    assert placed(old, old) == ["r was given a node and does not say so"]
    assert placed(old, new, "m") == ["r is not available on m, as decided"]
    assert placed(old, attrs.evolve(new, ttl=7)) == ["r changed in what no decision is about"]
    assert placed(reservation(at="m"), new) == ["r has the node m already"]
    over = reservation(status=ReservationStatus(phase=ReservationPhase.FAILED))
    assert placed(over, new) == ["r has the node  already"]
    user = pod("user", uses="uid-r").at("n")
    assert placed(old, new, running=(user,)) == ["r is used already, so that it waits for no node"]


def test_a_reservation_over_running_pods_holds_their_cards() -> None:
    old = reservation(status=ReservationStatus(), pre_allocation=True)
    user = pod("u", uses="uid-r", annotations=cards((1, 60), (2, 10)))
    status = attrs.evolve(
        reservation().status,
        allocated={"cpu": 1000},
        current_owners=(ObjectReference(namespace="default", name="u", uid="uid-u"),),
    )

    def told(**held: Any) -> list[str]:
        new = attrs.evolve(old, status=status, annotations=cards(*held["cards"]))
        return placed(old, new, running=(user,))

    # Whatever else is said of it, the cards are named one by one.
    assert [text for text in told(cards=((1, 100), (2, 10))) if "gpu" in text] == []
    assert [text for text in told(cards=((1, 59), (2, 10))) if "gpu" in text] == [
        "r holds less of gpu 1 than its first owners"
    ]
    assert [text for text in told(cards=((1, 60),)) if "gpu" in text] == [
        "r does not hold gpu 2 of its first owners"
    ]
    assert [text for text in told(cards=()) if "gpu" in text] == []
    # A card without a number is the first.
    first = {ALLOCATED: json.dumps({"gpu": [{"resources": {CORE: "60"}}]})}
    user = attrs.evolve(user, annotations={**user.annotations, **first})
    assert [text for text in told(cards=((0, 60),)) if "gpu" in text] == []
    assert [text for text in told(cards=((1, 60),)) if "gpu" in text] == [
        "r does not hold gpu 0 of its first owners"
    ]


def test_reservations_neither_come_nor_go() -> None:
    snapshot = cluster(reservation())
    for after in (cluster(), cluster(reservation(), reservation("s"))):
        result = ScheduleResult(decisions=(), snapshot=after, policy=Policy())
        assert [one.message for one in check_reservations(snapshot, result)] == ["came or went"]


def test_a_node_smaller_than_its_reservation_takes_an_owner_once_the_others_have_gone() -> None:
    """What is left of the reservation was too much before; the owner has to fit beside everybody else."""
    owner, other = pod("o", 16_000, priority=10), pod("v", labels={}, priority=1)
    snapshot = cluster(reservation(cpu=20_000), running=(other,), pending=(owner,)).without_nodes("m")
    result = schedule(snapshot, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert [one.pod for one in plan.victims] == [other.key]
    assert verify(snapshot, result) == ()
    stays = attrs.evolve(plan, victims=())
    (nominated,) = result.decisions
    assert isinstance(nominated, Nominated)
    corrupt = attrs.evolve(
        result, preemptions=(stays,), decisions=(attrs.evolve(nominated, victims=()),), snapshot=snapshot
    )
    found = [one.message for one in verify(snapshot, corrupt)]
    assert "cpu: 21000 once the victims have gone, 16000 allocatable" in found


def test_who_used_a_reservation_that_is_used_up_has_what_it_has_by_itself() -> None:
    """Also where it had to use one."""
    owner = attrs.evolve(pod("o", 4000), annotations={AFFINITY: json.dumps({"reservationSelector": {}})})
    snapshot = cluster(reservation(allocate_once=True), pending=(owner,))
    after = schedule(snapshot).snapshot
    (used,) = after.of(Reservation)
    assert used.succeeded
    assert verify(after) == ()
    small = after.without_nodes("m")
    (state,) = small.nodes
    tight = attrs.evolve(state.node, allocatable={**state.node.allocatable, "cpu": 3999})
    assert [one.kind.value for one in verify(small.with_nodes(NodeState(tight, state.pods)))] == ["resource"]
