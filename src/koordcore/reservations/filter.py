"""Whether a node takes a pod in view of its reservations."""

from __future__ import annotations

from typing import Final

from koordcore._record import record
from koordcore.model.nodes import Node
from koordcore.model.reservations import (
    DEFAULT_RESERVATION_ARGS,
    ReservationArgs,
)
from koordcore.model.resources import (
    NO_RESOURCES,
    PODS,
    Resources,
    counted,
)
from koordcore.reservations.match import NO_MATCHES, NodeMatches
from koordcore.reservations.state import ReservationState

NO_RESERVATION: Final = "node(s) no reservation(s) to meet the requirements"
POLICY_CONFLICT: Final = "node(s) reservation allocate policy conflict"
PREEMPTION_FAILED: Final = "node(s) preemption failed due to insufficient resources"
WRONG_NODE: Final = "node(s) didn't match the nodeName specified by reservation"


@record
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


@record(kw_only=True)
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
