"""Every Python block of the book and of the README runs and prints what stands below it, page by page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.outputs import BLOCK, COMMAND, run_blocks, run_commands

ROOT = Path(__file__).resolve().parents[2]
MADE = {ROOT / "docs" / "api", ROOT / "docs" / "cli"}
PAGES = [ROOT / "README.md", *sorted(one for one in (ROOT / "docs").rglob("*.md") if one.parent not in MADE)]
WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the project's folder; ``python -m tools.outputs PAGE`` writes outputs that are stale anew."""
    monkeypatch.chdir(ROOT)
    for ran in run_blocks(page, page.read_text(encoding="utf-8")):
        if ran.told is not None:
            assert ran.printed == ran.told


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if COMMAND.search(page.read_text(encoding="utf-8"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_commands_print_what_is_shown(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of text that begins with a command is what that command prints."""
    monkeypatch.chdir(ROOT)
    for ran in run_commands(page.read_text(encoding="utf-8")):
        assert ran.printed == ran.told
