"""The life of a reservation as pure functions of the object, the clock, the nodes and the pods.

After upstream's status writers, its reservation controller and its garbage collection.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import attrs

from koordcore.allocators.reservation.state import reserve_pod
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
from koordcore.protocol.reservation import allocated_reservation, made_available
from koordcore.protocol.times import moment_of

__all__ = [
    "collected",
    "made_available",
    "made_expired",
    "made_succeeded",
    "made_unschedulable",
    "needs_expiration",
    "next_sync",
    "reserve_pod",
    "synced",
]

_SECOND: Final = 10**9
_SOONEST: Final = 3 * _SECOND
_LATEST: Final = 15 * _SECOND
_BEGINNING: Final = -62135596800 * _SECOND
"""Year 1: what an object without a creation time counts from upstream."""
_LONGEST: Final = 2**63 - 1


def _created(reservation: Reservation) -> int:
    return _BEGINNING if reservation.created is None else moment_of(reservation.created)


def needs_expiration(reservation: Reservation, now: datetime) -> bool:
    """Tell whether a reservation's time is up: its ``expires`` is past, or it is older than its ``ttl``.

    A ``ttl`` of 0 turns both off; what is over does not expire.
    """
    if reservation.over or reservation.ttl == 0:
        return False
    if reservation.expires is not None and now > reservation.expires:
        return True
    age = min(moment_of(now) - _created(reservation), _LONGEST)
    return reservation.ttl is not None and age > reservation.ttl


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


def made_unschedulable(reservation: Reservation, message: str, now: datetime) -> Reservation:
    """Give the reservation with word that no node was found; its phase stays."""
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


def _not_ready(reason: str, now: datetime) -> ReservationCondition:
    return ReservationCondition(
        kind="Ready", status=ConditionStatus.FALSE, reason=reason, probed=now, changed=now
    )


def made_expired(reservation: Reservation, now: datetime) -> Reservation:
    """Give the reservation as failed because its time is up or its node is gone."""
    fresh = _not_ready("Expired", now)

    def change(one: ReservationCondition) -> ReservationCondition:
        if one.status is ConditionStatus.TRUE:
            return fresh
        return attrs.evolve(one, reason="Expired", probed=now)

    conditions = _conditions(reservation.status, "Ready", fresh, change)
    return _with_status(reservation, phase=ReservationPhase.FAILED, conditions=conditions)


def made_succeeded(reservation: Reservation, now: datetime) -> Reservation:
    """Give the reservation as used and over."""
    fresh = _not_ready("Succeeded", now)

    def change(one: ReservationCondition) -> ReservationCondition:
        return attrs.evolve(one, status=ConditionStatus.FALSE, reason="Succeeded", probed=now)

    conditions = _conditions(reservation.status, "Ready", fresh, change)
    return _with_status(reservation, phase=ReservationPhase.SUCCEEDED, conditions=conditions)


def synced(
    reservation: Reservation, now: datetime, nodes: Collection[str], pods: Iterable[Pod]
) -> Reservation:
    """Take one turn of the controller.

    Parameters
    ----------
    nodes
        Names of the nodes that exist.
    pods
        Pods of the cluster; those on the reservation's node that name its uid use it, also when they have
        run to their end and are not deleted yet.

    Returns
    -------
    Reservation
        The same object where nothing changes. A reservation without a node is left alone.
    """
    status = reservation.status
    if not status.node_name or reservation.over:
        return reservation
    if status.node_name not in nodes or needs_expiration(reservation, now):
        return made_expired(reservation, now)
    users = sorted((pod for pod in pods if _uses(pod, reservation)), key=lambda pod: (pod.uid, pod.key))
    names = status.allocatable or ()
    asked = total(pod.requests for pod in users)
    allocated = make_resources({name: amount for name, amount in asked.items() if name in names})
    owners = tuple(ObjectReference(namespace=pod.namespace, name=pod.name, uid=pod.uid) for pod in users)
    if owners == status.current_owners and allocated == make_resources(status.allocated or {}):
        return reservation
    used = _with_status(reservation, allocated=allocated, current_owners=owners)
    return made_succeeded(used, now) if reservation.allocate_once else used


def _uses(pod: Pod, reservation: Reservation) -> bool:
    if pod.node_name != reservation.status.node_name:
        return False
    used = allocated_reservation(pod.annotations)
    return used is not None and used.uid == reservation.uid


def next_sync(reservation: Reservation, now: datetime) -> int:
    """Give the nanoseconds until the controller should look again; 0 for never."""
    if reservation.over:
        return 0
    if reservation.expires is not None:
        left = moment_of(reservation.expires) - moment_of(now)
    elif reservation.ttl:
        left = _created(reservation) + reservation.ttl - moment_of(now)
    else:
        return 0
    return min(max(left, _SOONEST), _LATEST)


def collected(reservation: Reservation, now: datetime, nodes: Collection[str], *, keep: timedelta) -> bool:
    """Tell whether garbage collection deletes a reservation.

    Only what expired or succeeded is deleted: at once when its node is missing, otherwise ``keep`` after it
    ended. An expired one ended when its condition changed, a succeeded one when it was last looked at.
    """
    if reservation.expired:
        reason, moment = "Expired", "changed"
    elif reservation.succeeded:
        reason, moment = "Succeeded", "probed"
    else:
        return False
    if reservation.status.node_name and reservation.status.node_name not in nodes:
        return True
    found = next((one for one in reservation.status.conditions if one.reason == reason), None)
    ended: datetime | None = None if found is None else getattr(found, moment)
    return ended is not None and now - ended > keep
