"""Frozen mappings for the fields of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from immutabledict import immutabledict

__all__ = ["EMPTY", "frozen"]

EMPTY: Final[immutabledict[Any, Any]] = immutabledict()


def frozen(mapping: Mapping[str, Any]) -> immutabledict[str, Any]:
    """Freeze a mapping; one that is frozen already is taken as it is."""
    if type(mapping) is immutabledict:
        return mapping
    return immutabledict(mapping) if mapping else EMPTY
