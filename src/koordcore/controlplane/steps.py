"""What a loop asks of whoever runs it: requests, patience, the time. Nothing here waits or sends.

A loop is a generator of steps. Who drives it carries each one out, over HTTP or in a bottle, and gives back
what came of it; who stops driving it has killed it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from koordcore._record import record
from koordcore.controlplane.requests import Object, Request
from koordcore.model.checks import check_fields

T = TypeVar("T")
NO_ANSWER: Final = 0
"""Status of a request of which nobody knows whether it has been carried out."""


@record
class Answer:
    """What came of a request.

    Parameters
    ----------
    request
        What was asked.
    status
        As HTTP has it; 0 where there was no answer.
    body
        The object as it is now; empty where it was refused.
    """

    request: Request
    status: int
    body: Object = attrs.field(factory=dict)

    @property
    def done(self) -> bool:
        """Tell whether the server has done it."""
        return 200 <= self.status <= 299

    @property
    def passing(self) -> bool:
        """Tell whether asking once more may help: no answer, or the server was busy or ill."""
        return self.status in (NO_ANSWER, 429) or self.status >= 500


@record
class Moment:
    """What the clocks show.

    Parameters
    ----------
    now
        Seconds on a clock that does not go back.
    wall
        The time of day, with its zone.
    """

    now: float
    wall: datetime

    __attrs_post_init__ = check_fields


@record
class Send:
    """Send requests at the same time, those about one object in order; a failure ends that object's turn.

    Given back is a tuple of :class:`Answer`, one for each request that was sent.
    """

    requests: tuple[Request, ...]


@record(eq=False)
class Await:
    """Let news come until something is done, so many seconds at most; given back is whether it is."""

    done: Callable[[], bool]
    seconds: float


@record
class Look:
    """Give the :class:`Moment`; what was done since the last look was of this kind."""

    after: str = ""


@record
class Relist:
    """List a kind anew: its watch seems to have lost something."""

    kind: str


@record
class Say:
    """Something for the log; ``grave`` is for people to look at."""

    text: str
    grave: bool = False


Step: TypeAlias = Send | Await | Look | Relist | Say
Steps: TypeAlias = Generator[Step, Any, T]
"""Something that takes several steps and ends in a value."""


def pause(seconds: float) -> Steps[None]:
    """Wait for so many seconds."""
    yield Await(lambda: False, seconds)
