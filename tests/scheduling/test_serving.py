"""Expected starts of a queue that is served whenever somebody leaves."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, PodKey, Policy, load, schedule
from koordcore.cli.main import main
from koordcore.cli.starts import known_starts
from koordcore.scheduling.backfilling import EarliestStart, backfill, earliest_start
from koordcore.scheduling.serving import queue_starts, queue_units

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GANG = "gang.scheduling.koordinator.sh/"


def minutes(count: int) -> timedelta:
    return timedelta(minutes=count)


def key(name: str) -> PodKey:
    return PodKey("default", name)


def cluster(free: int, running: dict[str, int], waiting: list[Pod]) -> ClusterSnapshot:
    """One node, full of pods of so many CPUs each, and ``free`` CPUs beside them."""
    size = free + sum(running.values())
    there = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 1000 * size, "pods": 99})], pending=waiting
    )
    pods = (
        Pod(name=name, requests={"cpu": 1000 * cpus}, node_name="n") for name, cpus in running.items() if cpus
    )
    return there.assume(*pods)


def wants(name: str, cpus: int, priority: int = 0, **more: Any) -> Pod:
    return Pod(name=name, requests={"cpu": 1000 * cpus}, priority=priority, **more)


def test_those_before_come_first_and_what_they_leave_serves_those_behind() -> None:
    waiting = [wants("first", 4, 2), wants("second", 4, 1), wants("third", 2)]
    there = cluster(0, {"a": 4, "b": 2}, waiting)
    ends = {key("a"): NOW + minutes(10), key("b"): NOW + minutes(30)}
    spans = {key("first"): minutes(60)}
    moments: list[int] = []
    found = queue_starts(there, ends, spans, now=NOW, progress=moments.append)
    assert moments == [1, 2, 3, 4]  # now, and when a, b and first have ended
    assert [(one.name, one.start) for one in found] == [
        ("default/first", NOW + minutes(10)),
        ("default/second", NOW + minutes(70)),
        ("default/third", NOW + minutes(30)),
    ]


def test_small_jobs_without_an_end_may_keep_a_large_one_out_for_ever() -> None:
    waiting = [wants("large", 4, 2), wants("small", 2)]
    found = queue_starts(cluster(2, {"a": 2}, waiting), {key("a"): NOW + minutes(5)}, {}, now=NOW)
    assert [one.start for one in found] == [None, NOW]
    assert "Insufficient cpu" in found[0].message


def test_a_gang_is_one_unit_and_another_scheduler_has_no_turn() -> None:
    notes = {GANG + "name": "g", GANG + "min-available": "2"}
    members = [wants(f"g-{one}", 2, 5, annotations=notes) for one in range(2)]
    waiting = [*members, wants("lone", 1), wants("theirs", 1, scheduler_name="volcano")]
    units = queue_units(cluster(4, {}, waiting), Policy())
    assert [(unit.name, len(unit.pods)) for unit in units] == [("default/g", 2), ("default/lone", 1)]
    (gang, lone) = queue_starts(cluster(4, {"a": 2}, waiting), {key("a"): NOW + minutes(1)}, {}, now=NOW)
    assert (gang.start, len(gang.nodes), lone.start) == (NOW, 2, NOW + minutes(1))


@given(
    running=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), max_size=4),
    waiting=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 2)), max_size=4),
    free=st.integers(0, 2),
)
def test_the_starts_are_those_of_a_cluster_that_asks_every_minute(
    running: list[tuple[int, int]], waiting: list[tuple[int, int, int]], free: int
) -> None:
    pods = [wants(f"w{row}", cpus, priority) for row, (cpus, _, priority) in enumerate(waiting)]
    spans = {key(f"w{row}"): minutes(span) for row, (_, span, _) in enumerate(waiting)}
    there = cluster(free, {f"r{row}": cpus for row, (cpus, _) in enumerate(running)}, pods)
    ends = {key(f"r{row}"): NOW + minutes(end) for row, (_, end) in enumerate(running)}
    found = {one.pods[0]: one.start for one in queue_starts(there, ends, spans, now=NOW)}

    expected: dict[PodKey, datetime | None] = dict.fromkeys(spans)
    left, known = there, dict(ends)
    for minute in range(40):
        moment = NOW + minutes(minute)
        left = left.forget(*(one for one, end in known.items() if end <= moment and one in left.location))
        result = schedule(left)
        for one in result.bound:
            expected[one.pod] = moment
            known[one.pod] = moment + spans[one.pod]
        left = result.snapshot
    assert found == expected


# --- the verb -------------------------------------------------------------------------------------------


def pod(name: str, cpus: int, node: str | None = None, span: str = "", priority: int = 0) -> dict[str, Any]:
    notes = {"koordcore.io/expected-duration": span} if span else {}
    requests = {"requests": {"cpu": str(cpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {
            "priority": priority,
            "nodeName": node,
            "containers": [{"name": "c", "resources": requests}],
        },
        "status": {"startTime": "2026-01-01T00:00:00Z", "phase": "Running"} if node else {},
    }


def test_whoever_has_no_place_when_rounds_end_starts_later_not_never() -> None:
    ends = {key("a"): NOW + minutes(1), key("b"): NOW + minutes(2), key("c"): NOW + minutes(3)}
    there = cluster(0, {"a": 1, "b": 1, "c": 1}, [wants("big", 3)])
    (cut,) = queue_starts(there, ends, {}, now=NOW, rounds=2)
    assert (cut.start, cut.not_before) == (None, NOW + minutes(2))
    (whole,) = queue_starts(there, ends, {}, now=NOW, rounds=4)
    assert (whole.start, whole.not_before) == (NOW + minutes(3), None)


def test_a_closed_gate_is_a_reason() -> None:
    (gated,) = queue_starts(cluster(1, {}, [wants("g", 1, gates=("later",))]), {}, {}, now=NOW)
    assert "gates" in gated.message


@pytest.fixture
def dump(tmp_path: Path) -> str:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4", "pods": "9"}},
    }
    running = pod("runs", 4, "n", "10m")
    path = tmp_path / "d.json"
    waiting = [pod("big", 4, span="1h", priority=9), pod("late", 2, span="1h")]
    path.write_text(json.dumps([node, running, *waiting]), encoding="utf-8")
    return str(path)


def test_when_says_who_is_before_and_when_the_turn_comes(
    dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["when", "late", dump]) == 0
    told = capsys.readouterr().out
    assert "late: starts at 2026-01-01T00:10:00Z" in told
    assert "2 of 2 in the queue, after default/big" in told
    assert "in its turn: 2026-01-01T01:10:00Z, in 1:10:00" in told
    assert main(["when", "late", dump, "-o", "json"]) == 0
    queue = json.loads(capsys.readouterr().out)["queue"]
    assert (queue["position"], queue["before"]) == (2, ["default/big"])


def test_when_all_shows_the_queue(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["when", "--all", dump, "-o", "json"]) == 0
    starts = [one["expectedStart"] for one in json.loads(capsys.readouterr().out)["queue"]]
    assert starts == ["2026-01-01T00:10:00Z", "2026-01-01T01:10:00Z"]
    assert main(["when", "--all", dump]) == 0
    assert "0 of 2 can start now · 2 later · 0 not in sight" in capsys.readouterr().out


def test_when_wants_a_name_or_all(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["when", dump]) == 2
    assert "--all is about the whole queue" in capsys.readouterr().err
    assert main(["when", "--all", dump, "-o", "reservations"]) == 2


def test_the_page_tells_the_starts_that_the_queue_has(dump: str) -> None:
    """Those of everybody who is left waiting, in their turns, as ``when --all`` has them."""
    before = load([dump]).snapshot
    starts = known_starts(before, schedule(before), None)
    assert starts == {key("big"): NOW + minutes(10), key("late"): NOW + minutes(70)}
    emptied = before.forget(*(pod.key for pod in before.bound_pods()))
    placed = known_starts(emptied, schedule(emptied), NOW)
    assert placed == {key("late"): NOW + minutes(60)}


def test_who_runs_beyond_all_calendars_stays_for_ever() -> None:
    """Thirty pods, one after the other for 280 years each, end after the year 9999."""
    long = timedelta(days=280 * 365)
    waiting = [wants(f"a{turn:02}", 4) for turn in range(30)]
    durations = {pod.key: long for pod in waiting}
    starts = queue_starts(cluster(4, {}, waiting), {}, durations, now=NOW)
    known = [unit.start for unit in starts]
    assert known[:2] == [NOW, NOW + long]
    assert known[28:] == [NOW + 28 * long, None]
    last, two = datetime.max.replace(tzinfo=UTC), cluster(8, {}, waiting)
    plan = earliest_start(two, [waiting[0]], {}, now=last)
    assert isinstance(plan, EarliestStart)
    (job,) = backfill(two, plan, {}, durations, now=last).jobs
    assert job.end is None


@pytest.mark.parametrize(
    ("now", "code"),
    [("9999-12-31T23:59:59Z", 0), ("0001-01-01T00:00:00+14:00", 2), ("9999-12-31T23:59:59-14:00", 2)],
)
def test_a_moment_at_the_end_of_all_calendars(
    now: str, code: int, dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["when", "late", dump, "--now", now]) == code
    assert ("--now: no year of the calendar has" in capsys.readouterr().err) == (code == 2)
