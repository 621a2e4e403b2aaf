"""Every Python block of the book and of the README runs and prints what stands below it, page by page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.outputs import BLOCK, run_blocks

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the project's folder; ``python -m tools.outputs PAGE`` writes outputs that are stale anew."""
    monkeypatch.chdir(ROOT)
    for ran in run_blocks(page, page.read_text(encoding="utf-8")):
        if ran.told is not None:
            assert ran.printed == ran.told
