"""How long pods are expected to run: annotations of this library's own, and deadlines of pods and Jobs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.cluster import Workload
from koordcore.model.durations import parse_duration
from koordcore.model.pods import Pod
from koordcore.protocol.times import moment_of, parse_timestamp

EXPECTED_END: Final = "koordcore.io/expected-end"
"""RFC 3339 time at which a running pod will be gone."""
EXPECTED_DURATION: Final = "koordcore.io/expected-duration"
"""How long a pod runs from its start, as Go writes durations: ``1h30m``."""
_LONGEST: Final = 2**31
"""Seconds; the API server takes no longer deadline."""


def expected_duration(pod: Pod, job: Workload | None = None) -> timedelta | None:
    """Give how long a pod will run at most, by what it says and by its deadlines; ``None`` for ever.

    Parameters
    ----------
    job
        The Job that it belongs to, where it does.

    Raises
    ------
    ManifestError
        When the annotation is no duration.
    """
    deadlines = (pod.active_deadline, None if job is None else job.active_deadline)
    known = [_own_duration(pod), *(_seconds(one) for one in deadlines)]
    return min((one for one in known if one is not None), default=None)


def expected_end(pod: Pod, job: Workload | None = None, now: datetime | None = None) -> datetime | None:
    """Give when a running pod will be gone: as it says, and at the latest at its deadline or that of its Job.

    Parameters
    ----------
    job
        The Job that it belongs to, where it does.
    now
        When it starts, where it has not started; ``None``: nobody knows.

    Raises
    ------
    ManifestError
        When an annotation cannot be read.
    """
    started = pod.started or pod.scheduled or now
    text = pod.annotations.get(EXPECTED_END)
    expected = end_after(started, _own_duration(pod)) if text is None else parse_end_expected(text)
    own = end_after(started, _seconds(pod.active_deadline))
    whole = None if job is None else end_after(job.started, _seconds(job.active_deadline))
    return min((one for one in (expected, own, whole) if one is not None), default=None)


def end_after(started: datetime | None, duration: timedelta | None) -> datetime | None:
    """Give when something ends that lasts for a time; ``None`` for never, also where no calendar has the end.

    Parameters
    ----------
    started
        When it starts; ``None``: nobody knows.
    duration
        How long it lasts; ``None`` for ever.
    """
    if started is None or duration is None:
        return None
    moment_of(started)  # refuses a time without its zone
    try:
        return started + duration
    except OverflowError:
        return None


def parse_duration_expected(text: str) -> timedelta:
    """Read the annotation of a duration.

    Raises
    ------
    ManifestError
        When it is none.
    """
    try:
        return timedelta(microseconds=-(-parse_duration(text) // 1000))
    except (ManifestError, OverflowError) as error:
        raise _at(EXPECTED_DURATION, error) from None


def parse_end_expected(text: str) -> datetime:
    """Read the annotation of an end.

    Raises
    ------
    ManifestError
        When it is no time.
    """
    try:
        epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        return epoch + timedelta(microseconds=-(-parse_timestamp(text) // 1000))
    except (ManifestError, OverflowError) as error:
        raise _at(EXPECTED_END, error) from None


def _own_duration(pod: Pod) -> timedelta | None:
    text = pod.annotations.get(EXPECTED_DURATION)
    return None if text is None else parse_duration_expected(text)


def _seconds(deadline: int | None) -> timedelta | None:
    """Give a deadline as a duration; one beyond all calendars is none."""
    return None if deadline is None or deadline > _LONGEST else timedelta(seconds=max(0, deadline))


def _at(key: str, error: Exception) -> ManifestError:
    if isinstance(error, ManifestError):
        return error.within(f"metadata.annotations[{key}]")
    return ManifestError.at(f"metadata.annotations[{key}]", "beyond all calendars")
