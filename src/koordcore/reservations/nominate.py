"""Which reservation of a node serves a pod, and how good that is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod
from koordcore.model.reservations import DEFAULT_RESERVATION_ARGS, ReservationArgs
from koordcore.model.resources import NO_RESOURCES, Resources
from koordcore.protocol.reservation import ReservationWish, is_reserve_pod, reservation_order
from koordcore.reservations.filter import (
    NOTHING_FREED,
    Freed,
    ReservedNode,
    try_reservations,
)
from koordcore.reservations.state import ReservationState

__all__ = [
    "PREFERRED_SCORE",
    "ReservationScores",
    "exact_reservation_score",
    "nominate",
    "normalise_reservation_scores",
    "rank_of",
    "score_nodes",
    "score_reservation",
]

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


def exact_reservation_score(requests: Resources, state: ReservationState) -> Fraction:
    """Give the same score as a fraction, so that near ones are told apart."""
    shares, number = _shares(requests, state, NO_RESOURCES)
    return sum((Fraction(100 * used, capacity) for used, capacity in shares), Fraction()) / max(1, number)


def rank_of(state: ReservationState, requests: Resources, score: int) -> tuple[object, ...]:
    """Give the sort key under which the first reservation is the best.

    Those with an order come first, by it; then, and among equal orders, by the integer score of all that
    scores; then by the exact share, the name and the uid.
    """
    order = reservation_order(state.reservation.labels)
    one = state.reservation
    exact = exact_reservation_score(requests, state)
    return (0 if order else 1, order, -score, -exact, one.name, one.uid)


def nominate(
    pod: Pod,
    wish: ReservationWish,
    node: ReservedNode,
    *,
    freed: Freed = NOTHING_FREED,
    args: ReservationArgs = DEFAULT_RESERVATION_ARGS,
    fits: Callable[[ReservationState], bool] | None = None,
    extra: Callable[[ReservationState], int] | None = None,
) -> ReservationState | None:
    """Choose the reservation of a node that serves a pod; ``None`` for none.

    Parameters
    ----------
    fits
        What else a reservation must satisfy, such as its CPUs and devices.
    extra
        What else is scored, 0..100 each.
    """
    matched = node.matches.matched
    if len(matched) == 1 and wish.affinity is not None:
        return matched[0]

    def serves(one: ReservationState) -> bool:
        refusal = try_reservations(
            pod.requests,
            wish,
            node,
            (one,),
            required=True,
            freed=freed,
            tests_node=not args.skip_fits_node,
            args=args,
        )
        return refusal is None and (fits is None or fits(one))

    def rank(one: ReservationState) -> tuple[object, ...]:
        score = score_reservation(pod.requests, one, freed.within(one))
        return rank_of(one, pod.requests, score + (extra(one) if extra else 0))

    return min((one for one in matched if serves(one)), key=rank, default=None)


@attrs.frozen(kw_only=True)
class ReservationScores:
    """What the reservations say about the feasible nodes.

    Parameters
    ----------
    nominated
        Name of the reservation that would serve the pod, by node.
    preferred
        The node whose reservation is first in line; empty for none.
    raw, normalised
        Score by node, before and after normalisation.
    """

    nominated: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    preferred: str = ""
    raw: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    normalised: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)


def normalise_reservation_scores(raw: Mapping[str, int]) -> dict[str, int]:
    """Scale scores so that the largest becomes 100."""
    top = max(raw.values(), default=0)
    return {name: score * 100 // top if top else score for name, score in raw.items()}


def score_nodes(
    pod: Pod,
    wish: ReservationWish,
    nodes: Mapping[str, ReservedNode],
    feasible: Collection[str],
    *,
    freed: Mapping[str, Freed] = EMPTY,
    args: ReservationArgs = DEFAULT_RESERVATION_ARGS,
) -> ReservationScores | None:
    """Score the feasible nodes for a pod.

    Parameters
    ----------
    nodes
        In the order in which ties between equal orders are decided.
    feasible
        Names of those that can take the pod.

    Returns
    -------
    ReservationScores or None
        ``None`` where reservations have nothing to say: the pod stands for one, ignores them, or none is
        near.
    """
    concerned = any(one.matches.matched or one.matches.unmatched for one in nodes.values())
    if is_reserve_pod(pod) or wish.ignored or not concerned:
        return None
    nominated: dict[str, str] = {}
    raw: dict[str, int] = {}
    first: tuple[int, str] | None = None
    for name, node in nodes.items():
        if name not in feasible:
            continue
        raw[name] = 0
        orders = [reservation_order(one.reservation.labels) for one in node.matches.matched]
        smallest = min((order for order in orders if order), default=None)
        if smallest is not None and (first is None or smallest < first[0]):
            first = smallest, name
        given = freed.get(name, NOTHING_FREED)
        chosen = nominate(pod, wish, node, freed=given, args=args)
        if chosen is not None:
            nominated[name] = chosen.reservation.name
            raw[name] = score_reservation(pod.requests, chosen, given.within(chosen))
    if first is not None:
        raw[first[1]] = PREFERRED_SCORE
    return ReservationScores(
        nominated=nominated,
        preferred="" if first is None else first[1],
        raw=raw,
        normalised=normalise_reservation_scores(raw),
    )
