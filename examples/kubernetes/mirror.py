"""What the cluster looks like: everything listed once, then kept up to date by watching."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from examples.kubernetes.api import RESOURCES, Api, GoneError, Object, RefusedError, UnreachableError, key_of

__all__ = ["Mirror", "complete"]

_PAUSE: Final = 0.5
"""Seconds before an unreachable server is asked again."""

_log = logging.getLogger(__name__)


class Mirror:
    """All objects of the kinds that decisions depend on.

    Parameters
    ----------
    api
        Whom to ask; one thread per kind watches.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._followed: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._stale: set[str] = set()
        self._changed = threading.Condition()
        self.changes = 0
        """Counts every change."""
        self.news = 0
        """Counts the changes after which a pod that found no place may find one."""

    def start(self) -> None:
        """List every kind and go on watching; returns once all have been listed."""
        for kind in RESOURCES:
            threading.Thread(target=self._follow, args=(kind,), name=f"watch-{kind}", daemon=True).start()
        self.wait(lambda: len(self._objects) == len(RESOURCES), timeout=None)

    # -- reading -----------------------------------------------------------------------------------------

    def objects(self) -> list[Object]:
        """Give all objects; they are replaced when they change, and never edited."""
        with self._changed:
            return [item for items in self._objects.values() for item in items.values()]

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Give one object."""
        return self._objects[kind].get((namespace, name))

    def followed(self, kind: str) -> int:
        """Version up to which all changes of a kind are here; they can be compared since Kubernetes 1.35."""
        return self._followed.get(kind, 0)

    def newest(self, kind: str) -> int:
        """Version of the latest change of a kind that was seen; everybody who watches comes to see it."""
        return self._newest.get(kind, 0)

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the mirror shows something; ``False`` when that takes too long."""
        with self._changed:
            return self._changed.wait_for(done, timeout)

    def refresh(self, kind: str) -> None:
        """List a kind anew at its next change, for a watch that seems to have lost something."""
        self._stale.add(kind)

    # -- following ---------------------------------------------------------------------------------------

    def _follow(self, kind: str) -> None:
        path = RESOURCES[kind]
        while True:
            try:
                listing = self._api.list_all(path)
                self._stale.discard(kind)
                self._replace(kind, listing.items, listing.version)
                self._watch(kind, path, listing.version)
            except GoneError:
                _log.info("%s: the version is gone, listing anew", kind)
            except (RefusedError, UnreachableError) as error:
                _log.warning("%s: %s", kind, error)
                time.sleep(_PAUSE)

    def _watch(self, kind: str, path: str, version: str) -> None:
        while kind not in self._stale:
            for event in self._api.watch(path, version):
                version = event.object["metadata"]["resourceVersion"]
                self._apply(kind, event.what, event.object)
                if kind in self._stale:
                    break

    def _replace(self, kind: str, items: tuple[Object, ...], version: str) -> None:
        ready = {key_of(item): complete(kind, item) for item in items}
        with self._changed:
            self._objects[kind] = ready
            self._followed[kind] = int(version)
            versions = [int(item["metadata"]["resourceVersion"]) for item in items]
            self._newest[kind] = max([self.newest(kind), *versions])
            self.changes += 1
            self.news += 1
            self._changed.notify_all()

    def _apply(self, kind: str, what: str, item: Object) -> None:
        with self._changed:
            self._followed[kind] = int(item["metadata"]["resourceVersion"])
            if what != "BOOKMARK":
                self._newest[kind] = self._followed[kind]
                self.changes += 1
                self.news += _helps(kind, what, item)
                if what == "DELETED":
                    self._objects[kind].pop(key_of(item), None)
                else:
                    self._objects[kind][key_of(item)] = complete(kind, item)
            self._changed.notify_all()


def complete(kind: str, item: Object) -> Object:
    """Add what items of a list lack, and drop what nobody reads."""
    version = RESOURCES[kind].removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
    metadata = {name: value for name, value in item["metadata"].items() if name != "managedFields"}
    return {**item, "apiVersion": version, "kind": kind, "metadata": metadata}


def _helps(kind: str, what: str, item: Object) -> bool:
    """Tell whether a change may make room: not a pod that has come or found its node, nor a measurement."""
    if kind != "Pod":
        return kind != "NodeMetric"
    return what == "DELETED" or item.get("status", {}).get("phase") in ("Succeeded", "Failed")
