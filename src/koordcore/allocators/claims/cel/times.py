"""Moments and spans of time; there is no function that reads a clock.

Reference: the CEL language definition, "Timestamp" and "Duration"; Go's ``time`` for their texts. Time zones
are UTC or a fixed offset: names of zones need a database, which a pure library does not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from koordcore.allocators.claims.cel.declarations import Library
from koordcore.allocators.claims.cel.errors import RunFailure
from koordcore.allocators.claims.cel.types import DURATION, INT, STRING, TIMESTAMP
from koordcore.allocators.claims.cel.values import INT64_MAX, Budget, DurationValue, TimestampValue

_SECOND: Final = 10**9
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - zones are added by hand
_FIRST: Final = -62135596800 * _SECOND
_LAST: Final = 253402300800 * _SECOND - 1
_UNITS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6,
    "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND,
}  # fmt: skip
_SPAN: Final = re.compile(
    r"(?P<whole>[0-9]{0,20})(?:\.(?P<part>[0-9]{0,20}))?(?P<unit>ns|us|µs|μs|ms|s|m|h)", re.ASCII
)
_MOMENT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,30}))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_ZONE: Final = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def declare_times(library: Library) -> None:
    """Add timestamps and durations."""
    library.function("timestamp", (STRING,), TIMESTAMP, _charged(parse_timestamp))
    library.function("timestamp", (TIMESTAMP,), TIMESTAMP, lambda _, moment: moment)
    library.function("timestamp", (INT,), TIMESTAMP, lambda _, seconds: _moment(seconds * _SECOND))
    library.function("duration", (STRING,), DURATION, _charged(parse_duration))
    library.function("duration", (DURATION,), DURATION, lambda _, span: span)
    library.function("duration", (INT,), DURATION, lambda _, nanos: DurationValue(nanos))
    library.function("string", (TIMESTAMP,), STRING, lambda _, moment: timestamp_text(moment))
    library.function("string", (DURATION,), STRING, lambda _, span: duration_text(span))
    library.function(
        "_+_", (TIMESTAMP, DURATION), TIMESTAMP, lambda _, one, two: _moment(one.nanos + two.nanos)
    )
    library.function(
        "_+_", (DURATION, TIMESTAMP), TIMESTAMP, lambda _, one, two: _moment(one.nanos + two.nanos)
    )
    library.function("_+_", (DURATION, DURATION), DURATION, lambda _, one, two: _span(one.nanos + two.nanos))
    library.function(
        "_-_", (TIMESTAMP, TIMESTAMP), DURATION, lambda _, one, two: _span(one.nanos - two.nanos)
    )
    library.function(
        "_-_", (TIMESTAMP, DURATION), TIMESTAMP, lambda _, one, two: _moment(one.nanos - two.nanos)
    )
    library.function("_-_", (DURATION, DURATION), DURATION, lambda _, one, two: _span(one.nanos - two.nanos))
    for name, part in _PARTS.items():
        library.method(name, (TIMESTAMP,), INT, _accessor(part))
        library.method(name, (TIMESTAMP, STRING), INT, _accessor(part))
    for name, unit in (("getHours", 3600 * _SECOND), ("getMinutes", 60 * _SECOND), ("getSeconds", _SECOND)):
        library.method(name, (DURATION,), INT, _in_units(unit))
    library.method("getMilliseconds", (DURATION,), INT, lambda _, span: _toward_zero(span.nanos, 10**6))


_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
    "getMilliseconds": lambda moment: moment.microsecond // 1000,
}


def _charged(parse: Callable[[str], Any]) -> Callable[[Budget, str], Any]:
    def run(budget: Budget, text: str) -> Any:
        budget.charge_text(len(text))
        return parse(text)

    return run


def _moment(nanos: int) -> TimestampValue:
    if not _FIRST <= nanos <= _LAST:
        raise RunFailure("timestamp overflow")
    return TimestampValue(nanos)


def _span(nanos: int) -> DurationValue:
    if abs(nanos) > INT64_MAX:
        raise RunFailure("duration overflow")
    return DurationValue(nanos)


def _toward_zero(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _in_units(unit: int) -> Callable[[Budget, DurationValue], int]:
    return lambda _, span: _toward_zero(span.nanos, unit)


def _accessor(part: Callable[[datetime], int]) -> Callable[..., int]:
    def run(_: Budget, moment: TimestampValue, zone: str = "UTC") -> int:
        micros = moment.nanos // 1000
        try:
            return part(_EPOCH + timedelta(microseconds=micros) + _offset(zone))
        except OverflowError:
            raise RunFailure("timestamp overflow") from None

    return run


def _offset(zone: str) -> timedelta:
    if zone in {"UTC", "", "Z"}:
        return timedelta()
    match = _ZONE.fullmatch(zone)
    if match is None or int(match[2]) > 23 or int(match[3]) > 59:
        raise RunFailure(f"unknown time zone {zone}: only UTC and offsets are known here")
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return -offset if match[1] == "-" else offset


def parse_timestamp(text: str) -> TimestampValue:
    """A moment in RFC 3339's form."""
    match = _MOMENT.fullmatch(text)
    day: datetime | None = None
    if match is not None:
        try:
            year, month, number, hour, minute, second = (int(match[place]) for place in range(1, 7))
            day = datetime(year, month, number, hour, minute, second)  # noqa: DTZ001
        except ValueError:
            pass
    if day is None or match is None or int(match[9] or 0) > 23 or int(match[10] or 0) > 59:
        raise RunFailure("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    seconds = round((day - _EPOCH).total_seconds())
    away = int(match[9] or 0) * 3600 + int(match[10] or 0) * 60
    seconds -= -away if match[8] == "-" else away
    return _moment(seconds * _SECOND + int((match[7] or "0").ljust(9, "0")[:9]))


def parse_duration(text: str) -> DurationValue:
    """A span such as ``1h30m`` or ``-1.5s``."""
    body = text[1:] if text[:1] in {"-", "+"} else text
    nanos, at = 0, 0
    while at < len(body) and (match := _SPAN.match(body, at)):
        whole, part = match["whole"], match["part"] or ""
        if not whole and not part:
            break
        unit = _UNITS[match["unit"]]
        nanos += int(whole or "0") * unit + int(part or "0") * unit // 10 ** len(part)
        at = match.end()
    if body != "0" and (not body or at < len(body) or nanos > INT64_MAX):
        raise RunFailure("type conversion error from 'string' to 'google.protobuf.Duration'")
    return DurationValue(-nanos if text.startswith("-") else nanos)


def timestamp_text(moment: TimestampValue) -> str:
    """RFC 3339 in UTC, fractions without zeros behind."""
    seconds, fraction = divmod(moment.nanos, _SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def duration_text(span: DurationValue) -> str:
    """Seconds, with as many places as needed."""
    seconds, fraction = divmod(abs(span.nanos), _SECOND)
    places = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{'-' if span.nanos < 0 else ''}{seconds}{places}s"
