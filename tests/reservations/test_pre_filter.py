"""Who speaks first about a pod that reservations concern, and how often."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.checking import verify
from koordcore.model.decisions import Unschedulable
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from koordcore.protocol.reservation import RESERVATION_AFFINITY
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.test_cycle import SHIPPED, cycle_of, may
from tests.reservations.test_fine import checked, held, owner, reservation
from tests.scheduling.test_numa import cluster, node, pod

NO_MATCH = "node(s) no reservations match reservation affinity"


def told(snapshot: ClusterSnapshot, name: str) -> str:
    """What ``schedule`` and the cycle laid open say of a pod that finds no place."""
    decision = next(one for one in schedule(snapshot, policy=SHIPPED).decisions if one.pod.name == name)
    assert isinstance(decision, Unschedulable)
    assert decision.message == cycle_of(snapshot, name).message
    return decision.message


def in_rack(made: dict[str, Any], rack: str) -> dict[str, Any]:
    made["spec"]["nodeSelector"] = {"rack": rack}
    return made


def racked(name: str, rack: str) -> list[dict[str, Any]]:
    objects = node(name)
    objects[0]["metadata"]["labels"]["rack"] = rack
    return objects


def test_a_node_that_refuses_for_itself_counts_once_whatever_reservations_stand_there() -> None:
    """A user has drawn from one of two, so that each lacks other amounts; the words are the same."""
    restricted = [
        reservation(f"r{index}", pod("t", 3, bound=False), allocatePolicy="Restricted") for index in range(2)
    ]
    snapshot = held(*node("n1", policy="Restricted"), *restricted, owner("user", 1, bound=False))
    used = checked(snapshot).snapshot
    big = owner("o", 3, bound=False)
    big["spec"]["containers"][0]["resources"]["requests"]["memory"] = "12Gi"
    waiting = cluster(*node("n1", policy="Restricted"), big).pending
    verdict = cycle_of(used.with_pending(*waiting), "o").filters["n1"]
    assert verdict.plugin == "NodeNUMAResource"
    assert sorted(set(verdict.reasons)) == list(verdict.reasons)


def test_reservations_on_nodes_that_the_pod_excludes_do_not_concern_it() -> None:
    objects = [*racked("x", "r1"), *racked("y", "r2"), in_rack(reservation("r", pod("t", 2)), "r2")]
    objects[-1]["spec"]["template"]["spec"]["nodeSelector"] = {"rack": "r2"}
    must = held(*objects, in_rack(owner("o", 2), "r1"))
    assert told(must, "o") == f"0/2 nodes are available: {NO_MATCH}."
    free = held(*objects, *racked("x2", "r1"), in_rack(may(pod("o", 2)), "r1"))
    assert "Reservation" not in cycle_of(free, "o").scores["x"]


def test_reservations_come_before_whole_cpus_and_these_before_quotas() -> None:
    half = owner("o", 2)
    half["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2500m"
    alone = held(*node("n1"), half)
    assert told(alone, "o") == f"0/1 nodes are available: {NO_MATCH}."
    quota = ElasticQuota(name="q", max=make_resources({"cpu": 1000}), namespaces=("default",))
    limited = held(*node("n1"), reservation("r", pod("t", 4)), half).with_records(quota)
    assert told(limited, "o") == "0/1 nodes are available: the requested CPUs must be integer."


def test_a_gang_that_is_too_small_speaks_before_reservations() -> None:
    made = owner("o", 2)
    made["metadata"]["annotations"] |= {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "3",
    }
    snapshot = held(*node("n1"), made)
    admission = cycle_of(snapshot, "o").admission
    assert admission.plugin == "Coscheduling"
    assert "child pod not collect enough" in admission.reasons[0]


def test_who_ignores_reservations_spares_their_numa_nodes() -> None:
    """Three CPUs of NUMA node 0 are held and unused, two of node 1 run: one more goes beside those two."""
    objects = node("n1", policy="SingleNUMANode")
    kept = held(*objects, reservation("r", pod("t", 3)))
    running, passing, big = pod("w", 2), pod("i", 1), pod("j", 4)
    for one in (passing, big):
        one["metadata"]["labels"]["scheduling.koordinator.sh/reservation-ignored"] = "true"
    waiting = {each.name: each for each in cluster(*objects, running, passing, big).pending}
    busy = checked(kept.with_pending(waiting["w"])).snapshot

    def numa_node_of(name: str) -> int:
        decision = cycle_of(busy.with_pending(waiting[name]), name).decision
        assert decision is not None
        status = json.loads(decision.annotations["scheduling.koordinator.sh/resource-status"])
        return int(status["numaNodeResources"][0]["node"])

    assert numa_node_of("i") == 1
    assert numa_node_of("j") == 0, "only there are four CPUs, three of them held"


@pytest.mark.parametrize(
    ("wish", "cpus", "there"),
    [
        ({}, 8, {"x", "y"}),
        ({"name": "ry"}, 8, {"y"}),
        ({"name": "rx"}, 8, {"x"}),
        ({"name": "none"}, 8, {"x", "y"}),
        ({}, 999, set()),
        (None, 8, {"a", "x", "y"}),
    ],
)
def test_who_ignores_reservations_and_must_use_one_goes_where_one_is(
    wish: dict[str, str] | None, cpus: int, there: set[str]
) -> None:
    """Whoever it is for: what it holds counts as free, and what is free beside it does, too."""
    objects = [*racked("x", "x"), *racked("y", "y"), *racked("a", "a")]
    for name in ("x", "y"):
        objects.append(reservation(f"r{name}", pod("t", 4, bound=False)))
        objects[-1]["spec"]["template"]["spec"]["nodeSelector"] = {"rack": name}
    passing = pod("i", cpus, bound=False)
    passing["metadata"]["labels"]["scheduling.koordinator.sh/reservation-ignored"] = "true"
    if wish is not None:
        passing["metadata"]["annotations"] = {RESERVATION_AFFINITY: json.dumps(wish)}
    snapshot = held(*objects, passing)
    cycle = cycle_of(snapshot, "i")
    allowed = set(cycle.filters) if cycle.allowed is None else set(cycle.allowed)
    assert {name for name in allowed if cycle.filters[name].passed} == there
    result = schedule(snapshot, policy=SHIPPED)
    assert verify(snapshot, result) == ()
    assert {one.node for one in result.bound} <= there
    assert bool(result.bound) is bool(there)
