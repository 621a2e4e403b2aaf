"""A turn of the control loop costs what changed: it makes as many calls in a cluster eight times as large."""

from __future__ import annotations

import sys
from statistics import median
from types import FrameType

import pytest

from benchmarks.bench_live_loop import ROWS, Server, TurnSecond, _Loop

SIZES = (50, 400)
TURNS = 7


def calls(row: _Loop) -> int:
    """Count the calls of one turn."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        row.server.turn()
    finally:
        sys.setprofile(None)
    return count


@pytest.fixture(scope="module")
def servers() -> list[Server]:
    return [Server(size) for size in SIZES]


@pytest.mark.parametrize(
    "kind", [one for one in ROWS if one is not TurnSecond], ids=lambda kind: kind.__name__
)
def test_a_turn_makes_as_many_calls_in_a_cluster_eight_times_as_large(
    kind: type[_Loop], servers: list[Server]
) -> None:
    counted = []
    for server in servers:
        row = kind()
        row.server = server
        found = []
        for _ in range(TURNS):
            row.prepare()
            found.append(calls(row))
        counted.append(median(found[2:]))
    assert counted[1] < 1.5 * counted[0], counted


def test_a_turn_makes_as_many_calls_beside_eight_times_as_many_refused_pods() -> None:
    counted = []
    for waiting in (100, 800):
        row = ROWS[0]()
        row.server = Server(20)
        row.come(waiting, cores=900)
        for _ in range(3):
            row.server.turn()
        found = []
        for _ in range(TURNS):
            row.prepare()
            found.append(calls(row))
        counted.append(median(found[2:]))
    assert counted[1] < 1.5 * counted[0], counted
