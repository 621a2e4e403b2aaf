"""Functions of the language itself: arithmetic, comparison, conversion, sizes, simple texts.

Reference: the CEL language definition, "List of Standard Definitions".
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

from koordcore.allocators.claims.cel.declarations import Library
from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.numbers import double_text, parse_double, parse_int
from koordcore.allocators.claims.cel.types import (
    BOOL,
    BYTES,
    CIDR,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    IP,
    STRING,
    TIMESTAMP,
    UINT,
    list_of,
    map_of,
    type_of_types,
    variable,
)
from koordcore.allocators.claims.cel.values import (
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    Budget,
    CidrValue,
    IpValue,
    TypeValue,
    UInt,
    Value,
    contains,
    equal,
    index,
    int64,
    type_name,
    uint64,
)

_A: Final = variable("A")
_B: Final = variable("B")
_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


def declare_standard(library: Library) -> None:
    """Add what every environment of the language has."""
    _declare_comparison(library)
    _declare_arithmetic(library)
    _declare_conversions(library)
    library.function("_==_", (_A, _A), BOOL, equal)
    library.function("_!=_", (_A, _A), BOOL, _unequal)
    library.function("!_", (BOOL,), BOOL, lambda _, value: not value)
    library.function(
        "@in", (_A, list_of(_A)), BOOL, lambda budget, one, members: contains(budget, members, one)
    )
    library.function("@in", (_A, map_of(_A, _B)), BOOL, lambda _, key, entries: key in entries)
    library.function("_[_]", (list_of(_A), INT), _A, lambda _, members, position: index(members, position))
    library.function("_[_]", (map_of(_A, _B), _A), _B, lambda _, entries, key: index(entries, key))
    for sized in (STRING, BYTES, list_of(_A), map_of(_A, _B)):
        library.both("size", (sized,), INT, lambda _, value: len(value))
    library.method("contains", (STRING, STRING), BOOL, _has_text)
    library.method("startsWith", (STRING, STRING), BOOL, _starts)
    library.method("endsWith", (STRING, STRING), BOOL, _ends)


def _unequal(budget: Budget, left: Value, right: Value) -> bool:
    # The reference looks for "equal" only: what cannot be compared is unequal.
    try:
        return not equal(budget, left, right)
    except RunFailure:
        budget.charge(0)
        return True


def _has_text(budget: Budget, text: str, part: str) -> bool:
    budget.charge((1 + len(text) // 10) * (1 + len(part) // 10))
    return part in text


def _starts(budget: Budget, text: str, start: str) -> bool:
    budget.charge_text(len(start))
    return text.startswith(start)


def _ends(budget: Budget, text: str, end: str) -> bool:
    budget.charge_text(len(end))
    return text.endswith(end)


# --- comparison ---------------------------------------------------------------------------------------


def _declare_comparison(library: Library) -> None:
    for name, holds in _COMPARISONS.items():
        for type_ in (BOOL, INT, DOUBLE):
            library.function(name, (type_, type_), BOOL, _plain(holds))
        for type_ in (STRING, BYTES):
            library.function(name, (type_, type_), BOOL, _over_text(holds))
        for type_ in (DURATION, TIMESTAMP):
            library.function(name, (type_, type_), BOOL, _over_nanos(holds))
        for one, other in ((UINT, UINT), (INT, UINT), (UINT, INT), (UINT, DOUBLE), (DOUBLE, UINT)):
            library.function(name, (one, other), BOOL, _over_numbers(holds))
        for one, other in ((INT, DOUBLE), (DOUBLE, INT)):
            library.function(name, (one, other), BOOL, _plain(holds))


def _plain(holds: Callable[[Any, Any], Any]) -> Callable[[Budget, Any, Any], Any]:
    return lambda _, left, right: holds(left, right)


def _over_text(holds: Callable[[Any, Any], bool]) -> Callable[[Budget, Any, Any], bool]:
    def run(budget: Budget, left: str | bytes, right: str | bytes) -> bool:
        budget.charge_text(min(len(left), len(right)))
        return holds(left, right)

    return run


def _over_nanos(holds: Callable[[Any, Any], bool]) -> Callable[[Budget, Any, Any], bool]:
    return lambda _, left, right: holds(left.nanos, right.nanos)


def _over_numbers(holds: Callable[[Any, Any], bool]) -> Callable[[Budget, Any, Any], bool]:
    def plain(value: Value) -> Value:
        return value.value if isinstance(value, UInt) else value

    return lambda _, left, right: holds(plain(left), plain(right))


# --- arithmetic ---------------------------------------------------------------------------------------


def _declare_arithmetic(library: Library) -> None:
    whole: dict[str, Callable[[int, int], int]] = {
        "_+_": operator.add,
        "_-_": operator.sub,
        "_*_": operator.mul,
        "_/_": _quotient,
        "_%_": _remainder,
    }
    for name, compute in whole.items():
        library.function(name, (INT, INT), INT, _over_ints(compute))
        library.function(name, (UINT, UINT), UINT, _over_uints(compute))
    for name, on_doubles in (
        ("_+_", operator.add),
        ("_-_", operator.sub),
        ("_*_", operator.mul),
        ("_/_", _ratio),
    ):
        library.function(name, (DOUBLE, DOUBLE), DOUBLE, _plain(on_doubles))
    library.function("-_", (INT,), INT, lambda _, value: int64(-value))
    library.function("-_", (DOUBLE,), DOUBLE, lambda _, value: -value)
    for type_ in (STRING, BYTES, list_of(_A)):
        library.function("_+_", (type_, type_), type_, _joined)


def _over_ints(compute: Callable[[int, int], int]) -> Callable[[Budget, int, int], int]:
    return lambda _, left, right: int64(compute(left, right))


def _over_uints(compute: Callable[[int, int], int]) -> Callable[[Budget, UInt, UInt], UInt]:
    return lambda _, left, right: uint64(compute(left.value, right.value))


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise RunFailure("division by zero")
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise RunFailure("modulus by zero")
    return left - right * _quotient(left, right)


def _ratio(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left == 0.0 or left != left:  # noqa: PLR0124 - only NaN differs from itself
        return float("nan")
    return float("inf") if (left > 0) == (str(right)[0] != "-") else float("-inf")


def _joined(budget: Budget, left: Any, right: Any) -> Any:
    budget.charge_text(len(left), len(right))
    return left + right


# --- conversions --------------------------------------------------------------------------------------


def _declare_conversions(library: Library) -> None:
    library.function("dyn", (_A,), DYN, lambda _, value: value)
    library.function("type", (_A,), type_of_types(_A), lambda _, value: TypeValue(type_name(value)))
    for type_ in (BOOL, INT, UINT, DOUBLE, STRING, BYTES):
        library.function(type_.name, (type_,), type_, lambda _, value: value)
    library.function("bool", (STRING,), BOOL, lambda _, text: _bool_of(text))
    library.function("int", (UINT,), INT, lambda _, value: int64(value.value))
    library.function("int", (DOUBLE,), INT, lambda _, value: _int_of(value))
    library.function("int", (STRING,), INT, _charged(parse_int))
    library.function("int", (TIMESTAMP,), INT, lambda _, moment: moment.nanos // 10**9)
    library.function("int", (DURATION,), INT, lambda _, span: span.nanos)
    library.function("uint", (INT,), UINT, lambda _, value: uint64(value))
    library.function("uint", (DOUBLE,), UINT, lambda _, value: _uint_of(value))
    library.function("uint", (STRING,), UINT, _charged(_parse_uint))
    library.function("double", (INT,), DOUBLE, lambda _, value: float(value))
    library.function("double", (UINT,), DOUBLE, lambda _, value: float(value.value))
    library.function("double", (STRING,), DOUBLE, _charged(parse_double))
    library.function("string", (BOOL,), STRING, lambda _, value: "true" if value else "false")
    library.function("string", (INT,), STRING, lambda _, value: str(value))
    library.function("string", (UINT,), STRING, lambda _, value: str(value.value))
    library.function("string", (DOUBLE,), STRING, lambda _, value: double_text(value))
    library.function("string", (BYTES,), STRING, _decoded)
    library.function("string", (IP,), STRING, lambda _, value: _address_text(value))
    library.function("string", (CIDR,), STRING, lambda _, value: _network_text(value))
    library.function("bytes", (STRING,), BYTES, _encoded)


def _charged(parse: Callable[[str], Value]) -> Callable[[Budget, str], Value]:
    def run(budget: Budget, text: str) -> Value:
        budget.charge_text(len(text))
        return parse(text)

    return run


def _bool_of(text: str) -> bool:
    if text in {"1", "t", "T", "TRUE", "true", "True"}:
        return True
    if text in {"0", "f", "F", "FALSE", "false", "False"}:
        return False
    raise RunFailure("type conversion error from 'string' to 'bool'")


def _int_of(value: float) -> int:
    # The bounds themselves are out: as doubles they are not exact.
    if not INT64_MIN < value < INT64_MAX:
        raise RunFailure("integer overflow")
    return int(value)


def _uint_of(value: float) -> UInt:
    if not 0 <= value < UINT64_MAX:
        raise RunFailure("unsigned integer overflow")
    return UInt(int(value))


def _parse_uint(text: str) -> UInt:
    if re.fullmatch(r"[0-9]{1,40}", text, re.ASCII):
        return uint64(int(text))
    raise RunFailure("type conversion error from 'string' to 'uint'")


def _decoded(budget: Budget, data: bytes) -> str:
    budget.charge_text(len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise RunFailure("invalid UTF-8 in bytes, cannot convert to string") from None


def _encoded(budget: Budget, text: str) -> bytes:
    budget.charge_text(len(text))
    return text.encode("utf-8", "surrogatepass")


def _address_text(value: IpValue) -> str:
    return str(value.address)


def _network_text(value: CidrValue) -> str:
    return f"{value.address}/{value.network.prefixlen}"
