"""Whether a record that a file describes holds what its annotations say, down to what is in its mappings.

Records check their own fields and leave what mappings hold to converters, which trust frozen ones.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from functools import cache
from operator import is_
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
from immutabledict import immutabledict

_MOST: Final = 1 << 63
_NARROW: Final = ("int", "int | None", "Resources")
"""Annotations of what has 64 bits; sets of bits, and what is measured, may have more."""
_MASK: Final = "cache_mask"
_EXACT: Final = frozenset({"DeviceCapacity", "CapacityPolicy", "CapacityRange"})
"""Records of amounts in billionths, which have no such bound."""


def wrong_field(kind: type, values: Mapping[str, Any]) -> str:
    """Name the first field, in the order of a class, that would hold something else; empty where none would.

    Parameters
    ----------
    kind
        The class of a record.
    values
        By the names of its arguments; a field that is not among them is not looked at.
    """
    hints = _hints(kind)
    for field in attrs.fields(kind):
        name: str = field.alias or field.name
        if name not in values:
            continue
        value = values[name]
        if not _fits(value, hints.get(field.name, Any)):
            return name
        if str(field.type) in _NARROW and field.name != _MASK and kind.__name__ not in _EXACT:
            amounts = value.values() if isinstance(value, Mapping) else () if value is None else (value,)
            if any(not -_MOST <= amount < _MOST for amount in amounts):
                return name
    return ""


def named(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments of a record with tuples by field names where it has those; a file has lists of them.

    Parameters
    ----------
    kind, values
        As for :func:`wrong_field`.
    """
    hints = _hints(kind)
    aliases = {field.alias or field.name: field.name for field in attrs.fields(kind)}
    return {name: _named(value, hints.get(aliases.get(name, name), Any)) for name, value in values.items()}


def _named(value: Any, hint: Any) -> Any:
    parts, kind = get_args(hint), get_origin(hint) or hint
    if kind in (Union, UnionType):
        return next((made for one in parts if (made := _named(value, one)) is not value), value)
    if not isinstance(value, tuple | Mapping) or not isinstance(kind, type):
        return value
    if isinstance(value, Mapping):
        made = {key: _named(one, parts[1]) for key, one in value.items()} if len(parts) == 2 else value
        return value if all(made[key] is one for key, one in value.items()) else immutabledict(made)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        fields: tuple[str, ...] = getattr(kind, "_fields", ())
        return kind(*value) if len(value) == len(fields) else value
    if kind is not tuple or not parts:
        return value
    held = parts if parts[-1] is not Ellipsis else [parts[0]] * len(value)
    if len(held) != len(value):
        return value
    found = tuple(map(_named, value, held))
    return value if all(map(is_, found, value)) else found


def given(made: Any) -> dict[str, Any]:
    """Give the arguments that make a record: what its converters made of what they got."""
    return {
        field.alias or field.name: getattr(made, field.name)
        for field in attrs.fields(type(made))
        if field.init
    }


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """Give the annotations that can be read; a name that only type checkers import says nothing."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        known = vars(sys.modules[base.__module__])
        for name, text in vars(base).get("__annotations__", {}).items():
            try:
                found |= get_type_hints(type("_", (), {"__annotations__": {name: text}}), known)
            except (NameError, TypeError):
                found[name] = Any
    return found


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any or isinstance(hint, TypeVar):
        return True
    parts, origin = get_args(hint), get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    kind = origin or hint
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return True
    if kind is int:
        return type(value) is int
    if kind is float:
        return type(value) in (int, float)
    return isinstance(value, kind) and (not parts or _holds(value, parts))


def _holds(value: Any, parts: tuple[Any, ...]) -> bool:
    """Tell whether what a collection holds is of the types that are named for it."""
    if isinstance(value, Mapping):
        key, held = parts
        return all(_fits(name, key) and _fits(one, held) for name, one in value.items())
    if isinstance(value, tuple) and parts[-1] is not Ellipsis:
        return len(value) == len(parts) and all(map(_fits, value, parts))
    return not isinstance(value, Collection) or all(_fits(one, parts[0]) for one in value)
