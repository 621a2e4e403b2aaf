"""Values that may be absent.

Reference: ``cel-go``'s optional types, version 2.
"""

from __future__ import annotations

from typing import Final

from koordcore.allocators.claims.cel.declarations import Library
from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.types import BOOL, INT, list_of, map_of, optional_of, variable
from koordcore.allocators.claims.cel.values import (
    NOTHING,
    Budget,
    CelMap,
    DurationValue,
    OptionalValue,
    TimestampValue,
    UInt,
    Value,
    map_key,
)

_A: Final = variable("A")
_K: Final = variable("K")


def declare_optionals(library: Library) -> None:
    """Add the functions of optional values; their macros and signs belong to the grammar."""
    maybe = optional_of(_A)
    library.function("optional.of", (_A,), maybe, lambda _, value: OptionalValue(value))
    library.function("optional.none", (), maybe, lambda _: NOTHING)
    library.function("optional.ofNonZeroValue", (_A,), maybe, lambda _, value: _of_non_zero(value))
    library.function("optional.unwrap", (list_of(maybe),), list_of(_A), _unwrap)
    library.method("unwrapOpt", (list_of(maybe),), list_of(_A), _unwrap)
    library.method("hasValue", (maybe,), BOOL, lambda _, value: value.present)
    library.method("value", (maybe,), _A, lambda _, value: _value(value))
    for lists, maps in (
        (list_of(_A), map_of(_K, _A)),
        (optional_of(list_of(_A)), optional_of(map_of(_K, _A))),
    ):
        library.function("_[?_]", (lists, INT), maybe, lambda _, members, key: optional_index(members, key))
        library.function("_[?_]", (maps, _K), maybe, lambda _, entries, key: optional_index(entries, key))
    # An index into an optional value is optional itself.
    library.function(
        "_[_]", (optional_of(list_of(_A)), INT), maybe, lambda _, members, key: optional_index(members, key)
    )
    library.function(
        "_[_]", (optional_of(map_of(_K, _A)), _K), maybe, lambda _, entries, key: optional_index(entries, key)
    )


def optional_index(collection: Value, key: Value) -> OptionalValue:
    """``collection[?key]``, also of an optional collection."""
    if isinstance(collection, OptionalValue):
        return optional_index(collection.value, key) if collection.present else NOTHING
    if isinstance(collection, CelMap):
        return collection.find(key)
    if isinstance(collection, tuple):
        position = map_key(key)
        if type(position) is int and 0 <= position < len(collection):
            return OptionalValue(collection[position])
    return NOTHING


def optional_select(value: Value, field: str) -> OptionalValue:
    """``value.?field``, also of an optional value."""
    if isinstance(value, tuple):
        return NOTHING
    return optional_index(value, field)


def _value(optional: OptionalValue) -> Value:
    if not optional.present:
        raise RunFailure("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Value) -> OptionalValue:
    match value:
        case None | bool() | int() | float() | str() | bytes() | tuple():
            zero = not value
        case CelMap():
            zero = len(value) == 0
        case UInt(number):
            zero = number == 0
        case DurationValue(nanos):
            zero = nanos == 0
        case TimestampValue(nanos):
            zero = nanos == _ZERO_TIME
        case OptionalValue():
            zero = not value.present
        case _:
            zero = False
    return NOTHING if zero else OptionalValue(value)


_ZERO_TIME: Final = -62135596800 * 10**9
"""The first moment of year 1, which Go takes for "no time"."""


def _unwrap(budget: Budget, members: tuple[OptionalValue, ...]) -> tuple[Value, ...]:
    budget.charge(len(members))
    return tuple(member.value for member in members if member.present)
