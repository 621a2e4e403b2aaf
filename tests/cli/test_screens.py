"""What every verb shows at 80 and at 200 columns: nothing is cut, and nothing is wider than it has to be.

``python -m tests.cli.test_screens`` writes the pictures anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from unittest import mock

import pytest

from koordcore.cli import main
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
}
WIDTHS = (80, 200)


def drawn(width: int, argv: tuple[str, ...]) -> str:
    """Run a command on a terminal of a width, without colours."""
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    path = [str(ROOT / one) if one == EXAMPLE else one for one in argv]
    with (
        mock.patch.dict(os.environ, {"COLUMNS": str(width), "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        main(path)
    return out.getvalue()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_pictured(name: str, width: int) -> None:
    picture = PICTURES / f"{name}-{width}.txt"
    assert drawn(width, SCREENS[name]) == picture.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_no_line_is_too_wide_and_no_name_is_cut(name: str, width: int) -> None:
    """Every name that a wide screen shows stands whole on a narrow one, or its column is left out."""
    text = (PICTURES / f"{name}-{width}.txt").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= width
    snapshot = load([ROOT / EXAMPLE]).snapshot
    names = {state.name for state in snapshot.nodes} | {
        pod.name for pod in (*snapshot.pending, *snapshot.bound_pods())
    }
    words = {word.strip(",;:()").rpartition("/")[2] for word in text.split()}
    begun = {one[:length] for one in names for length in range(8, len(one))}
    whole = {one.rpartition("-")[0] for one in names} | names
    assert not {word for word in words if word in begun and word not in whole}


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    for key, command in SCREENS.items():
        for columns in WIDTHS:
            (PICTURES / f"{key}-{columns}.txt").write_text(drawn(columns, command), encoding="utf-8")
    sys.exit(0)
