"""A defect of the library never looks like an answer, and no text of a dump acts on a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore.cli import main, schedule
from koordcore.errors import SolverError


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("no \x1b[2J way"), AssertionError("x"), SolverError("x")]
)
def test_a_defect_ends_in_a_report_and_code_70(
    error: Exception, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(schedule, "run", fail)
    assert main(["schedule", "some cluster.yaml"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert "a defect of koordcore: please report it" in err
    assert "command: koordcore schedule 'some cluster.yaml'" in err
    assert "Traceback" in err
    assert "\x1b" not in err


def test_what_an_annotation_holds_reaches_no_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spec = "scheduling.koordinator.sh/resource-spec"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {spec: "\x1b[31m\u202e"}},
        "spec": {"containers": [{"name": "c"}], "nodeSelector": {"a\x1b": "\ud800"}},
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {}}
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [pod, node]}))
    for words in (["schedule", str(dump)], ["explain", "default/p", str(dump)]):
        main(words)
        out, err = capsys.readouterr()
        assert (out + err).replace("\n", "").isprintable()


def test_pods_without_nodes_are_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dump = tmp_path / "pod.json"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
    }
    dump.write_text(json.dumps(pod))
    assert main(["simulate", str(dump), "--policy", "all"]) == 0
    assert "bestfit" in capsys.readouterr().out
