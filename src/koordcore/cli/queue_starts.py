"""What ``koordcore when`` says of the queue: who is before whom, and when a turn brings a place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from koordcore._record import record
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.tables import say, show
from koordcore.model.pods import Pod
from koordcore.protocol.times import format_time
from koordcore.scheduling.serving import QueuedStart

_SHOWN: Final = 3
"""Names of those before that are shown in a line."""


@record
class Place:
    """Where somebody stands in the queue.

    Parameters
    ----------
    units
        The queue, in order.
    index
        Of the one that is asked about, from 0.
    """

    units: tuple[QueuedStart, ...]
    index: int

    @property
    def unit(self) -> QueuedStart:
        """Who is asked about."""
        return self.units[self.index]

    @property
    def before(self) -> tuple[str, ...]:
        """Who has a turn first."""
        return tuple(unit.name for unit in self.units[: self.index])


def place_of(units: Sequence[QueuedStart], pods: Sequence[Pod]) -> Place | None:
    """Find the unit that holds any of some pods; ``None`` where they wait for another scheduler."""
    keys = {pod.key for pod in pods}
    for index, unit in enumerate(units):
        if keys & {*unit.pods}:
            return Place(tuple(units), index)
    return None


def place_record(place: Place | None, start: datetime | None, message: str) -> dict[str, Any] | None:
    """Write it for programs."""
    if place is None:
        return None
    record: dict[str, Any] = {
        "position": place.index + 1,
        "of": len(place.units),
        "before": list(place.before),
        "expectedStart": start and format_time(start),
    }
    return record if start is not None else {**record, "message": message}


def never(unit: QueuedStart) -> str:
    """Say why a unit has no start."""
    if unit.not_before is None:
        return unit.message
    return f"ends after {format_time(unit.not_before)} were not looked at; until then: {unit.message}"


def place_lines(
    place: Place | None,
    start: datetime | None,
    message: str,
    *,
    now: datetime,
    earliest: datetime | None,
) -> list[str]:
    """Write it for people; nothing for whoever is alone.

    Parameters
    ----------
    start, message
        When its turn brings a place, or why none does.
    earliest
        When it could start if everybody else kept waiting.
    """
    if place is None:
        return ["  not in the queue: no profile of the policy has its scheduler's name"]
    if len(place.units) == 1:
        return []
    line = f"  {place.index + 1} of {len(place.units)} in the queue"
    more = len(place.before) - _SHOWN
    names = ", ".join(place.before[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    position = f"{line}, after {names}" if names else f"{line}, nobody before it"
    turn = f"  in its turn: {_when(start, now) or _never(message)}"
    if start == earliest or earliest is None:
        return [position, turn]
    if start is not None and start < earliest:
        return [position, turn, "  sooner: others who wait have come and gone by then"]
    return [position, turn, "  others take room before; -o reservations holds it for this start"]


def queue_record(units: Sequence[tuple[int, QueuedStart]]) -> list[dict[str, Any]]:
    """Write the whole queue for programs."""
    return [
        {
            "name": unit.name,
            "turn": turn,
            "pods": [str(key) for key in unit.pods],
            "expectedStart": unit.start and format_time(unit.start),
            "nodes": {str(key): unit.nodes[key] for key in sorted(unit.nodes)},
            **({"message": unit.message} if unit.start is None else {}),
            **({"notBefore": format_time(unit.not_before)} if unit.not_before is not None else {}),
        }
        for turn, unit in units
    ]


def show_queue(units: Sequence[tuple[int, QueuedStart]], now: datetime) -> None:
    """Print the whole queue as a table."""
    columns = (
        Column("POD OR GANG", tone=Tone.NAME),
        Column("TURN", number=True, rank=3),
        Column("PODS", number=True, rank=2),
        Column("STARTS", text=True),
        Column("NODES", tone=Tone.GOOD, text=True, rank=1),
        Column("WHY NOT", tone=Tone.BAD, text=True),
    )
    rows = []
    for turn, unit in units:
        nodes = ", ".join(sorted(set(unit.nodes.values())))
        why = "" if unit.start is not None else unit.message
        start = _when(unit.start, now) or _not_before(unit) or "not in sight"
        rows.append((unit.name, str(turn), str(len(unit.pods)), start, nodes, why))
    show(Table(title="The queue, served whenever somebody leaves", columns=columns, rows=rows))
    started = sum(unit.start == now for _, unit in units)
    later = sum(unit.start is not None for _, unit in units) - started
    never = len(units) - started - later
    say(f"{started} of {len(units)} can start now · {later} later · {never} not in sight")


def _when(start: datetime | None, now: datetime) -> str:
    if start is None:
        return ""
    return "now" if start == now else f"{format_time(start)}, in {start - now}"


def _not_before(unit: QueuedStart) -> str:
    return "" if unit.not_before is None else f"not before {format_time(unit.not_before)}"


def _never(message: str) -> str:
    return f"no start is in sight{': ' if message else ''}{message}"
