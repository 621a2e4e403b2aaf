"""How a shell completes a line: verbs and flags, and names of the dump on the line, wherever that stands."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from koordcore.cli import main
from koordcore.cli.completed_names import know_names
from koordcore.cli.main import build_parser

argcomplete = pytest.importorskip("argcomplete")

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml")
ALL_OF_THESIS = ["default/thesis", "default/thesis-0", "default/thesis-1", "default/thesis-2"]


class _EndedError(Exception):
    """The shell has its answer."""


def _refused(*_: object) -> None:
    raise OSError


def completed(monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """Give what a shell is told where the cursor stands at the sign ``|``."""
    typed = f"koordcore {line}"
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setenv("_ARGCOMPLETE_IFS", "\n")
    monkeypatch.setenv("_ARGCOMPLETE_SUPPRESS_SPACE", "1")
    monkeypatch.setenv("COMP_LINE", typed.replace("|", ""))
    monkeypatch.setenv("COMP_POINT", str(typed.index("|")))
    parser, described = build_parser(line.split(maxsplit=1)[0])
    if described is not None:
        know_names(described)
    told = io.StringIO()
    monkeypatch.setattr("os.fdopen", _refused)  # argcomplete would take descriptor 9 for its debugging

    def over(_: int = 0) -> None:
        raise _EndedError

    with pytest.raises(_EndedError):
        argcomplete.autocomplete(parser, exit_method=over, output_stream=told)
    return sorted(told.getvalue().split("\n")) if told.getvalue() else []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rebal|", ["rebalance"]),
        (f"explain {EXAMPLE} default/thesis|", ALL_OF_THESIS),
        (f"explain default/thesis| {EXAMPLE}", ALL_OF_THESIS),
        (f"when {EXAMPLE} report|", ["report"]),
        (f"inspect {EXAMPLE} gpu-s1b1|", ["gpu-s1b1-1", "gpu-s1b1-2", "gpu-s1b1-3"]),
        (f"colocation --node cpu| {EXAMPLE}", ["cpu-1", "cpu-2", "cpu-3", "cpu-4"]),
        (f"quota {EXAMPLE} --quota |", ["research", "serving", "students"]),
        (f"inspect -n | {EXAMPLE}", ["default"]),
        (f"defrag {EXAMPLE} --for thesis-|", ["thesis-0", "thesis-1", "thesis-2"]),
        (f"schedule {EXAMPLE} --policy koord|", ["koordinator"]),
        (f"schedule {EXAMPLE} --sort-by |", []),
        ("explain -n |", []),
        ("when /nowhere/cluster.yaml report|", []),
    ],
)
def test_names_come_from_the_dump_on_the_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed(monkeypatch, line) == words


def test_a_dump_that_cannot_be_read_completes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever presses Tab sees no error of a file that is half written."""
    monkeypatch.chdir(tmp_path)
    Path("half.yaml").write_text("kind: [", encoding="utf-8")
    assert completed(monkeypatch, "inspect half.yaml --node |") == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("verb", ["explain", "when", "inspect"])
def test_the_name_may_stand_before_or_after_its_dump(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    """A shell knows the names once it knows the file."""
    name = "gpu-s1b1-1" if verb == "inspect" else "urgent-1"
    answers = []
    for words in ((name, EXAMPLE), (EXAMPLE, name)):
        answers.append((main([verb, *words, "-q"]), capsys.readouterr().out))
    assert answers[0] == answers[1]
    assert name in answers[0][1]
