"""Backfill tries further nodes, and an answer about a start looks at the queue."""

from __future__ import annotations

from typing import Any

from tests.promises.door import Door, Object, gang, members, node, pod

NOW = "2026-01-01T00:00:00Z"
END = "koordcore.io/expected-end"


def runs(name: str, on: str, cpu: int, until: str) -> Object:
    began: dict[str, Any] = {"startTime": NOW}
    return pod(name, {"cpu": cpu}, on=on, annotations={END: f"2026-01-01T{until}:00Z"}, status=began)


def test_a_job_is_held_back_only_where_no_node_would_do(door: Door) -> None:
    """The emptiest node is needed by the gang; two CPUs are to spare on the fullest one for ever."""
    machines = [node(name, amounts={"cpu": str(cpu)}) for name, cpu in (("a", 10), ("b", 8), ("c", 8))]
    busy = [runs("r1", "a", 3, "01:00"), runs("r2", "b", 1, "04:00"), runs("r3", "c", 7, "03:00")]
    waits = members("g", 3, {"cpu": 8}, priority=9)
    dump = door.file(machines, busy, gang("g", 3), waits, pod("small", {"cpu": 2}))
    found = door.ask("when", "default/g", dump, "--now", NOW, "-o", "json").json
    assert found["start"] == "2026-01-01T04:00:00Z"
    (job,) = found["before"]
    assert job["pods"] == {"default/small": "a"}
    assert found["heldBack"] == []
    large = door.file(machines, busy, gang("g", 3), waits, pod("small", {"cpu": 3}))
    assert door.ask("when", "default/g", large, "--now", NOW, "-o", "json").json["heldBack"] == [
        "default/small"
    ]


def test_when_knows_who_is_before_it(door: Door) -> None:
    first = pod("first", {"cpu": 30}, priority=50, annotations={"koordcore.io/expected-duration": "2h"})
    cluster = [node("n"), runs("r", "n", 30, "01:00"), first, pod("second", {"cpu": 30}, priority=5)]
    dump = door.file(cluster)
    found = door.ask("when", "default/second", dump, "--now", NOW, "-o", "json").json
    assert found["start"] == "2026-01-01T01:00:00Z"  # if the other keeps waiting
    assert found["queue"]["before"] == ["default/first"]
    assert found["queue"]["expectedStart"] == "2026-01-01T03:00:00Z"
    queue = door.ask("when", "--all", dump, "--now", NOW, "-o", "json").json["queue"]
    assert [one["expectedStart"][11:16] for one in queue] == ["01:00", "03:00"]
