"""The life of a reservation as pure functions of the object, the clock, the nodes and the pods.

After upstream's reservation controller and its garbage collection; what is written into the status is in
:mod:`koordcore.protocol.reservation_status`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.protocol.expectations import end_after
from koordcore.protocol.reservation import is_operating_pod
from koordcore.protocol.reservation_status import (
    made_available,
    made_expired,
    made_succeeded,
    made_unschedulable,
    with_users,
)
from koordcore.protocol.times import moment_of
from koordcore.reservations.state import reserve_pod
from koordcore.snapshot import ClusterSnapshot

__all__ = [
    "after_ends",
    "as_of",
    "collected",
    "controlled",
    "made_available",
    "made_expired",
    "made_succeeded",
    "made_unschedulable",
    "needs_expiration",
    "next_sync",
    "reserve_pod",
    "synced",
    "time_up",
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


def synced(
    reservation: Reservation, now: datetime, nodes: Collection[str], pods: Iterable[Pod]
) -> Reservation:
    """Take one turn of the controller.

    Parameters
    ----------
    reservation
        As it stands.
    now
        The clock, with a zone.
    nodes
        Names of the nodes that exist.
    pods
        Pods of the cluster; those on the reservation's node that name it use it, also when they have
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
    return with_users(reservation, pods, now)


def controlled(snapshot: ClusterSnapshot, now: datetime) -> ClusterSnapshot:
    """Give the cluster after the controller's turn with every reservation that has a node.

    Those whose time is up or whose node is gone fail; the others name the pods that use them now.
    """
    names = snapshot.layout.row_of
    changed = []
    for one in snapshot.of(Reservation):
        there = one.status.node_name
        after = synced(one, now, names, snapshot.node(there).pods if there in names else ())
        if after is not one:
            changed.append(after)
    return snapshot.with_records(*changed) if changed else snapshot


def time_up(reservation: Reservation) -> datetime | None:
    """Give the moment after which a reservation on a node holds nothing; ``None`` where none is known.

    Whoever says neither when it was made nor when it ends has no age.
    """
    ends = [reservation.expires]
    if reservation.created is not None and reservation.ttl is not None:
        ends.append(end_after(reservation.created, timedelta(microseconds=reservation.ttl // 1000)))
    if reservation.ttl == 0 or not reservation.active:
        return None
    return min((end for end in ends if end is not None), default=None)


def as_of(snapshot: ClusterSnapshot, now: datetime) -> ClusterSnapshot:
    """Give the cluster as it stands at a moment: reservations whose time is up by then hold nothing."""
    undated = [one for one in snapshot.of(Reservation) if one.created is None and one.expires is None]
    return controlled(snapshot, now).with_records(*undated)


def known_ends(snapshot: ClusterSnapshot) -> dict[str, datetime]:
    """Give when each reservation on a node is up, by name; those of which that is not known are left out."""
    return {one.name: end for one in snapshot.of(Reservation) if (end := time_up(one)) is not None}


def after_ends(snapshot: ClusterSnapshot, moment: datetime) -> ClusterSnapshot:
    """Give the cluster right after a moment, which ends reservations that hold until then."""
    if not any(end <= moment for end in known_ends(snapshot).values()):
        return snapshot
    return as_of(snapshot, end_after(moment, timedelta(microseconds=1)) or moment)


def lenders_leave(snapshot: ClusterSnapshot, ends: Iterable[PodKey]) -> bool:
    """Tell whether pods may leave that act as reservations: their owners lose what others win."""
    leaving = (snapshot.pod(key) for key in ends)
    return any(pod is not None and is_operating_pod(pod) for pod in leaving)


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

    Parameters
    ----------
    reservation
        As it stands.
    now
        The clock, with a zone.
    nodes
        Names of the nodes that exist.
    keep
        How long what has ended stays.
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
