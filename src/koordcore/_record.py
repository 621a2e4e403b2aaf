"""Frozen records: attrs classes that attrs writes when somebody first makes, compares or shows one.

attrs generates and compiles the methods of every class when its module is read. A process makes records of a
quarter of the classes that its first decision reads, and waited for the others longer than for numpy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

T = TypeVar("T", bound=type)

_COMPARING: Final = ("__eq__", "__hash__")
_CAN_WAIT: Final = {"cache_hash", "eq", "kw_only", "order", "repr", "weakref_slot"}
"""Options whose work can be put off until somebody uses the class."""

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
        options |= {"eq": False, "repr": False} if compared else {"repr": False}
        made = _Sketch(cls, options).made if _can_wait(cls, options) else attrs.frozen(cls, **options)
        for name in late:
            setattr(made, name, _writing(made, late, name))
        return made


def _bare() -> type:
    return type("_Bare", (), {})


@cache
def _given(**options: Any) -> tuple[frozenset[str], tuple[str, ...]]:
    """Give what attrs writes into every class under some options, ``__init__`` say, and the slots it adds."""
    written = vars(attrs.frozen(_bare(), **options))
    slots = written["__slots__"]
    return frozenset(written.keys() - {*vars(_bare()), "__slots__", *slots}), slots


def _can_wait(cls: type, options: Mapping[str, Any]) -> bool:
    """Tell whether a class needs nothing of attrs that shows before somebody uses it, but for its slots."""
    if type(cls) is not type or not options.keys() <= _CAN_WAIT:
        return False
    own, bases, fields = vars(cls), cls.__mro__[1:-1], inspect.get_annotations(cls)
    inherited = {name for base in bases for name in getattr(base, "__slots__", ())}
    return not (
        any(not isinstance(vars(base).get("__attrs_attrs__"), tuple | _Late) for base in bases)
        or any("ClassVar" in kind for kind in map(str, fields.values()))
        or not inherited.isdisjoint(fields)
        or not _given(**_deciding(options))[0].isdisjoint(own)
        or any(map(_knows_class, own.values()))
    )


def _deciding(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give the options that decide what attrs writes, whatever the fields are."""
    return {name: value for name, value in options.items() if name != "kw_only"}


def _knows_class(value: Any) -> bool:
    """Tell whether a method names its class, as ``super()`` does, or attrs makes a slot of it."""
    kind = type(value)
    if kind in (classmethod, staticmethod):
        value = value.__func__
    elif kind is property:
        value = value.fget
    elif kind is cached_property:
        return True
    return bool(getattr(value, "__closure__", None)) and "__class__" in value.__code__.co_freevars


class _Sketch:
    """A record's class with its slots, and under each name of attrs what has attrs write it."""

    def __init__(self, cls: type, options: Mapping[str, Any]) -> None:
        self.cls, self.options = cls, options
        self.wrap: Callable[[Any], Any] | None = None
        self.late, slots = _given(**_deciding(options))
        fields = inspect.get_annotations(cls)
        left = {"__dict__", "__weakref__", *fields}
        body = {name: value for name, value in vars(cls).items() if name not in left}
        inherited = {name for base in cls.__mro__[1:-1] for name in getattr(base, "__slots__", ())}
        body["__slots__"] = (*fields, *(name for name in slots if name not in inherited))
        body["__qualname__"] = cls.__qualname__
        self.made = type(cls.__name__, cls.__bases__, body | {name: _Late(self, name) for name in self.late})

    def write(self) -> Mapping[str, Any]:
        """Have attrs write the class, and give what it wrote."""
        found = vars(attrs.frozen(self.cls, **self.options))
        written = {name: found[name] for name in self.late}
        if self.wrap is not None:
            written["__init__"] = self.wrap(written["__init__"])
        for name, value in written.items():
            setattr(self.made, name, value)
        return written


class _Late:
    """What attrs gives a class under a name, once somebody asks for it."""

    def __init__(self, sketch: _Sketch, name: str) -> None:
        self.sketch, self.name = sketch, name

    def __get__(self, one: object, owner: type | None = None) -> Any:
        value = self.sketch.write()[self.name]
        bind = getattr(type(value), "__get__", None)
        return value if bind is None else bind(value, one, owner)


def wrap_init(kind: Any, wrap: Callable[[Any], Any]) -> None:
    """Put a function around what makes the records of a class, now or once it is written."""
    late = vars(kind)["__init__"]
    if isinstance(late, _Late):
        late.sketch.wrap = wrap
    else:
        kind.__init__ = wrap(late)


def differing(before: Any, after: Any) -> frozenset[str]:
    """Give the names of the fields in which two records of one class say something else.

    One that was made of the other shares most values with it, so those that are the same are not compared.
    """
    names, values = _fields_of(type(before))  # type: ignore[arg-type]  # a class can be hashed
    pairs = zip(names, values(before), values(after), strict=True)
    return frozenset([name for name, old, new in pairs if old is not new and old != new])


def fields_of(one: Any) -> tuple[str, ...]:
    """Give the names of the fields of a record."""
    return _fields_of(type(one))[0]  # type: ignore[arg-type]  # a class can be hashed


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
