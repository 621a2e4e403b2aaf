"""Whatever takes a while says how far it is; ``--quiet`` says nothing of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from koordcore.cli import (
    compare,
    defrag,
    explain,
    inputs,
    placing,
    rebalance,
    report,
    schedule,
    verify,
    world,
)
from koordcore.cli.main import main
from koordcore.cli.progress import Step, working

EXAMPLE = "examples/gpu-cluster.yaml"
Told = dict[str, list[tuple[int, int]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What each piece of work was told, by its name, whether or not a terminal is there."""
    found: Told = {}

    @contextmanager
    def noted(what: str, total: int = 0) -> Iterator[Step]:
        steps = found.setdefault(what.partition(",")[0], [])

        def step(done: int, of: int = 0, /) -> None:
            steps.append((done, of or total))

        yield step

    for verb in (compare, defrag, explain, inputs, placing, rebalance, report, schedule, verify, world):
        monkeypatch.setattr(verb, "working", noted)
    return found


def _counts_up_to_its_end(steps: list[tuple[int, int]]) -> bool:
    # A plan that a plugin refuses is made again, from the first of its three steps.
    last = max((at for at, (done, of) in enumerate(steps) if (done, of) == (1, 3)), default=0)
    counts = [done for done, _ in steps[last:]]
    return counts == sorted(counts) and 0 < steps[-1][1] - steps[-1][0] + 1 <= 2


@pytest.mark.parametrize(
    ("words", "works"),
    [
        (["explain", "render-16", EXAMPLE], ["reading kB", "looking for what would help"]),
        (["schedule", EXAMPLE], ["reading kB", "verifying the plan"]),
        (["defrag", EXAMPLE, "--want", "2x:nvidia.com/gpu=8"], ["making room on 16 nodes"]),
        (["defrag", EXAMPLE, "--empty"], ["emptying nodes of 16"]),
        (["rebalance", EXAMPLE, "--high", "cpu=65"], ["balancing 16 nodes"]),
        (["world", "--seed", "7", "--set", "seconds=3"], ["living through the seconds of seed 7"]),
    ],
)
def test_work_is_counted_to_its_end(words: list[str], works: list[str], told: Told) -> None:
    main([*words, "-q"])
    for work in works:
        assert _counts_up_to_its_end(told[work]), (work, told)


def test_a_page_counts_its_nodes_and_a_plan_its_rules(tmp_path: Path, told: Told) -> None:
    assert main(["report", EXAMPLE, "-q", "-o", str(tmp_path / "page.html")]) == 0
    assert told["drawing 16 nodes"][-1] == (16, 16)
    done, total = told["verifying the plan"][-1]
    assert done == total > 10


def test_reading_counts_what_is_in_several_files(tmp_path: Path, told: Told) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"x": "y" * 5000}}
    for name in "abc":
        text = json.dumps({**node, "metadata": {"name": name}})
        (tmp_path / f"{name}.json").write_text(text)
    assert main(["inspect", str(tmp_path), "-q"]) == 0
    size = sum(one.stat().st_size for one in tmp_path.iterdir())
    assert told["reading kB"] == [(one * size // 3000, size // 1000) for one in (1, 2, 3)]


def test_quiet_silences_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koordcore.cli.progress._PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for words in (["inspect", EXAMPLE], ["world", "--seed", "7", "--set", "seconds=3"]):
        main(words)
        assert "\x1b[2K" in capsys.readouterr().err
        main([*words, "-q"])
        assert "\x1b[2K" not in capsys.readouterr().err
    with working("after it", 10):
        pass
    assert "after it" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["simulate", "world", "policy", "audit", "schedule", "defrag", "report"])
def test_every_verb_that_can_take_a_while_can_be_quiet(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([verb, "--help"])
    assert "-q, --quiet" in capsys.readouterr().out
