"""What objects of real clusters say costs what changed: as many calls in a cluster eight times as large."""

from __future__ import annotations

import sys
from statistics import median
from types import FrameType

import pytest

from benchmarks.bench_live import _Line
from benchmarks.bench_live_real import ROWS

SIZES = (50, 400)
TURNS = 8


def calls(row: _Line) -> int:
    """Count the calls of one turn."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        row.turn()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_a_turn_makes_as_many_calls_in_a_cluster_eight_times_as_large(kind: type[_Line]) -> None:
    counted = []
    for size in SIZES:
        row, found = kind(), []
        row.setup(size)
        for _ in range(TURNS):
            row.prepare()
            found.append(calls(row))
        counted.append(median(found[4:]))  # each of four workloads has been seen by then
    assert counted[1] < 1.5 * counted[0], counted
