"""``koordcore when`` knows the deadlines that Kubernetes itself keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from koordcore.manifests import node_manifest, pod_from_manifest, pod_manifest
from koordcore.model.nodes import Node
from tests.manifests.builders import container, obj, pod

NOON = "2026-11-01T12:00:00Z"
ROOM = node_manifest(Node(name="n1", allocatable={"cpu": 8000, "memory": 64 << 30, "pods": 20}))


def asking(name: str, cpu: str, **rest: Any) -> dict[str, Any]:
    return pod(name, containers=[container(requests={"cpu": cpu})], **rest)


def running(name: str, job: str = "", **rest: Any) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": "u", "controller": True}
    meta = {"ownerReferences": [owner]} if job else {}
    status = {"phase": "Running", "startTime": NOON}
    return asking(
        name, "6", nodeName="n1", status=status, metadata={**meta, **rest.pop("metadata", {})}, **rest
    )


def job(seconds: int) -> dict[str, Any]:
    spec = {"activeDeadlineSeconds": seconds, "template": {"spec": {"containers": [container()]}}}
    raw = obj(
        "Job", "train", "batch/v1", spec=spec, status={"startTime": "2026-11-01T11:30:00Z", "active": 1}
    )
    raw["metadata"]["uid"] = "u"
    return raw


@pytest.mark.parametrize(
    ("objects", "start"),
    [
        ([running("run", activeDeadlineSeconds=3600)], "2026-11-01T13:00:00Z"),
        ([job(3600), running("run", "train")], "2026-11-01T12:30:00Z"),
        ([job(36000), running("run", "train", activeDeadlineSeconds=600)], "2026-11-01T12:10:00Z"),
        (
            [
                running(
                    "run",
                    activeDeadlineSeconds=3600,
                    metadata={"annotations": {"koordcore.io/expected-duration": "2h"}},
                )
            ],
            "2026-11-01T13:00:00Z",
        ),
        (
            [
                running(
                    "run",
                    activeDeadlineSeconds=7200,
                    metadata={"annotations": {"koordcore.io/expected-duration": "1h"}},
                )
            ],
            "2026-11-01T13:00:00Z",
        ),
        ([running("run")], None),
        ([running("run", activeDeadlineSeconds=2**60)], None),
    ],
)
def test_nobody_runs_beyond_a_deadline(
    objects: list[Any], start: str | None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"kind": "List", "items": [ROOM, *objects, asking("big", "6")]}))
    assert main(["when", "default/big", str(file), "--now", NOON, "-o", "json"]) == int(start is None)
    assert json.loads(capsys.readouterr().out)["start"] == start


def test_who_ends_at_a_deadline_may_run_before(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The big one starts at two; what is over by then delays nobody."""
    file = tmp_path / "dump.json"
    items = [
        ROOM,
        running("run", activeDeadlineSeconds=7200),
        asking("big", "8", priority=5),
        asking("short", "1", activeDeadlineSeconds=3600),
        asking("long", "1", activeDeadlineSeconds=36000),
    ]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    assert main(["when", "default/big", str(file), "--now", NOON, "-o", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [list(one["pods"]) for one in record["before"]] == [["default/short"]]
    assert record["heldBack"] == ["default/long"]


def test_a_text_that_cannot_be_read_ends_nobodys_answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    odd = running("odd", metadata={"annotations": {"koordcore.io/expected-duration": "soon"}})
    odd["spec"]["containers"] = [container(requests={"cpu": "1"})]
    file = tmp_path / "dump.json"
    items = [ROOM, odd, running("run", activeDeadlineSeconds=3600), asking("big", "6")]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    assert main(["when", "default/big", str(file), "--now", NOON]) == 0
    out, err = capsys.readouterr()
    assert "starts at 2026-11-01T13:00:00Z" in out
    assert "Pod odd: metadata.annotations[koordcore.io/expected-duration]: expected a duration" in err


def test_a_deadline_is_written_back() -> None:
    read = pod_from_manifest(asking("p", "1", activeDeadlineSeconds=60))
    assert read.active_deadline == 60
    assert pod_from_manifest(pod_manifest(read)) == read
