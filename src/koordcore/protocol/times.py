"""Moments on the wire, as integers of nanoseconds.

A moment is counted from 1970-01-01T00:00:00Z. Nanoseconds are what upstream's clock has: a metric that is
one nanosecond older than its expiry is expired, and a ``datetime`` could not tell.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.durations import SECOND

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,18}))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))\Z",
    re.ASCII,
)


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


def format_time(time: datetime) -> str:
    """Write an aware datetime as Kubernetes does (:func:`format_timestamp`).

    Raises
    ------
    ManifestError
        When the datetime does not say its time zone.
    """
    return format_timestamp(moment_of(time))


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
        if sign:
            shift = timedelta(hours=int(hours), minutes=int(minutes))
            whole += shift if sign == "-" else -shift
    except (ValueError, OverflowError):
        raise ManifestError.at("", f'expected an RFC 3339 time, got "{text[:60]}": no such moment') from None
    nanoseconds = int((fraction or "0")[:9].ljust(9, "0"))
    return (whole - _EPOCH) // timedelta(seconds=1) * SECOND + nanoseconds


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
