"""Assignments come with the prices that prove them, for every part of the objective."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from koordcore.checking import check_certificate
from koordcore.model.certificates import CertificateStatus
from koordcore.protocol.reservation import RESERVATION_ORDER
from koordcore.reservations.assign import assign_reservations
from koordcore.reservations.state import reservation_state
from tests.reservations.worlds import node, pod, reservation


@pytest.mark.parametrize("seed", range(12))
def test_each_part_is_proven_and_nothing_better_is(seed: int) -> None:
    """Pods of several priorities compete for reservations of several orders and sizes."""
    rng = np.random.default_rng(seed)
    pods = [pod(f"p{at}", int(rng.integers(1, 6)), "a", priority=int(rng.integers(3))) for at in range(9)]
    states = [
        reservation_state(
            reservation(
                f"r{at}",
                int(rng.integers(1, 8)),
                "n",
                allocate_once=True,
                labels={RESERVATION_ORDER: str(rng.integers(3))},
            )
        )
        for at in range(7)
    ]
    found = assign_reservations(pods, states, {"n": node("n", 64)}).certificate
    assert found.status is CertificateStatus.PROVEN
    assert check_certificate(found.problem, found).accepted
    for part in range(3):
        less = tuple(value - (at == part) for at, value in enumerate(found.objective))
        planted = attrs.evolve(found, objective=less, bound=less)
        assert not check_certificate(planted.problem, planted).accepted
