"""``"...".format([...])`` and ``strings.quote``.

Reference: ``cel-go/ext`` strings, version 2, with numbers as its default locale writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.numbers import double_text
from koordcore.allocators.claims.cel.times import duration_text, timestamp_text
from koordcore.allocators.claims.cel.types import Type
from koordcore.allocators.claims.cel.values import (
    Budget,
    CelMap,
    DurationValue,
    TimestampValue,
    TypeValue,
    UInt,
    Value,
    type_name,
)

_CLAUSE: Final = re.compile(r"%(?:\.(?P<precision>[0-9]*))?(?P<verb>.)?", re.DOTALL)
_MAX_PRECISION: Final = 100
_DEFAULT_PRECISION: Final = 6
_SUPERSCRIPTS: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", '"': '\\"',
}  # fmt: skip
_TEXTS: Final = frozenset(
    {
        "bool",
        "bytes",
        "double",
        "duration",
        "int",
        "list",
        "map",
        "null",
        "string",
        "timestamp",
        "type",
        "uint",
    }
)
_ACCEPTED: Final = {
    "s": _TEXTS,
    "d": frozenset({"int", "uint"}),
    "f": frozenset({"double", "string"}),  # a string may say NaN or Infinity
    "e": frozenset({"double", "string"}),
    "b": frozenset({"bool", "int", "uint"}),
    "o": frozenset({"int", "uint"}),
    "x": frozenset({"bytes", "int", "string", "uint"}),
    "X": frozenset({"bytes", "int", "string", "uint"}),
}
"""Types of value that each clause takes."""


def quote(budget: Budget, text: str) -> str:
    """The text in quotes, special characters escaped."""
    budget.charge_text(len(text))
    return _quoted(text)


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char, char) for char in text) + '"'


def _clauses(template: str) -> Iterator[tuple[str, str, int]]:
    """Text before each clause, the clause's letter (empty at the end, ``%`` for itself) and its precision."""
    at = 0
    for match in _CLAUSE.finditer(template):
        before, at = template[at : match.start()], match.end()
        verb, digits = match["verb"], match["precision"]
        if verb is None:
            raise RunFailure("unexpected end of string")
        if verb != "%" and verb not in _ACCEPTED:
            raise RunFailure(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')
        precision = _DEFAULT_PRECISION if digits is None else int(digits[:4] or "0")
        if precision > _MAX_PRECISION:
            raise RunFailure("precision is too large")
        yield before, verb, precision
    yield template[at:], "", 0


def format_problem(template: str, types: Sequence[Type]) -> str:
    """What is wrong with a call whose template and number of values are known when compiling; or nothing."""
    used = 0
    try:
        for _, verb, _ in _clauses(template):
            if verb in {"", "%"}:
                continue
            if used >= len(types):
                return f"index {used} out of range"
            given = types[used]
            if not given.is_dynamic and given.name not in _ACCEPTED[verb]:
                return f"error during formatting: no clause %{verb} for {given}"
            used += 1
    except RunFailure as failure:
        return str(failure)
    if used < len(types):
        return f"too many arguments supplied to string.format (expected {used}, got {len(types)})"
    return ""


def format_text(budget: Budget, template: str, values: tuple[Value, ...]) -> str:
    """Put values in the places of clauses such as ``%s`` and ``%.3f``."""
    budget.charge_text(len(template))
    parts: list[str] = []
    used = 0
    for before, verb, precision in _clauses(template):
        parts.append(before)
        if verb in {"", "%"}:
            parts.append(verb)
            continue
        if used >= len(values):
            raise RunFailure(f"index {used} out of range")
        budget.charge(1)
        parts.append(_clause(budget, verb, precision, values[used]))
        used += 1
    return "".join(parts)


def _clause(budget: Budget, verb: str, precision: int, value: Value) -> str:
    number = value.value if isinstance(value, UInt) else value
    match verb, number:
        case "s", _:
            return _text(budget, value)
        case (("f" | "e"), float()):
            return _decimal(verb, precision, number)
        case (("f" | "e"), "NaN" | "Infinity" | "-Infinity"):
            return str(number)
        case "b", bool():
            return "1" if number else "0"
        case (("d" | "b" | "o" | "x" | "X"), int()) if not isinstance(number, bool):
            return f"{number:{verb}}"
        case (("x" | "X"), str() | bytes()):
            budget.charge_text(2 * len(number))
            data = number.encode("utf-8", "surrogatepass") if isinstance(number, str) else number
            return data.hex() if verb == "x" else data.hex().upper()
        case _:
            raise _misfit(verb, value)


def _misfit(verb: str, value: Value) -> RunFailure:
    return RunFailure(f"error during formatting: no formatting clause %{verb} for {type_name(value)}")


def _decimal(verb: str, precision: int, number: float) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"
    if verb == "f":
        return f"{number:,.{precision}f}"
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    power = exponent.removeprefix("+").translate(_SUPERSCRIPTS)
    return f"{mantissa}\u202f×\u202f10{power}"


def _text(budget: Budget, value: Value) -> str:
    budget.charge(1)
    match value:
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case str():
            budget.charge_text(len(value))
            return value
        case bytes():
            budget.charge_text(len(value))
            return value.decode("utf-8", "replace")
        case float():
            return double_text(value)
        case int():
            return str(value)
        case UInt(number):
            return str(number)
        case TimestampValue():
            return timestamp_text(value)
        case DurationValue():
            return duration_text(value)
        case TypeValue(name):
            return name
        case tuple():
            return "[" + ", ".join(_member(budget, one) for one in value) + "]"
        case CelMap():
            entries = sorted((_member(budget, key), _member(budget, one)) for key, one in value.items())
            return "{" + ", ".join(f"{key}:{one}" for key, one in entries) + "}"
        case _:
            raise _misfit("s", value)


def _member(budget: Budget, value: Value) -> str:
    """A member of a list or map, as one would write it in an expression."""
    text = _text(budget, value)
    match value:
        case str():
            return _quoted(text)
        case bytes():
            return "b" + _quoted(text)
        case float():
            return f"{value:.6f}" if math.isfinite(value) else _quoted(text)
        case TimestampValue():
            return f"timestamp({_quoted(text)})"
        case DurationValue():
            return f"duration({_quoted(text)})"
        case _:
            return text
