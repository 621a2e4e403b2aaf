"""Figures have one source, ``docs/figures.json``: ``python -m tools.figures`` writes page and README from it.

``python -m tools.figures read`` takes over what somebody changed on the page itself.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCE: Final = ROOT / "docs" / "figures.json"
PAGE: Final = ROOT / "docs" / "figures.md"
README: Final = ROOT / "README.md"
_TABLE: Final = re.compile(r"^\| work \| time or rate \| quality \|\n(?:\|.*\n)+", re.MULTILINE)


def read_page(text: str) -> dict[str, Any]:
    """Read a page: what stands before its first section, and the sections with their tables."""
    head, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {"head": head.strip().splitlines(), "sections": [_section(part) for part in parts]}


def _section(text: str) -> dict[str, Any]:
    title, _, rest = text.partition("\n")
    lines = rest.strip().splitlines()
    rows = [place for place, line in enumerate(lines) if line.startswith("|")]
    cells = [[cell.strip() for cell in lines[place].strip("|").split("|")] for place in rows]
    return {
        "title": title.strip(),
        "about": lines[: rows[0]],
        "columns": cells[0],
        "rows": [row + [""] * (len(cells[0]) - len(row)) for row in cells[2:]],
        "after": lines[rows[-1] + 1 :],
    }


def page_text(figures: dict[str, Any]) -> str:
    """Write the page."""
    lines = list(figures["head"])
    for one in figures["sections"]:
        lines += ["", f"## {one['title']}", "", *_trimmed(one["about"]), ""]
        lines += [_row(one["columns"]), "|" + "---|" * len(one["columns"]), *map(_row, one["rows"])]
        lines += ["", *_trimmed(one["after"])] if _trimmed(one["after"]) else []
    return "\n".join(lines) + "\n"


def _trimmed(lines: list[str]) -> list[str]:
    return "\n".join(lines).strip().splitlines()


def _row(cells: list[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def readme_table(figures: dict[str, Any]) -> str:
    """Write the README's table; each of its figures is one of the page's."""
    lines = ["| work | time or rate | quality |", "|---|---|---|"]
    lines += [_row([one["work"], find(figures, one["figure"]), one["quality"]]) for one in figures["readme"]]
    return "\n".join(lines) + "\n"


def find(figures: dict[str, Any], path: list[str]) -> str:
    """Give the figure of a section's row.

    Raises
    ------
    LookupError
        When there is none of that name.
    """
    section, question = path
    for one in figures["sections"]:
        for row in one["rows"] if one["title"] == section else ():
            if row[0] == question:
                return str(row[1])
    raise LookupError(f"no figure {section}: {question}")


def texts(figures: dict[str, Any]) -> Iterator[tuple[Path, str]]:
    """Give each file that figures are written into, with what it is to be."""
    yield PAGE, page_text(figures)
    yield README, _TABLE.sub(lambda _: readme_table(figures), README.read_text(encoding="utf-8"))


def main(words: list[str]) -> None:
    """Write the files, or read the page."""
    figures = json.loads(SOURCE.read_text(encoding="utf-8"))
    if words == ["read"]:
        figures |= read_page(PAGE.read_text(encoding="utf-8"))
        SOURCE.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for path, text in texts(figures):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
