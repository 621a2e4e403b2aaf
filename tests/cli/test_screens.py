"""What every verb shows at 80 and at 200 columns: nothing is cut, and nothing is wider than it has to be.

``python -m tests.cli.test_screens`` writes the pictures anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from unittest import mock

import pytest

from koordcore.cli import main
from koordcore.cli.main import VERBS
from koordcore.manifests import load

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/gpu-cluster.yaml"
PICTURES = Path(__file__).parent / "pictures"
SCREENS = {
    "schedule": ("schedule", EXAMPLE),
    "schedule-expand": ("schedule", EXAMPLE, "--expand"),
    "schedule-preempt": ("schedule", EXAMPLE, "--preempt"),
    "explain-queue": ("explain", "urgent-1", EXAMPLE),
    "explain-gang": ("explain", "pretrain", EXAMPLE),
    "explain-never": ("explain", "render-16", EXAMPLE),
    "explain-selector": ("explain", "report", EXAMPLE),
    "explain-quota": ("explain", "thesis", EXAMPLE),
    "inspect": ("inspect", EXAMPLE),
    "inspect-nodes": ("inspect", EXAMPLE, "--nodes"),
    "inspect-node": ("inspect", "gpu-s1b1-1", EXAMPLE),
    "quota": ("quota", EXAMPLE),
    "when": ("when", "urgent-1", EXAMPLE),
    "when-all": ("when", "--all", EXAMPLE),
    "topology": ("topology", EXAMPLE),
    "colocation": ("colocation", EXAMPLE),
    "rebalance": ("rebalance", EXAMPLE),
    "defrag": ("defrag", EXAMPLE, "--want", "5x:nvidia.com/gpu=8"),
    "compare": ("compare", EXAMPLE, "--policy", "default", "--policy", "spread"),
    "compare-queues": ("compare", "examples/kueue.yaml", "--as-gangs", "--policy", "stock"),
    "explain-cpus": ("explain", "solver-2", "examples/numa.yaml"),
    "quota-one": ("quota", EXAMPLE, "--quota", "research"),
    "quota-reclaim": ("quota", "reclaim", EXAMPLE),
    "quota-revoke": ("quota", "revoke", EXAMPLE),
    "diff": ("diff", EXAMPLE, "LATER"),
    "verify": ("verify", EXAMPLE, "--plan", "PLAN"),
    "report": ("report", EXAMPLE, "-o", "PAGE"),
    "simulate": ("simulate", EXAMPLE, "--policy", "fgd"),
    "world": ("world", "--seed", "1", "--set", "seconds=20"),
    "audit": ("audit", "--loops", "koordcore", "--nodes", "1"),
    "policy": ("policy", "koordinator"),
}
"""By name; LATER is the example with no node cordoned, PLAN what ``schedule`` gives, PAGE a new file."""
WIDTHS = (80, 200)
COLOURED = ("schedule", "inspect", "explain-queue")
"""Screens whose colours are pictured, too."""
BOLD, DIM, RED, GREEN, CYAN, END = "1", "2", "31", "32", "36", "0"


def drawn(width: int, argv: tuple[str, ...], *, coloured: bool = False) -> str:
    """Run a command on a terminal of a width."""
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    colours = {"TERM": "xterm"} if coloured else {"NO_COLOR": "1"}
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {**environment, **colours, "COLUMNS": str(width)}, clear=True),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        path = [_path(word, Path(folder)) for word in argv]
        with contextlib.redirect_stdout(out):
            main(path)
    return out.getvalue().replace(f"{folder}/", "")


def _path(word: str, folder: Path) -> str:
    """Give the path that a word of a command stands for; the word itself where it stands for none."""
    if word.startswith("examples/"):
        return str(ROOT / word)
    if word == "LATER":
        text = (
            (ROOT / EXAMPLE)
            .read_text(encoding="utf-8")
            .replace("unschedulable: true", "unschedulable: false")
        )
        (folder / "later.yaml").write_text(text, encoding="utf-8")
        return str(folder / "later.yaml")
    if word == "PLAN":
        plan = io.StringIO()
        with contextlib.redirect_stdout(plan):
            main(["schedule", str(ROOT / EXAMPLE), "-q", "-o", "json"])
        (folder / "plan.json").write_text(plan.getvalue(), encoding="utf-8")
        return str(folder / "plan.json")
    return str(folder / "page.html") if word == "PAGE" else word


def test_every_verb_has_a_screen() -> None:
    """But the one that prints a script for a shell."""
    assert {command[0] for command in SCREENS.values()} == {*VERBS} - {"completion"}


@pytest.mark.parametrize("name", COLOURED)
def test_colours_can_be_read_on_dark_and_on_light(name: str) -> None:
    """The terminal says what bold, dim, red, green and cyan are; no black, no white, and no background."""
    text = drawn(80, SCREENS[name], coloured=True)
    assert text == (PICTURES / f"{name}-colours.txt").read_text(encoding="utf-8")
    codes = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", text) for code in codes.split(";")}
    assert {BOLD, END} < codes <= {BOLD, DIM, RED, GREEN, CYAN, END}
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == (PICTURES / f"{name}-80.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_pictured(name: str, width: int) -> None:
    picture = PICTURES / f"{name}-{width}.txt"
    assert drawn(width, SCREENS[name]) == picture.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names() -> set[str]:
    """Names of the nodes and pods of the example."""
    snapshot = load([ROOT / EXAMPLE]).snapshot
    pods = (*snapshot.pending, *snapshot.bound_pods())
    return {state.name for state in snapshot.nodes} | {pod.name for pod in pods}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_no_line_is_too_wide_and_no_name_is_cut(name: str, width: int, names: set[str]) -> None:
    """Every name that a wide screen shows stands whole on a narrow one, or its column is left out."""
    text = (PICTURES / f"{name}-{width}.txt").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= width
    words = {word.strip(",;:()").rpartition("/")[2] for word in text.split()}
    begun = {one[:length] for one in names for length in range(8, len(one))}
    whole = {one.rpartition("-")[0] for one in names} | names
    assert not {word for word in words if word in begun and word not in whole}


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for key, command in SCREENS.items():
        for columns in WIDTHS:
            (PICTURES / f"{key}-{columns}.txt").write_text(drawn(columns, command), encoding="utf-8")
    for key in COLOURED:
        coloured = drawn(80, SCREENS[key], coloured=True)
        (PICTURES / f"{key}-colours.txt").write_text(coloured, encoding="utf-8")
    sys.exit(0)
