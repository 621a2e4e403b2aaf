"""What the terminal does for whoever types: hints, chosen rows, forms of output, progress, live clusters."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordcore.cli import live, main
from koordcore.cli.layout import Column, Table, Tone, fitted, lines_of
from koordcore.cli.live import read_live
from koordcore.cli.progress import working
from koordcore.cli.terminal import printable_output
from koordcore.errors import ModelError
from tests.cli.screens import screen

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "gpu-cluster.yaml")
Run = tuple[int, str, str]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> Run:
    code = main(argv)
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["shedule", EXAMPLE], "did you mean schedule?"),
        (["schedule", EXAMPLE, "--prempt"], "did you mean --preempt?"),
        (["schedule", EXAMPLE, "-o", "jsno"], "did you mean json?"),
        (["schedule", EXAMPLE, "--policy", "fdg"], "did you mean fgd?"),
        (["schedule", EXAMPLE, "--sort-by", "pod"], "did you mean PODS?"),
        (["explain", "urgnt-1", EXAMPLE], "did you mean urgent-1?"),
        (["explain", "default/pretrian", EXAMPLE], "did you mean default/pretrain?"),
        (["inspect", "gpu-s1b1", EXAMPLE], "did you mean gpu-s1b1-1?"),
        (["quota", EXAMPLE, "--quota", "reserch"], "did you mean research?"),
        (["world", "--set", "nods=3"], "did you mean nodes?"),
        (["audit", "--loops", "kordcore"], "did you mean koordcore?"),
        (["defrag", EXAMPLE, "--want", "gpu=8"], "did you mean nvidia.com/gpu?"),
    ],
    ids=lambda value: value.rpartition(" ")[2] if isinstance(value, str) else "",
)
def test_a_word_that_is_not_known_gets_a_hint(
    capsys: pytest.CaptureFixture[str], argv: list[str], hint: str
) -> None:
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert hint in err


@pytest.mark.parametrize("text", ["", '{"apiVersion": "v1", "kind": "List", "items": []}'])
def test_an_empty_input_fails_the_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """What a failed kubectl leaves in a pipe is no plan."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    code, out, err = run(capsys, "schedule", "-")
    assert (code, out) == (2, "")
    assert err.startswith("koordcore: no input")


@pytest.mark.parametrize(
    "argv",
    [
        ("schedule", EXAMPLE, "--record", "/nowhere/call.json"),
        ("schedule", EXAMPLE, "--proofs", "/nowhere/proofs.json"),
        ("topology", EXAMPLE, "--plot", "racks.xyz"),
        ("simulate", str(ROOT), "--plot", "/nowhere/a.svg"),
        ("simulate", str(ROOT), "--plot", "a.xyz"),
    ],
    ids=lambda argv: argv[0] + argv[-1].rpartition("/")[2],
)
def test_what_cannot_be_written_is_said_before_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise AssertionError("the work has begun")

    monkeypatch.setattr("koordcore.cli.schedule.load_paths", nobody)
    monkeypatch.setattr("koordcore.cli.topology.load_paths", nobody)
    monkeypatch.setattr("koordcore.cli.simulate._cells", nobody)
    code, _, err = run(capsys, *argv)
    assert code == 2
    assert argv[2].startswith("--")
    assert err.startswith(f"koordcore: {argv[2]}: ")


def test_rows_are_chosen_and_decisions_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    """``-l`` shows three of twenty pods; the sums are those of the whole queue."""
    _, out, _ = run(capsys, "schedule", EXAMPLE, "-q", "-l", "app in (web, report),app!=report", "-o", "name")
    assert out.split() == ["default/web-0", "default/web-1", "default/web-2"]
    _, out, _ = run(capsys, "schedule", EXAMPLE, "-q", "-l", "app=web")
    assert "pretrain" not in out
    assert "15 of 20 pods placed" in out
    _, out, _ = run(capsys, "schedule", EXAMPLE, "-q", "-n", "elsewhere")
    assert out.startswith("0 of 20 pods shown; in the whole cluster 15 of 20 pods placed")
    code, _, err = run(capsys, "schedule", EXAMPLE, "-n", "ml", "-o", "json")
    assert (code, "a plan is written whole" in err) == (2, True)
    _, out, _ = run(capsys, "inspect", EXAMPLE, "--nodes", "-l", "node-role=general", "-o", "name")
    assert out.split() == ["cpu-1", "cpu-2", "cpu-3", "cpu-4"]


@pytest.mark.parametrize(
    "argv",
    [
        ("schedule", EXAMPLE),
        ("inspect", EXAMPLE),
        ("explain", "urgent-1", EXAMPLE),
        ("topology", EXAMPLE),
        ("quota", EXAMPLE),
        ("colocation", EXAMPLE),
        ("rebalance", EXAMPLE),
        ("defrag", EXAMPLE, "--want", "nvidia.com/gpu=8"),
        ("compare", EXAMPLE),
        ("diff", EXAMPLE, EXAMPLE),
        ("when", "--all", EXAMPLE),
        ("when", "urgent-1", EXAMPLE),
        ("world", "--seed", "1", "--set", "seconds=20"),
        ("audit", "--loops", "koordcore", "--nodes", "1"),
        ("policy", "binpack"),
    ],
    ids=lambda argv: " ".join(word for word in argv[:2] if word != EXAMPLE),
)
def test_every_verb_speaks_json_and_yaml_alike(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    quiet = () if argv[0] in ("world", "policy") else ("-q",)
    _, told, _ = run(capsys, *argv, *quiet, "-o", "json")
    _, again, _ = run(capsys, *argv, *quiet, "-o", "yaml")
    assert json.loads(told) == yaml.safe_load(again)


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (("explain", "web-0"), ["cpu-3", "cpu-2"]),
        (("explain", "report"), []),
        (("inspect", "gpu-s1b1-1"), ["gpu-s1b1-1"]),
        (("quota",), ["research", "serving", "students"]),
        (("quota", "--quota", "research"), ["research"]),
        (("colocation", "--node", "cpu-1"), ["cpu-1"]),
        (("defrag", "--want", "5x:nvidia.com/gpu=8"), ["default/eval-1"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_names_alone_are_for_pipes(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], names: list[str]
) -> None:
    """Each once, and nothing else."""
    _, out, _ = run(capsys, *argv, EXAMPLE, "-q", "-o", "name")
    assert out.split()[: len(names)] == names
    assert len(out.splitlines()) == len(set(out.splitlines()))
    assert all(len(line.split()) == 1 for line in out.splitlines())


@pytest.mark.parametrize("form", ["jsonpath={.items[*].node}", "custom-columns=A:.a", "go-template={{.}}"])
def test_whoever_asks_as_of_kubectl_is_told_what_to_ask(
    capsys: pytest.CaptureFixture[str], form: str
) -> None:
    code, out, err = run(capsys, "schedule", EXAMPLE, "-o", form)
    assert (code, out) == (2, "")
    assert err.startswith(f"koordcore: -o {form.partition('=')[0]}: not known; ask `jq`")


def test_a_form_of_output_is_no_name_for_a_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "report", EXAMPLE, "-o", "json")
    assert (code, "-o says where it goes" in err, list(tmp_path.iterdir())) == (2, True, [])


def test_a_turn_is_that_in_the_whole_queue(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever asks for the rows of one workload sees how many are before it."""
    _, told, _ = run(capsys, "when", "--all", EXAMPLE, "-q", "-l", "app=thesis", "-o", "json")
    assert [one["turn"] for one in json.loads(told)["queue"]] == [11, 12, 13]


def test_rows_are_ordered_by_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers from the greatest, with their units; names as people count."""
    _, out, _ = run(capsys, "inspect", EXAMPLE, "--nodes", "--sort-by", "memory free")
    names = [line.split()[0] for line in out.splitlines()[2:] if "pu-" in line]
    assert names[0].startswith("gpu-")
    assert names[-1] == "cpu-1"


def test_a_column_is_left_out_before_a_name_is_cut() -> None:
    columns = (Column("POD", tone=Tone.NAME), Column("NODE"), Column("SCORE", number=True, rank=1))
    table = Table(title="", columns=columns, rows=[("a-long-name-of-a-pod", "a-long-name-of-a-node", "1")])
    shown, left_out = fitted(table, 46)
    assert left_out == ("SCORE",)
    assert [line.text for line in lines_of(shown, 46)][1] == "  a-long-name-of-a-pod  a-long-name-of-a-node"
    assert fitted(table, 10)[0].columns == shown.columns
    assert fitted(table, 10, wide=True)[0] == table


def test_a_small_column_is_kept_where_a_broad_one_goes() -> None:
    """TURN goes before NODES; once NODES is gone there is room for TURN, and not for what is broader."""
    heads = ("POD", "TURN", "CERTIFICATE", "NODES")
    columns = tuple(Column(name, rank=rank) for name, rank in zip(heads, (0, 3, 2, 1), strict=True))
    table = Table(title="T", columns=columns, rows=[("gpu-job", "1", "proven", "a" * 40)])
    shown, left_out = fitted(table, 20)
    assert ([one.name for one in shown.columns], left_out) == (["POD", "TURN"], ("NODES", "CERTIFICATE"))
    assert max(len(line.text) for line in lines_of(shown, 20)) <= 20


def test_a_sentence_is_folded_at_spaces_or_goes_below_its_row() -> None:
    columns = (Column("POD", tone=Tone.NAME), Column("WHY", text=True))
    table = Table(title="", columns=columns, rows=[("p", "one two three four five six seven eight nine")])
    assert [line.text for line in lines_of(table, 34)][1:] == [
        "  p    one two three four five six",
        "       seven eight nine",
    ]
    long = Table(title="", columns=columns, rows=[("p" * 20, "word " * 30)])
    assert [line.text for line in lines_of(long, 40)][1] == "  " + "p" * 20


def test_what_goes_below_a_row_brings_its_heading_along_and_leaves_no_empty_line() -> None:
    columns = (Column("POD", tone=Tone.NAME), Column("NOW", text=True), Column("NEXT", text=True))
    long = ("a" * 30, "b" * 30)
    table = Table(title="", columns=columns, rows=[("p" * 30, *long), ("", "c" * 30, "")])
    assert [line.text for line in lines_of(table, 46)][1:] == [
        "  " + "p" * 30,
        "      NOW: " + "a" * 30,
        "      NEXT: " + "b" * 30,
        "      NOW: " + "c" * 30,
    ]


def test_titles_and_what_a_node_says_are_folded_at_the_width_of_the_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gates = {f"GateOfKubernetesNumber{number}": True for number in range(9)}
    version = "kubescheduler.config.k8s.io/v1"
    policy = {"apiVersion": version, "kind": "KubeSchedulerConfiguration", "featureGates": gates}
    taint = {"key": f"example.com/{'k' * 60}", "value": "v" * 60, "effect": "NoSchedule"}
    status = {"allocatable": {"cpu": "1"}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": [taint]}}
    for name, what in (("policy.json", policy), ("node.json", {**node, "status": status})):
        (tmp_path / name).write_text(json.dumps(what), encoding="utf-8")
    for argv in (
        ("policy", str(tmp_path / "policy.json")),
        ("inspect", "n", str(tmp_path / "node.json")),
        ("simulate", EXAMPLE, "--policy", "fgd"),
    ):
        _, out = screen(capsys, monkeypatch, 80, *argv)
        assert max(map(len, out.splitlines())) <= 80, argv


def test_colours_are_for_terminals_that_want_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["quota", EXAMPLE])
    assert "\x1b[1m" in capsys.readouterr().out
    assert "\x1b" not in screen(capsys, monkeypatch, 80, "quota", EXAMPLE)[1]


def test_watching_shows_it_again_until_ctrl_c(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("koordcore.cli.output.time.sleep", sleep)
    code, out, _ = run(capsys, "quota", EXAMPLE, "--watch", "3")
    assert (code, slept, out.count("Quotas")) == (130, [3.0, 3.0], 2)
    slept.clear()
    code, out, _ = run(capsys, "inspect", "gpu-s1b1-1", EXAMPLE, "--watch", "3")
    assert (code, out.count("gpu-s1b1-1: ")) == (130, 2)
    code, _, err = run(capsys, "quota", "-", "--watch")
    assert (code, "standard input can be read only once" in err) == (2, True)


def test_watching_goes_on_where_a_reading_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is being written anew is gone for a moment; what is not there at first never comes."""
    dump = tmp_path / "dump.yaml"
    turns: list[float] = []

    def sleep(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 1:
            dump.unlink()
        elif len(turns) == 2:
            dump.write_text(Path(EXAMPLE).read_text())
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr("koordcore.cli.output.time.sleep", sleep)
    assert run(capsys, "quota", str(dump), "--watch")[0] == 2
    dump.write_text(Path(EXAMPLE).read_text())
    code, out, err = run(capsys, "quota", str(dump), "--watch")
    assert (code, len(turns), out.count("Quotas")) == (130, 3, 2)
    assert "no such file" in err


def test_progress_is_told_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with working("placing", 10) as step:
        step(3)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("koordcore.cli.progress._PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with working("placing", 10) as step:
        step(10)
    assert "\r\x1b[2Kplacing" in capsys.readouterr().err


class FakeServer:
    """Answers as an API server: nodes in two pages, pods, one kind that does not exist."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []

    def fetch(self, path: str, query: dict[str, str]) -> dict[str, Any] | None:
        self.asked.append((path, query))
        status = {"allocatable": {"cpu": "8", "pods": "9"}}
        if path == "api/v1/nodes":
            first = "continue" not in query
            item = {"metadata": {"name": "n1" if first else "n2"}, "status": status}
            more = {"continue": "more"} if first else {}
            return {"kind": "NodeList", "apiVersion": "v1", "metadata": more, "items": [item]}
        if path == "api/v1/pods":
            pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
            return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod]}
        return None


def test_a_live_cluster_is_read_page_by_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, contexts = FakeServer(), list[str | None]()

    def connect(context: str | None) -> Any:
        contexts.append(context)
        return server.fetch

    monkeypatch.setattr(live, "connect", connect)
    code, out, _ = run(capsys, "schedule", "--live", "--context", "staging")
    assert (code, contexts) == (0, ["staging"])
    assert "1 of 1 pods placed on 2 nodes" in out
    assert ("api/v1/nodes", {"limit": "500", "continue": "more"}) in server.asked


def test_a_server_without_nodes_is_no_empty_cluster() -> None:
    with pytest.raises(ModelError, match="does not list api/v1/nodes"):
        list(read_live(lambda path, query: None))


def test_without_the_client_its_extra_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    code, _, err = run(capsys, "inspect", "--live")
    assert (code, "koordcore[live]" in err) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(capsys: pytest.CaptureFixture[str], shell: str) -> None:
    pytest.importorskip("argcomplete")
    code, out, _ = run(capsys, "completion", shell)
    assert code == 0
    assert "koordcore" in out


def test_two_dumps_and_two_plans_are_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A node that is cordoned, who lands elsewhere for it; and why two plans of one dump differ."""
    later = tmp_path / "later.yaml"
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    place = text.index("unschedulable: false", text.index("name: cpu-3"))
    later.write_text(text[:place] + "unschedulable: true" + text[place + 20 :], encoding="utf-8")
    code, out, _ = run(capsys, "diff", EXAMPLE, str(later), "-q")
    assert code == 1
    assert "node  cpu-3  is cordoned" in out
    assert "cpu-3 is cordoned in the second" in out
    assert run(capsys, "diff", EXAMPLE, EXAMPLE, "-q")[:2] == (
        0,
        "0 changes of the cluster · 0 pods decided differently\n",
    )
    plans = []
    for policy in ("default", "spread"):
        plans.append(str(tmp_path / f"{policy}.json"))
        _, plan, _ = run(capsys, "schedule", EXAMPLE, "--policy", policy, "-o", "json")
        Path(plans[-1]).write_text(plan, encoding="utf-8")
    code, out, _ = run(capsys, "explain", "--diff", *plans, EXAMPLE, "-q")
    assert code == 1
    assert "nothing was different before its turn: the plans follow other rules" in out
    assert "scored" not in out
    assert run(capsys, "diff", *plans, EXAMPLE, "-q")[1] == out
    assert run(capsys, "diff", plans[0], EXAMPLE)[0] == 2


def test_a_resource_is_known_by_the_end_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "defrag", EXAMPLE, "--want", "gpuu=8")
    assert (code, "did you mean nvidia.com/gpu?" in err) == (2, True)


def test_all_namespaces_are_those_without_any_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    every = run(capsys, "schedule", EXAMPLE, "-q")
    assert run(capsys, "schedule", EXAMPLE, "-q", "-A") == every
    assert run(capsys, "schedule", EXAMPLE, "-q", "-n", "nobody", "-A") == every


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_remarks_are_folded_on_a_screen_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "34")
    shown, kept = _Screen(), io.StringIO()
    for stream in (shown, kept):
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(["topology", str(ROOT / "examples" / "numa.yaml")]) == 2
    (line,) = kept.getvalue().splitlines()
    first, *others = shown.getvalue().splitlines()
    assert max(map(len, (first, *others))) <= 34 < len(line)
    assert all(one.startswith("  ") for one in others)
    assert " ".join((first, *map(str.strip, others))) == line


def test_a_folded_line_starts_where_the_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first part stood as far in as what is below it, beside lines that are not folded."""
    monkeypatch.setenv("COLUMNS", "20")
    stream = _Screen()
    with printable_output(stream, stream):
        print("  a b c\n  words of a line too long", file=sys.stderr)
    assert stream.getvalue() == "  a b c\n  words of a line\n    too long\n"


def test_what_is_to_be_copied_is_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("koordcore.cli.topology.run", fail)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setattr(sys, "stderr", told := _Screen())
    assert main(["topology", "a long name of a file.yaml"]) == 70
    assert "  command: koordcore topology 'a long name of a file.yaml'\n" in told.getvalue()
