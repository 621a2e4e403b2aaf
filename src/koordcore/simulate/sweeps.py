"""Many runs over any executor: resumable from a folder, and nothing lost when a worker dies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import (
    FIRST_COMPLETED as FIRST,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import suppress
from pathlib import Path
from typing import Final

from koordcore._record import record
from koordcore.model.mappings import EMPTY
from koordcore.protocol.fields import as_mapping
from koordcore.simulate.scenario import Cell, CellResult

PATIENCE: Final = 2
"""Broken executors after which runs are played one by one."""


@record
class Progress:
    """How far a sweep is: runs done, of how many, and the one that was just finished or given up."""

    done: int
    total: int
    cell: Cell


@record
class SweepResult:
    """What came of a sweep.

    Parameters
    ----------
    results
        In the order of trace, policy, seed and clock.
    failed
        Runs that were given up, with the reason; empty when all is well.
    """

    results: tuple[CellResult, ...]
    failed: tuple[tuple[Cell, str], ...] = ()


@record
class ResultFolder:
    """Results as files, one per run; a file is whole or not there.

    Parameters
    ----------
    path
        The folder.
    of
        For each trace what it is known by (:meth:`TraceFolder.fingerprint`), so that a result of another one
        of the same name is none; those that are not named here are taken for the same.
    """

    path: Path
    of: Mapping[str, str] = EMPTY

    def load(self, cell: Cell) -> CellResult | None:
        """Give a stored result; ``None`` where there is none, or none that can be read."""
        with suppress(OSError, ValueError):  # ManifestError and JSON errors are ValueErrors
            raw = as_mapping(json.loads(self._file(cell).read_text(encoding="utf-8")))
            same = cell.trace not in self.of or raw.get("of") == self.of[cell.trace]
            result = CellResult.from_json(raw)
            return result if same and result.cell == cell else None
        return None

    def save(self, result: CellResult) -> None:
        """Store a result: written beside its place and then moved there, so that no half file is seen."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self._file(result.cell)
        fresh = file.with_suffix(".part")
        trace = result.cell.trace
        known = {"of": self.of[trace]} if trace in self.of else {}
        text = json.dumps({**result.to_json(), **known}, sort_keys=True)
        fresh.write_text(text + "\n", encoding="utf-8")
        fresh.replace(file)

    def _file(self, cell: Cell) -> Path:
        return self.path / f"{cell.name}.json"


def sweep(
    cells: Iterable[Cell],
    play: Callable[[Cell], CellResult],
    executor: Callable[[], Executor],
    *,
    store: ResultFolder | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> SweepResult:
    """Play many runs.

    Parameters
    ----------
    cells
        Which runs; one that stands twice is played once.
    play
        Plays one; it is sent to the workers, so it stands at module level or is a ``functools.partial`` of
        such a function.
    executor
        Makes an executor, and a new one when a worker's death has broken it: a pool of processes
        (``functools.partial(ProcessPoolExecutor, 2)``), ``client.get_executor`` of Dask, and the like.
    store
        Where results are kept; runs that are there already are not played again.
    progress
        Called after each run, in the order of completion.

    Returns
    -------
    SweepResult
        The same whatever the number of workers.
    """
    wanted = sorted(set(cells))
    done: dict[Cell, CellResult] = {}
    failed: dict[Cell, str] = {}

    def finish(cell: Cell, outcome: CellResult | str) -> None:
        if isinstance(outcome, CellResult):
            done[cell] = outcome
        else:
            failed[cell] = outcome
        progress(Progress(len(done) + len(failed), len(wanted), cell))

    for cell in wanted:
        stored = store.load(cell) if store else None
        if stored:
            finish(cell, stored)
    left = [cell for cell in wanted if cell not in done]
    breaks = 0
    complaints: dict[Cell, str] = {}
    while left:
        # Broken twice: play one at a time until the run is found that kills its worker.
        batch = left if breaks < PATIENCE else left[:1]
        with executor() as pool:
            lost, unanswered = _play(batch, play, pool, store, finish)
        for cell, complaint in unanswered.items():
            if cell in complaints:
                finish(cell, complaint)
        complaints |= unanswered
        if lost:
            breaks += 1
            if len(batch) == 1 and breaks > PATIENCE:
                finish(batch[0], f"its worker died {breaks} times")
                breaks = 0
        left = [cell for cell in left if cell not in done and cell not in failed]
    results = tuple(done[cell] for cell in wanted if cell in done)
    return SweepResult(results, tuple((cell, failed[cell]) for cell in wanted if cell in failed))


def _attempt(play: Callable[[Cell], CellResult], cell: Cell) -> CellResult | str:
    """Play one run at the worker: what the executor raises is then never taken for the run's error."""
    try:
        return play(cell)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _play(
    batch: list[Cell],
    play: Callable[[Cell], CellResult],
    pool: Executor,
    store: ResultFolder | None,
    finish: Callable[[Cell, CellResult | str], None],
) -> tuple[list[Cell], dict[Cell, str]]:
    """Play a batch on one executor.

    Returns
    -------
    tuple
        The runs that were lost with it, and those for which a living executor gave an error of its own in
        place of an answer: one over a cluster may do so when the worker that holds an answer goes away.
    """
    try:
        futures: Mapping[Future[CellResult | str], Cell] = {
            pool.submit(_attempt, play, cell): cell for cell in batch
        }
    except BrokenExecutor:
        return batch, {}
    lost: list[Cell] = []
    unanswered: dict[Cell, str] = {}
    pending = set(futures)
    while pending:
        ended, pending = wait(pending, return_when=FIRST)
        for future in sorted(ended, key=lambda one: futures[one]):
            cell, error = futures[future], _error_of(future)
            if isinstance(error, BrokenExecutor):
                lost.append(cell)
            elif error is not None:
                unanswered[cell] = f"{type(error).__name__}: {error}"
            else:
                outcome = future.result()
                if store and isinstance(outcome, CellResult):
                    store.save(outcome)
                finish(cell, outcome)
    return lost, unanswered


def _error_of(future: Future[CellResult | str]) -> BaseException | None:
    try:
        return future.exception()
    except CancelledError as error:
        return error
