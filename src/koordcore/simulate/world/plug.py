"""How a scheduler is put into the bottle: what it hears, what it does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

from koordcore._record import record
from koordcore.controlplane import Answer, Mirror, Moment, Request
from koordcore.controlplane.requests import Object
from koordcore.snapshot import ClusterSnapshot


@record
class Listed:
    """All objects of a kind at one version: at the start, and after a watch was lost for good."""

    kind: str
    items: tuple[Object, ...]
    version: str


@record
class Watched:
    """One change: ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which only tells the version."""

    kind: str
    what: str
    item: Object


@record
class Answered:
    """What came of a request; status 0 says that nobody knows."""

    ticket: int
    answer: Answer


@record
class Rang:
    """A bell that was set rings."""

    bell: int


News: TypeAlias = Listed | Watched | Answered | Rang


@record
class Post:
    """Send a request; its answer comes with the same ticket."""

    ticket: int
    request: Request


@record
class SetBell:
    """Be woken after so many seconds of the scheduler's own clock."""

    bell: int
    seconds: float


@record
class ListAgain:
    """List a kind anew."""

    kind: str


@record
class Note:
    """Say something for the story of the run."""

    text: str


Act: TypeAlias = Post | SetBell | ListAgain | Note


@record(eq=False)
class Books:
    """What a scheduler believes.

    Parameters
    ----------
    snapshot
        The cluster on which it would decide now.
    mirror
        The objects that it keeps beside that, and how far it has followed each kind; ``None`` for none.
    """

    snapshot: ClusterSnapshot
    mirror: Mirror | None = None


class BottledScheduler(Protocol):
    """A scheduler process; a new object is made whenever one is started, and dropped when it is killed.

    Lists and watches of all kinds that it follows come by themselves, and go on by themselves after a cut.
    """

    def hear(self, news: News, moment: Moment) -> Iterable[Act]:
        """Take one piece of news, and say what to do now; ``moment`` is what its clocks show."""
        ...

    def books(self) -> Books | None:
        """Give what it believes; ``None`` where nobody may look into its books."""
        ...
