"""What the cluster looks like: everything listed once, then led on by what a watch delivers.

The mirror asks nobody and waits for nobody; whoever lists and watches tells it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from koordcore.controlplane.requests import RESOURCES, Object, key_of, version_of


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

    def follow(self, kind: str, path: str) -> str:
        """Take in one more kind; gives what it is called here: with its group where another has its name.

        Parameters
        ----------
        kind
            Kind of the objects, as they say it.
        path
            Where they are listed.
        """
        group = _group(path)
        taken = self._resources.get(kind, RESOURCES.get(kind, path))
        name = kind if _group(taken) == group else f"{kind}.{group}"
        self._resources[name] = path
        return name

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
        """
        ready = {key_of(item): complete(kind, item, self._resources) for item in items}
        self._objects[kind] = ready
        self._note_complete(kind, int(version))
        versions = (int(item["metadata"]["resourceVersion"]) for item in ready.values())
        self._newest[kind] = max([self.newest(kind), *versions])
        self.changes += 1
        return tuple(ready.values())

    def watched(self, kind: str, what: str, item: Object) -> Object | None:
        """Take one event; gives the object as it is kept, ``None`` for a bookmark and for old news.

        An event that comes twice, or after a later one of the same object, changes nothing.

        Parameters
        ----------
        kind, item
            Kind of the object, and the object as JSON.
        what
            ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which only tells the version.
        """
        version = int(item["metadata"]["resourceVersion"])
        if what == "BOOKMARK":
            self._note_complete(kind, version)
            return None
        key = key_of(item)
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

    def at(self, path: str) -> Object | None:
        """Give the object with a path; ``None`` for one that is not there, or whose kind is not followed."""
        where, namespace, name = _parts(path)
        return self.find(self._kind_in(where), name, namespace)

    def kind_at(self, path: str) -> str:
        """Give the kind of the object with a path; ``""`` for one that is not followed."""
        return self._kind_in(_parts(path)[0])

    def _kind_in(self, where: str) -> str:
        return next((kind for kind, listed in self._resources.items() if listed == where), "")

    def version_of(self, kind: str) -> str:
        """Give the API version in which a kind is listed."""
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
    return path.split("/")[2]
