"""The reservations of a snapshot by node and by who stands for them, and who uses them, followed."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import Final, NamedTuple

from koordcore._vector import Table, Vector
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.protocol.reservation import allocated_reservation
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived

_NAMES: Final = attrgetter("namespace", "name")


class KnownReservations(NamedTuple):
    """What is asked about single nodes and pods, so that nobody looks through all reservations.

    Parameters
    ----------
    waiting
        Those that wait for a node, by the key of the pod that stands for them.
    on
        Those that hold room on a node, by its name, in the order of their names.
    """

    waiting: Table[PodKey, Reservation]
    on: Table[str, tuple[Reservation, ...]]


def known_reservations(snapshot: ClusterSnapshot) -> KnownReservations:
    """Give the reservations of a snapshot by node and key."""
    return derived(snapshot, _known, _known_again, replaced=True)


def _known(snapshot: ClusterSnapshot) -> KnownReservations:
    waiting: dict[PodKey, Reservation] = {}
    on: dict[str, list[Reservation]] = {}
    for one in snapshot.of(Reservation):
        if one.pending:
            waiting[one.pod_key] = one
        if one.active:
            on.setdefault(one.status.node_name, []).append(one)
    return KnownReservations(Table(waiting), Table({name: tuple(ones) for name, ones in on.items()}))


def _known_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    known: KnownReservations,
    snapshot: ClusterSnapshot,
) -> KnownReservations:
    del nodes
    changes = changed_records(snapshot, records)
    gone = [old for old, _ in changes if isinstance(old, Reservation)]
    come = [new for _, new in changes if isinstance(new, Reservation)]
    if not gone and not come:
        return known
    waiting = {one.pod_key: one for one in come if one.pending}
    passed = [one.pod_key for one in gone if one.pod_key not in waiting]
    names = {one.status.node_name for one in (*gone, *come) if one.active}
    on = {name: list(known.on.get(name, ())) for name in names}
    for one in gone:
        if one.active:
            here = on[one.status.node_name]
            del here[[*map(id, here)].index(id(one))]
    for one in come:
        if one.active:
            on[one.status.node_name].append(one)
    held = {name: tuple(sorted(here, key=_NAMES)) for name, here in on.items() if here}
    return KnownReservations(
        known.waiting.changed(passed, waiting), known.on.changed(names - held.keys(), held)
    )


def waits_for_node(snapshot: ClusterSnapshot, reservation: Reservation) -> bool:
    """Tell whether a reservation is to be placed.

    One that a running pod uses was placed, whatever its status says yet: it is not placed a second time.
    """
    return reservation.pending and (reservation.uid or reservation.name) not in running_users(snapshot)


def running_users(snapshot: ClusterSnapshot) -> Table[str, int]:
    """Count the pods with a node that say they use a reservation, by its uid, or its name without one."""
    return derived(snapshot, _users, _users_again, replaced=True)


def _users(snapshot: ClusterSnapshot) -> Table[str, int]:
    return Table(Counter(map(_used_by, filter(_uses, (*snapshot.bound_pods(), *snapshot.of(Pod))))))


def _users_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    known: Table[str, int],
    snapshot: ClusterSnapshot,
) -> Table[str, int]:
    moved = Counter[str]()
    for old, new in changed_states(snapshot, nodes):
        moved.subtract(map(_used_by, filter(_uses, () if old is None else old.pods)))
        moved.update(map(_used_by, filter(_uses, () if new is None else new.pods)))
    for was, now in changed_records(snapshot, records):
        moved.subtract([_used_by(was)] if isinstance(was, Pod) and _uses(was) else ())
        moved.update([_used_by(now)] if isinstance(now, Pod) and _uses(now) else ())
    counts = {name: known.get(name, 0) + change for name, change in moved.items() if change}
    return known.changed(counts.keys(), {name: count for name, count in counts.items() if count})


def _uses(pod: Pod) -> bool:
    return bool(pod.node_name) and allocated_reservation(pod.annotations) is not None


def _used_by(pod: Pod) -> str:
    used = allocated_reservation(pod.annotations)
    assert used is not None, "asked of those that use one"
    return used.uid or used.name
