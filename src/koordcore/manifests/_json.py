"""JSON text as a stream of objects: a list is decoded item by item."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from typing import Final

from koordcore.errors import Problem
from koordcore.manifests._raw import Source, SourceObject, finite, outer
from koordcore.protocol.fields import Json, show

_SPACE: Final = re.compile(r"[ \t\n\r]*")


class _DuplicateKeyError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(f"duplicate key {show(key)}")
            seen.add(key)
    return mapping


def _refuse(name: str) -> float:
    raise ValueError(f"{name[:20]} is not a JSON number")


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=finite)
_LENIENT: Final = json.JSONDecoder()


def read_json(text: str, label: str) -> Iterator[Source]:
    """Read JSON text: one object, a list of objects, a ``List`` kind, or several of these in a row.

    A list is decoded item by item, so that a large dump never stands in memory as dictionaries.
    """
    at = _skip(text, 0)
    number = 0
    while at < len(text):
        number += 1
        name = label if number == 1 else f"{label} (document {number})"
        try:
            at = yield from _json_document(text, at, name)
        except _JsonError as error:
            yield Problem("", error.message, source=name)
            return
        at = _skip(text, at)


class _JsonError(Exception):
    def __init__(self, message: str) -> None:
        self.message = message


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # the pattern matches emptiness


def _value(text: str, at: int) -> tuple[Json, int]:
    try:
        return _STRICT.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _JsonError(f"not JSON: {error.msg}: line {error.lineno} column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _JsonError(f"not JSON: {_reason(error)} in the value at {_position(text, at)}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a number of thousands of digits" if "int_max_str_digits" in str(error) else str(error)


def _position(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"


def _syntax(text: str, at: int, expected: str) -> _JsonError:
    found = f'"{text[at]}"' if at < len(text) else "the end"
    return _JsonError(f"not JSON: expected {expected}, got {found}: {_position(text, at)}")


def _json_document(text: str, at: int, label: str) -> Generator[Source, None, int]:
    if text[at] == "[":
        return (yield from _json_items(text, at, label, []))
    if text[at] != "{":
        raw, at = _value(text, at)
        yield SourceObject(label, raw, end=at)
        return at
    around: dict[str, Json] = {}
    kindless: list[SourceObject] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = _value(text, at)
        at = _skip(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            raise _syntax(text, at, '":" after a string')
        if key in around:
            raise _JsonError(f"duplicate key {show(key)}")
        at = _skip(text, at + 1)
        if key == "items" and text[at : at + 1] == "[":
            around[key] = ()
            at = yield from _json_items(text, at, label, kindless)
        else:
            around[key], at = _value(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] != '"':
                raise _syntax(text, at, "a key")
        elif text[at : at + 1] != "}":
            raise _syntax(text, at, '"," or "}"')
    yield from outer(around, kindless, label, at + 1)
    return at + 1


def _json_items(text: str, at: int, label: str, kindless: list[SourceObject]) -> Generator[Source, None, int]:
    at = _skip(text, at + 1)
    number = 0
    while text[at : at + 1] != "]":
        number += 1
        name = f"{label} (item {number})"
        try:
            raw, at = _STRICT.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecursionError | json.JSONDecodeError):
                _value(text, at)
            yield Problem("", _reason(error), source=name)
            at = _skip_value(text, at)
        else:
            item = SourceObject(name, raw, end=at)
            if isinstance(raw, dict) and "kind" not in raw:
                kindless.append(item)
            else:
                yield item
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "]":
                raise _syntax(text, at, "a value")
        elif text[at : at + 1] != "]":
            raise _syntax(text, at, '"," or "]"')
    return at + 1


def _skip_value(text: str, at: int) -> int:
    try:
        return _LENIENT.raw_decode(text, at)[1]
    except (ValueError, RecursionError) as error:
        raise _JsonError(f"not JSON: {_reason(error)} in the value at {_position(text, at)}") from None
