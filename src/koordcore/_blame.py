"""Whose fault is it: a call that ends in an error of Python's own names the argument that is wrong.

The public functions are wrapped when a face hands them out. Nothing is checked while a call goes well; where
it fails, the arguments are held against the annotations, and only where one of them differs is the error the
caller's. Everything else goes on as it is: a defect of the library stays visible as one.
"""

from __future__ import annotations

import builtins
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN: Final = 60
_COUNTED: Final = 1 << 53
_DEEP: Final = 100
_MANY: Final = 10_000


def names_its_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function end in a TypeError that names the argument where that is what made it fail.

    Errors of the library go through as they are; so do those for which no argument is to blame.
    """

    @wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> R:
        try:
            return function(*args, **given)
        except Exception as error:
            message = blamed(function, args, given, error)
            if message is None:
                raise
            raise TypeError(message) from error

    return call


def shown(value: object) -> str:
    """Write a value for a message, whatever it is: short, and never an error of its own."""
    try:
        text = repr(value)
    except Exception:
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def blamed(
    function: Callable[..., object], args: tuple[object, ...], given: Mapping[str, object], error: Exception
) -> str | None:
    """Say which argument of a call is to blame for an error; None where none is."""
    signature = inspect.signature(function)
    if _says_enough(error, signature.parameters):
        return None
    try:
        bound = signature.bind(*args, **given).arguments
    except TypeError:
        return None  # Python's own message names the argument
    for name, value in bound.items():
        parameter = signature.parameters[name]
        if parameter.annotation is parameter.empty:
            continue
        wanted = _resolved(parameter.annotation, function)
        several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        values = [value] if not several else list(value.values() if isinstance(value, dict) else value)
        for one in values:
            if not _fits(one, wanted):
                zone = isinstance(one, datetime) and "datetime" in str(parameter.annotation)
                words = "a time with its zone" if zone else str(parameter.annotation)
                each = several and isinstance(one, list | tuple) and all(_fits(item, wanted) for item in one)
                hint = f"; hand them over one by one, as *{name}" if each else ""
                return f"{name}: expected {words}, got {shown(one)}{hint}"
    for name, value in bound.items():
        if isinstance(value, Iterator) or _is_extreme(value) or _lacks(value, error):
            return f"{name}: {type(error).__name__}: {error!s:.200}"
    return None


def _says_enough(error: Exception, names: Iterable[str]) -> bool:
    """Tell whether an error is one of the library, or of the system, or names an argument already."""
    from koordcore.errors import KoordcoreError

    if isinstance(error, TypeError):
        return str(error).startswith(tuple(f"{name}{sign}" for name in names for sign in ":["))
    return isinstance(error, KoordcoreError | OSError)


def _lacks(value: object, error: Exception) -> bool:
    """Tell whether a value is the name that was not found, or the mapping that does not have it."""
    if not isinstance(error, KeyError) or not error.args:
        return False
    name = error.args[0]
    return name not in value if isinstance(value, Mapping) else isinstance(value, str) and value == name


def _is_extreme(value: object) -> bool:
    """Tell whether a value is beyond what can be counted, nested or encoded."""
    stack, seen = [(value, 0)], 0
    while stack:
        one, depth = stack.pop()
        seen += 1
        if (isinstance(one, int) and abs(one) >= _COUNTED) or depth > _DEEP or seen > _MANY:
            return True
        if isinstance(one, str):
            if any("\ud800" <= sign <= "\udfff" for sign in one):
                return True
        elif isinstance(one, Mapping):
            stack += [(inner, depth + 1) for pair in one.items() for inner in pair]
        elif isinstance(one, list | tuple | set | frozenset):
            stack += [(inner, depth + 1) for inner in one]
    return False


# -- annotations ---------------------------------------------------------------------------------------------


class _Names(dict[str, Any]):
    """The names of a module; those that it imports for type checkers alone are found where they are made."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            return getattr(builtins, name)
        known = (vars(one) for key, one in sorted(sys.modules.items()) if key.startswith("koordcore."))
        for names in known:
            if name in names:
                return names[name]
        return vars(typing).get(name, getattr(types, name, Any))


def _resolved(annotation: object, function: Callable[..., object]) -> Any:
    """Give the type that an annotation says; Any where that cannot be told."""
    for _ in range(3):
        if not isinstance(annotation, str):
            return annotation
        made_in = getattr(inspect.unwrap(function), "__globals__", {})
        try:
            annotation = eval(annotation, {}, _Names(made_in))
        except Exception:
            return Any
    return Any


def _takes(value: Callable[..., object], inner: tuple[Any, ...]) -> bool:
    """Tell whether what can be called can be given so many arguments."""
    if not inner or not isinstance(inner[0], list):
        return True  # any number of them
    try:
        inspect.signature(value).bind(*inner[0])
    except TypeError:
        return False
    except ValueError:
        pass  # some builtins do not say what they take
    return True


def _fits(value: object, wanted: Any, depth: int = 0) -> bool:
    """Tell whether a value is of a type, with what is in it; what cannot be told fits."""
    if depth > _DEEP or wanted is Any:
        return True
    if wanted is None or wanted is type(None):
        return value is None
    if isinstance(wanted, type) and typing.get_origin(wanted) is None:
        return _is_one(value, wanted)
    origin: Any = typing.get_origin(wanted)
    inner = typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one, depth + 1) for one in inner)
    if origin is typing.Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if origin is Callable:
        return callable(value) and _takes(value, inner)
    if not isinstance(origin, type):
        return True
    if origin is type:
        return isinstance(value, type)
    if not isinstance(value, origin) or isinstance(value, str | bytes):
        return False
    if isinstance(value, Mapping) and issubclass(origin, Mapping):
        return len(inner) != 2 or all(
            _fits(key, inner[0], depth + 1) and _fits(one, inner[1], depth + 1) for key, one in value.items()
        )
    if isinstance(value, tuple) and origin is tuple and inner and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(_fits, value, inner, [depth + 1] * len(inner)))
    if isinstance(value, Collection) and inner:
        return all(_fits(one, inner[0], depth + 1) for one in value)
    return True


def _is_one(value: object, wanted: type) -> bool:
    """Tell whether a value is of a class; truth is no number, a time has its zone, and a number is one."""
    if wanted in (int, float):
        return isinstance(value, wanted | int) and not isinstance(value, bool) and not _is_nan(value)
    if wanted is datetime:
        return isinstance(value, datetime) and value.tzinfo is not None
    if getattr(wanted, "_is_protocol", False):
        asked = {*vars(wanted), *inspect.get_annotations(wanted)}
        return all(hasattr(value, name) for name in asked if not name.startswith("_"))
    return isinstance(value, wanted)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
