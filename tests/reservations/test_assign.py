"""Pods and reservations matched together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from koordcore.model.certificates import CertificateStatus
from koordcore.model.pods import PodKey
from koordcore.protocol.reservation import RESERVATION_ORDER
from koordcore.reservations.assign import assign_reservations
from koordcore.reservations.hungarian import assign_rows
from koordcore.reservations.state import reservation_state
from tests.reservations.worlds import must, node, pod, reservation

NODES = {name: node(name) for name in ("n1", "n2", "n3")}


@pytest.mark.parametrize("seed", range(40))
def test_the_cheapest_assignment_is_found_and_proven(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = int(random.integers(1, 5))
    costs = random.integers(0, 6, (rows, int(random.integers(rows, 6))))
    found = assign_rows(costs)
    every = itertools.permutations(range(costs.shape[1]), rows)
    assert found.cost == min(sum(costs[row, one[row]] for row in range(rows)) for one in every)
    assert found.cost == found.bound
    assert len(set(found.columns.tolist())) == rows


def test_a_pod_leaves_the_only_reservation_that_serves_another() -> None:
    states = [
        reservation_state(reservation("r1", 4, "n1", allocate_once=True)),
        reservation_state(reservation("r2", 2, "n2", allocate_once=True)),
    ]
    pods = [pod("a", 2, "a", annotations=must()), pod("b", 4, "a", annotations=must())]
    found = assign_reservations(pods, states, NODES)
    assert dict(found.reservations) == {PodKey("default", "a"): "r2", PodKey("default", "b"): "r1"}
    assert found.certificate.status is CertificateStatus.PROVEN


def test_orders_come_before_fit_and_fit_before_names() -> None:
    first = reservation("big", 8, "n1", allocate_once=True, labels={RESERVATION_ORDER: "1"})
    exact = reservation("exact", 4, "n2", allocate_once=True)
    other = reservation("other", 8, "n3", allocate_once=True)
    states = [reservation_state(one) for one in (first, exact, other)]
    assert set(assign_reservations([pod("a", 4, "a")], states, NODES).reservations.values()) == {"big"}
    assert set(assign_reservations([pod("a", 4, "a")], states[1:], NODES).reservations.values()) == {"exact"}


def test_reservations_for_several_are_packed() -> None:
    states = [reservation_state(reservation(name, cpu, "n1")) for name, cpu in (("r1", 7), ("r2", 5))]
    pods = [pod(f"p{cpu}-{at}", cpu, "a") for cpu, count in ((4, 1), (3, 2), (2, 1)) for at in range(count)]
    found = assign_reservations(pods, states, NODES)
    assert found.unassigned == ()
    used: dict[str, int] = {}
    for one in pods:
        name = found.reservations[one.key]
        used[name] = used.get(name, 0) + one.requests["cpu"]
    assert used == {"r1": 7000, "r2": 5000}


def test_strangers_stay_without() -> None:
    states = [reservation_state(reservation("r1", 4, "n1", app="b"))]
    found = assign_reservations([pod("a", 1, "a")], states, NODES)
    assert found.unassigned == (PodKey("default", "a"),)


def test_without_reservations_everybody_stays_without() -> None:
    """And without pods nothing is asked."""
    found = assign_reservations([pod("a", 1, "a")], [], NODES)
    assert found.unassigned == (PodKey("default", "a"),)
    states = [reservation_state(reservation("r1", 4, "n1"))]
    assert assign_reservations([], states, NODES).unassigned == ()
