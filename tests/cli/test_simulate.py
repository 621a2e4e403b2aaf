"""``koordcore simulate``: tables, machine output, stored results, plots, recorded calls."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from koordcore.cli import main
from tests.simulate.small import OPENB, SMALL

FOLDER = str(SMALL.path)
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml"


def test_the_default_compares_two_policies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", FOLDER]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[2:4]] == [["small", "bestfit", "42"], ["small", "fgd", "42"]]


def test_results_are_kept_and_taken_up_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", FOLDER, "--policy", "fgd", "--seed", "1", "--seed", "2", "--store", str(tmp_path)]
    assert main(asked) == 0
    first = capsys.readouterr().out
    assert "Means over seeds" in first
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert main(asked) == 0
    assert capsys.readouterr().out == first


def test_csv_and_json_are_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", FOLDER, "--policy", "foresight", "--store", str(tmp_path)]
    assert main([*asked, "-o", "csv"]) == 0
    assert len(list(csv.DictReader(io.StringIO(capsys.readouterr().out)))) == 131
    assert main([*asked, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["cell"]["policy"] == "foresight"


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "waiting.svg"
    asked = ["simulate", FOLDER, "--policy", "fgd", "--clock", "trace", "--kind", "waiting"]
    assert main([*asked, "--plot", str(picture)]) == 0
    assert "<svg" in picture.read_text()


def test_the_traces_own_times_show_who_waits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", FOLDER, "--policy", "fgd", "--clock", "trace", "--compress", "50"]) == 0
    out = capsys.readouterr().out
    assert "MOST WAITING" in out
    assert "AT 100 %" not in out


def test_mistakes_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(tmp_path)]) == 2
    assert "no pods_<trace>.csv" in capsys.readouterr().err
    assert main(["simulate", FOLDER, "--trace", "large"]) == 2
    assert "no trace large" in capsys.readouterr().err


def test_a_recorded_call_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "call.json"
    main(["schedule", str(EXAMPLE), "-q", "--record", str(file)])
    capsys.readouterr()
    assert main(["simulate", str(file)]) == 0
    assert capsys.readouterr().out.startswith("the same ")
    record = json.loads(file.read_text())
    record["policy"]["plugins"] = record["policy"].get("plugins", [])[:1]
    file.write_text(json.dumps(record))
    assert main(["simulate", str(file)]) == 1
    assert "not the same: decisions[0]" in capsys.readouterr().out


def test_the_pending_pods_of_a_dump_are_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(EXAMPLE), "--policy", "fgd"]) == 0
    assert "gpu-cluster" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(not OPENB.is_dir(), reason="the shared data is not here")
def test_the_published_figure_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", str(OPENB), "--policy", "fgd", "--seed", "42"]) == 0
    assert " 95.14 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["-j", "0"], "--workers: must be at least 1, got 0"),
        (["--compress", "0"], "--compress: must be at least 1, got 0"),
        (["--compress", "4"], "--compress: changes nothing without --clock trace"),
        (["--kind", "waiting", "--plot", "w.png"], "--kind waiting: nobody waits without --clock trace"),
        (["--kind", "waiting", "--clock", "trace"], "--kind: changes nothing without --plot"),
        (["--kind", "allocation"], "--kind: changes nothing without --plot"),
        (["--store", "/dev/null/x"], "--store: /dev/null/x: Not a directory"),
        (
            ["--policy", "own_needs:Needs"],
            "Needs: cannot be made: nobody gives it weight; there are mix, nodes, seed",
        ),
        (["--policy", "own_broken:Any"], "--policy own_broken:Any: own_broken: ValueError: not today"),
        (["--policy", "own_needs:Other"], "--policy own_needs:Other: own_needs has no Other"),
        (
            ["--policy", "own_needs:Need"],
            "own_needs has no Need; did you mean Needs?",
        ),
        (["--policy", "own_needs:NUMBER"], "5: no policy: score and slots, or draw and drawn_slots"),
    ],
)
def test_what_cannot_be_done_is_said_before_the_work(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    told: str,
) -> None:
    (tmp_path / "own_needs.py").write_text("NUMBER = 5\nclass Needs:\n    def __init__(self, weight): pass\n")
    (tmp_path / "own_broken.py").write_text("raise ValueError('not today')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["simulate", FOLDER, *argv]) == 2
    assert told in capsys.readouterr().err


def dump_with(tmp_path: Path, *more: Mapping[str, object]) -> str:
    """The example as one file, with some objects behind it."""
    objects = [one for one in yaml.safe_load_all(EXAMPLE.read_text(encoding="utf-8")) if one]
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*objects, *more]}, default=str))
    return str(file)


def results(capsys: pytest.CaptureFixture[str], code: int, dump: str, *words: str) -> tuple[object, str]:
    assert main(["simulate", dump, "--policy", "fgd", "-o", "json", *words]) == code
    told = capsys.readouterr()
    return json.loads(told.out), told.err


@pytest.mark.parametrize("node", [None, "cpu-1"])
def test_what_cannot_be_read_is_left_out_and_named(
    node: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"containers": [{"name": "c"}], "priority": "high", **({"nodeName": node} if node else {})}
    bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": spec}
    before, _ = results(capsys, 0, dump_with(tmp_path), "-q")
    after, said = results(capsys, 1, dump_with(tmp_path, bad), "-q")
    assert (after == before) == (node is None), "one that runs is part of the work to be expected"
    assert 'Pod bad: spec.priority: expected int, got "high"' in said


def test_a_pod_that_stands_twice_arrives_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, _ = results(capsys, 0, dump_with(tmp_path))
    objects = json.loads(Path(dump_with(tmp_path)).read_text())["items"]
    twice = next(one for one in reversed(objects) if one["kind"] == "Pod")
    twice["metadata"].setdefault("labels", {})["x"] = "y"
    after, said = results(capsys, 0, dump_with(tmp_path, twice))
    assert after == before
    assert "stands twice, and not alike" in said


@pytest.mark.parametrize("verb", ["simulate", "schedule", "inspect"])
@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"42", "nothing in it can be read"),
        (b"Error from server: timeout", "nothing in it can be read"),
        (b"\xff\xfe\x00", "not UTF-8: byte 0"),
    ],
)
def test_an_input_that_holds_no_object_is_refused(
    verb: str, data: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dump.yaml"
    file.write_bytes(data)
    assert main([verb, str(file)]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert f"{file}: {told}" in said.err


OWN = """
import numpy as np

from koordcore import PluginSetting, Policy
from koordcore.framework import Evaluator, Plugin


class Second(Plugin):
    def request_of(self, pod):
        return "any"

    def evaluator(self, pod, request):
        made = There()
        made.mask = np.array(["s2" in node.name for node in self.workspace.layout.nodes], bool)
        return made


class There(Evaluator):
    def fits(self, view):
        return self.mask[view.rows]

    def reasons(self, view):
        return [("is not of the second spine", ~self.fits(view))]


POLICY = Policy(plugins=(*Policy().plugins, PluginSetting(plugin=Second, scores=False)))
"""


def test_a_dump_is_played_by_policies_of_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known ones, a configuration, and those of one's own with the plugins in them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_second.py").write_text(OWN)
    assert main(["policy", "default", "-o", "config"]) == 0
    (tmp_path / "config.yaml").write_text(capsys.readouterr().out)
    names = ["default", "config.yaml", "own_second:POLICY", "own_second:Second"]
    asked = [part for name in names for part in ("--policy", name)]
    assert main(["simulate", str(EXAMPLE), "-o", "json", "-q", *asked]) == 0
    runs = {one["cell"]["policy"]: one for one in json.loads(capsys.readouterr().out)}
    assert [*runs] == names
    assert runs["own_second:POLICY"]["digest"] == runs["own_second:Second"]["digest"]
    assert runs["own_second:POLICY"]["refused"] > runs["default"]["refused"]
    assert runs["default"]["peak"] > 50
    assert main(["simulate", str(EXAMPLE), "--policy", "default", "--policy", "fgd"]) == 2
    assert "--policy fgd: looks at cards only" in capsys.readouterr().err
