"""Regular expressions in RE2's syntax, matched in linear time.

Python's ``re`` backtracks: ``(a+)+$`` on forty letters does not end. Here an expression becomes a program
for a machine that keeps all its places at once, so that the work is at most (length of text) x (length of
program).

Reference: Go's ``regexp``; leftmost-first matches.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.allocators.claims.cel.regex_syntax import (
    Assertion,
    Character,
    Choice,
    PatternError,
    Repeat,
    Sequence,
    Test,
    Tree,
    is_word,
    read_pattern,
)

__all__ = ["MAX_PROGRAM", "Pattern", "PatternError", "compile_pattern"]

MAX_PROGRAM: Final = 5000
"""Steps of a program; counted repeats multiply them."""


@record
class _Split:
    """Go on at two places, the first of them preferred."""

    first: int
    second: int


class _Match:
    pass


_MATCH: Final = _Match()
_Step: TypeAlias = "Test | _Split | Assertion | _Match"


class _Assembler:
    def __init__(self) -> None:
        self.steps: list[_Step] = []
        self._visits = 0

    def add(self, step: _Step) -> int:
        if len(self.steps) >= MAX_PROGRAM:
            raise PatternError("expression too large")
        self.steps.append(step)
        return len(self.steps) - 1

    def tree(self, tree: Tree) -> None:
        # Repeats of nothing add no steps, but they, too, take time.
        self._visits += 1
        if self._visits > 4 * MAX_PROGRAM:
            raise PatternError("expression too large")
        match tree:
            case Sequence(parts):
                for part in parts:
                    self.tree(part)
            case Choice(parts):
                ends: list[int] = []
                for part in parts[:-1]:
                    split = self.add(_MATCH)
                    self.tree(part)
                    ends.append(self.add(_MATCH))
                    self.steps[split] = _Split(split + 1, len(self.steps))
                self.tree(parts[-1])
                for end in ends:
                    self.steps[end] = _Split(len(self.steps), len(self.steps))
            case Repeat(part, least, most, lazy):
                self.repeat(part, least, most, lazy=lazy)
            case Character(test):
                self.add(test)
            case Assertion():
                self.add(tree)

    def repeat(self, part: Tree, least: int, most: int | None, *, lazy: bool) -> None:
        def split(go: int, skip: int) -> _Split:
            return _Split(skip, go) if lazy else _Split(go, skip)

        for _ in range(least):
            self.tree(part)
        if most is None:
            start = self.add(_MATCH)
            self.tree(part)
            self.add(_Split(start, start))
            self.steps[start] = split(start + 1, len(self.steps))
            return
        skips: list[int] = []
        for _ in range(most - least):
            skips.append(self.add(_MATCH))
            self.tree(part)
        for skip in skips:
            self.steps[skip] = split(skip + 1, len(self.steps))


def _holds(kind: str, text: str, at: int) -> bool:
    match kind:
        case "start":
            return at == 0
        case "end":
            return at == len(text)
        case "line-start":
            return at == 0 or text[at - 1] == "\n"
        case "line-end":
            return at == len(text) or text[at] == "\n"
        case _:
            boundary = (at > 0 and is_word(text[at - 1])) != (at < len(text) and is_word(text[at]))
            return boundary == (kind == "word")


@record(eq=False)
class Pattern:
    """A regular expression ready to run."""

    _steps: tuple[_Step, ...]

    @property
    def size(self) -> int:
        """Steps of the program: the work is at most (length of text) x (this)."""
        return len(self._steps)

    def search(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """Where the leftmost match from ``start`` on begins and ends."""
        found: tuple[int, int] | None = None
        # Places with where their match began, the best first.
        threads: dict[int, int] = {}
        for at in range(start, len(text) + 1):
            if found is None:
                self._follow(0, at, threads, text, at)
            elif not threads:
                break
            following: dict[int, int] = {}
            char = text[at : at + 1]
            for place, begin in threads.items():
                step = self._steps[place]
                if isinstance(step, _Match):
                    found = (begin, at)
                    break  # what comes after would be a worse match
                if char and not isinstance(step, _Split | Assertion) and step(char):
                    self._follow(place + 1, begin, following, text, at + 1)
            threads = following
        return found

    def _follow(self, place: int, begin: int, threads: dict[int, int], text: str, at: int) -> None:
        """Put the places that are reached without reading a character among the threads, the best first."""
        waiting = [place]
        # Places of splits and assertions stand in the mapping too, so that none is followed twice.
        while waiting:
            here = waiting.pop()
            if here in threads:
                continue
            step = self._steps[here]
            threads[here] = begin
            if isinstance(step, _Split):
                waiting += (step.second, step.first)
            elif isinstance(step, Assertion) and _holds(step.kind, text, at):
                waiting.append(here + 1)


def compile_pattern(text: str) -> Pattern:
    """Read a regular expression; raises :class:`PatternError` where it is none."""
    assembler = _Assembler()
    assembler.tree(read_pattern(text))
    assembler.add(_MATCH)
    return Pattern(tuple(assembler.steps))
