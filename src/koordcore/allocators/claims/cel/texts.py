"""Functions over texts, and regular expressions.

Reference: ``cel-go/ext`` strings, version 2; Kubernetes' regex library. Positions count code points.
"""

from __future__ import annotations

from typing import Final

from koordcore.allocators.claims.cel.declarations import Library
from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.formatting import format_text, quote
from koordcore.allocators.claims.cel.regex import Pattern, PatternError, compile_pattern
from koordcore.allocators.claims.cel.types import BOOL, DYN, INT, STRING, list_of
from koordcore.allocators.claims.cel.values import Budget

REGEX_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
"""Functions whose last text is a regular expression, checked when compiling where it is a constant."""
_LOWER: Final = {ord(char): char.lower() for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_UPPER: Final = {ord(char): char.upper() for char in "abcdefghijklmnopqrstuvwxyz"}
# What Go's unicode.IsSpace knows, U+0085 and U+00A0 included.
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def declare_texts(library: Library) -> None:
    """Add the functions over texts."""
    texts = list_of(STRING)
    library.method("charAt", (STRING, INT), STRING, lambda _, text, at: _char_at(text, at))
    library.method(
        "indexOf", (STRING, STRING), INT, lambda budget, text, part: _index_of(budget, text, part, 0)
    )
    library.method("indexOf", (STRING, STRING, INT), INT, _index_of)
    library.method("lastIndexOf", (STRING, STRING), INT, _last_index_of)
    library.method("lastIndexOf", (STRING, STRING, INT), INT, _last_index_of)
    library.method("join", (texts,), STRING, lambda budget, parts: _join(budget, parts, ""))
    library.method("join", (texts, STRING), STRING, _join)
    library.method("lowerAscii", (STRING,), STRING, lambda budget, text: _translated(budget, text, _LOWER))
    library.method("upperAscii", (STRING,), STRING, lambda budget, text: _translated(budget, text, _UPPER))
    library.method("trim", (STRING,), STRING, _trim)
    library.method("replace", (STRING, STRING, STRING), STRING, _replace)
    library.method("replace", (STRING, STRING, STRING, INT), STRING, _replace)
    library.method("split", (STRING, STRING), texts, _split)
    library.method("split", (STRING, STRING, INT), texts, _split)
    library.method(
        "substring", (STRING, INT), STRING, lambda budget, text, at: _substring(budget, text, at, len(text))
    )
    library.method("substring", (STRING, INT, INT), STRING, _substring)
    library.method("format", (STRING, list_of(DYN)), STRING, format_text)
    library.function("strings.quote", (STRING,), STRING, quote)
    library.both(
        "matches", (STRING, STRING), BOOL, lambda budget, text, regex: matches(budget, text, pattern(regex))
    )
    library.method(
        "find", (STRING, STRING), STRING, lambda budget, text, regex: find(budget, text, pattern(regex))
    )
    library.method(
        "findAll", (STRING, STRING), texts, lambda budget, text, regex: find_all(budget, text, pattern(regex))
    )
    library.method(
        "findAll",
        (STRING, STRING, INT),
        texts,
        lambda budget, text, regex, limit: find_all(budget, text, pattern(regex), limit),
    )


# --- regular expressions ------------------------------------------------------------------------------


def pattern(text: str | Pattern) -> Pattern:
    """A regular expression: compiled already where the text was a constant."""
    if isinstance(text, Pattern):
        return text
    try:
        return compile_pattern(text)
    except PatternError as error:
        raise RunFailure(f"error parsing regexp: {error}") from None


def _charge_match(budget: Budget, text: str, regex: Pattern) -> None:
    # The reference guesses the size of a program from the length of its text, and ten characters cost one
    # unit. The size is known here, and units are dearer: a budget stands for the same time everywhere.
    budget.charge(10 + (1 + len(text)) * regex.size // 2)


def matches(budget: Budget, text: str, regex: Pattern) -> bool:
    """Whether the expression matches somewhere."""
    _charge_match(budget, text, regex)
    return regex.search(text) is not None


def find(budget: Budget, text: str, regex: Pattern) -> str:
    """The first match, or nothing."""
    _charge_match(budget, text, regex)
    found = regex.search(text)
    return "" if found is None else text[found[0] : found[1]]


def find_all(budget: Budget, text: str, regex: Pattern, limit: int = -1) -> tuple[str, ...]:
    """The matches, not overlapping; at most ``limit`` where that is not negative."""
    found: list[str] = []
    at, last_end = 0, -1
    while at <= len(text) and (limit < 0 or len(found) < limit):
        _charge_match(budget, text[at:], regex)
        match = regex.search(text, at)
        if match is None:
            break
        start, end = match
        # An empty match right behind the match before it does not count.
        if end > start or start != last_end:
            found.append(text[start:end])
        last_end = end
        at = end if end > at else at + 1
    return tuple(found)


# --- plain texts --------------------------------------------------------------------------------------


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise RunFailure(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(budget: Budget, text: str, part: str, start: int) -> int:
    budget.charge_text(len(text), len(part))
    if not part:
        return start
    if not 0 <= start <= len(text):
        raise RunFailure(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(budget: Budget, text: str, part: str, last: int | None = None) -> int:
    budget.charge_text(len(text), len(part))
    if not part:
        return len(text) if last is None else last
    if last is not None and not 0 <= last <= len(text):
        raise RunFailure(f"index out of range: {last}")
    return text.rfind(part) if last is None else text.rfind(part, 0, last + len(part))


def _join(budget: Budget, parts: tuple[str, ...], separator: str) -> str:
    budget.charge_text(sum(map(len, parts)), len(parts) * (1 + len(separator)))
    return separator.join(parts)


def _translated(budget: Budget, text: str, table: dict[int, str]) -> str:
    budget.charge_text(len(text))
    return text.translate(table)


def _trim(budget: Budget, text: str) -> str:
    budget.charge_text(len(text))
    return text.strip(_SPACE)


def _replace(budget: Budget, text: str, old: str, new: str, limit: int = -1) -> str:
    count = text.count(old) if limit < 0 else min(limit, text.count(old))
    budget.charge_text(len(text), count * len(new))
    return text.replace(old, new, max(limit, -1))


def _split(budget: Budget, text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    budget.charge_text(len(text))
    if limit == 0:
        return ()
    if separator:
        return tuple(text.split(separator, limit - 1 if limit > 0 else -1))
    if 0 < limit < len(text):
        return (*text[: limit - 1], text[limit - 1 :])
    return tuple(text)


def _substring(budget: Budget, text: str, start: int, end: int) -> str:
    budget.charge_text(len(text))
    if not 0 <= start <= len(text):
        raise RunFailure(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise RunFailure(f"index out of range: {end}")
    if start > end:
        raise RunFailure(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]
