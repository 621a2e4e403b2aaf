"""Moments and durations on the wire, as integers of nanoseconds.

A moment is counted from 1970-01-01T00:00:00Z. Nanoseconds are what upstream's clock has: a metric that is
one nanosecond older than its expiry is expired, and a ``datetime`` could not tell.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from koordcore.errors import ManifestError

__all__ = [
    "MINUTE",
    "SECOND",
    "format_duration",
    "format_timestamp",
    "moment_of",
    "parse_duration",
    "parse_timestamp",
]

SECOND: Final = 10**9
MINUTE: Final = 60 * SECOND
_HOUR: Final = 60 * MINUTE
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,18}))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))\Z",
    re.ASCII,
)
_UNITS: Final = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 10**6,
    "s": SECOND,
    "m": MINUTE,
    "h": _HOUR,
}
_DURATION: Final = re.compile(r"([0-9]{0,18})(?:\.([0-9]{0,18}))?(ns|us|µs|μs|ms|s|m|h)")


def moment_of(time: datetime) -> int:
    """Convert an aware datetime to nanoseconds since 1970.

    Raises
    ------
    ManifestError
        When the datetime does not say its time zone.
    """
    if time.tzinfo is None:
        raise ManifestError.at("", f"expected a time with its zone, got {time.isoformat()}")
    return (time - _EPOCH) // timedelta(microseconds=1) * 1000


def parse_timestamp(text: str) -> int:
    """Read an RFC 3339 time as nanoseconds since 1970; digits beyond nanoseconds are cut.

    Raises
    ------
    ManifestError
        When the text is no such time.

    Examples
    --------
    >>> parse_timestamp("1970-01-01T00:00:01.5Z"), parse_timestamp("1970-01-01T01:00:00+01:00")
    (1500000000, 0)
    """
    match = _TIMESTAMP.match(text)
    if match is None:
        raise ManifestError.at("", f'expected an RFC 3339 time, got "{text[:60]}"')
    *date, fraction, sign, hours, minutes = match.groups()
    try:
        whole = datetime(*map(int, date), tzinfo=UTC)  # type: ignore[misc, arg-type]  # six numbers
    except ValueError:
        raise ManifestError.at("", f'expected an RFC 3339 time, got "{text[:60]}": no such moment') from None
    shift = (int(hours) * 60 + int(minutes)) * MINUTE if sign else 0
    nanoseconds = int((fraction or "0")[:9].ljust(9, "0"))
    return (
        (whole - _EPOCH) // timedelta(seconds=1) * SECOND + nanoseconds + (shift if sign == "-" else -shift)
    )


def format_timestamp(moment: int) -> str:
    """Write nanoseconds since 1970 as an RFC 3339 time in UTC, with a fraction only where there is one.

    Examples
    --------
    >>> format_timestamp(1_500_000_000)
    '1970-01-01T00:00:01.5Z'
    """
    seconds, rest = divmod(moment, SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    return text + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"


def parse_duration(text: str) -> int:
    """Read a Go duration such as ``5m0s``, ``1h30m`` or ``1.5s`` as nanoseconds.

    Raises
    ------
    ManifestError
        When the text is no duration.

    Examples
    --------
    >>> parse_duration("5m0s") // 10**9, parse_duration("-1.5s")
    (300, -1500000000)
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    total, position = 0, 0
    if body == "0":
        return 0
    while position < len(body):
        match = _DURATION.match(body, position)
        if match is None or not (match[1] or match[2]):
            break
        unit, part = _UNITS[match[3]], match[2] or ""
        total += int(match[1] or "0") * unit + int(part or "0") * unit // 10 ** len(part)
        position = match.end()
    if not body or position < len(body):
        raise ManifestError.at("", f'expected a duration such as 5m0s, got "{text[:60]}"')
    return -total if text.startswith("-") else total


def format_duration(duration: int) -> str:
    """Write nanoseconds as Go prints a duration.

    Examples
    --------
    >>> [format_duration(value * 10**9) for value in (0, 90, 300, 3600)], format_duration(1_500_000)
    (['0s', '1m30s', '5m0s', '1h0m0s'], '1.5ms')
    """
    if duration == 0:
        return "0s"
    size, sign = abs(duration), "-" if duration < 0 else ""
    if size < SECOND:
        unit, suffix = next((u, s) for u, s in ((10**6, "ms"), (1000, "µs"), (1, "ns")) if size >= u)
        return f"{sign}{_decimal(size, unit)}{suffix}"
    hours, rest = divmod(size, _HOUR)
    minutes, rest = divmod(rest, MINUTE)
    text = f"{_decimal(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return sign + (f"{hours}h{text}" if hours else text)


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    return f"{whole}" + (f".{rest:0{len(str(unit)) - 1}d}".rstrip("0") if rest else "")
