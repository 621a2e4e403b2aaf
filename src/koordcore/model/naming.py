"""How people order names."""

from __future__ import annotations

import re
from typing import Final

_DIGITS: Final = re.compile(r"([0-9]+)")


def natural_key(name: str) -> tuple[tuple[int | str, ...], str]:
    """Order names as people do: ``w-2`` before ``w-10``; equal readings fall back to the plain text."""
    parts: list[int | str] = [
        int(part) if position % 2 else part for position, part in enumerate(_DIGITS.split(name))
    ]
    return tuple(parts), name
