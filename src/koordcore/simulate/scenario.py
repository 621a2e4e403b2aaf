"""One run described by names and numbers, and its outcome as a record that can be stored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

import attrs

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.mappings import EMPTY
from koordcore.protocol.fields import as_int, as_list, as_mapping, as_str, list_of, optional, required
from koordcore.scoring.fragmentation import WorkloadMix, workload_mix
from koordcore.scoring.gpu_policies import PolicyLike, PolicyName, make_policy
from koordcore.scoring.gpu_share import CARD, GpuNode
from koordcore.simulate.claimed_cards import WHOLE
from koordcore.simulate.columns import arrival_columns
from koordcore.simulate.course import Replay
from koordcore.simulate.engine import replay
from koordcore.simulate.events import Event, Refused
from koordcore.simulate.reader import PublishedRun, TraceFolder
from koordcore.simulate.scheduled import ScheduledReplay
from koordcore.simulate.trace import Trace, drawn_ranks, resample, timed_events, untimed_events

FILL_PERCENT = 130
CURVE_POINTS = 200


class Clock(StrEnum):
    """When tasks come and go.

    ``FILL``: one after another until 1.3 times the cluster's cards have been asked for, nobody leaves, as in
    the FGD experiment. ``TRACE``: at the seconds of the trace, for as long as there; who finds no room waits.
    """

    FILL = "fill"
    TRACE = "trace"


@record(order=True)
class Cell:
    """One run of a sweep.

    Parameters
    ----------
    trace, policy, seed, clock
        Which run; seeds of the stored experiment give its order of arrival, others draw their own. The policy
        is a name: of the library's (``PolicyName``), or one that :func:`play_cell` is told the meaning of.
    compress
        By how much the trace's clock is sped up, durations aside; see :func:`timed_events`.
    """

    trace: str
    policy: str
    seed: int
    clock: Clock = Clock.FILL
    compress: int = 1

    @property
    def name(self) -> str:
        """A name that is a file name too."""
        speed = f"-x{self.compress}" if self.compress > 1 else ""
        policy = re.sub(r"[^\w.-]", "_", self.policy)
        return f"{self.trace}-{policy}-{self.seed}-{self.clock}{speed}"


def _floats(raw: object) -> tuple[float, ...]:
    values = as_list(raw)
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ModelError("expected numbers")
    return tuple(float(value) for value in values)  # type: ignore[arg-type]  # checked above


@record(kw_only=True)
class CellResult:
    """What is kept of a run.

    Parameters
    ----------
    cell
        Which run.
    digest
        SHA-256 of the decisions.
    allocated, fragmented
        Percent of the cluster's cards, by percent arrived.
    tasks, refused
        Tasks that arrived, and those that found no room: dropped, or waiting at the end.
    waited
        Mean seconds that placed tasks waited.
    peak, most_pending
        Highest share of the cards in use, in percent, and most tasks that waited at a time.
    time, used, pending
        At most 200 points of the course: seconds, percent of the cards in use, tasks that wait.
    """

    cell: Cell
    digest: str
    allocated: tuple[float, ...]
    fragmented: tuple[float, ...]
    tasks: int
    refused: int
    waited: float
    peak: float
    most_pending: int
    time: tuple[int, ...]
    used: tuple[float, ...]
    pending: tuple[int, ...]

    def unallocated(self, percent: int) -> float:
        """Percent of the cards that are idle when so many percent have been asked for."""
        return round(100 - self.allocated[percent], 2)

    def to_json(self) -> dict[str, object]:
        """Give a value that ``json.dumps`` can write."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, raw: object) -> CellResult:
        """Read what :meth:`to_json` gave.

        Raises
        ------
        ManifestError
            Names what is missing or of the wrong type.
        """
        entry = as_mapping(raw)
        cell = required(entry, "cell", as_mapping)
        return cls(
            cell=Cell(
                required(cell, "trace", as_str),
                required(cell, "policy", as_str),
                required(cell, "seed", as_int),
                Clock(required(cell, "clock", as_str)),
                optional(cell, "compress", as_int, 1),
            ),
            digest=required(entry, "digest", as_str),
            allocated=required(entry, "allocated", _floats),
            fragmented=required(entry, "fragmented", _floats),
            tasks=required(entry, "tasks", as_int),
            refused=required(entry, "refused", as_int),
            waited=required(entry, "waited", lambda value: _floats([value])[0]),
            peak=required(entry, "peak", lambda value: _floats([value])[0]),
            most_pending=required(entry, "most_pending", as_int),
            time=required(entry, "time", list_of(as_int)),
            used=required(entry, "used", _floats),
            pending=required(entry, "pending", list_of(as_int)),
        )


@lru_cache(maxsize=4)
def _inputs(path: Path, trace: str) -> tuple[tuple[GpuNode, ...], Trace, WorkloadMix]:
    """Read once per process what all runs of a trace share."""
    folder = TraceFolder(path)
    tasks = folder.trace(trace)
    return folder.nodes(), tasks, workload_mix(tasks.demands)


@lru_cache(maxsize=1)
def _stored(path: Path) -> dict[tuple[str, int], PublishedRun]:
    return {(run.trace, run.seed): run for run in TraceFolder(path).runs()}


def replay_cell(path: Path, cell: Cell, policies: Mapping[str, PolicyLike] = EMPTY) -> Replay:
    """Play one run of a folder.

    Parameters
    ----------
    path
        The folder; see :class:`~koordcore.simulate.reader.TraceFolder`.
    cell
        Which run.
    policies
        What names of one's own mean; see :func:`~koordcore.scoring.gpu_policies.make_policy`.

    Raises
    ------
    ModelError
        When nobody says what the policy's name means.
    """
    nodes, trace, mix = _inputs(path, cell.trace)
    policy = make_policy(policies.get(cell.policy, cell.policy), mix, nodes=nodes, seed=cell.seed)
    stored = _stored(path).get((cell.trace, cell.seed))
    ranks: Sequence[int] | None = stored.ranks if stored else drawn_ranks(len(nodes), cell.seed)
    if cell.policy == PolicyName.FORESIGHT and cell.policy not in policies:
        ranks = None  # it needs no draw: the few equal scores go by name
    events: tuple[Event, ...]
    if cell.clock is Clock.TRACE:
        events, refused = timed_events(trace, compress=cell.compress), Refused.WAITS
    else:
        capacity = CARD * sum(len(node.cards) for node in nodes)
        arrivals = (
            stored.arrivals
            if stored
            else resample(trace, capacity=capacity, percent=FILL_PERCENT, seed=cell.seed)
        )
        events, refused = untimed_events(trace, arrivals), Refused.DROPPED
    return replay(nodes, events, policy, mix=mix, ranks=ranks, refused=refused)


def summarise(cell: Cell, result: Replay) -> CellResult:
    """Keep of a replay what tables and plots need."""
    columns, course = arrival_columns(result), result.columns
    events = len(course.time)
    chosen = (
        [events * point // CURVE_POINTS for point in range(CURVE_POINTS)] if events > CURVE_POINTS else []
    )
    rows = [*dict.fromkeys(chosen), events - 1] if chosen else list(range(events))
    percent = max(1, result.capacity) / 100
    placed = sum(bool(one.node) for one in result.placements)
    return CellResult(
        cell=cell,
        digest=result.digest,
        allocated=columns.allocated,
        fragmented=columns.fragmented,
        tasks=len(result.placements) + len(result.waiting),
        refused=result.refused + len(result.waiting),
        waited=round(int(course.waited.sum()) / placed, 3) if placed else 0.0,
        peak=round(int(course.allocated.max(initial=0)) / percent, 2),
        most_pending=int(course.pending.max(initial=0)),
        time=tuple(course.time[rows].tolist()),
        used=tuple(round(used / percent, 2) for used in course.allocated[rows].tolist()),
        pending=tuple(course.pending[rows].tolist()),
    )


def summarise_schedule(cell: Cell, result: ScheduledReplay) -> CellResult:
    """Keep of a replay by ``schedule`` what tables and plots need; see there for which cards are in use.

    How much is in use by percent arrived is not told.
    """
    events = len(result.time)
    rows = sorted({events * point // CURVE_POINTS for point in range(CURVE_POINTS)} | {events - 1})
    rows = rows if events > CURVE_POINTS else list(range(events))
    percent = max(1, WHOLE * result.cards) / 100
    placed = len(result.placements)
    left = int(result.pending[-1]) if events else len(result.snapshot.pending)
    return CellResult(
        cell=cell,
        digest=result.digest,
        allocated=(),
        fragmented=(),
        tasks=placed + left,
        refused=left,
        waited=round(int(result.waited.sum()) / placed, 3) if placed else 0.0,
        peak=round(int(result.in_use.max(initial=0)) / percent, 2),
        most_pending=int(result.pending.max(initial=0)),
        time=tuple(result.time[rows].tolist()),
        used=tuple(round(used / percent, 2) for used in result.in_use[rows].tolist()),
        pending=tuple(result.pending[rows].tolist()),
    )


def play_cell(path: Path, cell: Cell, policies: Mapping[str, PolicyLike] = EMPTY) -> CellResult:
    """Play one run and keep what tables and plots need; at module level, so that it can be sent away.

    Parameters
    ----------
    path, cell
        The folder, and which of its runs.
    policies
        What names of one's own mean: a policy, or a class or function that makes one. For other processes
        they stand at module level, too.
    """
    return summarise(cell, replay_cell(path, cell, policies))
