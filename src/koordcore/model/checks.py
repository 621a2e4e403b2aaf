"""What records are given: the types of their fields, told by their annotations and checked by compiled code.

A record that takes anything fails far from where it was made. Checking a field costs some 30 ns, because the
code for a class is written once, when the first of its records is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial, wraps
from math import inf
from types import UnionType
from typing import Any, Final, TypeVar, cast

import attrs
from immutabledict import immutabledict

from koordcore._blame import blamed, shown
from koordcore._record import wrap_init
from koordcore.errors import KoordcoreError, ModelError
from koordcore.model.resources import make_resources

T = TypeVar("T")

_SIMPLE: Final = {
    "str": "isinstance({0}, str)",
    "int": "type({0}) is int",
    "bool": "type({0}) is bool",
    # NaN is the one number that is unequal to itself.
    "float": "type({0}) in numbers and {0} == {0}",
    "datetime": "(isinstance({0}, datetime) and {0}.tzinfo is not None)",
    "None": "{0} is None",
    "Resources": "type({0}) is immutabledict",
}
_WORDS: Final = {
    "str": "text",
    "datetime": "a time with its zone",
    "float": "a number",
    "Resources": "amounts by resource",
    "immutabledict[str, str]": "texts by text",
}
_SCOPE: Final[Mapping[str, Any]] = {
    "datetime": datetime,
    "immutabledict": immutabledict,
    "numbers": (int, float),
}
_CHECKS: Final[dict[type, Callable[[Any], bool]]] = {}


def check_fields(record: Any) -> None:
    """Check the types of all fields of an attrs record; for use as, or in, ``__attrs_post_init__``.

    Annotations that name no class of the module, such as aliases of functions, are not checked, and of frozen
    mappings only that they are some: their converters look at what is in them.

    Raises
    ------
    ModelError
        Names the class and the first field that is not what its annotation says; floats that are not a
        number and times without a zone are none.
    """
    kind = type(record)
    check = _CHECKS.get(kind)
    if check is None:
        conditions = [text for field in attrs.fields(kind) for text in _condition(kind, field, exact=True)]
        check = _CHECKS[kind] = _compiled(kind, " and ".join(conditions) or "True")
    if not check(record):
        _complain(record)


def check_least(record: Any, least: float, *names: str) -> None:
    """Check that numbers of a record are finite and at least so much; one that is ``None`` is none.

    Raises
    ------
    ModelError
        Names the class and the first field that is not.
    """
    for name in names:
        refuse_below(least, getattr(record, name), f"{type(record).__name__}: {name}")


def refuse_below(least: float, value: float | None, place: str) -> None:
    """Raise a :class:`ModelError` that names the place where a number is below the least, or not finite."""
    # NaN is in no range.
    if value is not None and not least <= value < inf:
        raise ModelError(f"{place}: must be at least {least:g}, got {value}")


def names_its_fields(kind: type[T]) -> type[T]:
    """Let a class say which of its fields it could not be made of; for attrs classes.

    What it raises then is a ModelError, as for any other field that is not what its annotation says.
    """
    wrap_init(kind, partial(_naming, kind))
    return kind


def _naming(kind: Any, make: Callable[..., None]) -> Callable[..., None]:
    @wraps(make)
    def init(self: Any, *args: Any, **fields: Any) -> None:
        try:
            make(self, *args, **fields)
        except KoordcoreError:
            raise
        except Exception as error:
            names = (field.alias for field in attrs.fields(kind))
            given = dict(zip(names, args, strict=False)) | fields
            known = _named(kind, lambda name: given.get(name, ""))
            for field in attrs.fields(kind):
                if field.alias in given and field.converter is not None:
                    _convert(known, field, given[field.alias])
            message = blamed(make, (self, *args), fields, error)
            if message is None:
                raise
            raise ModelError(f"{known}: {message}") from None

    return init


def _convert(known: str, field: attrs.Attribute[Any], value: Any) -> None:
    try:
        cast("Callable[[Any], Any]", field.converter)(value)
    except KoordcoreError:
        raise
    except Exception:
        message = f"expected {_words(field.type)}, got {shown(value)}"
        raise ModelError(f"{known}: {field.name}: {message}") from None


def _complain(record: Any) -> None:
    """Find the field that is wrong; there is none where elements of a tuple are of a subclass."""
    kind = type(record)
    for field in attrs.fields(kind):
        for text in _condition(kind, field, exact=False):
            if not _compiled(kind, text)(record):
                message = _misfit(field, getattr(record, field.name))
                known = _named(kind, lambda name: getattr(record, name, ""))
                raise ModelError(f"{known}: {field.name}: {message}")


def _named(kind: type, fields: Callable[[str], Any]) -> str:
    """Say which record it is, where a name is among its fields and can be read."""
    names = fields("namespace"), fields("name")
    known = all(isinstance(name, str) for name in names) and names[1]
    return " ".join([kind.__name__, "/".join(filter(None, names))] if known else [kind.__name__])


def _misfit(field: attrs.Attribute[Any], value: Any) -> str:
    if str(field.type).startswith("Resources") and isinstance(value, Mapping):
        try:
            make_resources(value)
        except ModelError as error:
            return str(error)
    return f"expected {_words(field.type)}, got {shown(value)}"


def _words(annotation: Any) -> str:
    parts = [part.strip() for part in _alternatives(str(annotation))]
    return " or ".join(_WORDS.get(part, part) for part in parts)


def _compiled(kind: type, text: str) -> Callable[[Any], bool]:
    known = {**vars(sys.modules[kind.__module__]), **_SCOPE}
    return eval(f"lambda record: {text}", known)  # type: ignore[no-any-return]  # the text is a lambda


def _condition(kind: type, field: attrs.Attribute[Any], *, exact: bool) -> tuple[str, ...]:
    """Give the code that checks a field, or nothing where its annotation says nothing that can be checked."""
    if not field.init:
        return ()
    known = vars(sys.modules[kind.__module__])
    text = _checks(str(field.type), f"record.{field.name}", known, exact=exact)
    return () if text is None else (text,)


def _checks(annotation: str, value: str, known: Mapping[str, Any], *, exact: bool) -> str | None:
    parts = [_one(part.strip(), value, known, exact=exact) for part in _alternatives(annotation)]
    if any(part is None for part in parts):
        return None
    # The commonest value of an optional field is that it has none: ask for it first.
    ordered = sorted((str(part) for part in parts), key=lambda part: not part.endswith("is None"))
    return ordered[0] if len(ordered) == 1 else f"({' or '.join(ordered)})"


def _one(annotation: str, value: str, known: Mapping[str, Any], *, exact: bool) -> str | None:
    if annotation in _SIMPLE:
        return _SIMPLE[annotation].format(value)
    if annotation.startswith("tuple[") and annotation.endswith(", ...]"):
        inner = annotation[6:-6]
        each = _checks(inner, "one", known, exact=False)
        if each is None:
            return f"type({value}) is tuple"
        if exact and (inner in ("str", "int") or isinstance(known.get(inner), type)):
            alike = f"len({value}) == 1 or {{*map(type, {value})}} == {{{inner}}}"
            return f"(type({value}) is tuple and (not {value} or type({value}[0]) is {inner} and ({alike})))"
        return f"(type({value}) is tuple and (not {value} or all([{each} for one in {value}])))"
    if annotation.startswith("tuple[") and annotation.endswith("]"):
        parts = [part.strip() for part in _split(annotation[6:-1], ",")]
        inside = [_checks(part, f"{value}[{at}]", known, exact=exact) for at, part in enumerate(parts)]
        message = [f"type({value}) is tuple", f"len({value}) == {len(parts)}", *filter(None, inside)]
        return f"({' and '.join(message)})"
    if annotation.startswith("immutabledict["):
        amounts = annotation.endswith(", int]")
        counted = f" and (not {value} or {{*map(type, {value}.values())}} == {{int}})" if amounts else ""
        return f"(type({value}) is immutabledict{counted})"
    if known.get(annotation) == immutabledict[str, int]:
        return _one("immutabledict[str, int]", value, known, exact=exact)
    return f"isinstance({value}, {annotation})" if _is_class(known.get(annotation)) else None


def _is_class(named: Any) -> bool:
    if isinstance(named, UnionType):
        return all(map(_is_class, named.__args__))
    return isinstance(named, type) and named is not Any and not getattr(named, "_is_protocol", False)


def _alternatives(annotation: str) -> list[str]:
    return _split(annotation, "|")


def _split(annotation: str, at: str) -> list[str]:
    """Part an annotation at the signs that stand outside brackets."""
    parts, depth = [""], 0
    for sign in annotation:
        depth += (sign == "[") - (sign == "]")
        if sign == at and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts
