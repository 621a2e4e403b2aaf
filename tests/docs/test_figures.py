"""The page of figures and the README's table say what the one file of measurements says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.figures import PAGE, SOURCE, find, read_page, texts

FIGURES = json.loads(SOURCE.read_text(encoding="utf-8"))


def test_page_and_readme_are_written_from_the_one_source() -> None:
    """Change ``docs/figures.json``, then ``python -m tools.figures``; or the page, and ``... read``."""
    for path, text in texts(FIGURES):
        assert path.read_text(encoding="utf-8") == text


def test_the_page_can_be_read_back() -> None:
    again = read_page(PAGE.read_text(encoding="utf-8"))
    for one, other in zip(again["sections"], FIGURES["sections"], strict=True):
        assert (one["title"], one["columns"], one["rows"]) == (
            other["title"],
            other["columns"],
            other["rows"],
        )


def test_the_readme_quotes_no_figure_that_is_not_there() -> None:
    with pytest.raises(LookupError, match="no figure Gangs: of dancers"):
        find(FIGURES, ["Gangs", "of dancers"])


def test_the_page_names_benchmarks_that_are_there() -> None:
    named = set(re.findall(r"\bbench_\w+\.py", PAGE.read_text(encoding="utf-8")))
    assert named
    assert named <= {file.name for file in Path("benchmarks").iterdir()}
