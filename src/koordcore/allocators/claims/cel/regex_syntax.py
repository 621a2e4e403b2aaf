r"""The syntax of regular expressions: RE2's, from text to tree.

Reference: Go's ``regexp/syntax`` with Perl's classes. Unicode scripts (``\p{Greek}``) are refused: Python
does not know them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

from koordcore._record import record

_MAX_REPEAT: Final = 1000
_MAX_NESTING: Final = 60

Test: TypeAlias = Callable[[str], bool]
"""Whether a character is one of those meant."""
_POSIX: Final = {
    "alnum": "09AZaz", "alpha": "AZaz", "ascii": "\x00\x7f", "blank": "\t\t  ", "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09", "graph": "!~", "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ",
    "upper": "AZ", "word": "09AZaz__", "xdigit": "09AFaf",
}  # fmt: skip
_PERL: Final = {"d": "09", "s": "\t\n\f\r  ", "w": "09AZaz__"}
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
# Unicode's general categories, by their first letter.
_MINOR: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES: Final = frozenset(major + minor for major, minors in _MINOR.items() for minor in ("", *minors))


class PatternError(ValueError):
    """A text that is no regular expression."""


@record
class _Flags:
    fold: bool = False
    lines: bool = False
    dot_all: bool = False
    lazy: bool = False


@record
class Assertion:
    """What must hold at a place: ``start``, ``end``, ``line-start``, ``line-end``, ``word``, ``no-word``."""

    kind: str


@record
class Sequence:
    """One after the other."""

    parts: tuple[Tree, ...]


@record
class Choice:
    """One of these, the first that leads to a match."""

    parts: tuple[Tree, ...]


@record
class Repeat:
    """Again and again; ``most`` of ``None`` has no end, ``lazy`` takes as few as possible."""

    part: Tree
    least: int
    most: int | None
    lazy: bool


@record(eq=False)
class Character:
    """One character."""

    test: Test


Tree: TypeAlias = Sequence | Choice | Repeat | Character | Assertion


def _ranges_test(ranges: str) -> Test:
    """Characters between the first and the second, the third and the fourth, and so on."""
    pairs = tuple(zip(ranges[::2], ranges[1::2], strict=True))
    return lambda char: any(low <= char <= high for low, high in pairs)


def _negated(test: Test) -> Test:
    return lambda char: not test(char)


def _folded(test: Test) -> Test:
    return lambda char: test(char) or test(char.lower()) or test(char.upper())


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.flags = _Flags()
        self.nesting = 0

    def more(self) -> bool:
        return self.at < len(self.text)

    def accept(self, word: str) -> bool:
        if self.text.startswith(word, self.at):
            self.at += len(word)
            return True
        return False

    def take(self) -> str:
        if not self.more():
            raise PatternError("unexpected end")
        self.at += 1
        return self.text[self.at - 1]

    def choice(self) -> Tree:
        self.nesting += 1
        if self.nesting > _MAX_NESTING:
            raise PatternError("expression nests too deeply")
        outer = self.flags
        parts = [self.sequence()]
        while self.accept("|"):
            parts.append(self.sequence())
        self.flags = outer
        self.nesting -= 1
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def sequence(self) -> Tree:
        parts: list[Tree] = []
        while self.more() and self.text[self.at] not in "|)":
            if self.accept("\\Q"):
                end = self.text.find("\\E", self.at)
                quoted = self.text[self.at :] if end < 0 else self.text[self.at : end]
                self.at = len(self.text) if end < 0 else end + 2
                parts.extend(self.literal(char) for char in quoted)
                if not quoted:
                    continue
            else:
                atom = self.atom()
                if atom is None:
                    continue
                parts.append(atom)
            parts[-1] = self.repeats(parts[-1])
        return Sequence(tuple(parts))

    def repeats(self, part: Tree) -> Tree:
        repeated = False
        while (bounds := self.bounds()) is not None:
            if repeated:
                raise PatternError("invalid nested repetition operator")
            repeated = True
            lazy = self.accept("?") != self.flags.lazy
            part = Repeat(part, *bounds, lazy)
        return part

    def bounds(self) -> tuple[int, int | None] | None:
        for sign, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.accept(sign):
                return found
        if not self.text.startswith("{", self.at):
            return None
        end = self.text.find("}", self.at)
        least, comma, most = self.text[self.at + 1 : end].partition(",")
        # What does not read as a repetition is plain text.
        numbers = [least, *([most] if most else [])]
        if end < 0 or not all(one.isascii() and one.isdigit() and len(one) < 6 for one in numbers):
            return None
        self.at = end + 1
        low = int(least)
        high = low if not comma else int(most) if most else None
        if max(low, high or 0) > _MAX_REPEAT or (high is not None and high < low):
            raise PatternError("invalid repeat count")
        return low, high

    def literal(self, char: str) -> Character:
        if self.flags.fold and char.lower() != char.upper():
            return Character({char, char.lower(), char.upper()}.__contains__)
        return Character(char.__eq__)

    def atom(self) -> Tree | None:
        char = self.take()
        match char:
            case "(":
                return self.group()
            case "[":
                return Character(self.bracket())
            case ".":
                return Character(_ranges_test("\x00\U0010ffff") if self.flags.dot_all else "\n".__ne__)
            case "^":
                return Assertion("line-start" if self.flags.lines else "start")
            case "$":
                return Assertion("line-end" if self.flags.lines else "end")
            case "*" | "+" | "?":
                raise PatternError("missing argument to repetition operator")
            case "\\":
                return self.escape()
            case _:
                return self.literal(char)

    def group(self) -> Tree | None:
        outer = self.flags
        if self.accept("?"):
            if self.accept("P<") or self.accept("<"):
                end = self.text.find(">", self.at)
                name = self.text[self.at : end] if end >= 0 else ""
                if not (name.isascii() and name.replace("_", "a").isalnum()):
                    raise PatternError("invalid named capture")
                self.at = end + 1
            elif self.switch_flags():
                return None
        inside = self.choice()
        if not self.accept(")"):
            raise PatternError("missing closing )")
        self.flags = outer
        return inside

    def switch_flags(self) -> bool:
        """Read ``i-s`` and the like; whether they hold for the rest of the group, not for one of its own."""
        flags, value = self.flags, True
        names = {"i": "fold", "m": "lines", "s": "dot_all", "U": "lazy"}
        while (char := self.take()) not in ":)":
            if char == "-" and value:
                value = False
            elif char in names:
                flags = attrs.evolve(flags, **{names[char]: value})
            else:
                raise PatternError("invalid or unsupported Perl syntax")
        self.flags = flags
        return char == ")"

    def escape(self) -> Tree:
        char = self.text[self.at : self.at + 1]
        kinds = {"A": "start", "z": "end", "b": "word", "B": "no-word"}
        if char in kinds and char:
            self.at += 1
            return Assertion(kinds[char])
        test = self.class_escape()
        return Character(test) if test is not None else self.literal(self.escaped())

    def class_escape(self) -> Test | None:
        r"""A class such as ``\\d`` or ``\\pL`` behind a backslash that was read."""
        char = self.text[self.at : self.at + 1]
        if char and char in "dswDSW":
            self.at += 1
            test = _ranges_test(_PERL[char.lower()])
            return _negated(test) if char.isupper() else test
        if char and char in "pP":
            self.at += 1
            name = self.take()
            if name == "{":
                end = self.text.find("}", self.at)
                name, self.at = self.text[self.at : max(end, self.at)], end + 1
            negated = (char == "P") != name.startswith("^")
            name = name.removeprefix("^")
            if name == "Any":
                test = _ranges_test("\x00\U0010ffff")
            elif name in _CATEGORIES:
                test = _category_test(name)
            else:
                raise PatternError(f"invalid character class range: \\p{{{name}}}")
            return _negated(test) if negated else test
        return None

    def escaped(self) -> str:
        """The character behind a backslash that was read."""
        char = self.take()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            if self.accept("{"):
                end = self.text.find("}", self.at)
                digits = self.text[self.at : max(end, self.at)]
                self.at = end + 1
            else:
                digits = self.take() + self.take()
            if (
                0 < len(digits) <= 6
                and set(digits) <= set("0123456789abcdefABCDEF")
                and int(digits, 16) <= 0x10FFFF
            ):
                return chr(int(digits, 16))
        elif char in "01234567":
            following = self.text[self.at : self.at + 2]
            octal = char
            for digit in following:
                if digit not in "01234567":
                    break
                octal += digit
            if char == "0" or len(octal) > 1:
                self.at += len(octal) - 1
                return chr(int(octal, 8))
        elif char.isascii() and not char.isalnum():
            return char
        raise PatternError(f"invalid escape sequence: \\{char}")

    def bracket(self) -> Test:
        negated = self.accept("^")
        tests: list[Test] = []
        ranges = ""
        first = True
        while first or not self.text.startswith("]", self.at):
            first = False
            if self.text.startswith("[:", self.at) and (end := self.text.find(":]", self.at)) >= 0:
                name = self.text[self.at + 2 : end]
                plain = name.removeprefix("^")
                if plain not in _POSIX:
                    raise PatternError(f"invalid character class range: [:{name}:]")
                self.at = end + 2
                test = _ranges_test(_POSIX[plain])
                tests.append(test if plain == name else _negated(test))
                continue
            char = self.take()
            if char == "\\":
                if (found := self.class_escape()) is not None:
                    tests.append(found)
                    continue
                char = self.escaped()
            high = char
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                high = self.take()
                if high == "\\":
                    high = self.escaped()
            if high < char:
                raise PatternError(f"invalid character class range: {char}-{high}")
            ranges += char + high
        self.at += 1
        within = _ranges_test(ranges)
        tests.append(_folded(within) if self.flags.fold else within)
        whole: Test = (lambda c: any(test(c) for test in tests)) if len(tests) > 1 else tests[0]
        return _negated(whole) if negated else whole


def _category_test(name: str) -> Test:
    return lambda char: unicodedata.category(char).startswith(name)


_WORD: Final = _ranges_test(_PERL["w"])


def is_word(char: str) -> bool:
    """Whether a character is a letter, a digit or the underscore."""
    return _WORD(char)


def read_pattern(text: str) -> Tree:
    """Read a regular expression; raises :class:`PatternError` where it is none."""
    reader = _Reader(text)
    tree = reader.choice()
    if reader.more():
        raise PatternError("unexpected )")
    return tree
