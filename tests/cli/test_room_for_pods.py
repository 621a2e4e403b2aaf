"""Room for a pod that waits, on clusters that say how many cards a node has and no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, obj, pod

ROOM = {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": "8"}
GANG = {"pod-group.scheduling.sigs.k8s.io": "train"}


def written(path: Path, items: list[dict[str, Any]]) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def running(name: str, on: str, cards: int) -> dict[str, Any]:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "old", "uid": "u", "controller": True}
    box = container(limits={"nvidia.com/gpu": str(cards)})
    return pod(name, metadata={"ownerReferences": [owner]}, containers=[box], nodeName=on)


def waiting(name: str, **spec: Any) -> dict[str, Any]:
    box = container(limits={"nvidia.com/gpu": "8"})
    return pod(name, containers=[box], **spec)


def half_full(path: Path, *items: dict[str, Any]) -> str:
    """Two nodes of eight cards in zones a and b, with four of them taken on each."""
    nodes = [node(f"g{zone}", ROOM, metadata={"labels": {"zone": zone}}) for zone in "ab"]
    return written(path, [*nodes, running("r0", "ga", 4), running("r1", "gb", 4), *items])


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = main(argv)
    return code, " ".join(capsys.readouterr().out.split())


def test_defrag_for_a_pod_and_explain_name_the_same_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = half_full(tmp_path / "c.json", waiting("big"))
    code, text = told(capsys, "defrag", dump, "--for", "big")
    assert (code, "default/r0 1 ga gb" in text, "default/big fits on ga" in text) == (0, True, True)
    assert "1 move: default/r0 from ga to gb" in told(capsys, "explain", "big", dump)[1]


def test_room_is_made_where_the_pod_may_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = half_full(tmp_path / "c.json", waiting("big", nodeSelector={"zone": "b"}))
    assert "default/big fits on gb" in told(capsys, "defrag", dump, "--for", "big")[1]
    assert "1 move: default/r1 from gb to ga" in told(capsys, "explain", "big", dump)[1]


def test_where_no_move_helps_it_says_who_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    box = container(limits={"nvidia.com/gpu": "4"})
    bare = [pod(f"bare{zone}", containers=[box], nodeName=f"g{zone}") for zone in "ab"]
    dump = written(tmp_path / "c.json", [node("ga", ROOM), node("gb", ROOM), *bare, waiting("big")])
    code, text = told(capsys, "defrag", dump, "--for", "big")
    assert code == 1
    assert text.startswith("no moves found for default/big it fits on no node even when all who may move")
    assert text.endswith("who stays: 2 pods: pod does not have any ownerRefs")


def test_a_member_of_a_gang_is_said_to_be_looked_at_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = obj("PodGroup", "train", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": 2})
    members = [
        {**waiting(f"m{number}"), "metadata": {"name": f"m{number}", "labels": GANG}} for number in (0, 1)
    ]
    dump = half_full(tmp_path / "c.json", group, *members)
    text = told(capsys, "defrag", dump, "--for", "m0")[1]
    assert "by itself: `koordcore explain default/train` is about all of its gang" in text


def test_a_plan_of_another_dump_is_told_from_a_wrong_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path / "one.json", [node("ga", ROOM), waiting("a")])
    other = written(tmp_path / "other.json", [node("ga", ROOM), waiting("b")])
    assert main(["schedule", one, "-o", "json"]) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    code, text = told(capsys, "verify", other, "--plan", str(plan))
    assert (code, "1 pod of the plan is not in the dump: was it made from this one?" in text) == (1, True)
    full = written(tmp_path / "full.json", [node("ga", ROOM), waiting("a"), running("r", "ga", 8)])
    code, text = told(capsys, "verify", full, "--plan", str(plan))
    assert (code, text.startswith("Not legal: 1 violation RULE"), "was it made" in text) == (1, True, False)


def test_a_pod_that_moves_cannot_help_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = half_full(tmp_path / "c.json", waiting("big", nodeSelector={"zone": "nowhere"}))
    code, text = told(capsys, "defrag", dump, "--for", "big")
    assert (code, "it fits on no node even when all who may move have left" in text) == (1, True)
