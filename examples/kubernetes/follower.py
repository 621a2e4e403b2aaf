"""Everything is listed once, then watched: one thread per kind tells the feed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from examples.kubernetes.api import Api, GoneError, RefusedError, UnreachableError
from koordcore.controlplane import RESOURCES, Feed, Mirror

__all__ = ["Follower"]

_PAUSE: Final = 0.5
"""Seconds before an unreachable server is asked again."""

_log = logging.getLogger(__name__)


class Follower:
    """Follows a cluster.

    Parameters
    ----------
    api
        Whom to ask.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stale: set[str] = set()
        self._changed = threading.Condition()
        self.feed = Feed()

    @property
    def lock(self) -> threading.Condition:
        """Held while the feed is told, and to be held while it is read."""
        return self._changed

    @property
    def mirror(self) -> Mirror:
        """What the cluster looks like."""
        return self.feed.mirror

    def start(self) -> None:
        """List every kind and go on watching; returns once all have been listed."""
        for kind in RESOURCES:
            threading.Thread(target=self._follow, args=(kind,), name=f"watch-{kind}", daemon=True).start()
        self.wait(lambda: self.mirror.whole, timeout=None)

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the mirror shows something; ``False`` when that takes too long."""
        with self._changed:
            return self._changed.wait_for(done, timeout)

    def refresh(self, kind: str) -> None:
        """List a kind anew at its next change, for a watch that seems to have lost something."""
        self._stale.add(kind)

    def _follow(self, kind: str) -> None:
        path = RESOURCES[kind]
        while True:
            try:
                listing = self._api.list_all(path)
                self._stale.discard(kind)
                with self._changed:
                    self.feed.listed(kind, listing.items, listing.version)
                    self._changed.notify_all()
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
                with self._changed:
                    self.feed.watched(kind, event.what, event.object)
                    self._changed.notify_all()
                if kind in self._stale:
                    break
