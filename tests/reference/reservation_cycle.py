"""A pod that reservations concern, node by node as the reference goes: restore, filter, nominate, score."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.reservations import (
    DEFAULT_RESERVATION_ARGS,
    AllocatePolicy,
    Reservation,
    ReservationArgs,
)
from koordcore.model.resources import (
    NO_RESOURCES,
    PODS,
    Resources,
    add,
    counted,
    make_resources,
    subtract,
    total,
)
from koordcore.protocol.reservation import RESERVATION_NODE, ReservationWish, reservation_order
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.reservations.filter import (
    NO_RESERVATION,
    POLICY_CONFLICT,
    PREEMPTION_FAILED,
    WRONG_NODE,
    ReservationRefusal,
    ReservedNode,
    fits_node,
    fits_reservation,
    shares_names,
)
from koordcore.reservations.match import AFFINITY_REFUSED, NO_MATCHES, NodeMatches, judge_match
from koordcore.reservations.nominate import PREFERRED_SCORE, _shares, score_reservation
from koordcore.reservations.state import ReservationState, reserve_pod


@attrs.frozen(kw_only=True)
class Freed:
    """What victims would give back.

    Parameters
    ----------
    node
        Of a node, the pods counted as ``pods``.
    inside
        Within reservations, by their uid.
    """

    node: Resources = NO_RESOURCES
    inside: immutabledict[str, Resources] = EMPTY

    def within(self, state: ReservationState) -> Resources:
        """Give what comes back within one reservation."""
        return self.inside.get(state.reservation.uid, NO_RESOURCES)

    @classmethod
    def by(cls, victims: Iterable[Pod], reservation_of: Mapping[str, str]) -> Freed:
        """Add up victims of one node.

        Parameters
        ----------
        reservation_of
            Uid of the reservation by uid of the pod, for pods that use one.
        """
        node: Resources = NO_RESOURCES
        inside: dict[str, Resources] = {}
        for pod in victims:
            amount = add(pod.requests, {PODS: 1})
            uid = reservation_of.get(pod.uid)
            if uid is None:
                node = add(node, amount)
            else:
                inside[uid] = add(inside.get(uid, NO_RESOURCES), amount)
        return cls(node=node, inside=immutabledict(inside))


NOTHING_FREED: Final = Freed()


def restored_node(
    node: Node,
    pods: Sequence[Pod],
    holders: Iterable[Reservation],
    matches: NodeMatches = NO_MATCHES,
    *,
    without: Sequence[Pod] = (),
) -> ReservedNode:
    """Turn held room back into usable room.

    Parameters
    ----------
    pods
        What runs on the node.
    holders
        Every reservation that holds room there.
    without
        Pods over which a reservation may be placed; they are gone from what a plain filter sees.
    """
    holding = {one.name: reserve_pod(one).requests for one in holders}
    requested = total([*(pod.requests for pod in pods), *holding.values()])
    requested = subtract(requested, total(one.returned for one in matches.unmatched))
    requested = make_resources({name: amount for name, amount in requested.items() if name != PODS})
    lifted = [holding.get(one.reservation.name, NO_RESOURCES) for one in matches.matched]
    lifted += [pod.requests for pod in without]
    gone = total(lifted)
    return ReservedNode(
        node=node,
        requested=requested,
        returned=total(one.returned for one in matches.matched),
        restored=subtract(requested, make_resources({name: gone[name] for name in gone if name != PODS})),
        pods=len(pods) + len(holding) - len(lifted),
        matches=matches,
    )


def try_reservations(
    requests: Resources,
    wish: ReservationWish,
    node: ReservedNode,
    states: Sequence[ReservationState],
    *,
    required: bool,
    freed: Freed = NOTHING_FREED,
    tests_node: bool = True,
    args: ReservationArgs = DEFAULT_RESERVATION_ARGS,
) -> ReservationRefusal | None:
    """Try reservations of a node one after another; ``None`` where one serves the pod, or the node does."""
    named = wish.affinity.name if wish.affinity is not None else ""
    lacking: set[str] = set()
    reasons: list[str] = []
    for one in states:
        if wish.affinity is None and not shares_names(requests, one):
            continue
        if named and one.reservation.name != named:
            continue
        inside = freed.within(one)
        by_node: tuple[str, ...] = ()
        if tests_node:
            back = add(freed.node, inside)
            by_node = fits_node(requests, node, remained=one.available, freed=back, args=args)
        by_account: tuple[str, ...] = ()
        if one.restricted:
            by_account = fits_reservation(requests, one, freed=inside, detailed=bool(named), args=args)
        if not by_node and not by_account:
            return None
        lacking.update(by_node)
        reasons += by_account
    if required:
        found = [*(f"Insufficient {name} by node" for name in sorted(lacking)), *reasons]
        return ReservationRefusal(tuple(found) or (NO_RESERVATION,))
    if not lacking:
        lacking.update(fits_node(requests, node, freed=freed.node, args=args))
    if lacking:
        return ReservationRefusal(tuple(f"Insufficient {name} by node" for name in sorted(lacking)))
    return None


def filter_node(
    pod: Pod,
    wish: ReservationWish,
    node: ReservedNode,
    *,
    freed: Freed = NOTHING_FREED,
    args: ReservationArgs = DEFAULT_RESERVATION_ARGS,
) -> ReservationRefusal | None:
    """Tell why a node does not take a pod in view of its reservations; ``None`` where it does.

    A node without a reservation that the pod may use leaves the question to the other filters, unless room
    was made there.
    """
    matched = node.matches.matched
    if not matched:
        if wish.affinity is not None:
            return ReservationRefusal((AFFINITY_REFUSED,), resolvable=False)
        if (freed.node or freed.inside) and fits_node(pod.requests, node, freed=freed.node, args=args):
            return ReservationRefusal((PREEMPTION_FAILED,))
        return None
    if wish.ignored:
        return None
    return try_reservations(
        pod.requests,
        wish,
        node,
        matched,
        required=wish.affinity is not None,
        freed=freed,
        tests_node=not (args.skip_fits_node and len(matched) <= 1),
        args=args,
    )


def filter_reserve_pod(
    pod: Pod, policy: AllocatePolicy, node: Node, there: Iterable[ReservationState]
) -> ReservationRefusal | None:
    """Tell why a reservation cannot be placed on a node at all; ``None`` where it can as far as rules go.

    Parameters
    ----------
    pod
        The pod that stands for it.
    there
        Reservations of the node.
    """
    pinned = pod.annotations.get(RESERVATION_NODE)
    if pinned and pinned != node.name:
        return ReservationRefusal((WRONG_NODE,), resolvable=False)
    others = {one.reservation.allocate_policy for one in there if one.matchable}
    if any(one is not policy and AllocatePolicy.DEFAULT in (one, policy) for one in others):
        return ReservationRefusal((POLICY_CONFLICT,), resolvable=False)
    return None


def fits_plainly(requests: Resources, node: ReservedNode) -> tuple[str, ...]:
    """Give the reasons of the plain resource filter on a restored node, sorted."""
    allocatable = node.node.allocatable
    lacking = ["Too many pods"] if node.pods + 1 > allocatable.get(PODS, 0) else []
    lacking += [
        f"Insufficient {name}"
        for name, amount in requests.items()
        if amount > 0
        and name != PODS
        and counted(name)
        and amount > allocatable.get(name, 0) - node.restored.get(name, 0)
    ]
    return tuple(sorted(lacking))


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


def match_nodes(
    pod: Pod,
    wish: ReservationWish,
    states: Iterable[ReservationState],
    nodes: Mapping[str, Node],
    screened: frozenset[str],
) -> dict[str, NodeMatches]:
    """Find what concerns a pod on the nodes that have matchable reservations.

    Parameters
    ----------
    states
        Of all reservations; those that are not matchable are passed over.
    screened
        What :func:`screened_nodes` left.

    Returns
    -------
    dict
        Nodes, in the order of their names, that have a reservation which the pod may use or which is in use
        by others. With a mandatory reservation only the nodes that have one it may use.
    """
    matchable = [one for one in states if one.matchable and one.reservation.status.node_name in nodes]
    affinity = None if is_reserve_pod(pod) else wish.affinity
    if affinity is not None and affinity.name:
        named = {
            one.reservation.status.node_name for one in matchable if one.reservation.name == affinity.name
        }
        if named:
            matchable = [one for one in matchable if one.reservation.status.node_name in named]
    matched: dict[str, list[ReservationState]] = {}
    unmatched: dict[str, list[ReservationState]] = {}
    for one in sorted(matchable, key=lambda state: state.reservation.name):
        name = one.reservation.status.node_name
        if name not in screened:
            continue
        if not is_reserve_pod(pod) and judge_match(pod, wish, one, nodes[name].labels).matched:
            matched.setdefault(name, []).append(one)
        elif one.assigned:
            unmatched.setdefault(name, []).append(one)
    found = matched if affinity is not None else {*matched, *unmatched}
    return {
        name: NodeMatches(tuple(matched.get(name, ())), tuple(unmatched.get(name, ())))
        for name in sorted(found)
    }
