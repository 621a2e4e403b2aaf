"""``koordcore schedule --preempt``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli.main import main
from koordcore.manifests import load
from koordcore.manifests.records import result_from_record
from koordcore.model.preemption import PreemptionRules
from koordcore.scheduling import schedule


def objects() -> list[dict[str, Any]]:
    def pod(name: str, cpu: str, priority: int, node: str = "") -> dict[str, Any]:
        containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        spec: dict[str, Any] = {"containers": containers, "priority": priority}
        if node:
            spec["nodeName"] = node
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        }
        for name in ("n1", "n2")
    ]
    return [*nodes, pod("cheap", "4", 1, "n1"), pod("dear", "4", 5, "n2"), pod("want", "3", 9)]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects()}), encoding="utf-8")
    return str(path)


def test_the_table_says_who_goes_for_whom_and_what_else_there_was(
    dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", dump, "--preempt"]) == 0
    shown = capsys.readouterr().out
    assert "default/cheap" in shown
    assert "1 pod of 1 job, up to priority 1" in shown
    assert "n2: 1 pod of 1 job, up to priority 5" in shown
    assert "proven" in shown
    assert "1 nominated" in shown


def test_json_holds_the_plan(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", dump, "--preempt", "-o", "json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["preemptions"]
    assert plan["nominations"] == {"default/want": "n1"}
    assert [one["pod"] for one in plan["victims"]] == ["default/cheap"]
    assert plan["certificate"]["status"] == "Proven"


def test_a_gang_that_preempts_is_not_called_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *others, want = objects()
    want["metadata"]["labels"] = {"pod-group.scheduling.sigs.k8s.io": "g"}
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"minMember": 1},
    }
    path = tmp_path / "gang.json"
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": [*others, want, group]}), "utf-8"
    )
    assert main(["schedule", str(path), "--preempt"]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  default/g ")][:1]
    assert "preempts" in row


def test_nobody_leaves_unless_asked(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", dump]) == 1
    assert "default/cheap" not in capsys.readouterr().out


def test_a_call_that_preempts_is_made_again_from_its_record(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "r.json")
    assert main(["schedule", dump, "--preempt", "--record", path]) == 0
    capsys.readouterr()
    assert main(["simulate", path]) == 0
    assert "the same 1 decisions and 1 preemption plan, sha256" in capsys.readouterr().out


def test_a_changed_plan_in_a_record_is_refused(dump: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    assert main(["schedule", dump, "--preempt", "--record", str(path)]) == 0
    record = json.loads(path.read_text("utf-8"))
    (plan,) = record["result"]["preemptions"]
    assert plan.pop("victims")
    path.write_text(json.dumps(record), "utf-8")
    assert main(["simulate", str(path)]) == 2


def test_a_plan_is_checked_from_its_json(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is read back is what was planned; whoever may not leave is found out."""
    assert main(["schedule", dump, "--preempt", "-o", "json"]) == 0
    text = capsys.readouterr().out
    plan = tmp_path / "plan.json"
    plan.write_text(text, "utf-8")
    assert main(["verify", dump, "--plan", str(plan)]) == 0
    snapshot = load([Path(dump)]).snapshot
    read = result_from_record(snapshot, json.loads(text))
    assert read.preemptions == schedule(snapshot, preempt=PreemptionRules()).preemptions
    plan.write_text(text.replace("default/cheap", "default/dear"), "utf-8")
    assert main(["verify", dump, "--plan", str(plan)]) == 1
    assert "does not run on n1" in capsys.readouterr().out


def test_who_can_move_does_not_have_to_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`want` needs n1 whole; `cheap` fits on n2."""
    items = objects()
    items[2]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    items[3]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    items[4]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "utf-8")
    assert main(["schedule", str(path), "--preempt", "--relocate"]) == 0
    shown = capsys.readouterr().out
    assert "moves to n2" in shown
    assert "1 move" in shown
    assert main(["schedule", str(path), "--relocate"]) == 2
    assert "--preempt" in capsys.readouterr().err


def test_who_leaves_anyhow_is_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Room that a terminating pod gives back costs nothing, and the table says whose room that is."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    going = {
        "metadata": {"name": "going", "deletionTimestamp": "2026-11-01T12:00:00Z"},
        "spec": {"nodeName": "a", "priority": 1, "containers": [{"resources": {"requests": {"cpu": "3"}}}]},
    }
    waits = {
        "metadata": {"name": "waits"},
        "spec": {"priority": 100, "containers": [{"resources": {"requests": {"cpu": "3"}}}]},
    }
    items = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": room}},
        *({"apiVersion": "v1", "kind": "Pod", **one} for one in (going, waits)),
    ]
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["schedule", str(path), "--preempt"]) == 0
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if line.strip().startswith("default/going")]
    assert "leaves anyhow" in row
