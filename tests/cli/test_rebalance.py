"""``koordcore rebalance`` and ``koordcore defrag``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli.main import main


def dump(path: Path, *, cores: dict[str, list[int]]) -> Path:
    """Write nodes of ten cores with one pod for each number of cores, all of them fully used."""
    objects: list[dict[str, Any]] = []
    for node, pods in cores.items():
        reports = []
        for index, count in enumerate(pods):
            name = f"{node}-{index}"
            amounts = {"cpu": str(count), "memory": "1Gi"}
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": "d", "uid": name, "ownerReferences": [owner]},
                    "spec": {
                        "nodeName": node,
                        "containers": [{"name": "c", "resources": {"requests": amounts}}],
                    },
                    "status": {"phase": "Running"},
                }
            )
            reports.append({"namespace": "d", "name": name, "podUsage": {"resources": amounts}})
        allocatable = {"cpu": "10", "memory": "100Gi", "pods": "20"}
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node},
                "status": {"allocatable": allocatable},
            }
        )
        objects.append(
            {
                "apiVersion": "slo.koordinator.sh/v1alpha1",
                "kind": "NodeMetric",
                "metadata": {"name": node},
                "status": {
                    "updateTime": "2026-03-01T12:00:00Z",
                    "nodeMetric": {"nodeUsage": {"resources": {}}},
                    "podsMetric": reports,
                },
            }
        )
    path.write_text(json.dumps(objects), encoding="utf-8")
    return path


def test_a_hot_node_is_cooled(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One pod leaves, its target is named, and the answer is proven."""
    path = dump(tmp_path / "c.json", cores={"a": [2, 2, 2, 2], "b": [1], "c": [6]})
    assert main(["rebalance", str(path), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["hotBefore"] == ["a"]
    assert answer["hotAfter"] == []
    assert [(one["from"], one["to"]) for one in answer["moves"]] == [("a", "b")]
    assert answer["certificate"]["status"] == "Proven"


def test_what_cannot_be_cooled_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """No target has room: exit code 1 and the node by name."""
    path = dump(tmp_path / "c.json", cores={"a": [4, 4], "b": [6]})
    assert main(["rebalance", str(path)]) == 1
    assert "still hot: a" in capsys.readouterr().out


def test_patches_reserve_before_they_evict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each move is a Reservation on the target and the job that refers to it."""
    path = dump(tmp_path / "c.json", cores={"a": [2, 2, 2, 2], "b": [1]})
    assert main(["rebalance", str(path), "-o", "patches"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["kind"] for one in lines] == ["Reservation", "PodMigrationJob"]
    assert lines[1]["spec"]["reservationOptions"]["reservationRef"]["name"] == lines[0]["metadata"]["name"]


def test_wrong_thresholds_are_the_users_mistake(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A percentage that is none ends in a message."""
    path = dump(tmp_path / "c.json", cores={"a": [2]})
    assert main(["rebalance", str(path), "--high", "cpu=x"]) == 2
    assert "NAME=PERCENT" in capsys.readouterr().err


def test_room_is_made_for_a_shape(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Six free cores lie on no node; one move brings them together."""
    path = dump(tmp_path / "c.json", cores={"a": [4, 2], "b": [4, 2], "c": [7]})
    assert main(["defrag", str(path), "--want", "cpu=6", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["missing"], len(answer["moves"]), answer["certificate"]["status"]) == (0, 1, "Proven")
    assert answer["gains"] == [1]


def test_a_shape_that_cannot_fit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The most that fits is offered, the rest is counted; exit code 1."""
    path = dump(tmp_path / "c.json", cores={"a": [4], "b": [4]})
    assert main(["defrag", str(path), "--want", "2x:cpu=10"]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 slots does not fit; proven" in out
    # Ten cores are a whole node, once its pod has left.
    assert "never" not in out
    assert main(["defrag", str(path), "--want", "cpu=999"]) == 1
    out = capsys.readouterr().out
    assert "1 of 1 slot does not fit; proven" in out
    assert "never: no node has ever 999 cpu: the most is " in out
    assert main(["defrag", str(path), "--want", "cpu=999", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["never"][0].startswith("no node has ever 999 cpu")
    assert main(["defrag", str(path), "--want", "cpu"]) == 2


def test_nodes_are_emptied(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One of two half-empty nodes can go; two cannot."""
    path = dump(tmp_path / "c.json", cores={"a": [4], "b": [5]})
    assert main(["defrag", str(path), "--empty", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["emptied"] == ["a"]
    assert main(["defrag", str(path), "--empty", "2"]) == 1
    assert "1 node emptied: a" in capsys.readouterr().out
    # Where the other one is empty, to fill it gains nothing.
    path = dump(tmp_path / "d.json", cores={"a": [4], "b": []})
    assert main(["defrag", str(path), "--empty"]) == 1
    assert "0 nodes emptied: none" in capsys.readouterr().out


def test_a_plan_is_checked_from_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is printed is legal; sent elsewhere it is not."""
    path = dump(tmp_path / "c.json", cores={"a": [5, 5], "b": [1], "c": [6]})
    assert main(["rebalance", str(path), "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    file = tmp_path / "moves.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    assert main(["verify", str(path), "--plan", str(file)]) == 0
    assert "legal: 1 move checked" in capsys.readouterr().out
    plan["moves"][0]["to"] = "c"
    file.write_text(json.dumps(plan), encoding="utf-8")
    assert main(["verify", str(path), "--plan", str(file)]) == 1
    assert "wave 1: cpu: 11000 requested, 10000 allocatable" in capsys.readouterr().out


def test_what_prod_pods_use_has_thresholds_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Pods without class are prod; half of a node is too much for them here."""
    path = dump(tmp_path / "c.json", cores={"a": [2, 2, 2], "b": [1]})
    assert main(["rebalance", str(path)]) == 0
    assert "0 hot nodes before" in capsys.readouterr().out
    assert main(["rebalance", str(path), "--prod-high", "cpu=50"]) == 0
    shown = capsys.readouterr().out
    assert "prod cpu" in shown
    assert "1 hot node before, 0 after, 1 move" in shown
    assert main(["rebalance", str(path), "--prod-high", "cpu"]) == 2


def cards(path: Path, held: dict[str, list[int]]) -> Path:
    """Write nodes of eight cards with one pod for each number of cards."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs"}
    objects: list[dict[str, Any]] = []
    for node, pods in held.items():
        allocatable = {"cpu": "64", "memory": "64Gi", "pods": "20", "nvidia.com/gpu": "8"}
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node},
                "status": {"allocatable": allocatable},
            }
        )
        for index, count in enumerate(pods):
            amounts = {"cpu": "1", "nvidia.com/gpu": str(count)}
            container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
            name = f"{node}-{index}"
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": "d", "uid": name, "ownerReferences": [owner]},
                    "spec": {"nodeName": node, "containers": [container]},
                    "status": {"phase": "Running"},
                }
            )
    path.write_text(json.dumps(objects), encoding="utf-8")
    return path


def test_fragments_are_lowered(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Where pods of eight cards are to be expected, seven and four idle ones are in vain."""
    path = cards(tmp_path / "c.json", {"a": [1], "b": [3, 1], "c": [8]})
    mix = cards(tmp_path / "mix.json", {"z": [8]})
    assert main(["defrag", str(path), "--fragments", "--mix", str(mix), "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [(one["pod"], one["to"]) for one in plan["moves"]] == [("d/a-0", "b")]
    assert plan["fragmentedMilli"] == {"before": 11_000, "planned": 3000, "after": 3000}
    assert (plan["gains"], plan["prices"]) == ([8000], [1])
    file = tmp_path / "moves.json"
    file.write_text(json.dumps(plan), encoding="utf-8")
    assert main(["verify", str(path), "--plan", str(file)]) == 0
    capsys.readouterr()
    assert main(["defrag", str(path), "--fragments", "--mix", str(mix)]) == 0
    shown = capsys.readouterr().out
    assert "CARDS WON" in shown
    assert "11.00 idle cards in vain before, 3.00 after, 1 move" in shown
    assert main(["defrag", str(path), "--fragments", "--mix", str(mix), "--worth", "8"]) == 0
    assert "0 moves" in capsys.readouterr().out


def test_fragments_need_cards(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A dump without cards ends in a message."""
    path = dump(tmp_path / "c.json", cores={"a": [2]})
    assert main(["defrag", str(path), "--fragments"]) == 2
    assert "no node of the dump has cards" in capsys.readouterr().err


def test_the_reference_stands_beside_the_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its round leaves the node hot where no node counts as idle."""
    path = dump(tmp_path / "c.json", cores={"a": [2, 2, 2, 2], "b": [3], "c": [4]})
    args = tmp_path / "args.json"
    args.write_text(
        json.dumps({"highThresholds": {"cpu": 65}, "lowThresholds": {"cpu": 20}}), encoding="utf-8"
    )
    assert main(["rebalance", str(path), "--args", str(args), "--compare"]) == 0
    shown = capsys.readouterr().out
    assert "1 hot node before, 0 after, 1 move" in shown
    assert "LowNodeLoad in one round: 0 evictions, 0 pods without a place, 1 hot node after" in shown
    assert main(["rebalance", str(path), "--args", str(args), "--compare", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["reference"]["hotAfter"] == ["a"]


def test_limits_of_migration_are_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One pod at a time takes a wave for each; no eviction at all leaves the node hot."""
    path = dump(tmp_path / "c.json", cores={"a": [2, 2, 2, 2, 2], "b": [1], "c": [1]})
    limits = tmp_path / "migration.json"
    limits.write_text(
        json.dumps({"kind": "MigrationControllerArgs", "maxMigratingPerNode": 1}), encoding="utf-8"
    )
    assert main(["rebalance", str(path), "--migration", str(limits), "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [one["arrives"] for one in plan["moves"]] == [0, 1]
    file = tmp_path / "moves.json"
    file.write_text(
        json.dumps({**plan, "moves": [{**one, "arrives": 0, "leaves": 0} for one in plan["moves"]]}),
        encoding="utf-8",
    )
    assert main(["verify", str(path), "--plan", str(file)]) == 0
    assert main(["verify", str(path), "--plan", str(file), "--migration", str(limits)]) == 1
    assert "migration limit" in capsys.readouterr().out
    limits.write_text(json.dumps({"maxNoOfPodsToEvictTotal": 0}), encoding="utf-8")
    assert main(["rebalance", str(path), "--migration", str(limits)]) == 1
    assert "still hot: a" in capsys.readouterr().out
    for wrong in ("[]", "{", '{"unknown": 1}', '{"maxMigratingPerNode": "x"}'):
        limits.write_text(wrong, encoding="utf-8")
        assert main(["rebalance", str(path), "--migration", str(limits)]) == 2


def test_a_threshold_that_no_node_reaches_is_warned_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = dump(tmp_path / "c.json", cores={"a": [2, 2, 2, 2], "b": [1]})
    assert main(["rebalance", str(path), "--high", "cpu=200"]) == 0
    out, err = capsys.readouterr()
    assert "0 hot nodes before" in out
    assert "warning: high threshold: cpu 200 % is more than a node has: it makes none hot\n" in err
    assert main(["rebalance", str(path), "--high", "cpu=200", "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    for odd in ("nan", "inf", "-5"):
        assert main(["rebalance", str(path), "--high", f"cpu={odd}"]) == 2


def test_settings_that_change_no_plan_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = dump(tmp_path / "c.json", cores={"a": [2, 2, 2, 2], "b": [1]})
    args, limits = tmp_path / "args.json", tmp_path / "limits.json"
    pool = {"name": "p", "nodeSelector": {"matchLabels": {"x": "y"}}, "resourceWeights": {"cpu": 2}}
    args.write_text(
        json.dumps({"paused": True, "numberOfNodes": 9, "highThresholds": {"cpu": 65}, "nodePools": [pool]})
    )
    limits.write_text(json.dumps({"evictQPS": "5", "maxMigratingPerNode": 3}))
    words = ["rebalance", str(path), "--args", str(args), "--migration", str(limits)]
    assert main(words) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "has no effect" in line]
    assert told == [
        "warning: --args: paused has no effect: a plan moves nobody by itself",
        "warning: --args: numberOfNodes has no effect: hot nodes are cooled however few are idle",
        (
            "warning: --args: nodePools[0].resourceWeights has no effect: "
            "the fewest moves are taken, not those of the highest scores"
        ),
        (
            "warning: --migration: evictQPS has no effect: "
            "how fast the controller works says nothing about the plan"
        ),
    ]
    assert main([*words, "--quiet"]) == 0
    assert "has no effect" not in capsys.readouterr().err
