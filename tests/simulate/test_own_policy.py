"""A policy of one's own goes wherever the library's policies go."""

from __future__ import annotations

import csv
import io
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

from koordcore import ModelError
from koordcore.cli import main
from koordcore.scoring.gpu_policies import PolicyLike
from koordcore.simulate import Cell, PolicyName, ResultFolder, make_policy, play_cell, plot, summaries, sweep
from koordcore.simulate.plots import PlotKind
from koordcore.simulate.scenario import CellResult
from tests.simulate.small import SMALL, small_mix
from tests.simulate.tightest import Tightest, scaled

OWN: dict[str, PolicyLike] = {"tight": Tightest, "scaled": scaled}
PLAY = partial(play_cell, SMALL.path, policies=OWN)
CELLS = [Cell("small", policy, seed) for policy in ("tight", PolicyName.FGD) for seed in (1, 2)]


def test_a_sweep_over_processes_keeps_and_averages_it(tmp_path: Path) -> None:
    """Stored results are read again under their own names."""
    store = ResultFolder(tmp_path)
    processes = partial(ProcessPoolExecutor, 1, mp_context=get_context("spawn"))
    first = sweep(CELLS, PLAY, processes, store=store)
    again = sweep(CELLS, PLAY, partial(ThreadPoolExecutor, 1), store=store)
    assert first == again
    assert [one.policy for one in summaries(first.results)] == ["fgd", "tight"]


def test_a_maker_is_given_what_it_asks_for() -> None:
    scaled_run, tight_run = PLAY(Cell("small", "scaled", 1)), PLAY(Cell("small", "tight", 1))
    assert scaled_run.digest == tight_run.digest


def test_its_line_is_in_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    results = [PLAY(cell) for cell in CELLS]
    axes = Figure().subplots()
    plot(results, PlotKind.ALLOCATION, axes)
    assert [line.get_label() for line in axes.get_lines()] == ["fgd", "tight"]
    assert [one.get_text() for one in axes.texts] == ["tight", "fgd"]
    assert len(axes.collections) == 2, "a band over the seeds of each"


def test_several_traces_do_not_go_into_one_axes() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    with pytest.raises(ModelError, match="one Axes holds one trace; here are other, small"):
        plot([result_of("small"), result_of("other")], PlotKind.ALLOCATION, Figure().subplots())


def result_of(trace: str, *, time: tuple[int, ...] = (0,), pending: tuple[int, ...] = (0,)) -> CellResult:
    cell = Cell(trace, "fgd", 1)
    counts = {"tasks": 0, "refused": 0, "waited": 0.0, "peak": 0.0, "most_pending": 0}
    course = {"time": time, "used": (0.0,) * len(time), "pending": pending}
    return CellResult(cell=cell, digest="", allocated=(0.0,), fragmented=(0.0,), **counts, **course)  # type: ignore[arg-type]


def test_a_picture_of_waiting_ends_when_nobody_waits_any_more() -> None:
    """A cluster that runs on for a thousand hours does not press the queue into a spike."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    plot(
        [result_of("t", time=(0, 60, 3600, 7200, 3_600_000), pending=(0, 5, 3, 0, 0))], PlotKind.WAITING, axes
    )
    assert axes.get_xlim()[1] == pytest.approx(1.1)
    (line,) = axes.get_lines()
    assert np.max(np.asarray(line.get_ydata())) == 5.0


def test_no_policy_has_a_mistyped_name() -> None:
    with pytest.raises(ModelError, match="no policy forsight; did you mean foresight"):
        play_cell(SMALL.path, Cell("small", "forsight", 1))
    with pytest.raises(ModelError, match="dict: no policy: score and slots"):
        make_policy(dict, small_mix())  # type: ignore[arg-type]  # what is tested


def test_the_command_line_takes_it_from_a_file_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(__file__).with_name("tightest.py").read_text(encoding="utf-8")
    (tmp_path / "mine_beside.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert (
        main(["simulate", str(SMALL.path), "--policy", "mine_beside:Tightest", "--seed", "1", "-o", "csv"])
        == 0
    )
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["policy"] for row in rows} == {"mine_beside:Tightest"}
    assert main(["simulate", str(SMALL.path), "--policy", "mine_beside:Lightest"]) == 2
    assert "mine_beside has no Lightest" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "/no/such/folder", "--plot", "x.xyz"]) == 2
    assert "--plot: x.xyz: expected a name that ends in .png, .svg, .pdf" in capsys.readouterr().err
