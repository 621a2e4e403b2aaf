"""Which objects cannot stand beside each other, as events bring and take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from koordcore.manifests.cross_checks import Key, Remark, not_together
from koordcore.manifests.pods import PodReading
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation

Slot: TypeAlias = tuple[Key, str]
"""An object, and which of the records that it comes to."""
KINDS: Final[Mapping[str, type]] = {"ElasticQuota": ElasticQuota, "Reservation": Reservation}
"""Where objects of a kind may have to be held back for the sake of others."""


class Beside:
    """The quotas and reservations that are there."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Slot, ClusterRecord]] = {kind: {} for kind in KINDS}
        self._names: dict[Key, int] = {}
        """As which pods reservations are known, and how many of them."""

    def keep(self, slot: Slot, before: ClusterRecord | None, after: ClusterRecord | None) -> None:
        """Let a record stand for what was in its place."""
        for kind, known in self._known.items():
            if after is not None and isinstance(after, KINDS[kind]):
                known[slot] = after
            elif isinstance(before, KINDS[kind]):
                del known[slot]
        for record, more in ((before, -1), (after, 1)):
            if isinstance(record, Reservation):
                name = ("", "Pod", record.pod_key.namespace, record.pod_key.name)
                self._names[name] = self._names.get(name, 0) + more
                if not self._names[name]:
                    del self._names[name]

    def names(self, pod: Key) -> bool:
        """Tell whether a reservation is called like a pod."""
        return pod in self._names

    def remarks(self, kind: str, pods: Mapping[Key, PodReading]) -> Iterator[Remark]:
        """Name the objects of a kind that are held back."""
        called = [pods[key].pod for key in self._names if key in pods]
        return not_together(self._known[kind].values(), called)


def unsettled(before: ClusterRecord | None, after: ClusterRecord | None) -> tuple[str, ...]:
    """Give the kinds of which others may be held back now; most news of an object are about its status."""
    if _decides(before) == _decides(after):
        return ()
    return tuple(kind for kind, own in KINDS.items() if isinstance(before, own) or isinstance(after, own))


def _decides(record: ClusterRecord | None) -> object:
    if isinstance(record, ElasticQuota):
        return record.namespace, record.name, record.parent
    return record.pod_key if isinstance(record, Reservation) and not record.over else None
