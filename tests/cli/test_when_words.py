"""``when`` on dumps that tell little: no starts, reservations in the queue, and nothing said twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, obj, pod

ROOM = {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": "8"}
MADE = {"creationTimestamp": "2026-11-01T10:00:00Z"}


def waiting(name: str, cards: int) -> dict[str, Any]:
    return pod(name, metadata=MADE, containers=[container(limits={"nvidia.com/gpu": str(cards)})])


def reservation(name: str) -> dict[str, Any]:
    spec = {
        "template": {"spec": {"containers": [container(limits={"nvidia.com/gpu": "4"})]}},
        "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}],
    }
    made = {"metadata": {**MADE, "uid": "u1"}, "spec": spec}
    return obj("Reservation", name, "scheduling.koordinator.sh/v1alpha1", **made)


def dump(tmp_path: Path, *items: dict[str, Any]) -> str:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node("n", ROOM), *items]}))
    return str(path)


def test_where_nobody_runs_the_newest_pod_tells_the_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["when", "--all", dump(tmp_path, waiting("a", 8), waiting("b", 8)), "-o", "json"]) == 1
    starts = {one["name"]: one["expectedStart"] for one in json.loads(capsys.readouterr().out)}
    assert starts == {"default/a": "2026-11-01T10:00:00+00:00", "default/b": None}


def test_a_reservation_in_the_queue_has_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = dump(tmp_path, waiting("a", 4), reservation("held"))
    main(["when", "--all", cluster])
    assert "reservation/held" in capsys.readouterr().out
    assert main(["explain", "reservation/held", cluster]) == 2
    assert "reservation/held is no pod" in capsys.readouterr().err


def test_why_there_is_no_start_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["when", "a", dump(tmp_path, waiting("a", 16), waiting("b", 16))]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert (told.count("1 Insufficient nvidia.com/gpu"), told.count("no start is in sight")) == (1, 2)
