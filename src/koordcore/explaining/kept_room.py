"""Room on nodes that is not free although no pod uses it: what reservations keep for users to come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from koordcore._arrays import PODS_ROW, IntMatrix
from koordcore.reservations.columns import reservation_columns
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once


class TakenRoom(NamedTuple):
    """What is taken of the nodes, by resource and node, as in the columns of the snapshot.

    Parameters
    ----------
    used
        ``(R, N)``: what pods ask for; those that act as reservations count in ``kept``, but for their place
        among the pods.
    kept
        ``(R, N)``: what reservations keep for users to come.
    keepers
        Names of the reservations that keep anything, by the row of their node.
    """

    used: IntMatrix
    kept: IntMatrix
    keepers: Mapping[int, tuple[str, ...]]


def taken_room(snapshot: ClusterSnapshot) -> TakenRoom:
    """Tell what pods use of the nodes, and what reservations keep beside them."""
    return once(snapshot, _taken_room)


def _taken_room(snapshot: ClusterSnapshot) -> TakenRoom:
    used = snapshot.columns.requested.copy()
    kept = np.zeros_like(used)
    keepers: dict[int, list[str]] = {}
    found = reservation_columns(snapshot)
    for number, row in enumerate(found.row.tolist()):
        if row < 0:
            continue
        state, lift = found.states[number], found.columns.lift[:, number]
        kept[:, row] += lift
        if lift.any():
            keepers.setdefault(row, []).append(state.reservation.name)
        if state.pod is not None:
            # It and its users ask for the same amounts; what it keeps beside them has been counted.
            own = [state.pod.requests.get(name, 0) for name in snapshot.layout.resources]
            own[PODS_ROW] = 0
            used[:, row] -= own
    return TakenRoom(used, kept, {row: tuple(names) for row, names in keepers.items()})
