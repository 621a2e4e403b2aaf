"""``koordcore compare``: policies by file and by name, as a table and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from koordcore.cli import main
from tests.cli.test_policies import config, strategy, write
from tests.manifests.builders import container, node, pod

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "gpu-cluster.yaml")


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return write(
        tmp_path / "dump.json",
        node("n1", {"cpu": "4", "memory": "8Gi", "pods": "10"}),
        node("n2", {"cpu": "8", "memory": "8Gi", "pods": "10"}),
        pod("a", metadata={"uid": "u1"}, containers=[container(requests={"cpu": "2"})]),
        pod("huge", containers=[container(requests={"cpu": "100"})]),
    )


def test_the_profiles_of_a_file_are_compared(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = write(tmp_path / "conf.json", config(strategy("LeastAllocated"), strategy("MostAllocated")))
    assert main(["compare", dump, "--policy", policy, "--all-schedulers", "-o", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [one["policy"] for one in record["policies"]] == ["LeastAllocated", "MostAllocated"]
    assert record["elsewhere"] == [
        {"pod": "default/a", "nodes": {"LeastAllocated": "n2", "MostAllocated": "n1"}}
    ]
    first = record["policies"][0]
    assert (first["placed"], first["unschedulable"]) == (1, 1)
    assert list(first["refused"]) == ["default/huge"]
    # 2 of 8 on n2, nothing on n1.
    assert first["resources"]["cpu"]["mean"] == 1250
    assert first["resources"]["cpu"]["deviation"] == 1250


def test_pods_that_no_policy_names_are_not_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another scheduler's pod comes first and would take the only room."""
    one = [container(requests={"cpu": "1"})]
    dump = write(
        tmp_path / "dump.json",
        node("n1", {"cpu": "1", "memory": "8Gi", "pods": "10"}),
        pod("a-theirs", schedulerName="volcano", priority=10, containers=one),
        pod("mine", containers=one),
    )

    def outcomes(*options: str) -> list[tuple[str, int, int, list[str]]]:
        assert main(["compare", dump, *options, "-o", "json"]) == 0
        record = json.loads(capsys.readouterr().out)
        return [
            (one["policy"], one["placed"], one["notOurs"], list(one["refused"])) for one in record["policies"]
        ]

    assert outcomes() == [("stock", 1, 1, []), ("koordinator", 1, 1, [])]
    everybody = [(name, 1, 0, ["default/mine"]) for name in ("stock", "koordinator")]
    assert outcomes("--all-schedulers") == everybody
    assert main(["compare", dump]) == 0
    assert "1 pod · landing elsewhere than under stock: 0 under koordinator · 1 not ours" in (
        capsys.readouterr().out
    )
    # Whom one policy names all decide about: else they would be asked about different pods.
    policy = write(tmp_path / "conf.json", config({**strategy("MostAllocated"), "schedulerName": "volcano"}))
    assert outcomes("--policy", policy) == [
        ("stock", 1, 0, ["default/mine"]),
        ("volcano", 1, 0, ["default/mine"]),
    ]


def test_profiles_of_others_keep_their_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy of several profiles takes the pods that another policy names by its first one."""
    (tmp_path / "ours_of_compare.py").write_text(
        "import attrs\n"
        "from koordcore import Policy, named_policy\n"
        "packer = attrs.evolve(named_policy('binpack'), name='packer')\n"
        "BOTH = attrs.evolve(Policy(), others=(packer,))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    one = [container(requests={"cpu": "1"})]
    dump = write(
        tmp_path / "dump.json",
        node("n1", {"cpu": "8", "memory": "8Gi", "pods": "10"}),
        pod("a", containers=one),
        pod("b", schedulerName="packer", containers=one),
        pod("c", schedulerName="volcano", containers=one),
    )
    assert main(["compare", dump, "--policy", "ours_of_compare:BOTH", "--policy", "stock", "-o", "json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [(one["placed"], one["notOurs"]) for one in record["policies"]] == [(2, 1), (2, 1)]


def test_a_single_policy_is_compared_with_the_stock_one(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = write(tmp_path / "conf.json", config(strategy("MostAllocated")))
    assert main(["compare", dump, "--policy", policy]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["STOCK", "MOSTALLOCATED"]
    assert "2 pods · landing elsewhere than under stock: 1 under MostAllocated · verified" in out


def test_names_that_stand_twice_are_told_apart(
    dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write(tmp_path / "now.json", config(strategy("MostAllocated")))
    second = write(tmp_path / "next.json", config(strategy("MostAllocated")))
    assert (
        main(["compare", dump, "--policy", first, "--policy", second, "--policy", second, "-o", "json"]) == 0
    )
    names = [one["policy"] for one in json.loads(capsys.readouterr().out)["policies"]]
    assert names == ["MostAllocated", "next:MostAllocated", "next:MostAllocated#2"]


def test_known_policies_need_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", EXAMPLE, "--policy", "bestfit", "--policy", "foresight", "--limit", "2"]) == 0
    out = capsys.readouterr().out
    assert "of these fragmented (FGD)" in out
    assert "… and 5 more rows; --limit 0 shows all" in out
    assert main(["compare", EXAMPLE]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["STOCK", "KOORDINATOR"]


def test_a_file_without_a_configuration_is_refused(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", dump, "--policy", dump]) == 2
    assert "there is no KubeSchedulerConfiguration" in capsys.readouterr().err


def test_many_policies_are_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """What differs heads a column; what does not is said once."""
    names = ("stock", "koordinator", "bestfit", "fgd", "foresight")
    assert main(["compare", EXAMPLE, *(part for name in names for part in ("--policy", name))]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out[2:7]] == list(names)
    assert out[1].split()[:2] == ["POLICY", "MOVED"]
    assert "the same under all: placed 15 · unschedulable 4" in out[7]
    (row,) = [line for line in out if "default/whisper-0" in line]
    assert "gpu-s2b1-1: stock, koordinator, fgd, foresight · gpu-s1b1-1: bestfit" in row


def test_standard_input_is_for_one_reader(
    dump: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = "standard input can be read only once"
    for words, told in (
        (["compare", "-", "--policy", "-"], f"--policy: {twice}, and the dump is read from it"),
        (["compare", dump, "--policy", "-", "--policy", "-"], f"--policy: {twice}, and another --policy is"),
        (["diff", "-", "-"], f"diff: {twice}; give a file for one of the dumps"),
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(config(strategy("LeastAllocated")))))
        assert main(words) == 2
        assert capsys.readouterr().err.startswith(f"koordcore: {told}")
