"""Which reservation of a node serves a pod, and how good that is."""

from __future__ import annotations

from typing import Final

from koordcore.model.resources import NO_RESOURCES, Resources
from koordcore.reservations.state import ReservationState

PREFERRED_SCORE: Final = 1000
"""Raw score of the node whose reservation is first in line."""


def _shares(
    requests: Resources, state: ReservationState, freed: Resources
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Give what would be used of what there is, for names that are not exceeded; and how many names count."""
    held = {name: amount for name, amount in state.allocatable.items() if amount}
    shares = []
    for name, capacity in held.items():
        used = state.allocated.get(name, 0)
        if used:
            used = max(0, used - freed.get(name, 0))
        used += requests.get(name, 0)
        if used <= capacity:
            shares.append((used, capacity))
    return tuple(shares), len(held)


def score_reservation(requests: Resources, state: ReservationState, freed: Resources = NO_RESOURCES) -> int:
    """Score how fully a reservation would be used with a pod in it: 0..100 (most allocated, averaged).

    A resource that would be exceeded counts nothing and is averaged all the same.
    """
    shares, number = _shares(requests, state, freed)
    return sum(100 * used // capacity for used, capacity in shares) // number if number else 0
