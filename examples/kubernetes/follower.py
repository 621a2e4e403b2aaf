"""Everything is listed once, then watched: one thread per kind tells the feed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from examples.kubernetes.api import Api, GoneError, Listing, RefusedError, UnreachableError
from koordcore.controlplane import Feed, Mirror, places

__all__ = ["Follower"]

_PAUSE: Final = 0.5
"""Seconds before an unreachable server is asked again."""
_NEW_KINDS: Final = 60.0
"""Seconds after which kinds that were not there are looked for again."""
_NEEDED: Final = ("/api/v1/nodes", "/api/v1/pods")

_log = logging.getLogger(__name__)


class Follower:
    """Follows a cluster: every kind that decisions read and that the server has.

    Parameters
    ----------
    api
        Whom to ask.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._stale: set[str] = set()
        self._looked_for: set[str] = set()
        self._settled: set[str] = set()
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self.feed = Feed({})

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
        self._start("kinds", self._look_around)
        self.wait(lambda: bool(self._looked_for) and self._settled >= self._looked_for, timeout=None)

    def wait(self, done: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until the mirror shows something; ``False`` when that takes too long.

        Raises
        ------
        RuntimeError
            When a thread has ended that follows the cluster: nobody should decide on what stands still.
        """
        with self._changed:
            reached = self._changed.wait_for(lambda: self._failure is not None or done(), timeout)
        if self._failure is not None:
            raise RuntimeError("the cluster is not followed any more") from self._failure
        return reached

    def refresh(self, kind: str) -> None:
        """List a kind anew at its next change, for a watch that seems to have lost something."""
        self._stale.add(kind)

    def _start(self, name: str, follow: Callable[[], None]) -> None:
        """Do something in a thread of its own that never ends."""

        def run() -> None:
            try:
                follow()
            except BaseException as error:
                with self._changed:
                    self._failure = error
                    self._changed.notify_all()
                raise

        threading.Thread(target=run, name=name, daemon=True).start()

    def _look_around(self) -> None:
        """Follow what the server has, and what it comes to have later."""
        while True:
            try:
                found = places(self._api.send("GET", "/apis"), jobs=False)
            except (RefusedError, UnreachableError) as error:
                _log.warning("kinds: %s", error)
                time.sleep(_PAUSE)
                continue
            new = [one for one in found if one[-1] not in self._looked_for]
            with self._changed:
                self._looked_for.update(one[-1] for one in new)
            for paths in new:
                self._start(f"watch-{paths[-1].rpartition('/')[2]}", partial(self._follow, paths))
            time.sleep(_NEW_KINDS)

    def _follow(self, paths: Sequence[str]) -> None:
        """Follow a kind, wherever it is listed."""
        kind, where = "", paths[-1]
        while True:
            try:
                for path in paths:
                    listing = self._listed(path)
                    if listing is not None:
                        where = path
                        with self._changed:
                            kind = self.mirror.follow(listing.kind, path)
                            self._stale.discard(kind)
                            self.feed.listed(kind, listing.items, listing.version)
                            self._settle(paths)
                        self._watch(kind, path, listing.version)
                        break
                else:
                    with self._changed:
                        if kind:  # its definition was deleted, and all objects with it
                            self.feed.listed(kind, (), str(self.mirror.followed(kind)))
                        self._settle(paths)
                    time.sleep(_NEW_KINDS)
            except GoneError:
                _log.info("%s: the version is gone, listing anew", where)
            except (RefusedError, UnreachableError) as error:
                _log.warning("%s: %s", where, error)
                time.sleep(_PAUSE)

    def _settle(self, paths: Sequence[str]) -> None:
        self._settled.add(paths[-1])
        self._changed.notify_all()

    def _listed(self, path: str) -> Listing | None:
        """List a kind; ``None`` where the server does not have it, or does not show it to us."""
        try:
            return self._api.list_all(path)
        except RefusedError as error:
            if path in _NEEDED or error.status not in (403, 404):
                raise
            if error.status == 403:
                _log.warning("%s: %s", path, error)
            return None

    def _watch(self, kind: str, path: str, version: str) -> None:
        """Watch a kind from a version on, over connections that break, until the server has forgotten it."""
        while kind not in self._stale:
            begun, told = time.monotonic(), False
            try:
                for event in self._api.watch(path, version):
                    told = True
                    version = event.object["metadata"]["resourceVersion"]
                    with self._changed:
                        self.feed.watched(kind, event.what, event.object)
                        self._changed.notify_all()
                    if kind in self._stale:
                        break
            except UnreachableError as error:
                _log.info("%s: %s; watching on", path, error)
                time.sleep(_PAUSE)
                continue
            if not told and time.monotonic() - begun < _PAUSE and kind not in self._stale:
                time.sleep(_PAUSE)  # what closes it at once would be asked without end
