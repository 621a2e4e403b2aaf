"""Reservations on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore.cli.main import main

OBJECTS = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    },
    {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "demo"},
        "spec": {
            "allocateOnce": False,
            "owners": [{"labelSelector": {"matchLabels": {"app": "demo"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}},
        },
    },
    *(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]},
        }
        for name in ("demo", "other")
    ),
]


def test_a_reservation_is_placed_printed_planned_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(OBJECTS))
    assert main(["schedule", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "reservation/demo" in printed
    assert "2 of 3 pods placed" in printed
    assert main(["schedule", str(path), "-o", "json"]) == 1
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    assert main(["verify", str(path), "--plan", str(plan)]) == 0
    assert main(["explain", "other", str(path)]) in (0, 1)


def test_a_reservation_that_is_used_and_has_no_status_is_not_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {"scheduling.koordinator.sh/reservation-allocated": '{"name": "demo", "uid": "u"}'}
    user = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "user", "annotations": said},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
    }
    objects = json.loads(json.dumps([*OBJECTS, user]))
    next(one for one in objects if one["kind"] == "Reservation")["metadata"]["uid"] = "u"
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(objects))
    assert main(["explain", "reservation/demo", str(path)]) == 2
    assert "reservation/demo is used already: there is nothing to explain" in capsys.readouterr().err
