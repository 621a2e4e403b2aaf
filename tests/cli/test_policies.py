"""Policies and patches on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, pod


def write(path: Path, *objects: Any) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)


def config(*profiles: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": list(profiles),
    }


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return write(
        tmp_path / "dump.json",
        node("n1", {"cpu": "4", "memory": "8Gi", "pods": "10"}),
        node("n2", {"cpu": "8", "memory": "8Gi", "pods": "10"}),
        pod("a", metadata={"uid": "u1"}, containers=[container(requests={"cpu": "2"})]),
        pod("huge", containers=[container(requests={"cpu": "100"})]),
    )


def strategy(kind: str) -> dict[str, Any]:
    args = {"scoringStrategy": {"type": kind, "resources": [{"name": "cpu", "weight": 1}]}}
    return {
        "schedulerName": kind,
        "plugins": {
            "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 1}]}
        },
        "pluginConfig": [{"name": "NodeResourcesFit", "args": args}],
    }


@pytest.mark.parametrize(("kind", "chosen"), [("LeastAllocated", "n2"), ("MostAllocated", "n1")])
def test_the_policy_decides(
    kind: str, chosen: str, dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = write(tmp_path / "conf.json", config(strategy("LeastAllocated"), strategy("MostAllocated")))
    assert (
        main(["schedule", dump, "--policy", policy, "--profile", kind, "--all-schedulers", "-o", "json"]) == 1
    )
    decisions = json.loads(capsys.readouterr().out)["decisions"]
    assert {one["pod"]: one.get("node") for one in decisions}["default/a"] == chosen


def test_patches_come_one_call_per_line(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", dump, "-o", "patches"]) == 1
    calls = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [call["path"].rpartition("pods/")[2] for call in calls] == ["a/binding", "huge/status"]
    assert calls[0]["body"]["metadata"]["uid"] == "u1"
    assert calls[1]["body"]["status"]["conditions"][0]["message"].startswith(
        "0/2 nodes are available: 2 Insuff"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--profile", "x"], "--profile: chooses a profile of --policy FILE, which is missing"),
        (["--policy", "{none}"], "there is no KubeSchedulerConfiguration in"),
        (["--policy", "{two}", "--profile", "c"], "no profile c in"),
        (["--policy", "/nonexistent/conf.yaml"], "no such file or folder"),
        (
            ["--policy", "binpac"],
            "none of default, stock, koordinator, binpack, spread; did you mean binpack?",
        ),
    ],
)
def test_a_policy_that_cannot_be_found_is_one_line_without_traceback(
    options: list[str], message: str, dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "none": write(tmp_path / "none.json"),
        "two": write(tmp_path / "two.json", config({"schedulerName": "a"}, {"schedulerName": "b"})),
    }
    assert main(["schedule", dump, *(option.format(**files) for option in options)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_plugin_or_a_policy_of_ones_own_is_named_by_its_module(
    dump: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own_plugin.py").write_text(
        "import numpy\n"
        "from koordcore import PluginSetting, Policy\n"
        "from koordcore.framework import Evaluator, Plugin\n"
        "class No(Evaluator):\n"
        "    def fits(self, view): return self.nowhere[view.rows]\n"
        "    def reasons(self, view): return [('not today', ~self.fits(view))]\n"
        "class Never(Plugin):\n"
        "    def request_of(self, pod): return 'any'\n"
        "    def evaluator(self, pod, request):\n"
        "        made = No()\n"
        "        made.nowhere = numpy.zeros(len(self.workspace.layout.nodes), bool)\n"
        "        return made\n"
        "NEVER = Policy(plugins=(*Policy().plugins, PluginSetting(plugin=Never, scores=False)))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("Never", "NEVER"):
        assert main(["schedule", dump, "-q", "--policy", f"own_plugin:{name}"]) == 1
        assert "not today" in capsys.readouterr().out


def test_explain_says_which_nodes_were_not_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the second pod in the queue those that the first one had been shown."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    pods = [pod(name, containers=[container(requests={"cpu": "1"})]) for name in ("a", "b")]
    dump = write(tmp_path / "dump.json", *(node(f"n{index:03d}", room) for index in range(200)), *pods)
    policy = write(tmp_path / "conf.json", config({}) | {"percentageOfNodesToScore": 50})
    assert main(["explain", "b", dump, "--policy", policy, "--nodes", "2"]) == 0
    told = capsys.readouterr().out
    assert "goes to n100 in its turn, the best of the first 100 nodes found that can take it" in told
    assert "Fits on 100 nodes by itself" in told
    *_, title, _, row, _ = told.splitlines()
    assert title == "Not looked at: 100 nodes, as enough others fit (percentageOfNodesToScore)"
    assert row == "  n000, n001, n002, n003 and 96 more"
    assert len(title) <= 80
    assert main(["explain", "b", dump, "--policy", policy, "-o", "name"]) == 0
    assert capsys.readouterr().out.split() == [f"n{index}" for index in range(100, 200)]
    assert main(["schedule", dump, "--policy", policy, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["decisions"][1]["node"] == "n100"
