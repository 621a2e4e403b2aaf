"""News of a cluster, from the lists and watches that bring it to the changes of a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordcore.controlplane.mirror import Mirror
from koordcore.controlplane.requests import RESOURCES, Object
from koordcore.errors import Problem
from koordcore.manifests import EventReader
from koordcore.snapshot import Change


class Feed:
    """What lists and watches have told, for the mirror at once and for a snapshot when it is asked for.

    Parameters
    ----------
    resources
        The kinds that are followed from the beginning, and where the objects of each are listed; further ones
        are added with :meth:`Mirror.follow`.
    """

    def __init__(self, resources: Mapping[str, str] = RESOURCES) -> None:
        self.mirror = Mirror(resources)
        self._reader = EventReader()
        self._changes: list[Change] = []

    def listed(self, kind: str, items: Iterable[Object], version: str) -> None:
        """Take all objects of a kind at one version.

        Parameters
        ----------
        kind
            Kind of the objects, as the mirror calls it.
        items
            The objects as JSON; a list leaves out their kind.
        version
            ``resourceVersion`` of the list.
        """
        ready = self.mirror.listed(kind, items, version)
        said = kind.partition(".")[0]
        self._changes += self._reader.relist(self.mirror.version_of(kind), said, ready)

    def watched(self, kind: str, what: str, item: Object) -> None:
        """Take one event of a watch, a bookmark included.

        Parameters
        ----------
        kind
            Kind of the object, as the mirror calls it.
        what
            ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``.
        item
            The object as JSON.
        """
        kept = self.mirror.watched(kind, what, item)
        if kept is not None:
            self._changes += self._reader.event(what, kept)

    @property
    def pending(self) -> tuple[Change, ...]:
        """What :meth:`take` would give."""
        return tuple(self._changes)

    def take(self) -> tuple[tuple[Change, ...], tuple[Problem, ...]]:
        """Give what has changed since the last time, and what cannot be read now."""
        changes, self._changes = tuple(self._changes), []
        return changes, self._reader.problems if changes else ()
