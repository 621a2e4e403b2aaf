"""Measure what one change costs beside the size of the cluster: ``python -m tools.live``.

Each row of ``benchmarks/bench_live*.py`` is measured at both sizes, a turn of the one after a turn
of the other: a slow moment of the machine meets both, so their ratio can be told where milliseconds cannot.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from benchmarks import bench_live, bench_live_kinds, bench_live_loop, bench_live_mixed, bench_live_real
from benchmarks.bench_live import _Line
from benchmarks.bench_live_loop import _Loop

ROWS: Final[Sequence[type[_Line | _Loop]]] = (
    *(*bench_live.ROWS, bench_live.Verified, *bench_live_kinds.ROWS, *bench_live_mixed.ROWS),
    *bench_live_real.ROWS,
    *bench_live_loop.ROWS,
)
FIRST: Final = 10
"""Turns that are not counted."""


def measured(row: type[_Line | _Loop], sizes: Sequence[int], turns: int) -> list[list[float]]:
    """Give the milliseconds of each turn for each of some sizes."""
    lines = [(size, row()) for size in sizes]
    for size, line in lines:
        line.setup(size)
    found: list[list[float]] = [[] for _ in lines]
    for turn in range(FIRST + turns):
        for times, (size, line) in zip(found, lines, strict=True):
            gc.disable()
            start = time.perf_counter()
            if isinstance(line, bench_live.Verified):
                line.time_verify(size)
            else:
                line.time_turn(size)
            took = time.perf_counter() - start
            gc.enable()
            line.teardown(size)
            if turn >= FIRST:
                times.append(1000 * took)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="tools.live", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, nargs=2, default=(1000, 8000), metavar="N", help="both sizes")
    parser.add_argument("--turns", type=int, default=100, help="turns of each (100)")
    parser.add_argument("--only", nargs="+", default=(), metavar="ROW", help="names of rows, as NodeJoins")
    asked = parser.parse_args(arguments)
    small, large = asked.nodes
    print(f"{'medians, ms':<16}{small:>10}{large:>10}{'growth':>10}{'of the quickest tenth':>24}")
    for row in ROWS:
        if asked.only and row.__name__ not in asked.only:
            continue
        one, two = measured(row, (small, large), asked.turns)
        tenth = len(one) // 10
        quick = sorted(two)[tenth] / sorted(one)[tenth]
        middle = median(more / less for less, more in zip(one, two, strict=True))
        times = f"{median(one):>10.2f}{median(two):>10.2f}"
        print(f"{row.__name__:<16}{times}{middle:>10.2f}{quick:>24.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
