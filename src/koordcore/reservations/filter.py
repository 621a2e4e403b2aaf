"""Whether a node takes a pod in view of its reservations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.model.mappings import EMPTY
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
from koordcore.protocol.reservation import RESERVATION_NODE, ReservationWish
from koordcore.reservations.match import AFFINITY_REFUSED, NO_MATCHES, NodeMatches
from koordcore.reservations.state import ReservationState, reserve_pod

__all__ = [
    "NOTHING_FREED",
    "NO_RESERVATION",
    "POLICY_CONFLICT",
    "PREEMPTION_FAILED",
    "WRONG_NODE",
    "Freed",
    "ReservationRefusal",
    "ReservedNode",
    "filter_node",
    "filter_reserve_pod",
    "fits_node",
    "fits_plainly",
    "fits_reservation",
    "restored_node",
    "shares_names",
    "try_reservations",
]

NO_RESERVATION: Final = "node(s) no reservation(s) to meet the requirements"
POLICY_CONFLICT: Final = "node(s) reservation allocate policy conflict"
PREEMPTION_FAILED: Final = "node(s) preemption failed due to insufficient resources"
WRONG_NODE: Final = "node(s) didn't match the nodeName specified by reservation"


@attrs.frozen
class ReservationRefusal:
    """Why a node, or all nodes, do not take a pod.

    Parameters
    ----------
    reasons
        Upstream's wording; a reason stands once for each reservation that gives it.
    resolvable
        Evicting pods may help.
    """

    reasons: tuple[str, ...]
    resolvable: bool = True


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


@attrs.frozen(kw_only=True)
class ReservedNode:
    """A node with reservations as one pod sees it.

    Parameters
    ----------
    requested
        What is taken, holders included, once what unmatched reservations and their users hold together is
        counted once.
    returned
        What matched reservations and their users hold together.
    restored
        What a plain resource filter sees: the holders of matched reservations are gone.
    pods
        How many pods that leaves.
    matches
        The reservations.
    """

    node: Node
    requested: Resources
    returned: Resources = NO_RESOURCES
    restored: Resources
    pods: int
    matches: NodeMatches = NO_MATCHES


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


def fits_node(
    requests: Resources,
    node: ReservedNode,
    *,
    remained: Resources = NO_RESOURCES,
    freed: Resources = NO_RESOURCES,
    matched: int | None = None,
    args: ReservationArgs = DEFAULT_RESERVATION_ARGS,
) -> tuple[str, ...]:
    """Give the resources that a node lacks for a pod, sorted.

    Parameters
    ----------
    remained
        What is left of the reservation that is tried.
    matched
        How many pods are about to go; as many as there are matched reservations when left out.

    Notes
    -----
    A resource that the pod does not ask for never refuses it; upstream looks at cpu, memory and storage of
    every pod that asks for anything.
    """
    allocatable = node.node.allocatable
    going = len(node.matches.matched) if matched is None else matched
    lacking = [PODS] if node.pods - going + 1 > allocatable.get(PODS, 0) else []
    for name, amount in requests.items():
        if amount <= 0 or name == PODS or not counted(name) or args.ignores(name):
            continue
        back = (one.get(name, 0) for one in (remained, node.returned, freed))
        if amount > allocatable.get(name, 0) - (node.requested.get(name, 0) - sum(back)):
            lacking.append(name)
    return tuple(sorted(lacking))


def fits_reservation(
    requests: Resources,
    state: ReservationState,
    *,
    freed: Resources = NO_RESOURCES,
    detailed: bool = False,
    args: ReservationArgs = DEFAULT_RESERVATION_ARGS,
) -> tuple[str, ...]:
    """Say why the account of a Restricted reservation does not cover a pod, in upstream's words.

    Parameters
    ----------
    detailed
        With amounts, as for a pod that names this reservation.
    """
    reasons = []
    slots = state.allocatable.get(PODS)
    users = len(state.assigned) - freed.get(PODS, 0)
    if slots is not None and users + 1 > slots:
        reasons.append(_reason("Too many pods", 1, users, slots, detailed))
    for name in state.names:
        amount = requests.get(name, 0)
        if not amount or args.ignores(name):
            continue
        used = max(0, state.allocated.get(name, 0) - freed.get(name, 0))
        capacity = state.allocatable[name] - state.reserved.get(name, 0)
        if amount > capacity - used:
            reasons.append(_reason(f"Insufficient {name}", amount, used, capacity, detailed))
    return tuple(reasons)


def _reason(text: str, requested: int, used: int, capacity: int, detailed: bool) -> str:
    amounts = f", requested: {requested}, used: {used}, capacity: {capacity}" if detailed else ""
    return f"Reservation(s) {text}{amounts}"


def shares_names(requests: Resources, state: ReservationState) -> bool:
    """Tell whether a pod asks for anything that the reservation keeps account of."""
    return any(name in requests for name in state.names)


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
