"""How long pods are expected to run: annotations of this library's own, which no controller writes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.durations import parse_duration
from koordcore.model.pods import Pod
from koordcore.protocol.times import moment_of, parse_timestamp

EXPECTED_END: Final = "koordcore.io/expected-end"
"""RFC 3339 time at which a running pod will be gone."""
EXPECTED_DURATION: Final = "koordcore.io/expected-duration"
"""How long a pod runs from its start, as Go writes durations: ``1h30m``."""


def expected_duration(pod: Pod) -> timedelta | None:
    """Give how long a pod says it will run; ``None`` where it does not say.

    Raises
    ------
    ManifestError
        When the annotation is no duration.
    """
    text = pod.annotations.get(EXPECTED_DURATION)
    if text is None:
        return None
    try:
        return timedelta(microseconds=-(-parse_duration(text) // 1000))
    except (ManifestError, OverflowError) as error:
        raise _at(EXPECTED_DURATION, error) from None


def expected_end(pod: Pod) -> datetime | None:
    """Give when a running pod will be gone: as written, or its start and its duration.

    Raises
    ------
    ManifestError
        When an annotation cannot be read.
    """
    text = pod.annotations.get(EXPECTED_END)
    if text is not None:
        try:
            epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
            return epoch + timedelta(microseconds=-(-parse_timestamp(text) // 1000))
        except (ManifestError, OverflowError) as error:
            raise _at(EXPECTED_END, error) from None
    duration = expected_duration(pod)
    started = pod.started or pod.scheduled
    if duration is None or started is None:
        return None
    moment_of(started)  # refuses a time without its zone
    return started + duration


def _at(key: str, error: Exception) -> ManifestError:
    if isinstance(error, ManifestError):
        return error.within(f"metadata.annotations[{key}]")
    return ManifestError.at(f"metadata.annotations[{key}]", "beyond all calendars")
