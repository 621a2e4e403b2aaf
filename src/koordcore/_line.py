"""A line of snapshots: what changed from each to the next, and what calls have learnt on the way.

Every snapshot that is made from another one knows its line and its place on it. A line keeps the last changes
only, so nothing leaks; whoever comes from further back compares. A second snapshot made from the same one
starts a line of its own that shares the history up to there.

What a call of :func:`koordcore.schedule` has learnt waits in the pool that a line shares with its forks. A
call takes it out in one step, so no two threads ever work on the same; it may be dropped at any time.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from koordcore.model.nodes import NodeState
    from koordcore.model.records import ClusterRecord


KEPT: Final = 1024
"""Steps of a line that are kept, at least; twice as many at most."""
_ANCESTORS: Final = 16
"""Forks back that a line can be followed across."""
_WARM: Final = 4
"""What calls of so many different policies have learnt is kept."""

RecordPair: TypeAlias = "tuple[ClusterRecord | None, ClusterRecord | None]"
"""A record before and after a change; ``None`` where it was not, or is no longer, there."""


class Delta(NamedTuple):
    """What one step changed; what waits for a node is not told.

    Parameters
    ----------
    nodes
        Row, and the node with its pods before and after. ``None`` for a node that was not, or is no longer,
        there: its row is that of the snapshot in which it is, and rows behind it are others.
    records
        Those that are not the same.
    """

    nodes: tuple[tuple[int, NodeState | None, NodeState | None], ...]
    records: tuple[RecordPair, ...] = ()

    @property
    def moves(self) -> bool:
        """Nodes joined or left."""
        return any(before is None or after is None for _, before, after in self.nodes)

    def back(self) -> Delta:
        """Give the step in the other direction."""
        records = tuple((after, before) for before, after in reversed(self.records))
        return Delta(tuple((row, after, before) for row, before, after in reversed(self.nodes)), records)


class Pool:
    """What calls have learnt, by what they were asked with; the newest last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: list[tuple[Any, Any]] = []

    def take(self, key: object) -> Any | None:
        """Take out what fits a key; nobody else gets it until it is handed back."""
        with self._lock:
            for number in range(len(self._kept) - 1, -1, -1):
                if self._kept[number][0] is key or self._kept[number][0] == key:
                    return self._kept.pop(number)[1]
        return None

    def put(self, key: object, value: object) -> None:
        """Hand something back; what was kept for the key before is dropped, and the oldest of too many."""
        with self._lock:
            self._kept = [one for one in self._kept if one[0] != key][-_WARM + 1 :]
            self._kept.append((key, value))


class Line:
    """Steps by number, those from ``base`` on; ``ancestors`` share the steps up to a number."""

    def __init__(self) -> None:
        self.base = 0
        self.deltas: list[Delta] = []
        self.ancestors: tuple[tuple[object, int], ...] = ()
        self.token = object()
        self.pool = Pool()
        self._lock = Lock()

    def step(self, at: int, delta: Delta) -> tuple[Line, int]:
        """Go one step on from a place; gives the line and the place of what comes out."""
        with self._lock:
            if at == self.base + len(self.deltas):
                self.deltas.append(delta)
                if len(self.deltas) > 2 * KEPT:
                    del self.deltas[:KEPT]
                    self.base += KEPT
                return self, at + 1
        return self._fork(at).step(at, delta)

    def _fork(self, at: int) -> Line:
        other = Line()
        known = max(0, at - self.base)
        other.base = at - known
        other.deltas = self.deltas[:known]
        older = [(token, min(end, at)) for token, end in self.ancestors]
        other.ancestors = (*older, (self.token, at))[-_ANCESTORS:]
        other.pool = self.pool
        return other


class Place(NamedTuple):
    """A snapshot's place on its line."""

    line: Line
    at: int

    def next(self, delta: Delta) -> Place:
        """Give the place one step on."""
        return Place(*self.line.step(self.at, delta))

    def path(self, other: Place) -> list[Delta] | None:
        """Give the steps that lead from here to there; ``None`` where they are not known any more."""
        line = self.line
        if line is other.line and line.base <= self.at <= other.at:
            return line.deltas[self.at - line.base : other.at - line.base]
        mine = {**dict(self.line.ancestors), self.line.token: self.at}
        theirs = {**dict(other.line.ancestors), other.line.token: other.at}
        common = [min(self.at, mine[token], theirs[token], other.at) for token in mine if token in theirs]
        if not common:
            return None
        meet = max(common)
        if meet < self.line.base or meet < other.line.base:
            return None
        back = [
            one.back() for one in reversed(self.line.deltas[meet - self.line.base : self.at - self.line.base])
        ]
        return [*back, *other.line.deltas[meet - other.line.base : other.at - other.line.base]]
