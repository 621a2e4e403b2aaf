"""What pages name is there: modules and functions of the library, files, and the tests of deviations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
INVENTED = {"koordcore.io", "koordcore.plugins"}
"""The prefix of the library's own annotations, and the group of entry points."""
FILES = {path.name for path in ROOT.rglob("*.py")}
TESTS = {
    name
    for path in (ROOT / "tests").rglob("*.py")
    for name in re.findall(r"def (test_\w+)", path.read_text())
}


def missing(text: str) -> Iterator[str]:
    for name in set(re.findall(r"\bkoordcore(?:\.\w+)+", text)) - INVENTED:
        if not re.search(r"\.(yaml|json|html|md)$", name) and not found(name):
            yield name
    for path in set(re.findall(r"`((?:src|tests|docs|tools|benchmarks|examples|campaigns)/[\w./-]+)`", text)):
        if not (ROOT / path).exists():
            yield path
    for name in set(re.findall(r"\b(\w+\.py)::", text)) - FILES:
        yield name
    for name in set(re.findall(r"(?:::|`)(test_\w+)`", text)) - TESTS:
        yield name


def found(name: str) -> bool:
    """Import as much of a dotted name as is a module, and look up the rest."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:size]))
        except ImportError:
            continue
        for part in parts[size:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert not sorted(missing(page.read_text(encoding="utf-8")))


def test_the_glossary_is_in_order() -> None:
    body = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("```{glossary}\n")[2]
    terms = re.findall(r"^(\S.*)$", body.partition("```")[0], re.MULTILINE)
    assert terms == sorted(terms, key=str.casefold)
