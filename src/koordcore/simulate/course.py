"""What a policy made of a stream of events: its decisions, and the course of things as columns."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.scoring.gpu_share import GpuNode
from koordcore.simulate.events import Task


@record
class Placement:
    """One decision.

    Parameters
    ----------
    task
        The task's name.
    node
        Where it went; empty when it was refused for good.
    slots
        Minors of its cards.
    time, waited
        Second of the decision, and seconds since the arrival.
    """

    task: str
    node: str
    slots: tuple[int, ...] = ()
    time: int = 0
    waited: int = 0


@record(eq=False)
class ReplayColumns:
    """One entry per event, ends of tasks included, in the order in which they happened.

    Parameters
    ----------
    time
        Seconds.
    arrived
        Card milli asked for so far by all tasks that arrived, refused ones included.
    allocated
        Card milli in use.
    fragmented
        Idle card milli that the mix cannot use, as an expectation.
    pending
        Tasks that wait, a gang as one.
    waited
        Seconds that the tasks placed at this event had waited, added up.
    """

    time: NDArray[np.int64]
    arrived: NDArray[np.int64]
    allocated: NDArray[np.int64]
    fragmented: NDArray[np.float64]
    pending: NDArray[np.int64]
    waited: NDArray[np.int64]


@record(eq=False, kw_only=True)
class Replay:
    """What a policy made of a stream of events.

    Parameters
    ----------
    columns
        The course of things.
    placements
        Every decision, in order; a task that waited has one entry, at its end.
    nodes
        The nodes at the end, in the order of their ranks.
    waiting
        Tasks that still wait, in the order of arrival.
    running
        Tasks that still run, in the order of their placement.
    capacity
        Card milli of the nodes at the start.
    """

    columns: ReplayColumns
    placements: tuple[Placement, ...]
    nodes: tuple[GpuNode, ...]
    waiting: tuple[Task, ...]
    running: tuple[Placement, ...]
    capacity: int

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all decisions in canonical form: equal wherever the same was decided."""
        rows = [[one.task, one.node, list(one.slots), one.time] for one in self.placements]
        text = json.dumps(rows, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    @property
    def refused(self) -> int:
        """Tasks that were dropped."""
        return sum(not one.node for one in self.placements)

    def table(self) -> dict[str, NDArray[Any]]:
        """Give the course as columns by name, each ``(events,)``, as pandas, polars and pyarrow take them."""
        return attrs.asdict(self.columns)
