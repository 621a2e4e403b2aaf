"""Frozen records: attrs classes whose comparison, hash and text are written when they are first asked for.

attrs compiles the text of these methods for every class when its module is read. Most classes are never
compared or shown in a process, and the first decision of one waited for that longer than for numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

T = TypeVar("T", bound=type)

_COMPARING: Final = ("__eq__", "__hash__")

if TYPE_CHECKING:
    from attrs import frozen as record
else:

    def record(cls: T | None = None, /, **options: Any) -> Any:
        """Do what ``attrs.frozen`` does, with the same options."""
        if cls is None:
            return lambda one: record(one, **options)
        own = vars(cls)
        # What is ordered, keeps its hash, or says itself when it is equal is left to attrs altogether.
        settled = {"order", "cache_hash"} & options.keys() or {"__eq__", "__hash__"} & own.keys()
        compared = options.get("eq", True) and not settled
        shown = options.get("repr", True) and "__repr__" not in own
        late = [*(_COMPARING if compared else ()), *(("__repr__",) if shown else ())]
        if compared:
            options["eq"] = False
        made = attrs.frozen(cls, **options | {"repr": False})
        for name in late:
            setattr(made, name, _writing(made, late, name))
        return made


def differing(before: Any, after: Any) -> frozenset[str]:
    """Give the names of the fields in which two records of one class say something else.

    One that was made of the other shares most values with it, so those that are the same are not compared.
    """
    names, values = _fields_of(type(before))  # type: ignore[arg-type]  # a class can be hashed
    pairs = zip(names, values(before), values(after), strict=True)
    return frozenset([name for name, old, new in pairs if old is not new and old != new])


def alike_but_for(fields: frozenset[str], before: Any, after: Any) -> bool:
    """Tell whether two records of one class say the same, whatever some of their fields say."""
    values = _values_but_for(type(before), fields)  # type: ignore[arg-type]  # a class can be hashed
    return bool(values(before) == values(after))


@cache
def _values_but_for(kind: Any, fields: frozenset[str]) -> Callable[[Any], Any]:
    """Give what reads the other fields of a class of records: the same objects are equal at a glance."""
    return attrgetter(*(one.name for one in attrs.fields(kind) if one.name not in fields))


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Give the names of the fields of a class of records, two at least, and what reads them all."""
    names = tuple(one.name for one in attrs.fields(kind))
    return names, attrgetter(*names)


def _writing(made: type, late: list[str], name: str) -> Any:
    def method(self: Any, *others: Any) -> Any:
        _write(made, late)
        return getattr(self, name)(*others)

    method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
    method.__module__ = made.__module__
    return method


def _write(made: type, late: list[str]) -> None:
    """Have attrs write the methods, on a class of the same name and fields that nobody sees."""
    fields = {
        one.name: attrs.field(eq=one.eq_key or one.eq, hash=one.hash, repr=one.repr)
        for one in attrs.fields(made)
    }
    bare = type(made.__name__, (), {"__module__": made.__module__, "__qualname__": made.__qualname__})
    written = attrs.frozen(bare, these=fields, slots=False, init=False)
    for name in late:
        setattr(made, name, getattr(written, name))


def brief(record: Any) -> str:
    """Write a record with those of its fields that are not what they are when nobody gives them."""
    fields_shown = []
    for field in attrs.fields(type(record)):
        value, usual = getattr(record, field.name), field.default
        if isinstance(usual, attrs.Factory):  # type: ignore[arg-type]  # a class, whatever its stub says
            usual = usual.factory(record) if usual.takes_self else usual.factory()
        if field.repr and field.init and (usual is attrs.NOTHING or value != usual):
            fields_shown.append(f"{field.name}={value!r}")
    return f"{type(record).__name__}({', '.join(fields_shown)})"
