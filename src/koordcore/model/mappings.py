"""Frozen mappings for the fields of records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from immutabledict import immutabledict

EMPTY: Final[immutabledict[Any, Any]] = immutabledict()


def found_in(mapping: Mapping[str, str], key: str) -> str | None:
    """Give what a mapping has under a key that is mostly missing.

    Asking a frozen one by ``get`` raises and catches an exception inside, which takes five times as long.
    """
    return mapping[key] if key in mapping else None  # noqa: SIM401  # see above


def frozen(mapping: Mapping[str, Any]) -> immutabledict[str, Any]:
    """Freeze a mapping; one that is frozen already is taken as it is."""
    if type(mapping) is immutabledict:
        return mapping
    try:
        return immutabledict(mapping) if mapping else EMPTY
    except (TypeError, ValueError):
        return mapping  # type: ignore[return-value]  # the record's own check names the field


@lru_cache(maxsize=16_384)
def _shared(items: tuple[tuple[str, str], ...]) -> immutabledict[str, str]:
    return immutabledict(items)


def shared_texts(mapping: Mapping[str, str]) -> immutabledict[str, str]:
    """Freeze a small mapping of texts as :func:`frozen_texts` does; equal ones become one object."""
    made = frozen_texts(mapping)
    return _shared(tuple(made.items())) if type(made) is immutabledict else made


def frozen_texts(mapping: Mapping[str, str]) -> immutabledict[str, str]:
    """Freeze a mapping of texts; one that holds anything else stays as it is: the record names the field."""
    made: immutabledict[Any, Any] = frozen(mapping)
    if made is not mapping and type(made) is immutabledict:
        for key, value in made.items():
            if not (isinstance(key, str) and isinstance(value, str)):
                return dict(mapping)  # type: ignore[return-value]  # it is wrong
    return made
