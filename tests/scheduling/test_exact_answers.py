"""Cards, CPUs and claims: the notes, and what reservations and profiles have to do with them."""

from __future__ import annotations

import attrs

from koordcore import Policy, Unschedulable, named_policy, schedule, verify
from koordcore.manifests import snapshot_from_objects
from tests.property.test_claims_numa_laws import claiming
from tests.reservations.test_cycle import may
from tests.reservations.test_fine import held, owner, reservation
from tests.scheduling.test_claims_numa import cluster as claimed
from tests.scheduling.test_numa import node, pod

SHIPPED = named_policy("koordinator")


def test_the_notes_name_cpus_numa_nodes_and_cards() -> None:
    objects = [*node("n1", policy="SingleNUMANode", cards=(0, 1)), pod("p", 2, gpus=1)]
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot, policy=SHIPPED)
    assert verify(snapshot, result) == ()
    (bound,) = result.bound
    assert bound.notes == ("cpu 0-1 · NUMA 0", "gpu 0")


def test_devices_are_claimed_also_where_the_policy_does_not_look_at_numa_nodes() -> None:
    default = Policy()
    left = tuple(one for one in default.plugins if one.name not in ("NodeNUMAResource", "DeviceShare"))
    snapshot = claimed((1,), claiming("p", 2, 0, ("a",), bound=False))
    result = schedule(snapshot, policy=attrs.evolve(default, plugins=left))
    (bound,) = result.bound
    assert [one.id.device for taken in bound.claims for one in taken.allocation.results] == ["d-0"]


def test_who_may_use_a_reservation_with_too_few_cards_gets_those_of_the_node() -> None:
    snapshot = held(
        *node("n1", cards=(0, 0, 1)),
        reservation("r1", pod("t", 2, gpus=1, bound=False), allocatePolicy="Restricted"),
        may(pod("o", 1, gpus=2, bound=False)),
    )
    result = schedule(snapshot, policy=SHIPPED)
    assert verify(snapshot, result) == ()
    assert [(one.node, one.reservation) for one in result.bound] == [("n1", "")]


def test_who_must_use_a_reservation_with_too_few_cards_gets_none_of_the_node() -> None:
    snapshot = held(
        *node("n1", cards=(0, 0, 1)),
        reservation("r1", pod("t", 2, gpus=1, bound=False), allocatePolicy="Restricted"),
        owner("o", 1, gpus=2, bound=False),
    )
    (found,) = schedule(snapshot, policy=SHIPPED).decisions
    assert isinstance(found, Unschedulable)
    assert found.message.startswith("0/1 nodes are available: 1 Reservation(s) ")
