"""What is written into the status of a reservation: available, unschedulable, expired, succeeded, in use.

After upstream's status writers and the last step of its controller's turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import attrs

from koordcore.model.decisions import Bound, PodDecision, Waiting
from koordcore.model.pods import Pod
from koordcore.model.reservations import (
    ConditionStatus,
    ObjectReference,
    Reservation,
    ReservationCondition,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.resources import make_resources, total
from koordcore.protocol.reservation import NOMINATED_NODE, allocated_reservation, resized_allocatable


def made_nominated(reservation: Reservation, node: str) -> Reservation:
    """Give the reservation as it stands while pods leave a node for it."""
    return attrs.evolve(reservation, annotations={**reservation.annotations, NOMINATED_NODE: node})


def made_available(reservation: Reservation, node: str, now: datetime | None) -> Reservation:
    """Give the reservation as it stands once it has a node; without a clock its conditions tell no time.

    Parameters
    ----------
    reservation
        One that waits.
    node
        Where it stands from now on.
    now
        Time of the conditions; ``None`` for no time.

    Raises
    ------
    ManifestError
        When the annotation that resizes it cannot be read.
    """
    granted = reservation.status.allocatable
    base = granted if reservation.available and granted is not None else reservation.requests
    resized = resized_allocatable(reservation.annotations)

    def condition(kind: str, reason: str) -> ReservationCondition:
        return ReservationCondition(
            kind=kind, status=ConditionStatus.TRUE, reason=reason, probed=now, changed=now
        )

    status = attrs.evolve(
        reservation.status,
        phase=ReservationPhase.AVAILABLE,
        node_name=node,
        allocatable=make_resources({**base, **resized}),
        conditions=(condition("Scheduled", "Scheduled"), condition("Ready", "Available")),
    )
    return attrs.evolve(reservation, status=status)


def _with_status(reservation: Reservation, **changes: object) -> Reservation:
    return attrs.evolve(reservation, status=attrs.evolve(reservation.status, **changes))  # type: ignore[arg-type]  # its fields


def _conditions(
    status: ReservationStatus,
    kind: str,
    absent: ReservationCondition,
    change: Callable[[ReservationCondition], ReservationCondition],
) -> tuple[ReservationCondition, ...]:
    """Change the last condition of a kind, or add one."""
    conditions = list(status.conditions)
    last = max((index for index, one in enumerate(conditions) if one.kind == kind), default=None)
    if last is None:
        conditions.append(absent)
    else:
        conditions[last] = change(conditions[last])
    return tuple(conditions)


def made_unschedulable(reservation: Reservation, message: str, now: datetime | None) -> Reservation:
    """Give the reservation with word that no node was found; its phase stays.

    Parameters
    ----------
    reservation
        One that waits.
    message
        Why it found no node.
    now
        Time of the condition; ``None`` for no time.
    """
    fresh = ReservationCondition(
        kind="Scheduled",
        status=ConditionStatus.FALSE,
        reason="Unschedulable",
        message=message,
        probed=now,
        changed=now,
    )

    def change(one: ReservationCondition) -> ReservationCondition:
        if one.status is ConditionStatus.TRUE:
            return attrs.evolve(one, probed=now)
        return attrs.evolve(one, reason="Unschedulable", message=message, probed=now)

    return _with_status(reservation, conditions=_conditions(reservation.status, "Scheduled", fresh, change))


def _not_ready(reason: str, now: datetime | None) -> ReservationCondition:
    return ReservationCondition(
        kind="Ready", status=ConditionStatus.FALSE, reason=reason, probed=now, changed=now
    )


def made_expired(reservation: Reservation, now: datetime | None) -> Reservation:
    """Give the reservation as failed because its time is up or its node is gone."""
    fresh = _not_ready("Expired", now)

    def change(one: ReservationCondition) -> ReservationCondition:
        if one.status is ConditionStatus.TRUE:
            return fresh
        return attrs.evolve(one, reason="Expired", probed=now)

    conditions = _conditions(reservation.status, "Ready", fresh, change)
    return _with_status(reservation, phase=ReservationPhase.FAILED, conditions=conditions)


def made_succeeded(reservation: Reservation, now: datetime | None) -> Reservation:
    """Give the reservation as used and over."""
    fresh = _not_ready("Succeeded", now)

    def change(one: ReservationCondition) -> ReservationCondition:
        return attrs.evolve(one, status=ConditionStatus.FALSE, reason="Succeeded", probed=now)

    conditions = _conditions(reservation.status, "Ready", fresh, change)
    return _with_status(reservation, phase=ReservationPhase.SUCCEEDED, conditions=conditions)


def _uses(pod: Pod, reservation: Reservation) -> bool:
    """Tell whether a pod on a reservation's node says that it uses it: by uid, or by name without one."""
    if pod.node_name != reservation.status.node_name:
        return False
    used = allocated_reservation(pod.annotations)
    return used is not None and (used.uid or used.name) == (reservation.uid or reservation.name)


def with_users(reservation: Reservation, pods: Iterable[Pod], now: datetime | None) -> Reservation:
    """Give the reservation with word of the pods that use it; one for a single use succeeds with that.

    Parameters
    ----------
    pods
        Pods of the cluster or of its node; those that name it count, also when they have run to their end.
    now
        Without a clock conditions tell no time.

    Returns
    -------
    Reservation
        The same object where nothing changes.
    """
    status = reservation.status
    users = sorted((pod for pod in pods if _uses(pod, reservation)), key=lambda pod: (pod.uid, pod.key))
    names = status.allocatable or ()
    asked = total(pod.requests for pod in users)
    allocated = make_resources({name: amount for name, amount in asked.items() if name in names})
    owners = tuple(ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in users)
    if set(owners) == set(status.current_owners):
        owners = status.current_owners  # owners are a set: in another order they are no change
        if allocated == make_resources(status.allocated or {}):
            return reservation
    used = _with_status(reservation, allocated=allocated, current_owners=owners)
    return made_succeeded(used, now) if reservation.allocate_once else used


def with_decided_users(
    reservations: Iterable[Reservation],
    decisions: Iterable[PodDecision],
    pods_on: Callable[[str], Iterable[Pod]],
    now: datetime | None,
) -> list[Reservation]:
    """Give the reservations that decisions gave a user, as they stand after the controller's next turn.

    Parameters
    ----------
    reservations
        As they stand otherwise: one that got its node in the same decisions has it.
    pods_on
        The pods of a node with what the decisions put there.
    """
    bound = [one.held if isinstance(one, Waiting) else one for one in decisions]
    held = [one for one in bound if isinstance(one, Bound)]
    used = {one.reservation for one in held if one.reservation}
    placed = {one.pod for one in held}
    found = []
    for one in reservations:
        # Over running pods a reservation is placed with its first users.
        over = one.pre_allocation and one.pod_key in placed
        if one.available and (over or one.name in used):
            settled = with_users(one, pods_on(one.status.node_name), now)
            if settled is not one:
                found.append(settled)
    return found
