"""Durations as Go writes them, in exact nanoseconds."""

from __future__ import annotations

import re
from typing import Final

from koordcore.errors import ManifestError

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

_UNITS: Final = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "μs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_PART: Final = re.compile(r"(?:(\d+)(?:\.(\d*))?|\.(\d+))(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LARGEST: Final = 2**63 - 1
_LONGEST: Final = 1000
"""Characters; nobody writes as many, and Python refuses to convert thousands of digits."""


def parse_duration(text: str) -> int:
    """Read a duration such as ``1h30m``, ``1.5h``, ``-20s`` or ``0``.

    Returns
    -------
    int
        Nanoseconds; what is finer is cut off, as Go does.

    Raises
    ------
    ManifestError
        When the text is no duration, has no unit, or leaves 64 bits.
    """
    if len(text) > _LONGEST:
        raise ManifestError.at("", f'"{text[:60]}…" is too long for a duration')
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total, position = 0, 0
    while match := _PART.match(body, position):
        whole, fraction, bare, unit = match.groups()
        digits = fraction or bare or ""
        scale = _UNITS[unit]
        total += int(whole or "0") * scale + (int(digits) * scale // 10 ** len(digits) if digits else 0)
        position = match.end()
    if not body or position != len(body):
        raise ManifestError.at("", f'expected a duration such as "30s", got "{text}"')
    if total > _LARGEST:
        raise ManifestError.at("", f'"{text}" is too long for a duration')
    return -total if text.startswith("-") else total


def format_duration(nanoseconds: int) -> str:
    """Write a duration as Go's ``time.Duration`` prints it, such as ``10m0s`` or ``1.5s``."""
    if nanoseconds == 0:
        return "0s"
    sign, rest = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if rest < SECOND:
        for unit, scale in (("ms", MILLISECOND), ("µs", MICROSECOND), ("ns", 1)):
            if rest >= scale:
                return f"{sign}{_decimal(rest, scale)}{unit}"
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(rest, SECOND)}s"


def _decimal(amount: int, scale: int) -> str:
    whole, fraction = divmod(amount, scale)
    digits = f"{fraction:0{len(str(scale)) - 1}d}".rstrip("0") if fraction else ""
    return f"{whole}.{digits}" if digits else str(whole)
