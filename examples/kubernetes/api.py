"""What the scheduler asks of an API server, whatever client carries it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import attrs

__all__ = ["Api", "Event", "GoneError", "Listing", "Object", "RefusedError", "UnreachableError"]

Object: TypeAlias = dict[str, Any]
"""An object as JSON; nobody below the client makes classes of it."""


class RefusedError(Exception):
    """The server has answered, and the answer is no."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status

    @property
    def passing(self) -> bool:
        """Asking once more may help: the server was busy or ill."""
        return self.status == 429 or self.status >= 500


class GoneError(Exception):
    """The version to watch from has been compacted away: list anew."""


class UnreachableError(Exception):
    """No answer; nobody knows whether the request has been carried out."""


@attrs.frozen
class Listing:
    """All objects of a kind at one version; the kind is empty where nobody asked for it."""

    items: tuple[Object, ...]
    version: str
    kind: str = ""


@attrs.frozen
class Event:
    """One change: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which only tells the version."""

    what: str
    object: Object


class Api(Protocol):
    """An API server. Each method raises :class:`UnreachableError` where there is no answer."""

    def list_all(self, path: str) -> Listing:
        """List all objects under a path."""
        ...

    def watch(self, path: str, version: str) -> Iterator[Event]:
        """Yield changes after a version until the server ends the stream.

        Raises
        ------
        GoneError
            When the version is too old.
        """
        ...

    def send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        """Make one request and give the answer.

        Raises
        ------
        RefusedError
            With the status of the answer.
        """
        ...
