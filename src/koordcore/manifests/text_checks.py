"""Checks of texts in labels and annotations, and how they are put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from koordcore.errors import ManifestError, Problem, join_path
from koordcore.protocol.fields import Json, field, load_json, show

Check: TypeAlias = Callable[[str, str], tuple[Problem, ...]]
"""Looks at a key and its text; the paths of what it finds start at the text."""

IGNORED: Final = "it is ignored"


def readable(parse: Callable[[str], object]) -> Check:
    """Make a check that a parser can read the text."""
    return by_key(lambda key, text: parse(text))


def keyed(parse: Callable[[Mapping[str, str]], object]) -> Check:
    """Make a check of a parser that looks its own key up."""
    return by_key(lambda key, text: parse({key: text}))


def by_key(parse: Callable[[str, str], object]) -> Check:
    """Make a check of a parser of key and text."""

    def check(key: str, text: str) -> tuple[Problem, ...]:
        try:
            parse(key, text)
        except ManifestError as error:
            return error.problems
        return ()

    return check


def word(*known: str, effect: str = IGNORED) -> Check:
    """Make a check that the whole text is one of some words; ``effect`` says what any other comes to."""

    def check(key: str, text: str) -> tuple[Problem, ...]:
        return () if not text or text in known else (unknown_word("", text, known, effect),)

    return check


def words(
    fields: Mapping[str, Iterable[str]], *, of_each: Iterable[str] = (), effect: str = IGNORED
) -> Check:
    """Make a check that fields of a JSON object are one of some words.

    Parameters
    ----------
    fields
        Field to its words.
    of_each
        Known keys of the object, where the fields belong to the value under each key.
    effect
        What any other word comes to.
    """
    keys = tuple(of_each)

    def check(key: str, text: str) -> tuple[Problem, ...]:
        try:
            raw = load_json(text)
        except ManifestError:
            return ()  # said by the parser
        if not isinstance(raw, Mapping):
            return ()
        if not keys:
            return tuple(_unknown_words(raw, fields, "", effect))
        found = [unknown_word(f"[{name}]", str(name), keys) for name in raw if name not in keys]
        for name in raw:
            if isinstance(raw[name], Mapping):
                found += _unknown_words(raw[name], fields, str(name), effect)
        return tuple(found)

    return check


def _unknown_words(
    raw: Mapping[str, Json], fields: Mapping[str, Iterable[str]], path: str, effect: str
) -> list[Problem]:
    found = []
    for name, known in fields.items():
        value = field(raw, name, fold_case=True)
        if isinstance(value, str) and value and value not in known:
            found.append(unknown_word(join_path(path, name), value, known, effect))
    return found


def unknown_word(path: str, value: str, known: Iterable[str], effect: str = IGNORED) -> Problem:
    """Say that a text is none of the known words, and what it comes to."""
    listed = ", ".join(one for one in known if one)
    return Problem(path, f"{show(value)} is none of {listed}; {effect}")


def no_nulls(key: str, text: str) -> tuple[Problem, ...]:
    """Check that no entry of a JSON object is null, which counts as zero."""
    try:
        raw = load_json(text)
    except ManifestError:
        return ()  # said by the parser
    entries = raw.items() if isinstance(raw, Mapping) else ()
    return tuple(Problem(f"[{name}]", "null counts as 0") for name, value in entries if value is None)


def no_divisors(key: str, text: str) -> tuple[Problem, ...]:
    """Check that no ratio of a JSON object is less than 1, where that multiplies nothing."""
    try:
        raw = load_json(text)
    except ManifestError:
        return ()  # said by the parser
    entries = raw.items() if isinstance(raw, Mapping) else ()
    return tuple(
        Problem(f"[{name}]", f"{show(value)} is less than 1; {IGNORED}")
        for name, value in entries
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 1
    )


def both(*checks: Check) -> Check:
    """Make one check of several."""
    return lambda key, text: tuple(problem for check in checks for problem in check(key, text))
