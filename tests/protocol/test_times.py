"""Moments, durations and measured amounts."""

from __future__ import annotations

import pytest

from koordcore.errors import ManifestError
from koordcore.model.durations import format_duration, parse_duration
from koordcore.model.metrics import NOTHING_MEASURED, measured_of, rounded
from koordcore.model.quantity import format_exact_quantity, parse_exact_quantity, parse_quantity
from koordcore.protocol.node_metric import parse_node_metric
from koordcore.protocol.times import format_timestamp, parse_timestamp


@pytest.mark.parametrize(
    "text", ["2026-03-01T11:59:30Z", "2026-03-01T11:59:30.000000001Z", "0001-01-01T00:00:00Z"]
)
def test_timestamps_come_back(text: str) -> None:
    assert format_timestamp(parse_timestamp(text)) == text


def test_zones_are_subtracted() -> None:
    assert parse_timestamp("2026-03-01T12:00:00+02:30") == parse_timestamp("2026-03-01T09:30:00Z")


@pytest.mark.parametrize("text", ["2026-03-01", "2026-13-01T00:00:00Z", "2026-03-01T00:00:00", ""])
def test_other_texts_are_no_time(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_timestamp(text)


@pytest.mark.parametrize("text", ["0s", "1ns", "1.5µs", "300ms", "1.5s", "5m0s", "24h0m0.25s", "-1m30s"])
def test_durations_come_back(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize("text", ["", "5", "m", "5 m", "1h-3m", "."])
def test_other_texts_are_no_duration(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1", "1500m", "17u", "758090681n", "120G", "0", "-250m"])
def test_exact_quantities_come_back(text: str) -> None:
    assert format_exact_quantity(parse_exact_quantity(text)) == text


def test_exact_quantities_hold_what_int64_units_hold() -> None:
    assert parse_exact_quantity("2Ti") == 2**41 * 10**9
    assert parse_exact_quantity("1E") == 10**27
    assert parse_quantity("9E", scale=1000) == 2**63 - 1  # type: ignore[arg-type]  # the plain number of MILLI


def test_rounding_is_away_from_zero_and_undone_by_nothing() -> None:
    assert dict(rounded({"cpu": 1, "memory": -1})) == {"cpu": 1, "memory": -1}
    assert dict(rounded(measured_of({"cpu": 7, "memory": 9}))) == {"cpu": 7, "memory": 9}


def test_node_metric_names_the_place_of_a_fault() -> None:
    bad = {"status": {"podsMetric": [{"podUsage": {"resources": {"cpu": "x"}}}]}}
    with pytest.raises(ManifestError, match=r"status\.podsMetric\[0\]\.podUsage\.resources\[cpu\]"):
        parse_node_metric(bad)


def test_node_metric_tells_no_body_from_an_empty_one() -> None:
    assert parse_node_metric({"status": {"updateTime": "2026-03-01T11:59:30Z"}}).node_usage is None
    assert parse_node_metric({"status": {"nodeMetric": {}}}).node_usage == NOTHING_MEASURED
