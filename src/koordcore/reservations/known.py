"""The reservations of a snapshot by node and by the key of who stands for them, followed along a line."""

from __future__ import annotations

from operator import attrgetter
from typing import Final, NamedTuple

from koordcore._vector import Table, Vector
from koordcore.model.nodes import NodeState
from koordcore.model.pods import PodKey
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, derived

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
