"""Arguments and annotations of load-aware scheduling."""

from __future__ import annotations

from typing import Any

import pytest
from immutabledict import immutabledict

from koordcore.errors import ManifestError, ModelError
from koordcore.model.load import LoadAwareArgs, LoadThresholds
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.protocol.load import (
    ANNOTATION_SCALING_FACTORS,
    ANNOTATION_SECONDS_AFTER_SCHEDULED,
    ANNOTATION_USAGE_THRESHOLDS,
    custom_scaling_factors,
    custom_seconds,
    node_thresholds,
    parse_load_aware_args,
    raw_capacity,
)


def test_defaults() -> None:
    args = parse_load_aware_args({})
    assert args == LoadAwareArgs()
    assert args.resource_weights == {"cpu": 1, "memory": 1}
    assert args.usage_thresholds == {"cpu": 65, "memory": 95}
    assert args.estimated_scaling_factors == {"cpu": 85, "memory": 70}
    assert args.columns == ("cpu", "memory")


def test_weights_stay_empty_beside_a_dominant_weight() -> None:
    assert LoadAwareArgs(dominant_resource_weight=5).resource_weights == {}


EXPIRY = "nodeMetricExpiredSeconds: Invalid value: 0: nodeMetricExpiredSeconds should be a positive value"
DOMINANT = "dominantResourceWeight: Invalid value: -1: dominantResourceWeight should not be a negative value"
THRESHOLD = "resource Threshold of cpu should be a positive value, got -1"
DURATION = "aggregated.usageAggregatedDuration: Invalid value: -1s: duration must be >= 0"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"nodeMetricExpirationSeconds": 0, "dominantResourceWeight": -1}, f"[{EXPIRY}, {DOMINANT}]"),
        ({"usageThresholds": {"cpu": -1}}, f'usageThresholds: Invalid value: {{"cpu":-1}}: {THRESHOLD}'),
        ({"aggregated": {"usageAggregatedDuration": "-1s"}}, DURATION),
    ],
)
def test_validation_speaks_upstreams_words(raw: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_load_aware_args(raw)
    assert str(caught.value) == text


def test_a_wrong_type_is_an_error_with_its_path() -> None:
    with pytest.raises(ManifestError, match=r"usageThresholds\.cpu: expected int"):
        parse_load_aware_args({"usageThresholds": {"cpu": "65"}})


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ('{"USAGETHRESHOLDS": {"cpu": 10}}', {"cpu": 10}),
        ('{"usageThresholds": {"cpu": null}}', {"cpu": 0}),
        ('{"usageThresholds": {}}', {"cpu": 65}),
        ("[]", {"cpu": 65}),
        ("{", {"cpu": 65}),
        (None, {"cpu": 65}),
    ],
)
def test_a_node_may_set_its_own_thresholds(text: str | None, usage: dict[str, int]) -> None:
    node = Node(name="n", annotations={} if text is None else {ANNOTATION_USAGE_THRESHOLDS: text})
    assert node_thresholds(node, LoadThresholds(usage=immutabledict({"cpu": 65}))).usage == usage


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("+30", 30), ("0", 0), ("-1", None), ("x", None), ("1" * 19, int("1" * 19))],
)
def test_seconds_of_a_pod(text: str, seconds: int | None) -> None:
    pod = Pod(name="p", annotations={ANNOTATION_SECONDS_AFTER_SCHEDULED: text})
    assert custom_seconds(pod, ANNOTATION_SECONDS_AFTER_SCHEDULED) == seconds


@pytest.mark.parametrize(("text", "factors"), [('{"cpu": 110}', {"cpu": 110}), ("x", {}), ("null", {})])
def test_factors_of_a_pod(text: str, factors: dict[str, int]) -> None:
    assert custom_scaling_factors(Pod(name="p", annotations={ANNOTATION_SCALING_FACTORS: text})) == factors


def test_raw_allocatable_overlays_single_names() -> None:
    node = Node(
        name="n",
        allocatable={"cpu": 64000, "memory": 5},
        annotations={"node.koordinator.sh/raw-allocatable": '{"cpu": "32"}'},
    )
    assert raw_capacity(node) == {"cpu": 32000, "memory": 5}
