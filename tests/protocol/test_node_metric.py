"""NodeMetrics as nodes really send them."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.model.durations import MINUTE, SECOND
from koordcore.model.metrics import NOTHING_MEASURED
from koordcore.protocol.node_metric import parse_node_metric


def metric(status: Any, spec: Any = None) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "spec": spec, "status": status}


def test_nulls_are_empty_values() -> None:
    body = {"nodeUsage": None, "aggregatedNodeUsages": [None, {"duration": "5m", "usage": {"p95": None}}]}
    read = parse_node_metric(metric({"nodeMetric": body, "podsMetric": [None, {"podUsage": None}]}))
    assert read.node_usage == NOTHING_MEASURED
    assert [one.duration for one in read.aggregated_node_usages] == [0, 5 * MINUTE]
    assert [one.usage for one in read.pods] == [NOTHING_MEASURED]


@pytest.mark.parametrize("status", [None, {}, {"nodeMetric": None, "updateTime": None, "podsMetric": None}])
def test_a_metric_without_body_has_no_usage(status: Any) -> None:
    read = parse_node_metric(metric(status))
    assert (read.node_usage, read.update_time, read.report_interval) == (None, None, None)


def test_the_interval_is_read_in_seconds() -> None:
    assert parse_node_metric(
        metric({}, {"metricCollectPolicy": {"reportIntervalSeconds": 30}})
    ).report_interval == (30 * SECOND)


def test_what_cannot_be_read_is_named() -> None:
    with pytest.raises(
        ManifestError, match=r"status\.nodeMetric\.nodeUsage\.resources\[cpu\]: expected a quantity"
    ):
        parse_node_metric(metric({"nodeMetric": {"nodeUsage": {"resources": {"cpu": "many"}}}}))
