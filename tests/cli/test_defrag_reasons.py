"""Defragmentation that finds no room says who stays, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, obj, pod

EXAMPLE = "examples/gpu-cluster.yaml"


def dump(path: Path, replicas: int | None, running: int) -> str:
    """Three nodes of eight cards with 3, 5 and 1 of them taken, by bare pods or those of one ReplicaSet."""
    room = {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": "8"}
    items: list[dict[str, Any]] = [node(f"g{number}", room) for number in range(3)]
    meta: dict[str, Any] = {}
    if replicas is not None:
        items.append(obj("ReplicaSet", "w", "apps/v1", spec={"replicas": replicas}, metadata={"uid": "u"}))
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "u", "controller": True}
        meta = {"ownerReferences": [owner]}
    for number, cards in enumerate((3, 5, 1)[:running]):
        box = container(limits={"nvidia.com/gpu": str(cards)})
        one = pod(f"p{number}", metadata=meta, containers=[box], nodeName=f"g{number}")
        ready = [{"type": "Ready", "status": "True"}]
        items.append({**one, "status": {"phase": "Running", "conditions": ready}})
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


@pytest.mark.parametrize(
    ("replicas", "told"),
    [
        (None, "3 pods: pod does not have any ownerRefs"),
        (3, "2 pods: ReplicaSet default/w lets 1 of 3 move"),
    ],
)
def test_who_stays_is_told_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], replicas: int | None, told: str
) -> None:
    cluster = dump(tmp_path / "c.json", replicas, 3)
    assert main(["defrag", cluster, "--want", "3x:nvidia.com/gpu=8"]) == 1
    assert f"who stays: {told}" in " ".join(capsys.readouterr().out.split())
    assert main(["defrag", cluster, "--want", "3x:nvidia.com/gpu=8", "-o", "json"]) == 1
    assert told in json.loads(capsys.readouterr().out)["staying"]


def test_taints_that_a_slot_tolerates_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A pod of 64 CPUs gets a node with cards only if it tolerates their taint; who asks for cards does."""
    assert main(["defrag", EXAMPLE, "--want", "2x:cpu=64", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    taint = "nvidia.com/gpu=present:NoSchedule"
    assert found["tolerating"] == {name: [taint] for name in found["places"] if name.startswith("gpu")}
    assert len(found["tolerating"]) == 1
    main(["defrag", EXAMPLE, "--want", "2x:cpu=64"])
    assert f"1  {taint}" in capsys.readouterr().out
    assert main(["defrag", EXAMPLE, "--want", "nvidia.com/gpu=8", "-o", "json"]) == 0
    assert "tolerating" not in json.loads(capsys.readouterr().out)
