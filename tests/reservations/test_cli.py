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
