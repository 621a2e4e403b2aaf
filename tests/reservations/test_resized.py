"""A reservation that waits and is resized: the node that takes it has all that it will hold."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from koordcore.checking import verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.decisions import Unschedulable
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.reservations import AllocatePolicy, PreAllocationPolicy, Reservation
from koordcore.protocol.reservation import RESIZE_ALLOCATABLE
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations import test_fine as fine
from tests.reservations.worlds import POLICY, node, pod, reservation
from tests.scheduling import test_numa as numa


def resized(cpu: int, **fields: Any) -> Reservation:
    """A reservation whose template asks for 2 CPUs, and which is resized."""
    text = json.dumps({"resources": {"cpu": str(cpu)}})
    return reservation("r1", 2, annotations={RESIZE_ALLOCATABLE: text}, **fields)


def placed(one: Reservation, *pending: Pod, nodes: tuple[Node, ...] = (node("n1"),)) -> ScheduleResult:
    """Place it beside pods, twice: a second call on the result finds nothing more to place."""
    snapshot = ClusterSnapshot(nodes=nodes, records=[one], pending=pending)
    result = schedule(snapshot, policy=POLICY)
    assert verify(snapshot, result) == ()
    again = schedule(result.snapshot, policy=POLICY)
    assert verify(result.snapshot, again) == ()
    assert not again.bound
    return result


def who_got_what(result: ScheduleResult) -> dict[str, str]:
    """Reservation by pod that got a node, the pod that stands for it included."""
    return {one.pod.name: one.reservation for one in result.bound}


@pytest.mark.parametrize("policy", AllocatePolicy)
@pytest.mark.parametrize("cpu", [1, 4, 6, 8])
def test_a_node_holds_all_that_a_resized_reservation_is_granted(policy: AllocatePolicy, cpu: int) -> None:
    """Nine CPUs are asked for on a node of eight: somebody is refused, whatever is held."""
    pods = (pod("p4", 4, "a"), pod("q4", 4, "a"), pod("s1", 1, "a"))
    result = placed(resized(cpu, policy=policy), *pods)
    got = who_got_what(result)
    assert "uid-r1" in got
    assert sum(one.requests["cpu"] for one in pods if one.name in got) <= 8000
    drawn = sum(one.requests["cpu"] for one in pods if got.get(one.name))
    assert policy is not AllocatePolicy.RESTRICTED or drawn <= 1000 * cpu


@pytest.mark.parametrize(("cpu", "left"), [(4, 4), (7, 1), (1, 7)])
def test_strangers_find_what_a_resized_reservation_leaves(cpu: int, left: int) -> None:
    strangers = [pod(f"s{number}", 1) for number in range(8)]
    result = placed(resized(cpu), *strangers)
    assert len(result.bound) == 1 + left


def test_a_resized_reservation_goes_where_it_fits_as_it_will_be() -> None:
    small, large = node("n1", 3), node("n2", 9)
    (one,) = placed(resized(9), nodes=(small, large)).bound
    assert one.node == "n2"
    (refused,) = placed(resized(9), nodes=(small,)).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.message == "0/1 nodes are available: 1 Insufficient cpu."
    # The template alone would find no room here.
    assert [one.node for one in placed(resized(1), nodes=(node("n1", 1),)).bound] == ["n1"]


@pytest.mark.parametrize(("cpus", "cards"), [(4, 2), (2, 1), (4, 1)])
def test_a_resized_reservation_holds_as_many_cpus_and_cards(cpus: int, cards: int) -> None:
    made = fine.reservation("r1", numa.pod("t", 6 - cpus, gpus=3 - cards))
    amounts = {"cpu": str(cpus), **{name: str(100 * cards) for name in numa.GPU}}
    made["metadata"]["annotations"] = {RESIZE_ALLOCATABLE: json.dumps({"resources": amounts})}
    snapshot = snapshot_from_objects([*numa.node("n1", cards=(0, 1)), made]).snapshot
    result = fine.checked(snapshot)
    held = fine.given(result, "uid-r1", fine.ALLOCATED)["gpu"]
    assert len(held) == cards
    first, _, last = fine.given(result, "uid-r1", fine.STATUS)["cpuset"].partition("-")
    assert int(last) - int(first) + 1 == cpus


def test_a_resized_reservation_is_placed_over_pods_that_its_account_covers() -> None:
    fields: dict[str, Any] = {
        "policy": AllocatePolicy.RESTRICTED,
        "pre_allocation": True,
        "pre_allocation_policy": PreAllocationPolicy(),
    }
    running = pod("old", 4, "a", node_name="n1")
    for cpu, found in ((4, ["r1"]), (3, [])):
        snapshot = ClusterSnapshot(nodes=[node("n1", 4)], records=[resized(cpu, **fields)]).assume(running)
        result = schedule(snapshot, policy=POLICY)
        assert verify(snapshot, result) == ()
        assert [one.name for one in result.snapshot.of(Reservation) if one.available] == found


def test_a_plan_that_grants_a_reservation_another_amount_is_found() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[resized(4)])
    result = schedule(snapshot, policy=POLICY)
    (one,) = result.snapshot.of(Reservation)
    for amount in (2000, 5000):
        wrong = attrs.evolve(one, status=attrs.evolve(one.status, allocatable={"cpu": amount}))
        found = verify(snapshot, attrs.evolve(result, snapshot=result.snapshot.with_records(wrong)))
        assert "does not hold what its template asks for, as resized" in {each.message for each in found}
