"""The replay: events in, decisions and columns out, on one thread and without a clock.

Scores are kept per shape of demand and node and refreshed only where a node has changed, so an arrival costs
a few microseconds for each node that changed since the last arrival of its shape.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import attrs
import numpy as np
from numpy.typing import NDArray

from koordcore.errors import ModelError
from koordcore.scoring.fragmentation import FragmentationMeasure, WorkloadMix
from koordcore.scoring.gpu_policies import DrawnPolicy, GpuPolicy, OwnScored, ScoredPolicy, looked_at
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode
from koordcore.simulate.course import Placement, Replay, ReplayColumns
from koordcore.simulate.events import (
    MOST_SECONDS,
    Arrival,
    Departure,
    Event,
    GangArrival,
    NodeArrival,
    NodeDrained,
    NodeFailed,
    Refused,
    Task,
    timely,
)

_NEVER: Final = -(1 << 62)


@attrs.define
class _Row:
    """Scores of all nodes for one shape of demand, which the library's policies see without memory."""

    shape: GpuDemand
    scores: NDArray[np.int64]
    seen: int


@attrs.define
class _Held:
    """A running task."""

    task: Task
    row: int
    slots: tuple[int, ...]
    run: int


def _no_score(_node: GpuNode, _demand: GpuDemand) -> int:
    return 0


class _Board:
    """The nodes during a replay, and what is known about them; private to one call."""

    def __init__(self, nodes: Sequence[GpuNode], policy: GpuPolicy, measure: FragmentationMeasure) -> None:
        self.nodes = list(nodes)
        self.open = [True] * len(nodes)
        self.failed: set[int] = set()
        self.row_of = {node.name: row for row, node in enumerate(nodes)}
        self.memory = np.array([node.memory for node in nodes], np.int64)
        policy = looked_at(policy)
        # Memory moves no score of the library's and is looked at when a node is chosen; its shapes are few.
        self._by_memory = isinstance(policy, OwnScored)
        # Asking a protocol takes longer than a placement, so it is asked once.
        self._choose = (
            partial(self._draw, policy) if isinstance(policy, DrawnPolicy) else partial(self._best, policy)
        )
        self.measure = measure
        self.fragments = [measure.weighted(node) for node in nodes]
        self.fragmented = sum(self.fragments)
        self.allocated = sum(CARD * len(node.cards) - node.idle for node in nodes)
        self._turn = 0
        self._log: list[int] = []
        self._rows: dict[tuple[int, int, int, int, tuple[str, ...]], _Row] = {}

    def place(self, demand: GpuDemand) -> tuple[int, tuple[int, ...]] | None:
        """Choose node and cards and take them; ``None`` when it fits nowhere."""
        chosen = self._choose(demand) if self.nodes else None
        if chosen:
            row, slots = chosen
            self.change(row, self.nodes[row].take(demand, slots))
            self.allocated += demand.total
        return chosen

    def _best(self, policy: ScoredPolicy, demand: GpuDemand) -> tuple[int, tuple[int, ...]] | None:
        scores = self._fresh_scores(demand, policy.score)
        row = int(scores.argmax())
        if self.memory[row] < demand.memory:
            scores = np.where(self.memory >= demand.memory, scores, _NEVER)
            row = int(scores.argmax())
        if scores[row] == _NEVER:
            return None
        return row, policy.slots(self.nodes[row], demand)

    def _draw(self, policy: DrawnPolicy, demand: GpuDemand) -> tuple[int, tuple[int, ...]] | None:
        fitting = (self._fresh_scores(demand, _no_score) == 0) & (self.memory >= demand.memory)
        rows = np.flatnonzero(fitting)
        if not len(rows):
            return None
        turn, self._turn = self._turn, self._turn + 1
        row = int(rows[policy.draw(turn, len(rows))])
        return row, policy.drawn_slots(turn, self.nodes[row], demand)

    def release(self, demand: GpuDemand, row: int, slots: tuple[int, ...]) -> None:
        self.change(row, self.nodes[row].give_back(demand, slots))
        self.allocated -= demand.total

    def change(self, row: int, node: GpuNode) -> None:
        self.nodes[row] = node
        self.memory[row] = node.memory
        self.touch(row)

    def touch(self, row: int) -> None:
        """Note that a node changed, or opened or closed."""
        self._log.append(row)
        fragment = self.measure.weighted(self.nodes[row]) if self.open[row] else 0
        self.fragmented += fragment - self.fragments[row]
        self.fragments[row] = fragment

    def add(self, node: GpuNode, *, in_use: bool) -> None:
        """Append a node, or open a drained or failed one again; one in use keeps what it has left."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self.row_of[node.name] = len(self.nodes)
            self.nodes.append(node)
            self.open.append(True)
            self.fragments.append(0)
            self.memory = np.append(self.memory, node.memory)
            for one in self._rows.values():
                one.scores = np.append(one.scores, _NEVER)
        elif self.open[row]:
            raise ModelError(f"node {node.name} is there already")
        self.open[row] = True
        self.failed.discard(row)
        self.change(row, self.nodes[row] if in_use else node)

    def row(self, name: str) -> int:
        row = self.row_of.get(name)
        if row is None:
            raise ModelError(f"no node {name}")
        if row in self.failed:
            raise ModelError(f"no node {name}: it has failed")
        return row

    def _fresh_scores(
        self, demand: GpuDemand, score: Callable[[GpuNode, GpuDemand], int]
    ) -> NDArray[np.int64]:
        memory = demand.memory if self._by_memory else 0
        key = (demand.cpu, memory, demand.gpus, demand.milli, demand.models)
        row = self._rows.get(key)
        if row is None:
            shape = attrs.evolve(demand, memory=memory)
            row = _Row(shape, np.full(len(self.nodes), _NEVER, np.int64), len(self._log))
            self._rows[key] = row
            stale: Iterable[int] = range(len(self.nodes))
        else:
            stale = dict.fromkeys(self._log[row.seen :])
            row.seen = len(self._log)
        shape, scores, nodes, opened = row.shape, row.scores, self.nodes, self.open
        for index in stale:
            node = nodes[index]
            scores[index] = score(node, shape) if opened[index] and node.fits(shape) else _NEVER
        return scores


class _Run:
    """One replay from the first event to the last."""

    def __init__(self, board: _Board, refused: Refused, capacity: int) -> None:
        self.board = board
        self.refused = refused
        self.capacity = capacity
        self.arrived = board.allocated  # what is there has arrived
        self.placements: list[Placement] = []
        self.running: dict[str, _Held] = {}
        self.queue: dict[str, tuple[int, tuple[Task, ...]]] = {}
        self.asking: set[str] = set()  # the tasks in the queue, those within gangs among them
        self.known: set[str] = set()  # the tasks and gangs that have arrived
        self.ends: list[tuple[int, int, str]] = []
        self.runs = 0
        self.rows: list[tuple[int, int, int, int, int, int]] = []
        self.waited = 0

    def play(self, events: Iterable[Event]) -> None:
        for event in timely(events):
            self.end_until(event.time)
            self.happen(event)
            self.note(event.time)
        self.end_until(None)

    def end_until(self, time: int | None) -> None:
        """Let tasks end whose time has come; at equal times ends come before events."""
        while self.ends and (time is None or self.ends[0][0] <= time):
            end, run, name = heapq.heappop(self.ends)
            held = self.running.get(name)
            if held is None or held.run != run:
                continue  # it left earlier
            self.leave(name)
            self.retry(end)
            self.note(end)

    def happen(self, event: Event) -> None:
        board = self.board
        match event:
            case Arrival(time, task):
                self.arrive(time, task.name, (task,))
            case GangArrival(time, name, tasks):
                self.arrive(time, name, tasks)
            case Departure(time, name):
                if name in self.running:
                    self.leave(name)
                    self.retry(time)
                elif name in self.known:
                    self.give_up(time, name)
                else:
                    raise ModelError(f"no task {name}")
            case NodeArrival(time, node):
                row = board.row_of.get(node.name, -1)
                board.add(node, in_use=any(held.row == row for held in self.running.values()))
                self.retry(time)
            case NodeDrained(_, name):
                row = board.row(name)
                board.open[row] = False
                board.touch(row)
            case NodeFailed(time, name):
                self.fail(time, board.row(name))
            case _:
                raise ModelError(f"events: {type(event).__name__} is for `replay_schedule`, or for none")

    def arrive(self, time: int, name: str, tasks: tuple[Task, ...]) -> None:
        if name in self.queue:
            raise ModelError(f"{name} waits already")
        names = {task.name for task in tasks}
        if len(names) < len(tasks):
            raise ModelError(f"gang {name}: two of its tasks have the same name")
        # A task asks under its own name when its node fails, so gangs and tasks share their names.
        for task in sorted(names | {name}):
            if task in self.running or task in self.asking or task in self.queue:
                raise ModelError(f"task {task} is there already")
        self.known |= names | {name}
        self.arrived += sum(task.demand.total for task in tasks)
        self.ask(time, time, name, tasks)

    def ask(self, time: int, since: int, name: str, tasks: tuple[Task, ...]) -> bool:
        """Place tasks together; what fits nowhere waits or is dropped."""
        got: list[tuple[int, tuple[int, ...]]] = []
        for task in tasks:
            place = self.board.place(task.demand)
            if place is None:
                for earlier, (row, slots) in zip(reversed(tasks[: len(got)]), reversed(got), strict=True):
                    self.board.release(earlier.demand, row, slots)
                if self.refused is Refused.WAITS:
                    self.queue[name] = (since, tasks)
                    self.asking.update(one.name for one in tasks)
                else:
                    self.placements.extend(Placement(one.name, "", (), time, time - since) for one in tasks)
                return False
            got.append(place)
        self.queue.pop(name, None)
        for task, (row, slots) in zip(tasks, got, strict=True):
            self.asking.discard(task.name)
            self.runs += 1
            self.running[task.name] = _Held(task, row, slots, self.runs)
            if task.duration is not None and time + task.duration <= MOST_SECONDS:
                heapq.heappush(self.ends, (time + task.duration, self.runs, task.name))
            self.placements.append(
                Placement(task.name, self.board.nodes[row].name, slots, time, time - since)
            )
            self.waited += time - since
        return True

    def retry(self, time: int) -> None:
        """Try those that wait, in the order of arrival; demands that failed once are not tried twice."""
        failed: set[tuple[GpuDemand, ...]] = set()
        for name, (since, tasks) in list(self.queue.items()):
            demands = tuple(task.demand for task in tasks)
            if demands not in failed and not self.ask(time, since, name, tasks):
                failed.add(demands)

    def give_up(self, time: int, name: str) -> None:
        """Let a task, a whole gang or a member of one stop waiting; the other members may find room."""
        if name in self.queue:
            _, tasks = self.queue.pop(name)
            self.asking.difference_update(task.name for task in tasks)
            return
        for gang, (since, tasks) in self.queue.items():
            rest = tuple(task for task in tasks if task.name != name)
            if len(rest) < len(tasks):
                self.asking.discard(name)
                # Nobody else has more room than before, so nobody else is asked about.
                if rest:
                    self.ask(time, since, gang, rest)
                else:
                    del self.queue[gang]
                return

    def leave(self, name: str) -> None:
        held = self.running.pop(name)
        self.board.release(held.task.demand, held.row, held.slots)

    def fail(self, time: int, row: int) -> None:
        lost = [held for held in self.running.values() if held.row == row]
        for held in lost:
            self.leave(held.task.name)
        self.board.failed.add(row)
        self.board.open[row] = False
        self.board.touch(row)
        for held in lost:
            self.ask(time, time, held.task.name, (held.task,))

    def note(self, time: int) -> None:
        board = self.board
        self.rows.append(
            (time, self.arrived, board.allocated, board.fragmented, len(self.queue), self.waited)
        )
        self.waited = 0

    def result(self) -> Replay:
        shape = (len(self.rows), 6)
        table = np.array(self.rows, np.int64).reshape(shape)
        kept = self.board.measure.mix.kept
        return Replay(
            columns=ReplayColumns(
                time=table[:, 0],
                arrived=table[:, 1],
                allocated=table[:, 2],
                fragmented=table[:, 3] / kept,
                pending=table[:, 4],
                waited=table[:, 5],
            ),
            placements=tuple(self.placements),
            nodes=tuple(self.board.nodes),
            waiting=tuple(task for _, tasks in self.queue.values() for task in tasks),
            running=tuple(
                Placement(name, self.board.nodes[held.row].name, held.slots)
                for name, held in self.running.items()
            ),
            capacity=self.capacity,
        )


def _meant(refused: Refused | str) -> Refused:
    """Read what is to become of those that fit nowhere, which may be told by its word."""
    try:
        return Refused(refused)
    except ValueError:
        raise ModelError(f"refused: expected one of {', '.join(Refused)}, got {refused!r:.60}") from None


def replay(
    nodes: Iterable[GpuNode],
    events: Iterable[Event],
    policy: GpuPolicy,
    *,
    mix: WorkloadMix,
    ranks: Sequence[int] | None = None,
    refused: Refused = Refused.DROPPED,
) -> Replay:
    """Let a policy place a stream of tasks.

    Parameters
    ----------
    nodes
        The cluster at the start.
    events
        In the order of time.
    policy
        Who decides; see :func:`koordcore.scoring.gpu_policies.make_policy`.
    mix
        The work by whose typical shapes fragmentation is measured.
    ranks
        Tie rank of each node, the lowest wins among equal scores; by name when left out.
    refused
        What becomes of a task that fits nowhere.

    Raises
    ------
    ModelError
        When events are out of order, at no whole second or of another replay, a node or task arrives that is
        there already, or one is named that is not there or, if a task, never was: one that has left by itself
        may be let depart once more.
    """
    given = list(nodes)
    by_name = sorted(range(len(given)), key=lambda row: given[row].name)
    if len({node.name for node in given}) != len(given):
        raise ModelError("two nodes have the same name")
    if ranks is not None:
        if len(ranks) != len(given):
            raise ModelError(f"ranks: {len(given)} nodes, {len(ranks)} ranks")
        by_name.sort(key=lambda row: ranks[row])
    ordered = [given[row] for row in by_name]
    capacity = CARD * sum(len(node.cards) for node in ordered)
    board = _Board(ordered, policy, FragmentationMeasure(mix.typical()))
    run = _Run(board, _meant(refused), capacity)
    run.play(events)
    return run.result()
