"""``when`` on dumps that tell little: no starts, reservations in the queue, and nothing said twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from koordcore.cli.queue_starts import Place, place_lines
from koordcore.model.pods import PodKey
from koordcore.scheduling.serving import QueuedStart
from tests.manifests.builders import container, node, obj, pod

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml")
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": "8"}
MADE = {"creationTimestamp": "2026-11-01T10:00:00Z"}


def waiting(name: str, cards: int) -> dict[str, Any]:
    return pod(name, metadata=MADE, containers=[container(limits={"nvidia.com/gpu": str(cards)})])


def reservation(name: str) -> dict[str, Any]:
    four = {"nvidia.com/gpu": "4"}
    spec = {
        "ttl": "24h",
        "template": {"spec": {"containers": [container(limits=four, requests=four)]}},
        "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}],
    }
    made = {"metadata": {**MADE, "uid": f"u-{name}"}, "spec": spec}
    return obj("Reservation", name, "scheduling.koordinator.sh/v1alpha1", **made)


def dump(tmp_path: Path, *items: dict[str, Any]) -> str:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n", ROOM), *items]}))
    return str(path)


def test_where_nobody_runs_the_newest_pod_tells_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["when", "--all", dump(tmp_path, waiting("a", 8), waiting("b", 8)), "-o", "json"]) == 1
    queue = json.loads(capsys.readouterr().out)["queue"]
    starts = {one["name"]: one["expectedStart"] for one in queue}
    assert starts == {"default/a": "2026-11-01T10:00:00Z", "default/b": None}


def test_a_reservation_in_the_queue_has_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = dump(tmp_path, waiting("a", 4), reservation("held"))
    main(["when", "--all", cluster])
    assert "reservation/held" in capsys.readouterr().out
    assert main(["when", "reservation/held", cluster]) == 2
    assert "reservation/held is no pod" in capsys.readouterr().err


def test_a_reservation_that_waits_is_explained_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of them fit beside each other, the third finds no card left in its turn."""
    names = ("first", "second", "third")
    cluster = dump(tmp_path, waiting("a", 8), *map(reservation, names))
    assert [main(["explain", f"reservation/{name}", cluster]) for name in names] == [0, 0, 1]
    out = capsys.readouterr().out
    assert out.startswith("reservation/first: waits for a node")
    assert out.count("Fits on 1 node") == 2
    assert "0/1 nodes are available: 1 Insufficient nvidia.com/gpu." in out
    assert main(["explain", "reservation/third", cluster, "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["pod"] == "default/u-third"
    assert main(["explain", "reservation/third", cluster, "--event"]) == 2
    assert "--event: reservation/third is no pod" in capsys.readouterr().err


def test_why_there_is_no_start_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["when", "a", dump(tmp_path, waiting("a", 16), waiting("b", 16))]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert (told.count("1 Insufficient nvidia.com/gpu"), told.count("no start is in sight")) == (1, 2)


def test_an_empty_queue_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = dump(tmp_path)
    assert main(["when", "--all", cluster]) == 0
    assert capsys.readouterr().out == "nobody waits\n"
    assert main(["when", "--all", cluster, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"queue": []}
    assert main(["simulate", cluster]) == 2
    assert "no pod waits, so nobody arrives" in capsys.readouterr().err


def test_sort_by_orders_the_nodes_of_explain_and_leaves_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [node("a", {**ROOM, "nvidia.com/gpu": "6"}), node("b", {**ROOM, "nvidia.com/gpu": "4"})]
    cluster = dump(tmp_path, *items, waiting("w", 16))
    assert main(["explain", "w", cluster, "--sort-by", "nodes"]) == 1
    shown = capsys.readouterr().out
    assert "What would help" in shown
    rows = [line.split()[0] for line in shown.partition("Does not fit")[2].splitlines()[2:5]]
    assert rows == ["a", "b", "n"]


def test_seconds_of_a_watch_are_named_when_they_are_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("0", "soon"):
        assert main(["inspect", dump(tmp_path), "--watch", text]) == 2
        assert f"--watch: expected seconds from 0.1 to 86400, got {text}" in capsys.readouterr().err


def test_nodes_in_one_row_show_what_they_have_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = [("m1", "64"), ("m2", "32")]
    nodes = [{**node(name), "status": {"capacity": {"cpu": cpu, "memory": "8Gi"}}} for name, cpu in sizes]
    assert main(["colocation", dump(tmp_path, *nodes), "--now", "2026-11-01T00:00:00Z", "-o", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)["nodes"]
    assert {tuple(one["capacity"]) for one in shown} >= {(64_000, 8 << 30)}
    assert main(["colocation", dump(tmp_path, *nodes), "--now", "2026-11-01T00:00:00Z"]) == 0
    joined = next(line for line in capsys.readouterr().out.splitlines() if "more" in line)
    assert "64/8Gi" not in joined


def test_three_verbs_count_the_queue_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """A gang has one turn, of as many as there are pods that go alone and gangs."""
    main(["when", "urgent-1", EXAMPLE, "-o", "json"])
    place = json.loads(capsys.readouterr().out)["queue"]
    main(["explain", "urgent-1", EXAMPLE, "-o", "json"])
    advice = json.loads(capsys.readouterr().out)["advice"]
    main(["inspect", EXAMPLE, "-o", "json"])
    turns = {one["pod"]: one["turn"] for one in json.loads(capsys.readouterr().out)["pending"]}
    assert (place["position"], place["of"]) == (advice["turn"], advice["queue"]) == (3, 18)
    assert (turns["default/urgent-1"], max(turns.values()), len(turns)) == (3, 18, 20)


def test_pods_of_other_schedulers_have_no_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign = pod("a", metadata=MADE, schedulerName="kai-scheduler")
    main(["inspect", dump(tmp_path, foreign, waiting("b", 8)), "-o", "json"])
    pending = json.loads(capsys.readouterr().out)["pending"]
    assert [(one["pod"], one["turn"]) for one in pending] == [("default/b", 1), ("default/a", 0)]


@pytest.mark.parametrize("verb", ["explain", "when"])
def test_a_column_that_is_none_is_said_before_anything_else(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "urgent-1", EXAMPLE, "-q", "--sort-by", "nams"]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert out.err.startswith("koordcore: --sort-by: no column nams; there are ")


def test_plans_are_not_watched(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--diff", "a.json", "b.json", EXAMPLE, "--watch"]) == 2
    assert "--watch: two plans do not change" in capsys.readouterr().err


def test_a_name_is_looked_for_in_the_namespace_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``-n`` was dropped: a pod of another namespace was told of, and one of several could not be chosen."""
    pods = [waiting("p", 1) | {"metadata": {**MADE, "name": "p", "namespace": space}} for space in ("a", "b")]
    cluster = dump(tmp_path, *pods)
    assert main(["when", "p", cluster, "-n", "b", "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == ["b/p"]
    assert main(["when", "p", cluster, "-n", "c"]) == 2
    assert "no pod p in namespace c of the dump" in capsys.readouterr().err
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    member = waiting("m", 1) | {"metadata": {**MADE, "name": "m", "namespace": "a", "labels": labels}}
    group = obj("PodGroup", "g", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": 1})
    group["metadata"]["namespace"] = "a"
    cluster = dump(tmp_path, member, group)
    for verb in ("when", "explain"):
        assert main([verb, "podgroup/g", cluster, "-n", "a"]) == 0
        assert main([verb, "podgroup/g", cluster, "-n", "b"]) == 2
        assert "no podgroup b/g with waiting pods" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("hour", "told"),
    [
        (12, ["others who wait have come and gone"]),
        (13, []),
        (14, ["others take room before; -o reservations holds it"]),
    ],
)
def test_why_a_turn_and_the_earliest_start_differ(hour: int, told: list[str]) -> None:
    """Who waits can be in the way by its share of a quota alone: a turn may come before the start alone."""
    now = datetime(2026, 11, 1, 10, tzinfo=UTC)
    units = tuple(QueuedStart(name=name, pods=(PodKey("x", name),)) for name in ("a", "b"))
    start = now.replace(hour=hour)
    lines = place_lines(Place(units, 1), start, "", now=now, earliest=now.replace(hour=13))
    assert [one in line for one, line in zip(told, lines[2:], strict=True)] == [True] * len(told)


def test_a_share_that_grows_when_others_have_run_brings_a_turn_before_the_start_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What waits in quota ``b`` keeps its share from ``c`` for ever only where it never runs."""

    def quota(name: str, least: str) -> dict[str, Any]:
        spec = {"min": {"cpu": least}, "max": {"cpu": "8"}}
        return obj("ElasticQuota", name, "scheduling.sigs.k8s.io/v1alpha1", spec=spec)

    def one(name: str, cpu: str, notes: dict[str, str], *, of: str = "", **spec: Any) -> dict[str, Any]:
        labels = {"quota.scheduling.koordinator.sh/name": of} if of else {}
        meta = {**MADE, "labels": labels, "annotations": notes}
        return pod(name, metadata=meta, containers=[container(requests={"cpu": cpu})], **spec)

    room = {"cpu": "8", "memory": "8Gi", "pods": "9"}
    items = [
        node("m", room),
        *map(quota, "abc", ("2", "4", "0")),
        one("r", "6", {"koordcore.io/expected-end": "2026-11-01T12:00:00Z"}, nodeName="m"),
        one("s", "2", {"koordcore.io/expected-end": "2026-11-01T14:00:00Z"}, of="a", nodeName="m"),
        one("first", "4", {"koordcore.io/expected-duration": "30m"}, of="b", priority=9),
        one("then", "4", {}, of="c"),
    ]
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["when", "then", str(path), "-q", "--now", "2026-11-01T10:00:00Z"]) == 0
    shown = capsys.readouterr().out
    assert "starts at 2026-11-01T14:00:00Z" in shown
    assert "in its turn: 2026-11-01T12:30:00Z" in shown
    assert "sooner: others who wait have come and gone by then" in shown
    assert main(["explain", "then", str(path), "-q", "--now", "2026-11-01T10:00:00Z"]) == 1
    assert "its turn brings it m; others have come and gone by then" in capsys.readouterr().out
