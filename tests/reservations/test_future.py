"""The earliest start and what may run before."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from koordcore.cli.main import main
from koordcore.manifests.reservations import reservation_from_manifest
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.backfilling import (
    EarliestStart,
    NoStart,
    backfill,
    earliest_start,
)
from koordcore.scheduling.reservations_ahead import future_reservations
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import node, pod

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def key(name: str) -> PodKey:
    return PodKey("default", name)


def cluster(*waiting: Pod) -> ClusterSnapshot:
    """Two full nodes whose pods leave after one and two hours, and a third with two CPUs free for ever."""
    running = [
        pod("one", 8, node_name="n1"),
        pod("two", 8, node_name="n2"),
        pod("stays", 6, node_name="n3"),
    ]
    return ClusterSnapshot(nodes=[node("n1"), node("n2"), node("n3")], pending=waiting).assume(*running)


ENDS = {key("one"): NOW + HOUR, key("two"): NOW + 2 * HOUR}


def test_a_job_starts_when_the_last_room_it_needs_is_left() -> None:
    small, large = pod("small", 2), pod("large", 8)
    snapshot = cluster(small, large)
    at_once = earliest_start(snapshot, [small], ENDS, now=NOW)
    assert isinstance(at_once, EarliestStart)
    assert (at_once.start, at_once.too_early) == (NOW, None)
    later = earliest_start(snapshot, [large], ENDS, now=NOW)
    assert isinstance(later, EarliestStart)
    assert (later.start, later.too_early, later.waits_for) == (NOW + HOUR, NOW, (key("one"),))
    both = earliest_start(snapshot, [large, pod("other", 8)], ENDS, now=NOW)
    assert isinstance(both, EarliestStart)
    assert both.start == NOW + 2 * HOUR
    assert set(both.nodes.values()) == {"n1", "n2"}


def test_a_job_that_never_fits_says_why() -> None:
    answer = earliest_start(cluster(), [pod("huge", 9)], ENDS, now=NOW)
    assert isinstance(answer, NoStart)
    assert "Insufficient cpu" in answer.message


def test_backfill_takes_what_ends_in_time_and_what_leaves_room() -> None:
    gang = [pod("g1", 8, priority=9), pod("g2", 8, priority=9)]
    beside = pod("beside", 1)  # for ever, on the node that the plan does not need
    short = pod("short", 8)  # fits only once n1 is free
    snapshot = cluster(*gang, beside, short, pod("fits-not", 3))
    plan = earliest_start(snapshot, gang, ENDS, now=NOW)
    assert isinstance(plan, EarliestStart)
    found = backfill(snapshot, plan, ENDS, {key("short"): HOUR}, now=NOW)
    assert [dict(job.pods) for job in found.jobs] == [{key("beside"): "n3"}]
    assert set(found.without_room) == {key("short"), key("fits-not")}
    assert found.recomputed == plan.start


def test_backfill_holds_back_who_would_delay_the_start() -> None:
    free = ClusterSnapshot(nodes=[node("n1"), node("n2")]).assume(pod("one", 8, node_name="n1"))
    gang = [pod("g1", 8), pod("g2", 8)]
    long, brief = pod("long", 4), pod("brief", 4)
    snapshot = free.with_pending(*gang, long, brief)
    plan = earliest_start(snapshot, gang, ENDS, now=NOW)
    assert isinstance(plan, EarliestStart)
    found = backfill(snapshot, plan, ENDS, {key("long"): 2 * HOUR, key("brief"): HOUR}, now=NOW)
    assert [dict(job.pods) for job in found.jobs] == [{key("brief"): "n2"}]
    assert found.held_back == (key("long"),)


def test_a_start_is_written_down_as_reservations() -> None:
    plan = earliest_start(cluster(), [pod("large", 8)], ENDS, now=NOW)
    assert isinstance(plan, EarliestStart)
    (made,) = future_reservations(plan)
    assert made.template is not None
    assert (made.template.node_name, made.requests["cpu"], made.problem) == ("n1", 8000, "")


def test_the_command_line_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def manifest(name: str, cpu: str, on: str = "", **annotations: str) -> dict[str, object]:
        spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {**spec, "nodeName": on} if on else spec,
        }

    there = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": there}},
        manifest("one", "8", "n1", **{"koordcore.io/expected-end": "2026-11-21T13:00:00Z"}),
        manifest("large", "6"),
    ]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(objects))
    arguments = ["when", "default/large", str(path), "--now", "2026-11-21T12:00:00Z"]
    assert main([*arguments, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["start"], answer["startRecomputed"]) == (("2026-11-21T13:00:00Z",) * 2)
    assert main(arguments) == 0
    assert "starts at 2026-11-21T13:00:00Z, in 1:00:00" in capsys.readouterr().out
    assert main(["when", "default/one", str(path)]) == 2
    assert main([*arguments, "-o", "reservations"]) == 0
    (written,) = json.loads(capsys.readouterr().out)["items"]
    held = reservation_from_manifest(written)
    assert held.template is not None
    assert (held.template.node_name, held.requests["cpu"], held.ttl) == ("n1", 6000, 0)
    assert [owner.object and owner.object.name for owner in held.owners] == ["large"]


def test_a_job_is_held_back_only_where_no_node_has_room_to_spare() -> None:
    """Three nodes are planned; one of them, not the best, has two CPUs to spare for ever."""

    def room(name: str, cpu: int) -> Node:
        return Node(name=name, allocatable={"cpu": cpu * 1000, "memory": 2**40, "pods": 110})

    running = [
        pod("r2", 2, node_name="n0"),
        pod("r1", 1, node_name="n1"),
        pod("r0", 4, node_name="n2"),
        pod("r3", 2, node_name="n2"),
    ]
    ends = {key(name): NOW + hours * HOUR for name, hours in (("r2", 1), ("r1", 4), ("r0", 3), ("r3", 4))}
    gang, small = [pod(f"g{one}", 6) for one in range(3)], pod("small", 1)
    nodes = [room("n0", 8), room("n1", 6), room("n2", 6)]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[*gang, small]).assume(*running)
    plan = earliest_start(snapshot, gang, ends, now=NOW)
    assert isinstance(plan, EarliestStart)
    assert plan.start == NOW + 4 * HOUR
    found = backfill(snapshot, plan, ends, {}, now=NOW)
    assert [dict(job.pods) for job in found.jobs] == [{small.key: "n0"}]
    assert (found.held_back, found.recomputed) == ((), plan.start)
    # Nothing is to spare where every node is needed whole.
    tight = ClusterSnapshot(nodes=[room("n0", 6), *nodes[1:]], pending=[*gang, small]).assume(*running)
    plan = earliest_start(tight, gang, ends, now=NOW)
    assert isinstance(plan, EarliestStart)
    assert backfill(tight, plan, ends, {}, now=NOW).held_back == (small.key,)
