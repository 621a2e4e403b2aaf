"""Sweeps: any executor, the same results, resumed from a folder, and no run lost with a worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from shutil import copytree
from typing import TypeVar

import pytest

from koordcore.errors import ModelError
from koordcore.simulate import Cell, Clock, PolicyName, ResultFolder, TraceFolder, play_cell, sweep
from koordcore.simulate.scenario import CellResult, replay_cell
from koordcore.simulate.sweeps import Progress
from tests.simulate.small import SMALL, filled

T = TypeVar("T")
CELLS = [
    Cell("small", policy, seed, clock)
    for policy in (PolicyName.BEST_FIT, PolicyName.FGD)
    for seed in (1, 2)
    for clock in Clock
]
PLAY = partial(play_cell, SMALL.path)
THREADS = partial(ThreadPoolExecutor, 2)
PROCESSES = partial(ProcessPoolExecutor, 2, mp_context=get_context("spawn"))
ONE_PROCESS = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))


def die_once(path: Path, marks: Path, cell: Cell) -> CellResult:
    """Kill the worker at the first try of each run with seed 2."""
    mark = marks / cell.name
    if cell.seed == 2 and not mark.exists():
        mark.touch()
        os._exit(9)
    return play_cell(path, cell)


def die_always(path: Path, cell: Cell) -> CellResult:
    if cell == CELLS[0]:
        os._exit(9)
    return play_cell(path, cell)


def refuse(path: Path, cell: Cell) -> CellResult:
    if cell == CELLS[0]:
        raise ModelError("no such thing")
    return play_cell(path, cell)


@pytest.mark.parametrize("executor", [THREADS, PROCESSES], ids=["threads", "processes"])
def test_results_do_not_depend_on_the_executor(executor: Callable[[], Executor]) -> None:
    result = sweep(reversed(CELLS), PLAY, executor)
    assert [one.cell for one in result.results] == sorted(CELLS)
    assert result.results == tuple(PLAY(cell) for cell in sorted(CELLS))
    assert not result.failed


def test_stored_runs_are_not_played_again(tmp_path: Path) -> None:
    """A half-written file counts as not there."""
    store = ResultFolder(tmp_path / "results")
    first = sweep(CELLS, PLAY, THREADS, store=store)
    (store.path / f"{CELLS[3].name}.json").write_text('{"cell": {')
    played: list[Cell] = []

    def play(cell: Cell) -> CellResult:
        played.append(cell)
        return PLAY(cell)

    seen: list[Progress] = []
    assert sweep(CELLS, play, THREADS, store=store, progress=seen.append) == first
    assert played == [CELLS[3]]
    assert [one.done for one in seen] == list(range(1, len(CELLS) + 1))


def test_nothing_is_lost_when_workers_die(tmp_path: Path) -> None:
    cells = CELLS[1:3]
    result = sweep(cells, partial(die_once, SMALL.path, tmp_path), ONE_PROCESS)
    assert not result.failed
    assert len(result.results) == 2


def test_a_run_that_always_kills_its_worker_is_named_and_the_rest_is_done() -> None:
    result = sweep(CELLS[:3], partial(die_always, SMALL.path), ONE_PROCESS)
    assert [cell for cell, _ in result.failed] == [CELLS[0]]
    assert "died" in result.failed[0][1]
    assert len(result.results) == 2


def test_an_error_in_one_run_does_not_stop_the_others() -> None:
    result = sweep(CELLS, partial(refuse, SMALL.path), THREADS)
    assert result.failed == ((CELLS[0], "ModelError: no such thing"),)
    assert len(result.results) == len(CELLS) - 1


class Forgetful(ThreadPoolExecutor):
    """Loses answers as an executor over a cluster may, when the worker that holds one goes away."""

    errors: Iterator[BaseException | None]

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> Future[T]:
        future: Future[T] = super().submit(fn, *args, **kwargs)
        error = next(self.errors, None)
        if error:
            wait([future])
            future = Future()
            future.set_exception(error)
        return future


@pytest.mark.parametrize("error", [TypeError("cannot unpack"), CancelledError()], ids=["error", "cancelled"])
def test_an_answer_that_the_executor_loses_is_asked_for_again(error: Exception) -> None:
    def executor(*errors: Exception) -> Callable[[], Executor]:
        once = iter(errors)

        def make() -> Executor:
            pool = Forgetful(2)
            pool.errors = once
            return pool

        return make

    assert sweep(CELLS, PLAY, executor(error)) == sweep(CELLS, PLAY, THREADS)
    failed = sweep(CELLS, PLAY, executor(*[error] * (len(CELLS) + 1))).failed
    assert failed == ((min(CELLS), f"{type(error).__name__}: {error}"),)


def test_a_run_that_leaves_python_is_named_and_the_rest_is_done() -> None:
    def leave(cell: Cell) -> CellResult:
        if cell == CELLS[0]:
            raise SystemExit(3)
        return PLAY(cell)

    result = sweep(CELLS, leave, THREADS)
    assert result.failed == ((CELLS[0], "SystemExit: 3"),)
    assert len(result.results) == len(CELLS) - 1


def test_a_run_that_cannot_be_sent_is_named() -> None:
    def inner(cell: Cell) -> CellResult:
        return PLAY(cell)

    result = sweep(CELLS[:2], inner, ONE_PROCESS)
    assert [cell for cell, _ in result.failed] == CELLS[:2]
    assert all("pickle" in reason for _, reason in result.failed)


def die_with_its_nanny(path: Path, marks: Path, cell: Cell) -> CellResult:
    """Kill the Dask worker that plays the last run, as a machine that goes away does, but only once."""
    mark = marks / "gone"
    if cell == max(CELLS) and not mark.exists():
        mark.touch()
        os._exit(9)
    return play_cell(path, cell)


@pytest.mark.slow
def test_a_dask_cluster_of_processes_loses_a_worker_and_no_run(tmp_path: Path) -> None:
    """What a worker that died was playing goes to another one; a second sweep finds all in the folder."""
    distributed = pytest.importorskip("distributed")
    store = ResultFolder(tmp_path / "results")
    play = partial(die_with_its_nanny, SMALL.path, tmp_path)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        result = sweep(CELLS, play, client.get_executor, store=store)
    assert (tmp_path / "gone").exists()
    assert result == sweep(CELLS, PLAY, THREADS)

    def forbidden(cell: Cell) -> CellResult:
        raise AssertionError(cell)

    assert sweep(CELLS, forbidden, THREADS, store=store) == result


def test_a_cell_plays_what_the_library_plays() -> None:
    """The folder's run and the same run made by hand decide alike."""
    assert replay_cell(SMALL.path, Cell("small", PolicyName.FGD, 7)).digest == filled(PolicyName.FGD).digest


def test_results_survive_their_file(tmp_path: Path) -> None:
    result = PLAY(CELLS[1])
    store = ResultFolder(tmp_path)
    store.save(result)
    assert store.load(CELLS[1]) == result
    assert store.load(CELLS[2]) is None


def test_results_of_another_trace_of_the_same_name_are_none(tmp_path: Path) -> None:
    """A folder of results outlives the folder that was played."""
    other = tmp_path / "other"
    copytree(SMALL.path, other)
    assert TraceFolder(other).fingerprint("small") == SMALL.fingerprint("small")
    nodes = other / "nodes.csv"
    nodes.write_text(nodes.read_text() + "zz,64000,262144,8,A100\n")
    assert TraceFolder(other).fingerprint("small") != SMALL.fingerprint("small")
    cell, store = CELLS[1], tmp_path / "results"
    kept = ResultFolder(store, {"small": SMALL.fingerprint("small")})
    kept.save(PLAY(cell))
    assert kept.load(cell) == PLAY(cell)
    again = ResultFolder(store, {"small": TraceFolder(other).fingerprint("small")})
    assert again.load(cell) is None
    result = sweep([cell], partial(play_cell, other), THREADS, store=again).results[0]
    assert again.load(cell) == result != PLAY(cell)
    ResultFolder(store).save(result)
    assert again.load(cell) is None  # nobody knows of what it is


def test_a_faster_clock_makes_tasks_wait() -> None:
    slow = PLAY(Cell("small", PolicyName.FGD, 1, Clock.TRACE))
    fast = PLAY(Cell("small", PolicyName.FGD, 1, Clock.TRACE, compress=50))
    assert slow.cell.name != fast.cell.name
    assert fast.waited > slow.waited
    assert fast.most_pending > slow.most_pending
    assert fast.refused == 0  # all of them get their turn
    with pytest.raises(ModelError, match="compress"):
        PLAY(Cell("small", PolicyName.FGD, 1, Clock.TRACE, compress=0))
