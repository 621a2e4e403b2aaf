"""Strict decoding of objects, as upstream decodes the arguments of plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from koordcore.errors import ManifestError
from koordcore.model.durations import format_duration
from koordcore.protocol.fields import Json, as_duration, as_int, as_mapping, at, show

Converter: TypeAlias = Callable[[Json], Any]


def as_number(value: Json) -> float | int:
    """Take a number as JSON has it; ``true`` is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ManifestError.at("", f"expected a number, got {show(value)}")
    return value


def as_duration_text(value: Json) -> str:
    """Take a length of time, and write it as Go does."""
    return format_duration(as_duration(value))


def as_share(value: Json) -> int | str:
    """Take a count, or a text that may be a share."""
    return value if isinstance(value, str) else as_int(value)


def number_or_text(value: Json) -> float | int | str:
    """Take a number, or a text that may be one."""
    return value if isinstance(value, str) else as_number(value)


def map_of(convert: Converter) -> Converter:
    """Make a converter that takes an object of values of one kind."""
    return lambda value: {name: at(f"[{name}]", convert, one) for name, one in as_mapping(value).items()}


def struct(fields: Mapping[str, Converter], kept: frozenset[str] = frozenset()) -> Converter:
    """Make a strict decoder; an empty value is left out unless its field is ``kept`` as a pointer is."""

    def decode(value: Json) -> dict[str, Any]:
        raw = as_mapping(value)
        unknown = sorted(set(raw) - set(fields))
        if unknown:
            raise ManifestError.at("", f"unknown field {show(unknown[0])}")
        decoded = {}
        for name, convert in fields.items():
            if raw.get(name) is None:
                continue
            made = at(name, convert, raw[name])
            if name in kept or made not in (False, 0, "", [], (), {}):
                decoded[name] = list(made) if isinstance(made, tuple) else made
        return decoded

    return decode
