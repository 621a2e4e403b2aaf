"""The volumes of a snapshot that a claim may still take, followed: most are in use, for good."""

from __future__ import annotations

from koordcore._vector import Table, Vector
from koordcore.model.nodes import NodeState
from koordcore.model.records import ClusterRecord
from koordcore.model.volumes import PersistentVolume
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, derived


def free_volumes(snapshot: ClusterSnapshot) -> Table[str, PersistentVolume]:
    """Give the volumes that are available, by name."""
    return derived(snapshot, _free, _free_again, replaced=True)


def _free(snapshot: ClusterSnapshot) -> Table[str, PersistentVolume]:
    return Table({one.name: one for one in snapshot.of(PersistentVolume) if one.available})


def _free_again(
    nodes: Vector[NodeState],
    records: Vector[ClusterRecord],
    known: Table[str, PersistentVolume],
    snapshot: ClusterSnapshot,
) -> Table[str, PersistentVolume]:
    del nodes
    pairs = changed_records(snapshot, records)
    gone = [old.name for old, _ in pairs if isinstance(old, PersistentVolume)]
    come = {new.name: new for _, new in pairs if isinstance(new, PersistentVolume) and new.available}
    return known.changed(gone, come) if gone or come else known
