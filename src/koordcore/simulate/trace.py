"""Traces in the openb shape: text in, nodes and tasks out; nothing is opened here."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError
from koordcore.scoring.gpu_policies import below
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode
from koordcore.simulate.events import Arrival, Event, Task

_MEBI: Final = 1 << 20


@record
class Trace:
    """The tasks of a trace in the order of their names, with the seconds at which they were created.

    Parameters
    ----------
    tasks
        Durations are those of the trace where it has times.
    created
        One second per task; all 0 where the trace has no times.
    """

    tasks: tuple[Task, ...]
    created: tuple[int, ...]

    @property
    def demands(self) -> tuple[GpuDemand, ...]:
        """What the tasks ask for."""
        return tuple(task.demand for task in self.tasks)

    @property
    def total(self) -> int:
        """Card milli asked for by all tasks."""
        return sum(task.demand.total for task in self.tasks)


def _number(row: Mapping[str, str | None], column: str, line: int) -> int:
    text = row.get(column)
    try:
        return int(text or "")
    except ValueError:
        raise ManifestError.at(f"line {line}.{column}", f"expected int, got {text!r}") from None


def _name(row: Mapping[str, str | None], column: str, line: int) -> str:
    text = row.get(column)
    if not text:
        raise ManifestError.at(f"line {line}.{column}", "required")
    return text


def parse_nodes(lines: Iterable[str]) -> tuple[GpuNode, ...]:
    """Read a node list: ``sn, cpu_milli, memory_mib, gpu, model``; sorted by name.

    Raises
    ------
    ManifestError
        When a column is missing or is no number; the path is line and column.
    """
    nodes = [
        GpuNode(
            name=_name(row, "sn", line),
            cpu=_number(row, "cpu_milli", line),
            memory=_number(row, "memory_mib", line) * _MEBI,
            cards=(CARD,) * _number(row, "gpu", line),
            model=row.get("model") or "",
        )
        for line, row in enumerate(csv.DictReader(lines), start=2)
    ]
    return tuple(sorted(nodes, key=lambda node: node.name))


def parse_trace(lines: Iterable[str]) -> Trace:
    """Read a pod list.

    Columns: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli`` and, where there, ``gpu_spec`` (``A|B``:
    allowed models), ``creation_time``, ``scheduled_time``, ``deletion_time`` in seconds. A task runs from
    being scheduled (created, where that is empty) to being deleted; without a deletion it never ends.

    Raises
    ------
    ManifestError
        When a column is missing or is no number; the path is line and column.
    """
    parsed = [_task(row, line) for line, row in enumerate(csv.DictReader(lines), start=2)]
    parsed.sort(key=lambda pair: pair[0].name)
    return Trace(tuple(task for task, _ in parsed), tuple(created for _, created in parsed))


def _task(row: Mapping[str, str | None], line: int) -> tuple[Task, int]:
    gpus = _number(row, "num_gpu", line)
    demand = GpuDemand(
        cpu=_number(row, "cpu_milli", line),
        memory=_number(row, "memory_mib", line) * _MEBI,
        gpus=gpus,
        milli=_number(row, "gpu_milli", line) if gpus else 0,
        models=tuple(filter(None, (row.get("gpu_spec") or "").split("|"))),
    )
    created = _number(row, "creation_time", line) if row.get("creation_time") else 0
    duration = None
    if row.get("deletion_time"):
        start = _number(row, "scheduled_time", line) if row.get("scheduled_time") else created
        duration = max(0, _number(row, "deletion_time", line) - start)
    return Task(name=_name(row, "name", line), demand=demand, duration=duration), created


def untimed_events(trace: Trace, arrivals: Sequence[int]) -> tuple[Event, ...]:
    """Let tasks arrive one a second in a given order and stay for ever, as in the FGD experiment.

    Parameters
    ----------
    trace
        The tasks.
    arrivals
        Indices into them; a task that arrives again gets the number of its turn behind its name.
    """
    seen: dict[int, int] = {}
    events: list[Event] = []
    for time, index in enumerate(arrivals):
        turn = seen[index] = seen.get(index, 0) + 1
        task = trace.tasks[index]
        name = task.name if turn == 1 else f"{task.name}-{turn}"
        events.append(Arrival(time, Task(name=name, demand=task.demand)))
    return tuple(events)


def timed_events(trace: Trace, *, compress: int = 1) -> tuple[Event, ...]:
    """Let tasks arrive when the trace created them and run as long as they did there.

    Parameters
    ----------
    trace
        The tasks.
    compress
        Divide the seconds of arrival by this, and so multiply the load; durations stay.

    Raises
    ------
    ModelError
        When ``compress`` is not positive.
    """
    if compress < 1:
        raise ModelError(f"compress: expected a positive number, got {compress}")
    order = sorted(range(len(trace.tasks)), key=lambda index: (trace.created[index], trace.tasks[index].name))
    return tuple(Arrival(trace.created[index] // compress, trace.tasks[index]) for index in order)


def resample(trace: Trace, *, capacity: int, percent: int, seed: int) -> tuple[int, ...]:
    """Draw an order of arrival whose demand is a given share of the cluster's cards.

    The tasks of the trace in a drawn order; then copies drawn from it until the next one (counted as a single
    card) would exceed the target, or, where the trace asks for more than that, drawn tasks left out until
    it does not. The rule is the experiment's; the draws are our own, by SplitMix64.

    Parameters
    ----------
    trace
        The tasks.
    capacity
        Card milli of the cluster.
    percent
        Demand to reach, in percent of the capacity.
    seed
        Another seed gives another order.
    """
    turn = 0

    def draw(bound: int) -> int:
        nonlocal turn
        turn += 1
        return below(bound, seed, turn)

    order = list(range(len(trace.tasks)))
    for last in range(len(order) - 1, 0, -1):
        other = draw(last + 1)
        order[last], order[other] = order[other], order[last]
    demand, target = trace.total, capacity * percent // 100
    while demand > target:
        demand -= trace.tasks[order.pop(draw(len(order)))].demand.total
    if not demand:
        return tuple(order)  # nothing asks for cards, and copies would never reach the target
    while demand < target:
        index = draw(len(trace.tasks))
        copy = trace.tasks[index].demand
        if demand + copy.milli > target:
            break
        order.append(index)
        demand += copy.total
    return tuple(order)


def drawn_ranks(nodes: int, seed: int) -> tuple[int, ...]:
    """Draw tie ranks: a permutation of the nodes, one per run."""
    ranks = list(range(nodes))
    for last in range(nodes - 1, 0, -1):
        other = below(last + 1, ~seed & 0xFFFF_FFFF_FFFF_FFFF, last)
        ranks[last], ranks[other] = ranks[other], ranks[last]
    return tuple(ranks)
