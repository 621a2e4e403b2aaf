"""The reference of the command line names every verb and every option, from the parsers themselves."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from koordcore.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "docs"))
_cli = importlib.import_module("_cli")
sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    target = tmp_path_factory.mktemp("cli")
    (target / "gone.md").write_text("a verb that is no more", encoding="utf-8")
    _cli.write_pages(ROOT, target)
    return {path.stem: path.read_text(encoding="utf-8") for path in target.glob("*.md")}


def test_there_is_a_page_for_every_verb_and_no_other(pages: dict[str, str]) -> None:
    assert set(pages) == {*VERBS, "index"}


@pytest.mark.parametrize("verb", VERBS)
def test_a_page_has_options_and_examples(verb: str, pages: dict[str, str]) -> None:
    page = pages[verb]
    assert "| argument | what it is |" in page
    assert "\n$ koordcore " in page


@pytest.mark.parametrize("verb", _cli.SHOWN)
def test_what_is_shown_is_an_answer(verb: str, pages: dict[str, str]) -> None:
    """No example of the reference ends in an error or in nothing."""
    for command in _cli.SHOWN[verb]:
        shown = pages[verb].partition(f"## `koordcore {command}`\n\n```text\n")[2].partition("\n```")[0]
        assert shown.strip()
