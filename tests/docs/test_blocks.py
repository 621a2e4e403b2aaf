"""Every Python block of the book and of the README runs, page by page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after another, as a reader would type them in the project's folder."""
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {"__name__": "book"}
    text = page.read_text(encoding="utf-8")
    for block in BLOCK.finditer(text):
        above = text.count("\n", 0, block.start(1))  # so that a traceback points at the page's own line
        exec(compile("\n" * above + block.group(1), str(page), "exec"), names)
