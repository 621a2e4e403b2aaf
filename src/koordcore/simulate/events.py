"""What happens to a cluster over time: frozen events, each with its second."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields
from koordcore.scoring.gpu_share import GpuDemand, GpuNode


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
        if self.duration is not None and self.duration < 0:
            raise ModelError(f"task {self.name}: duration is negative: {self.duration}")


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
