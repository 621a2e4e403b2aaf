"""The parser's manners: help within 80 columns, and a hint for every word that is not known."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, NoReturn

_WIDTH: Final = 80
_FOLDED: Final = 78
_CHOICE: Final = re.compile(
    r"argument (?P<what>\S+): invalid choice: '(?P<word>[^']*)' \(choose from (?P<all>.*)\)"
)
_QUERIES: Final = ("jsonpath", "go-template", "custom-columns")
"""Forms of kubectl that ask something of JSON."""
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


def many(number: int, what: str) -> str:
    """Count things that have a plain plural.

    >>> many(1, "node"), many(2, "hot node")
    ('1 node', '2 hot nodes')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def help_format() -> Any:
    """Give a formatter whose lines have at most 80 columns."""
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    return partial(argparse.RawDescriptionHelpFormatter, width=width, max_help_position=26)


def folded(text: str | None) -> str:
    r"""Fold the sentences of a help text; examples stay as they are.

    >>> folded("examples:\n  koordcore inspect cluster.yaml")
    'examples:\n  koordcore inspect cluster.yaml'
    """
    parts = [_folded(part.splitlines()) for part in (text or "").rstrip("\n").split("\n\n")]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _folded(lines: list[str]) -> list[str]:
    if any(line.startswith(" ") for line in lines) or all(len(line) <= _FOLDED for line in lines):
        return lines
    return wrap(" ".join(lines), _FOLDED)


def _is_path(word: str) -> bool:
    """Tell whether a word is a path rather than a number, also one where nothing is."""
    return word == "-" or Path(word).exists() or word.endswith((".json", ".yaml", ".yml", ".gz", "/"))


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one line with a hint."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", help_format())
        super().__init__(**settings)
        self._intermixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Let options stand anywhere among the words of a command, as those of kubectl may."""
        # Who completes a line looks at the words one by one; a parser of commands hands all words on.
        if self._intermixing or self._subparsers is not None or "_ARGCOMPLETE" in os.environ:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            return self.parse_known_intermixed_args(self._told_apart(args), namespace)
        finally:
            self._intermixing = False

    def _told_apart(self, args: Sequence[str] | None) -> list[str]:
        """Give a flag whose number may be left out the default, where a path follows."""
        words = list(sys.argv[1:] if args is None else args)
        for place, word in enumerate(words[:-1]):
            action = self._option_string_actions.get(word)
            if action is not None and action.nargs == argparse.OPTIONAL and _is_path(words[place + 1]):
                words[place] = f"{word}={action.const}"
        return words

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, what may have been meant, and where help is."""
        self.exit(2, f"koordcore: {self._better(message)}\nsee {self.prog} --help\n")

    def _better(self, message: str) -> str:
        found = _CHOICE.match(message)
        if found and found["what"] == "-o/--output" and found["word"].startswith(_QUERIES):
            return f"-o {found['word'].partition('=')[0]}: not known; ask `jq` about what -o json prints"
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
