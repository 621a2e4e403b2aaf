"""Reservations that are placed and used in one call: legal plans are not blamed, corrupt ones are."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, ScheduleResult, ViolationKind, verify
from koordcore.model.reservations import Reservation
from tests.reservations.test_fine import OWNER, checked, given, held, owner, reservation
from tests.scheduling.test_numa import ALLOCATED, STATUS, cluster, node, pod

IGNORED = "scheduling.koordinator.sh/reservation-ignored"


def rewritten(result: ScheduleResult, name: str, annotations: dict[str, str]) -> ScheduleResult:
    """The same plan with other annotations on a reservation, consistently in decision and snapshot."""
    (one,) = result.snapshot.of(Reservation)
    records = [one for one in result.snapshot.records if not isinstance(one, Reservation)]
    after = attrs.evolve(
        result.snapshot,
        records=[*records, attrs.evolve(one, annotations={**one.annotations, **annotations})],
    )
    decisions = tuple(
        attrs.evolve(each, annotations={**each.annotations, **annotations}) if each.pod.name == name else each
        for each in result.bound
    )
    return attrs.evolve(result, decisions=decisions, snapshot=after)


def test_one_that_is_used_at_once_got_what_it_asked_for() -> None:
    made = reservation("r1", pod("t", 4, gpus=2))
    user = owner("o", 2, gpus=1, bound=False)
    user["spec"]["priority"] = 9100
    snapshot = cluster(*node("n1", cards=(0, 0, 1, 1)), made, user)
    result = checked(snapshot)
    assert {one.reservation for one in result.bound} == {"", "r1"}


@pytest.mark.parametrize(
    ("kind", "annotations"),
    [
        (ViolationKind.CPU, {STATUS: '{"cpuset":"0-1"}'}),
        (
            ViolationKind.DEVICE,
            {ALLOCATED: '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}'},
        ),
    ],
)
def test_one_that_got_less_than_it_asked_for_is_found(
    kind: ViolationKind, annotations: dict[str, str]
) -> None:
    made = reservation("r1", pod("t", 4, gpus=2))
    snapshot = cluster(*node("n1", cards=(0, 0, 1, 1)), made)
    found = verify(snapshot, rewritten(checked(snapshot), "uid-r1", annotations))
    assert any(one.kind is kind and one.message.startswith("asked for ") for one in found)


def amplified() -> list[dict[str, Any]]:
    """A node whose CPU counts one and a quarter times."""
    objects = node("n1", policy="SingleNUMANode")
    objects[0]["metadata"]["annotations"] = {
        "node.koordinator.sh/resource-amplification-ratio": '{"cpu":1.25}',
        "node.koordinator.sh/raw-allocatable": '{"cpu":"8"}',
    }
    objects[0]["status"]["allocatable"]["cpu"] = "10"
    return objects


def test_zones_of_a_node_that_amplifies_have_more_room() -> None:
    result = checked(cluster(*amplified(), pod("p", 5, bound=False)))
    (zone,) = given(result, "p", STATUS)["numaNodeResources"]
    assert zone["resources"]["cpu"] == "5"


HOST = "kubernetes.io/hostname"
APP = {"labelSelector": {"matchLabels": OWNER}, "topologyKey": HOST}
SPREAD = {"topologySpreadConstraints": [{**APP, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
SHUN = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APP]}}}


def hosts_with_reservation(user: dict[str, Any]) -> ClusterSnapshot:
    """Two hosts, on the first of which a reservation of the application holds room."""
    objects = [*node("n1"), *node("n2")]
    for one in objects[::2]:
        one["metadata"]["labels"] = {HOST: one["metadata"]["name"]}
    template = pod("t", 2, bound=False)
    template["metadata"]["labels"] = dict(OWNER)
    template["spec"]["nodeSelector"] = {HOST: "n1"}
    return held(*objects, reservation("r1", template), user)


@pytest.mark.parametrize("rule", [SPREAD, SHUN], ids=["spread", "shun"])
def test_what_holds_room_for_a_pod_does_not_count_beside_it(rule: dict[str, Any]) -> None:
    user = owner("o", 1, bound=False)
    user["spec"] |= rule
    result = checked(hosts_with_reservation(user))
    assert [one.reservation for one in result.bound] == ["r1"]
    regardless = pod("i", 1, bound=False)
    regardless["metadata"]["labels"] = {**OWNER, IGNORED: "true"}
    regardless["spec"] |= rule | {"nodeSelector": {HOST: "n1"}}
    assert [one.node for one in checked(hosts_with_reservation(regardless)).bound] == ["n1"]


def test_what_holds_room_for_others_is_still_shunned() -> None:
    stranger = pod("s", 1, bound=False)
    stranger["spec"] |= SHUN
    snapshot = hosts_with_reservation(stranger)
    assert [one.node for one in checked(snapshot).bound] == ["n2"]
    (waiting,) = snapshot.pending
    forced = ScheduleResult(
        decisions=(Bound(pod=waiting.key, node="n1"),), snapshot=snapshot.assume(waiting.at("n1"))
    )
    assert ViolationKind.POD_AFFINITY in {one.kind for one in verify(snapshot, forced)}


def test_who_ignores_reservations_may_open_their_ports() -> None:
    ports = [{"containerPort": 8080, "hostPort": 8080, "protocol": "TCP"}]
    template, regardless = pod("t", 2, bound=False), pod("i", 1, bound=False)
    for one in (template, regardless):
        one["spec"]["containers"][0]["ports"] = ports
    regardless["metadata"]["labels"] = {IGNORED: "true"}
    result = checked(held(*node("n1"), reservation("r1", template), regardless))
    assert [one.pod.name for one in result.bound] == ["i"]
