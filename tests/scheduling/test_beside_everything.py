"""Beside something of everything that plugins keep count of, a call on a line decides as one made anew."""

from __future__ import annotations

from datetime import timedelta

import pytest

from benchmarks.bench_live import START, _Line
from benchmarks.bench_live_mixed import DECIDED
from koordcore import ClusterSnapshot, schedule, verify


def anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


@pytest.mark.parametrize("kind", DECIDED, ids=lambda kind: kind.__name__)
def test_after_every_change_a_call_decides_as_a_new_one(kind: type[_Line]) -> None:
    line = kind()
    line.setup(12)
    for step in range(4):
        now = START + timedelta(seconds=61 + step)
        before = line.snapshot.apply(*line.changes) if line.changes else line.snapshot
        warm = schedule(before, line.pods, policy=line.policy, now=now)
        assert warm == schedule(anew(before), line.pods, policy=line.policy, now=now)
        assert warm.bound
        assert verify(before, warm) == verify(anew(before), warm) == ()
        line.snapshot = warm.snapshot
        line.prepare()
