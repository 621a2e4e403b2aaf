"""The parser's manners: help within 80 columns, and a hint for every word that is not known."""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Iterable
from difflib import get_close_matches
from textwrap import wrap
from typing import Any, Final, NoReturn

_WIDTH: Final = 80
_CHOICE: Final = re.compile(
    r"argument (?P<what>\S+): invalid choice: '(?P<word>[^']*)' \(choose from (?P<all>.*)\)"
)
_UNKNOWN: Final = "unrecognized arguments: "


def near(word: str, known: Iterable[str]) -> str:
    """Give a hint to append to a message; empty where nothing is like the word.

    >>> near("shedule", ["schedule", "verify"]), near("x", ["schedule"])
    ('; did you mean schedule?', '')
    """
    names = sorted(set(known))
    found = [one for one in names if one.startswith(word)] if len(word) > 2 else []
    found = found or get_close_matches(word, names, 1)
    return f"; did you mean {found[0]}?" if found else ""


class HelpText(argparse.RawDescriptionHelpFormatter):
    """Lines of at most 80 columns: sentences are folded, examples stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, _WIDTH), max_help_position=26)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = (wrap(line, width) if len(line) > width else [line] for line in text.splitlines())
        return "\n".join(indent + part for parts in lines for part in parts)


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line with a hint."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", HelpText)
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, what may have been meant, and where help is."""
        self.exit(2, f"koordcore: {self._better(message)}\nsee {self.prog} --help\n")

    def _better(self, message: str) -> str:
        found = _CHOICE.match(message)
        if found:
            known = re.findall(r"[\w./-]+", found["all"])
            what = "command" if found["what"] == "COMMAND" else found["what"]
            hint = near(found["word"], known) or f"; there are {', '.join(known)}"
            return f"{what}: invalid choice: {found['word']}{hint}"
        if message.startswith(_UNKNOWN):
            words = message.removeprefix(_UNKNOWN).split()
            flags = [one for one in self._option_string_actions if one.startswith("--")]
            hints = [near(word.partition("=")[0], flags) for word in words if word.startswith("-")]
            return message + next(filter(None, hints), "")
        return message
