"""What happens to a cluster over time: frozen events, each with its second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, TypeVar

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields
from koordcore.scoring.gpu_share import GpuDemand, GpuNode

MOST_SECONDS: Final = 1 << 62
"""Later than anything that a column of a replay can hold."""


class Timed(Protocol):
    """Whatever has a second."""

    @property
    def time(self) -> int:
        """Seconds since the start."""


E = TypeVar("E", bound=Timed)


def refuse_duration(duration: int | None, subject: str) -> None:
    """Raise a :class:`ModelError` where something is to run for a time that is none."""
    if duration is not None and duration < 0:
        raise ModelError(f"{subject}: duration is negative: {duration}")
    if duration is not None and not isinstance(duration, int):
        raise ModelError(f"{subject}: duration: expected whole seconds, got {duration!r:.60}")


@names_its_fields
@record(kw_only=True)
class Task:
    """Work that arrives.

    Parameters
    ----------
    name
        Unique among the tasks of a stream.
    demand
        What it asks for.
    duration
        Seconds that it runs once placed; ``None``: until a :class:`Departure` names it, or for ever.
    """

    name: str
    demand: GpuDemand
    duration: int | None = None

    def __attrs_post_init__(self) -> None:
        if not self.name:
            raise ModelError("a task needs a name")
        refuse_duration(self.duration, f"task {self.name}")


class Refused(StrEnum):
    """What becomes of a task that fits nowhere.

    ``DROPPED``: it is gone, as in the FGD experiment. ``WAITS``: it is tried again, in the order of arrival,
    whenever room has come back.
    """

    DROPPED = "dropped"
    WAITS = "waits"


@record
class Arrival:
    """A task asks for a place."""

    time: int
    task: Task


@record
class GangArrival:
    """Tasks that are placed all together or not at all."""

    time: int
    name: str
    tasks: tuple[Task, ...]


@record
class Departure:
    """A task ends; one that waits stops waiting, and so does a gang that is named here.

    Nothing happens where it has ended or was dropped before, as in recorded traces. One that never arrived is
    an error.
    """

    time: int
    task: str


@record
class NodeArrival:
    """A node joins behind all others, or a drained or failed one comes back.

    A drained node on which tasks still run comes back as it is; otherwise the amounts given here count.
    """

    time: int
    node: GpuNode


@record
class NodeDrained:
    """A node takes no further tasks; those on it run on. One that has failed is not there."""

    time: int
    node: str


@record
class NodeFailed:
    """A node is gone with the tasks on it; they ask for a place again, as if just arrived."""

    time: int
    node: str


Event: TypeAlias = Arrival | GangArrival | Departure | NodeArrival | NodeDrained | NodeFailed
"""Exactly one thing at one second; events of the same second happen in the order of the stream."""


def timely(events: Iterable[E], first: int = -MOST_SECONDS, last: int = MOST_SECONDS) -> Iterator[E]:
    """Give events one by one.

    Parameters
    ----------
    events
        What happens.
    first, last
        The seconds that there are.

    Raises
    ------
    ModelError
        When one happens at no whole second, at one beyond these bounds, or before the one ahead of it.
    """
    before: int | None = None
    for event in events:
        time = event.time
        if not isinstance(time, int):
            raise ModelError(f"events: expected whole seconds, got {time!r:.60}")
        if not first <= time <= last:
            raise ModelError(f"events: second {time!r:.60} is beyond the calendar, from {first} to {last}")
        if before is not None and time < before:
            raise ModelError(f"events are not in the order of time: {time} after {before}")
        before = time
        yield event
