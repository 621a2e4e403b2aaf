"""Typed access to untyped JSON, with the path of what is wrong.

Every function raises :class:`~koordcore.errors.ManifestError` whose path names the place inside the object.
Where a JSON *annotation* is read, keys match without case, as upstream's decoder does (ruling 20).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from immutabledict import immutabledict

from koordcore.errors import ManifestError, Problem
from koordcore.model.durations import parse_duration

Json: TypeAlias = object
"""Any value that ``json.loads`` can give."""

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)

_SHOWN: Final = 60
_MAX_JSON: Final = 1 << 20
_MAX_NUMA: Final = 1023
"""An annotation is at most 256 KiB in Kubernetes; four times that is surely hostile."""


def show(value: Json) -> str:
    """Render a value for an error message, cut to one short line."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _expected(what: str, value: Json) -> ManifestError:
    return ManifestError.at("", f"expected {what}, got {show(value)}")


def as_str(value: Json) -> str:
    """Take a string."""
    if not isinstance(value, str):
        raise _expected("string", value)
    return value


def as_duration(value: Json) -> int:
    """Take a length of time as Go writes it (``1h30m``), in nanoseconds."""
    return parse_duration(as_str(value))


def as_int(value: Json) -> int:
    """Take an integer of 64 bits; ``true`` and ``3.0`` are none."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise _expected("int", value)
    if not -(2**63) <= value < 2**63:
        raise _expected("an integer of 64 bits", value)
    return value


def as_float(value: Json) -> float:
    """Take a number that a float of 64 bits holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ManifestError.at("", f"expected a number, got {type(value).__name__}")
    if not abs(value) <= sys.float_info.max:
        raise _expected("a number of 64 bits", value)
    return float(value)


def as_numa_node(value: Json) -> int:
    """Take the number of a NUMA node, negative for none; it bounds the masks that stand for sets of them."""
    number = as_int(value)
    if number > _MAX_NUMA:
        raise ManifestError.at("", f"expected a NUMA node of at most {_MAX_NUMA}, got {number}")
    return number


def as_bool(value: Json) -> bool:
    """Take a boolean."""
    if not isinstance(value, bool):
        raise _expected("bool", value)
    return value


def as_mapping(value: Json) -> Mapping[str, Json]:
    """Take an object whose keys are strings."""
    if not isinstance(value, Mapping):
        raise _expected("object", value)
    for key in value:
        if not isinstance(key, str):
            raise ManifestError.at("", f"expected string keys, got {show(key)}")
    return value


def as_list(value: Json) -> list[Json]:
    """Take a list."""
    if not isinstance(value, list | tuple):
        raise _expected("list", value)
    return list(value)


def as_str_mapping(value: Json) -> dict[str, str]:
    """Take an object of strings, such as labels."""
    return {key: at(f"[{key}]", as_str, text) for key, text in as_mapping(value).items()}


def as_labels(value: Json) -> immutabledict[str, str]:
    """Take labels, sorted so that equal ones are equal in every respect."""
    return immutabledict(sorted(as_str_mapping(value).items()))


def choice(kind: type[E]) -> Callable[[Json], E]:
    """Make a converter that takes one of an enumeration's values."""

    def convert(value: Json) -> E:
        try:
            return kind(as_str(value))
        except ValueError:
            raise ManifestError.at("", f"expected one of {', '.join(kind)}, got {show(value)}") from None

    return convert


def at(path: str, convert: Callable[[Json], T], value: Json) -> T:
    """Convert one value and put the path before whatever is wrong with it.

    Parameters
    ----------
    path
        Where the value stands in its object.
    convert
        Reads the value, or raises :class:`~koordcore.errors.ManifestError`.
    value
        The value.
    """
    try:
        return convert(value)
    except ManifestError as error:
        raise error.within(path) from None


def field(raw: Mapping[str, Json], name: str, *, fold_case: bool = False) -> Json:
    """Look a key up; ``None`` where it is absent. The exact spelling wins over another case.

    Parameters
    ----------
    raw
        The object.
    name
        The key.
    fold_case
        A key in another case does where the exact spelling is absent.
    """
    if name in raw or not fold_case:
        return raw.get(name)
    folded = name.casefold()
    meant = next((key for key in raw if key.casefold() == folded), None)
    return None if meant is None else raw[meant]


def required(
    raw: Mapping[str, Json], name: str, convert: Callable[[Json], T], *, fold_case: bool = False
) -> T:
    """Convert the value of a key that must be there.

    Parameters
    ----------
    raw
        The object.
    name
        The key.
    convert
        Reads the value, or raises :class:`~koordcore.errors.ManifestError`.
    fold_case
        Keys are compared without case.
    """
    value = field(raw, name, fold_case=fold_case)
    if value is None:
        raise ManifestError.at(name, "required")
    return at(name, convert, value)


def optional(
    raw: Mapping[str, Json],
    name: str,
    convert: Callable[[Json], T],
    default: D,
    *,
    fold_case: bool = False,
) -> T | D:
    """Convert the value of a key; the default where it is absent or null.

    Parameters
    ----------
    raw, name, convert, fold_case
        As for :func:`required`.
    default
        What an absent key, or one of null, means.
    """
    value = field(raw, name, fold_case=fold_case)
    return default if value is None else at(name, convert, value)


def optional_in(
    path: str,
    raw: Mapping[str, Json],
    name: str,
    convert: Callable[[Json], T],
    default: D,
    *,
    fold_case: bool = False,
) -> T | D:
    """Convert the value of a key in a part of an object.

    Parameters
    ----------
    path
        Where the part stands.
    raw, name, convert, default, fold_case
        As for :func:`optional`.
    """
    return at(path, lambda _: optional(raw, name, convert, default, fold_case=fold_case), raw)


def collect(convert: Callable[[Json], T], values: Iterable[Json]) -> tuple[T, ...]:
    """Convert each element of a list and report the problems of all of them together."""
    done: list[T] = []
    problems: list[Problem] = []
    for index, value in enumerate(values):
        try:
            done.append(convert(value))
        except ManifestError as error:
            problems.extend(error.within(f"[{index}]").problems)
    if problems:
        raise ManifestError(problems)
    return tuple(done)


def as_strings(value: Json) -> tuple[str, ...]:
    """Take a list of strings."""
    return collect(as_str, as_list(value))


def list_of(convert: Callable[[Json], T]) -> Callable[[Json], tuple[T, ...]]:
    """Make a converter of lists from a converter of elements."""
    return lambda value: collect(convert, as_list(value))


def load_json(text: str) -> Json:
    """Read the JSON text of an annotation.

    Raises
    ------
    ManifestError
        When the text is no JSON, is absurdly long or deep, or holds NaN or infinity.
    """
    if len(text) > _MAX_JSON:
        raise ManifestError.at("", f"JSON text of {len(text)} characters is too long")
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ManifestError.at("", f"not JSON: {error}") from None
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
