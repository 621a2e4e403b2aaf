"""What of an object is looked at while it is read: the rest of it has no effect, and can be named."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from koordcore.protocol.fields import Json


class Traced(dict[str, Any]):
    """An object that remembers which of its fields somebody took; the objects in it do so, too.

    Going over the names alone takes nothing.
    """

    def __init__(self, raw: Mapping[str, Json]) -> None:
        super().__init__({key: _traced(value) for key, value in raw.items()})
        self.taken: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.taken.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Take a field, or the default where it is absent."""
        self.taken.add(key)
        return super().get(key, default)

    # Overridden so that copies of the whole, too, go over the fields one by one; the views are those of any
    # mapping, which dict's own are more than.
    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # a plain view
        """Give the names; nothing is taken."""
        return KeysView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # a plain view
        """Take all fields as they are gone over."""
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # a plain view
        """Take all fields as they are gone over."""
        return ValuesView(self)


class TopTraced(Traced):
    """An object that remembers which of its own fields somebody took; what is in them comes as it is."""

    def __init__(self, raw: Mapping[str, Json]) -> None:
        dict.__init__(self, raw)
        self.taken = set()


def _traced(value: Json) -> Json:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return Traced(value)
    return [_traced(one) for one in value] if isinstance(value, list | tuple) else value


def unread(value: Json, path: str = "") -> Iterator[str]:
    """Give the paths of fields that nobody took, the outermost of each."""
    if isinstance(value, Traced):
        for key in value:
            place = f"{path}.{key}" if path else key
            if key in value.taken:
                yield from unread(dict.__getitem__(value, key), place)
            else:
                yield place
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from unread(one, f"{path}[{index}]")
