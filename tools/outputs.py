"""What the Python blocks of a page print: ``python -m tools.outputs PAGE...`` writes it below them.

A block of ``text`` that follows a Python block, with nothing but an empty line between, is what that block
prints. ``tests/docs/test_blocks.py`` holds every page to that.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

BLOCK: Final = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Ran:
    """A block that was run.

    Parameters
    ----------
    end
        Where its code ends in the page.
    span
        Where the output below it stands; empty where none does.
    told, printed
        What the page says that it prints, ``None`` for nothing, and what it prints.
    """

    end: int
    span: tuple[int, int]
    told: str | None
    printed: str


def run_blocks(page: Path, text: str) -> Iterator[Ran]:
    """Run the blocks of a page one after another, as a reader would type them."""
    names: dict[str, object] = {"__name__": "book"}
    for block in BLOCK.finditer(text):
        above = text.count("\n", 0, block.start(1))  # so that a traceback points at the page's own line
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * above + block.group(1), str(page), "exec"), names)
        yield Ran(block.end(1) + 3, block.span(2), block.group(2), out.getvalue())


def main(pages: list[str]) -> None:
    """Write outputs into pages: below every block that prints, or only where one stands already."""
    for name in pages:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        for ran in reversed([*run_blocks(path, text)]):
            if ran.told is not None:
                text = text[: ran.span[0]] + ran.printed + text[ran.span[1] :]
            elif ran.printed:
                text = f"{text[: ran.end]}\n\n```text\n{ran.printed}```{text[ran.end :]}"
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
