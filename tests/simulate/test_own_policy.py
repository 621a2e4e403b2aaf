"""A policy of one's own goes wherever the library's policies go."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from koordcore import ClusterSnapshot, ModelError, Node, PluginSetting, Pod, Policy, schedule
from koordcore.cli import main
from koordcore.model.devices import GPU_COUNT
from koordcore.scheduling.plugins.gpu_share import GPU_MILLI, GpuShareArgs
from koordcore.scoring import GpuDemand, GpuNode, workload_mix
from koordcore.scoring.gpu_policies import GpuPolicy, PolicyLike
from koordcore.simulate import (
    Arrival,
    Cell,
    PolicyName,
    ResultFolder,
    Task,
    make_policy,
    play_cell,
    plot,
    replay,
    summaries,
    sweep,
)
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


class Answers:
    """A policy that answers what it is told to."""

    def __init__(
        self, *, score: Callable[[GpuNode, GpuDemand], Any] = lambda *_: 0, slots: object = (0,)
    ) -> None:
        self._score, self._slots = score, slots

    def score(self, node: GpuNode, demand: GpuDemand) -> Any:
        return self._score(node, demand)

    def slots(self, node: GpuNode, demand: GpuDemand) -> Any:
        return self._slots


class Draws:
    """The same for one that draws."""

    def __init__(self, row: object, slots: object = (0,)) -> None:
        self._row, self._slots = row, slots

    def draw(self, turn: int, nodes: int) -> Any:
        return self._row

    def drawn_slots(self, turn: int, node: GpuNode, demand: GpuDemand) -> Any:
        return self._slots


CARDS = tuple(GpuNode(name=name, cpu=9000, memory=1 << 40, cards=(400, 1000)) for name in "ab")
SHARE = GpuDemand(cpu=1000, memory=1 << 33, gpus=1, milli=300)
MEANT: list[tuple[GpuPolicy, str]] = [
    (
        Answers(score=lambda node, _: {"a": 0.1, "b": 0.5}[node.name]),
        r"score: expected a whole number .* got 0\.1",
    ),
    (Answers(score=lambda *_: None), "score: expected a whole number .* got None"),
    (Answers(score=lambda *_: -(1 << 62)), "score: expected a whole number between .* got -46"),
    (Answers(score=lambda *_: 1 << 70), "score: expected a whole number between .* got 11"),
    (Answers(slots=(-1,)), r"slots: expected 1 different cards of a with 300 milli left, got \(-1,\)"),
    (Answers(slots=(2,)), "slots: expected 1 different cards of a"),
    (Answers(slots=(0, 0)), "slots: expected 1 different cards of a"),
    (Answers(slots=0), "slots: expected 1 different cards of a"),
    (Draws(2), "draw: expected a whole number from 0 to 1, got 2"),
    (Draws(-1), "draw: expected a whole number from 0 to 1, got -1"),
    (Draws(0.5), r"draw: expected a whole number from 0 to 1, got 0\.5"),
    (Draws(0, ()), "drawn_slots: expected 1 different cards of a"),
]


@pytest.mark.parametrize(("policy", "told"), MEANT)
def test_wrong_answers_are_named_and_not_misread(policy: GpuPolicy, told: str) -> None:
    mix = workload_mix([SHARE])
    with pytest.raises(ModelError, match=f"policy (Answers|Draws): {told}"):
        replay(CARDS, [Arrival(0, Task(name="x", demand=SHARE))], policy, mix=mix)


def test_wrong_answers_are_named_within_schedule() -> None:
    """GpuShare would cut the scores off as well."""
    nodes = [
        Node(name=name, allocatable={"cpu": 9000, "pods": 9, GPU_COUNT: 2, GPU_MILLI: 2000}) for name in "ab"
    ]
    pod = Pod(name="p", requests={"cpu": 1000}, annotations={GPU_MILLI: "300", GPU_COUNT: "1"})
    for policy, told in ((MEANT[0]), (MEANT[4])):
        setting = PluginSetting(name="GpuShare", args=GpuShareArgs(policy=policy))
        with pytest.raises(ModelError, match=f"policy Answers: {told}"):
            schedule(ClusterSnapshot(nodes=nodes, pending=[pod]), policy=Policy(plugins=(setting,)))


def test_numbers_of_numpy_are_numbers() -> None:
    policy = Answers(score=lambda node, _: np.int64(node.name == "b"), slots=np.array([1]))
    arrival = Arrival(0, Task(name="x", demand=SHARE))
    (one,) = replay(CARDS, [arrival], policy, mix=workload_mix([SHARE])).placements
    assert (one.node, one.slots) == ("b", (1,))


def test_it_is_asked_about_the_whole_demand() -> None:
    """Tasks that differ in memory alone are rated apart."""
    policy = Answers(score=lambda node, demand: (node.name == "b") == (demand.memory > 1 << 31))
    tasks = [Task(name=str(shift), demand=attrs.evolve(SHARE, memory=1 << shift)) for shift in (33, 30)]
    result = replay(CARDS, [Arrival(0, one) for one in tasks], policy, mix=workload_mix([SHARE]))
    assert [(one.task, one.node) for one in result.placements] == [("33", "b"), ("30", "a")]


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
