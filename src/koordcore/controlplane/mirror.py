"""What the cluster looks like: everything listed once, then led on by what a watch delivers.

The mirror asks nobody and waits for nobody; whoever lists and watches tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from koordcore._blame import names_its_arguments, shown
from koordcore.controlplane.requests import RESOURCES, Object, version_of
from koordcore.errors import ManifestError, ModelError
from koordcore.protocol.fields import Json, as_mapping, as_str, at, optional, required, show

_EVENTS: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_DIGITS: Final = 20
"""Most of them that a version has: it counts in 64 bits."""


class Mirror:
    """All objects of the kinds that decisions depend on, and how far each kind has been followed.

    Parameters
    ----------
    resources
        The kinds, and where the objects of each are listed.
    """

    def __init__(self, resources: Mapping[str, str] = RESOURCES) -> None:
        self._resources = dict(resources)
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._followed: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._complete_to: dict[str, int] = {}
        """By kind: version of the last list or bookmark; whatever is no newer has been heard."""
        self._ended: dict[str, dict[tuple[str, str], int]] = {}
        """By kind: at which version objects went, since then."""
        self.changes = 0
        """Counts every change."""

    # -- telling -----------------------------------------------------------------------------------------

    @names_its_arguments
    def follow(self, kind: str, path: str) -> str:
        """Take in one more kind; gives what it is called here: with its group where another has its name.

        Parameters
        ----------
        kind
            Kind of the objects, as they say it.
        path
            Where they are listed.

        Raises
        ------
        ModelError
            When that is no path of a collection.
        """
        group = _group(path)
        taken = self._resources.get(kind, RESOURCES.get(kind, path))
        name = kind if _group(taken) == group else f"{kind}.{group}"
        self._resources[name] = path
        return name

    @names_its_arguments
    def listed(self, kind: str, items: Iterable[Object], version: str) -> tuple[Object, ...]:
        """Take all objects of a kind at one version; gives them as they are kept.

        Parameters
        ----------
        kind
            Kind of the objects.
        items
            The objects as JSON; a list leaves out their kind.
        version
            ``resourceVersion`` of the list.

        Raises
        ------
        ModelError
            When the kind is none that is followed.
        ManifestError
            When an object lacks name or version, or a version is no number. Nothing is taken then.
        """
        self.version_of(kind)
        complete_to = at("version", _as_version, version)
        ready: dict[tuple[str, str], Object] = {}
        newest = self.newest(kind)
        for number, item in enumerate(items):
            key, own = at(f"items[{number}]", _stamp, item)
            ready[key] = complete(kind, item, self._resources)
            newest = max(newest, own)
        self._objects[kind] = ready
        self._note_complete(kind, complete_to)
        self._newest[kind] = newest
        self.changes += 1
        return tuple(ready.values())

    @names_its_arguments
    def watched(self, kind: str, what: str, item: Object) -> Object | None:
        """Take one event; gives the object as it is kept, ``None`` for a bookmark and for old news.

        An event that comes twice, or after a later one of the same object, changes nothing.

        Parameters
        ----------
        kind, item
            Kind of the object, and the object as JSON.
        what
            ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which only tells the version.

        Raises
        ------
        ModelError
            When the kind has not been listed.
        ManifestError
            When it is no such event, an ``ERROR`` of the watch for instance, or the object lacks name or
            version.
        """
        if what not in _EVENTS:
            raise ManifestError.at("type", f"expected ADDED, MODIFIED, DELETED or BOOKMARK, got {show(what)}")
        if kind not in self._objects:
            raise ModelError(f"kind: {shown(kind)} has not been listed yet")
        if what == "BOOKMARK":
            self._note_complete(kind, required(as_mapping(item), "metadata", _version_in))
            return None
        key, version = _stamp(item)
        self._followed[kind] = max(self.followed(kind), version)
        if version <= self._known(kind, key):
            return None
        self._newest[kind] = max(self.newest(kind), version)
        self.changes += 1
        item = complete(kind, item, self._resources)
        if what == "DELETED":
            self._objects[kind].pop(key, None)
            self._ended.setdefault(kind, {})[key] = version
        else:
            self._objects[kind][key] = item
        return item

    def _note_complete(self, kind: str, version: int) -> None:
        """Note that everything up to a version is here."""
        self._followed[kind] = self._complete_to[kind] = version
        self._ended.pop(kind, None)

    def _known(self, kind: str, key: tuple[str, str]) -> int:
        """Version up to which the changes of an object are known, whether it is there or not."""
        kept = self._objects[kind].get(key)
        ended = self._ended.get(kind, {}).get(key, 0)
        return max(
            self._complete_to.get(kind, 0), ended, int(kept["metadata"]["resourceVersion"]) if kept else 0
        )

    # -- reading -----------------------------------------------------------------------------------------

    @property
    def whole(self) -> bool:
        """Every kind has been listed."""
        return self._resources.keys() <= self._objects.keys()

    def objects(self) -> list[Object]:
        """Give all objects; they are replaced when they change, and never edited."""
        return [item for items in self._objects.values() for item in items.values()]

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Give one object.

        Parameters
        ----------
        kind
            Kind of the object.
        name, namespace
            Its key; ``""`` for what is in no namespace.
        """
        return self._objects.get(kind, {}).get((namespace, name))

    @names_its_arguments
    def at(self, path: str) -> Object | None:
        """Give the object with a path; ``None`` for one that is not there, or whose kind is not followed."""
        where, namespace, name = _parts(path)
        return self.find(self._kind_in(where), name, namespace)

    @names_its_arguments
    def kind_at(self, path: str) -> str:
        """Give the kind of the object with a path; ``""`` for one that is not followed."""
        return self._kind_in(_parts(path)[0])

    @names_its_arguments
    def knows(self, path: str, version: int) -> bool:
        """Tell whether all changes up to a version of the object with a path are here."""
        where, namespace, name = _parts(path)
        kind = self._kind_in(where)
        return kind in self._objects and self._known(kind, (namespace, name)) >= version

    def follows(self, kind: str) -> bool:
        """Tell whether a kind is followed."""
        return kind in self._resources

    def _kind_in(self, where: str) -> str:
        return next((kind for kind, listed in self._resources.items() if listed == where), "")

    def version_of(self, kind: str) -> str:
        """Give the API version in which a kind is listed.

        Raises
        ------
        ModelError
            When it is none that is followed.
        """
        if kind not in self._resources:
            raise ModelError(f"kind: {shown(kind)} is not followed, only {', '.join(self._resources)}")
        return version_of(kind, self._resources)

    def followed(self, kind: str) -> int:
        """Version up to which all changes of a kind are here; they can be compared since Kubernetes 1.35."""
        return self._followed.get(kind, 0)

    def newest(self, kind: str) -> int:
        """Version of the latest change of a kind that was seen; everybody who watches comes to see it."""
        return self._newest.get(kind, 0)


def complete(kind: str, item: Object, resources: Mapping[str, str] = RESOURCES) -> Object:
    """Add what items of a list lack, and drop what nobody reads.

    Parameters
    ----------
    kind
        Kind of the object.
    item
        The object as JSON.
    resources
        Path of each kind, which tells its group and version.
    """
    metadata = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
    version, said = version_of(kind, resources), kind.partition(".")[0]
    return {**item, "apiVersion": version, "kind": said, "metadata": metadata}


def _parts(path: str) -> tuple[str, str, str]:
    """Give where the objects of a kind are listed, and namespace and name of the one with a path."""
    head, _, name = path.rpartition("/")
    before, between, after = head.partition("/namespaces/")
    namespace, _, plural = after.partition("/")
    return (f"{before}/{plural}", namespace, name) if between else (head, "", name)


def _group(path: str) -> str:
    parts = path.split("/")
    if len(parts) < 4 or parts[0]:
        raise ModelError(f"path: expected that of a collection, such as /api/v1/pods, got {shown(path)}")
    return parts[2]


def _stamp(item: Json) -> tuple[tuple[str, str], int]:
    """Read namespace and name of an object, and its version."""
    return required(as_mapping(item), "metadata", _stamp_in)


def _stamp_in(metadata: Json) -> tuple[tuple[str, str], int]:
    raw = as_mapping(metadata)
    return (optional(raw, "namespace", as_str, ""), required(raw, "name", as_str)), _version_in(raw)


def _version_in(metadata: Json) -> int:
    return required(as_mapping(metadata), "resourceVersion", _as_version)


def _as_version(value: Json) -> int:
    """Take a version: they are numbers that can be compared since Kubernetes 1.35."""
    text = as_str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ManifestError.at("", f"expected the number of a version, got {show(text)}")
    return int(text)
