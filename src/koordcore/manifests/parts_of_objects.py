"""Reading of nested objects whose errors name the whole path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from koordcore.errors import join_path
from koordcore.protocol.fields import Json, as_list, as_mapping, at, optional_in, required

T = TypeVar("T")


class Part(dict[str, Json]):
    """A part of an object that knows where it stands."""

    def __init__(self, raw: Mapping[str, Json], place: str) -> None:
        super().__init__(raw)
        self.place = place


def place_in(raw: Mapping[str, Json], name: str = "") -> str:
    """Tell where an object stands, or a field of it."""
    return join_path(raw.place if isinstance(raw, Part) else "", name)


def taken(raw: Mapping[str, Json], name: str, convert: Callable[[Json], T], default: T) -> T:
    """Read a field of an object; the default where it is not there."""
    return optional_in(place_in(raw), raw, name, convert, default)


def needed(raw: Mapping[str, Json], name: str, convert: Callable[[Json], T]) -> T:
    """Read a field of an object, which must be there."""
    return at(place_in(raw), lambda _: required(raw, name, convert), raw)


def inner(raw: Mapping[str, Json], name: str) -> Part:
    """Give an object in an object, which must be there."""
    return Part(needed(raw, name, as_mapping), place_in(raw, name))


def maybe(raw: Mapping[str, Json], name: str) -> Part:
    """Give an object in an object; an empty one where nothing is there."""
    return Part(at(place_in(raw, name), as_mapping, raw.get(name) or {}), place_in(raw, name))


def entries(raw: Mapping[str, Json], name: str) -> list[Part]:
    """Give the objects in a list of an object; none where it has no such list."""
    listed = at(place_in(raw, name), as_list, raw.get(name) or [])
    places = [f"{place_in(raw, name)}[{number}]" for number in range(len(listed))]
    return [Part(at(place, as_mapping, one), place) for place, one in zip(places, listed, strict=True)]
