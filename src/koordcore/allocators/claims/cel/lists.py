"""Functions over lists and sets.

Reference: Kubernetes' list library, ``cel-go/ext`` lists (version 3) and sets.
"""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from koordcore.allocators.claims.cel.declarations import Library
from koordcore.allocators.claims.cel.errors import RunFailure, no_such_overload
from koordcore.allocators.claims.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    optional_of,
    variable,
)
from koordcore.allocators.claims.cel.values import (
    NOTHING,
    Budget,
    DurationValue,
    OptionalValue,
    TimestampValue,
    UInt,
    Value,
    contains,
    int64,
    uint64,
)

_A: Final = variable("A")
_ORDERED: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)


def declare_lists(library: Library) -> None:
    """Add the functions over lists and sets."""
    some = list_of(_A)
    for member in _ORDERED:
        members = list_of(member)
        library.method("isSorted", (members,), BOOL, _is_sorted)
        library.method("min", (members,), member, lambda budget, values: _extreme(budget, values, "min", -1))
        library.method("max", (members,), member, lambda budget, values: _extreme(budget, values, "max", 1))
        library.method(
            "sort", (members,), members, lambda budget, values: sort_by_keys(budget, values, values)
        )
    for member, zero in ((INT, 0), (UINT, UInt(0)), (DOUBLE, 0.0), (DURATION, DurationValue(0))):
        library.method("sum", (list_of(member),), member, _sum_from(zero))
    library.method("indexOf", (some, _A), INT, _index_of)
    library.method("lastIndexOf", (some, _A), INT, _last_index_of)
    library.method("distinct", (some,), some, _distinct)
    library.method("reverse", (some,), some, lambda budget, values: _charged(budget, values)[::-1])
    library.method("slice", (some, INT, INT), some, _slice)
    library.method("first", (some,), optional_of(_A), lambda _, values: _at(values, 0))
    library.method("last", (some,), optional_of(_A), lambda _, values: _at(values, -1))
    library.method("flatten", (list_of(some),), some, lambda budget, values: _flatten(budget, values, 1))
    library.method("flatten", (some, INT), list_of(Type("dyn")), _flatten)
    library.function("lists.range", (INT,), list_of(INT), _range)
    library.function("sets.contains", (some, some), BOOL, _has_all)
    library.function(
        "sets.equivalent",
        (some, some),
        BOOL,
        lambda budget, one, other: _has_all(budget, one, other) and _has_all(budget, other, one),
    )
    library.function("sets.intersects", (some, some), BOOL, _intersects)


def _charged(budget: Budget, values: tuple[Value, ...]) -> tuple[Value, ...]:
    budget.charge(len(values))
    return values


def _rank(value: Value) -> Any:
    return value.value if isinstance(value, UInt) else value.nanos if isinstance(value, _SPANS) else value


_SPANS: Final = (DurationValue, TimestampValue)
_NUMBERS: Final = frozenset({int, float, UInt})


def _compare(budget: Budget, one: Value, other: Value) -> int:
    """-1, 0 or 1; raises where the two have no order."""
    budget.charge(1)
    kinds = {type(one), type(other)}
    if not (len(kinds) == 1 or kinds <= _NUMBERS) or isinstance(one, tuple) or one is None:
        raise no_such_overload()
    left, right = _rank(one), _rank(other)
    try:
        return int(left > right) - int(left < right)
    except TypeError:
        raise no_such_overload() from None


def _is_sorted(budget: Budget, values: tuple[Value, ...]) -> bool:
    return all(_compare(budget, one, other) <= 0 for one, other in pairwise(values))


def _extreme(budget: Budget, values: tuple[Value, ...], name: str, sign: int) -> Value:
    if not values:
        raise RunFailure(f"{name} called on empty list")
    best = values[0]
    for value in values[1:]:
        if _compare(budget, value, best) == sign:
            best = value
    return best


def sort_by_keys(budget: Budget, values: tuple[Value, ...], keys: tuple[Value, ...]) -> tuple[Value, ...]:
    """The values in the order of their keys, equal ones in the order in which they stand."""
    kinds = {type(key) for key in keys}
    if len(kinds) > 1:
        raise RunFailure("list elements must have the same type")

    def compare(one: int, other: int) -> int:
        return _compare(budget, keys[one], keys[other])

    return tuple(values[place] for place in sorted(range(len(values)), key=cmp_to_key(compare)))


def _sum_from(zero: Value) -> Any:
    def run(budget: Budget, values: tuple[Any, ...]) -> Value:
        budget.charge(len(values))
        if isinstance(zero, UInt):
            return uint64(sum(value.value for value in values))
        if isinstance(zero, DurationValue):
            return DurationValue(int64(sum(value.nanos for value in values)))
        if isinstance(zero, float):
            return sum(values, 0.0)
        total = 0
        for value in values:
            total = int64(total + value)
        return total

    return run


def _index_of(budget: Budget, values: tuple[Value, ...], wanted: Value) -> int:
    return next((place for place, value in enumerate(values) if _is_same(budget, value, wanted)), -1)


def _last_index_of(budget: Budget, values: tuple[Value, ...], wanted: Value) -> int:
    for place in range(len(values) - 1, -1, -1):
        if _is_same(budget, values[place], wanted):
            return place
    return -1


def _is_same(budget: Budget, value: Value, wanted: Value) -> bool:
    return contains(budget, (wanted,), value)


def _distinct(budget: Budget, values: tuple[Value, ...]) -> tuple[Value, ...]:
    found: list[Value] = []
    for value in values:
        if not contains(budget, found, value):
            found.append(value)
    return tuple(found)


def _slice(budget: Budget, values: tuple[Value, ...], start: int, end: int) -> tuple[Value, ...]:
    if start < 0 or end < 0:
        raise RunFailure(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise RunFailure(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(values):
        raise RunFailure(f"cannot slice({start}, {end}), list is length {len(values)}")
    return _charged(budget, values[start:end])


def _at(values: tuple[Value, ...], place: int) -> OptionalValue:
    return OptionalValue(values[place]) if values else NOTHING


def _flatten(budget: Budget, values: tuple[Value, ...], depth: int) -> tuple[Value, ...]:
    if depth < 0:
        raise RunFailure("level must be non-negative")
    flat: list[Value] = []
    for value in values:
        budget.charge(1)
        if isinstance(value, tuple) and depth > 0:
            flat.extend(_flatten(budget, value, depth - 1))
        else:
            flat.append(value)
    return tuple(flat)


def _range(budget: Budget, count: int) -> tuple[int, ...]:
    budget.charge(max(count, 0))
    return tuple(range(count))


def _has_all(budget: Budget, values: tuple[Value, ...], wanted: tuple[Value, ...]) -> bool:
    return all(contains(budget, values, one) for one in wanted)


def _intersects(budget: Budget, one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return any(contains(budget, other, value) for value in one)
