"""Tables, CSV, JSON and pictures of runs."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from pathlib import Path

import pytest

from koordcore.errors import ModelError
from koordcore.simulate import Cell, Clock, PolicyName, play_cell, plot, summaries
from koordcore.simulate.plots import PlotKind
from koordcore.simulate.report import csv_text, json_text
from koordcore.simulate.scenario import CellResult
from tests.simulate.small import SMALL

PLAY = partial(play_cell, SMALL.path)
FILLED = [
    PLAY(Cell("small", policy, seed)) for policy in (PolicyName.FGD, PolicyName.BEST_FIT) for seed in (1, 2)
]
TIMED = [PLAY(Cell("small", PolicyName.FGD, 1, Clock.TRACE))]


def test_summaries_average_over_seeds() -> None:
    best_fit, fgd = summaries(FILLED)
    assert (best_fit.policy, fgd.policy, fgd.runs) == (PolicyName.BEST_FIT, PolicyName.FGD, 2)
    mean = (FILLED[0].unallocated(100) + FILLED[1].unallocated(100)) / 2
    assert fgd.unallocated_100 == pytest.approx(mean, abs=0.0051)


def test_csv_has_a_line_for_each_percent() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_text(FILLED))))
    assert len(rows) == 131 * len(FILLED)
    assert float(rows[100]["allocated"]) == FILLED[0].allocated[100]


def test_json_can_be_read_back() -> None:
    assert [CellResult.from_json(raw) for raw in json.loads(json_text(FILLED))] == FILLED


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_pictures_are_drawn_the_same_each_time(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    plot(FILLED, PlotKind.ALLOCATION, first)
    plot(FILLED, PlotKind.ALLOCATION, second)
    assert first.read_bytes() == second.read_bytes()
    plot(FILLED, PlotKind.FRAGMENTATION, second)
    assert first.read_bytes() != second.read_bytes()
    plot(TIMED, PlotKind.WAITING, tmp_path / f"waiting{suffix}")


def test_there_must_be_something_to_draw(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no run"):
        plot([], PlotKind.ALLOCATION, tmp_path / "x.svg")
