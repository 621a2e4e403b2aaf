"""What the Python blocks of a page print: ``python -m tools.outputs PAGE...`` writes it below them.

A block of ``text`` that follows a Python block, with nothing but an empty line between, is what that block
prints; one that begins with ``$ koordcore`` is what that command prints on a terminal of 80 columns.
``tests/docs/test_blocks.py`` holds every page to that.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from unittest import mock

import attrs

from koordcore.cli import main as command

BLOCK: Final = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


COMMAND: Final = re.compile(r"^```text\n\$ koordcore ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_commands(text: str) -> Iterator[Ran]:
    """Run the commands of a page, each on a terminal of 80 columns without colours."""
    for block in COMMAND.finditer(text):
        out = _Terminal()
        environment = mock.patch.dict(os.environ, COLUMNS="80", NO_COLOR="1")
        with environment, contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            command(shlex.split(block.group(1)))
        yield Ran(block.end(), block.span(2), block.group(2), out.getvalue().rstrip() + "\n")


def main(pages: list[str]) -> None:
    """Write outputs into pages: below every block that prints, or only where one stands already."""
    for name in pages:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        for ran in reversed([*run_commands(text)]):
            text = text[: ran.span[0]] + ran.printed + text[ran.span[1] :]
        for ran in reversed([*run_blocks(path, text)]):
            if ran.told is not None:
                text = text[: ran.span[0]] + ran.printed + text[ran.span[1] :]
            elif ran.printed:
                text = f"{text[: ran.end]}\n\n```text\n{ran.printed}```{text[ran.end :]}"
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
