"""Strategies: loading, overlaying, admitting."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.colocation.config import (
    Admitted,
    ConfigState,
    Refusal,
    RefusalReason,
    admit_config,
    effective_strategy,
    is_disabled,
    is_node_strategy_valid,
)
from koordcore.errors import ManifestError
from koordcore.model.colocation import (
    DEFAULT_STRATEGY,
    ColocationStrategy,
    NodeStrategy,
    RawRequirement,
    RawSelector,
    overlay,
)
from koordcore.protocol.colocation import parse_config, parse_strategy
from koordcore.protocol.raw_selectors import selector_of
from koordcore.protocol.reserved_on_node import cpuset_size
from tests.reference.colocation_objects import format_config

STRATEGY = "node.koordinator.sh/colocation-strategy"


def test_nothing_is_available_until_something_was_read() -> None:
    assert not ConfigState().after("{").available
    assert ConfigState().after("").available
    assert ConfigState.missing().error


def test_a_bad_text_keeps_what_was_there() -> None:
    good = ConfigState().after('{"enable":true,"degradeTimeMinutes":7}')
    bad = good.after('{"degradeTimeMinutes":0}')
    assert bad.config == good.config
    assert (bad.available, bad.error) == (True, True)


def test_the_text_null_means_the_defaults() -> None:
    assert ConfigState().after("null").config.strategy == DEFAULT_STRATEGY


def test_an_invalid_exception_becomes_the_cluster_strategy() -> None:
    text = '{"degradeTimeMinutes":7,"nodeConfigs":[{"name":"x","degradeTimeMinutes":0}]}'
    config = ConfigState().after(text).config
    assert config.node_strategies[0].strategy == config.strategy


def test_what_is_written_is_read_again() -> None:
    text = (
        '{"enable":true,"metricAggregatePolicy":{"durations":["1m30s"]},"extensions":{"a":{"b":1}},'
        '"nodeConfigs":[{"name":"x","nodeSelector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}]}'
    )
    config = parse_config(json.loads(text))
    assert parse_config(json.loads(json.dumps(format_config(config)))) == config


def test_label_beats_annotation_beats_exception_beats_cluster() -> None:
    config = (
        ConfigState()
        .after(
            '{"enable":true,"cpuReclaimThresholdPercent":50,"nodeConfigs":[{"cpuReclaimThresholdPercent":51,'
            '"memoryReclaimThresholdPercent":52,"nodeSelector":{"matchLabels":{"a":"b"}}}]}',
        )
        .config
    )
    labels = {"a": "b"}
    notes = {STRATEGY: '{"cpuReclaimThresholdPercent":53}'}

    def percents(labels: dict[str, str], notes: dict[str, str]) -> tuple[int | None, int | None]:
        found = effective_strategy(config, labels, notes)
        return found.cpu_reclaim_threshold_percent, found.memory_reclaim_threshold_percent

    assert percents({}, {}) == (50, 65)
    assert percents(labels, {}) == (51, 52)
    assert percents(labels, notes) == (53, 52)
    ratio = {"node.koordinator.sh/cpu-reclaim-ratio": "0.29"}
    assert percents(labels | ratio, notes) == (28, 52)


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "1e307", "1e17", "", "x", "-1", "0x", "1__0"])
def test_ratio_labels_that_are_no_ratio_are_passed_over(text: str) -> None:
    config = ConfigState().after("{}").config
    labels = {"node.koordinator.sh/cpu-reclaim-ratio": text}
    assert effective_strategy(config, labels, {}).cpu_reclaim_threshold_percent == 60


def test_a_cluster_that_is_off_stays_off() -> None:
    config = ConfigState().after('{"enable":false}').config
    assert is_disabled(config, effective_strategy(config, {}, {STRATEGY: '{"enable":true}'}))


def test_extensions_are_merged_by_name() -> None:
    merged = overlay(
        parse_strategy({"extensions": {"a": 1, "b": 2}}), parse_strategy({"extensions": {"b": 3}})
    )
    assert dict(merged.extensions or {}) == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    "raw",
    [
        {"degradeTimeMinutes": 7.5},
        {"enable": 1},
        {"extensions": []},
        {"degradeTimeMinutes": 2**63},
        {"resourceDiffThreshold": 10**400},
        [],
    ],
)
def test_fields_of_another_type_are_refused(raw: Any) -> None:
    with pytest.raises(ManifestError):
        parse_strategy(raw)


def test_a_node_strategy_must_say_something_about_some_labels() -> None:
    labels = RawSelector(match_labels={"a": "b"})
    assert is_node_strategy_valid(NodeStrategy(ColocationStrategy(enable=True), selector=labels))
    assert not is_node_strategy_valid(NodeStrategy(selector=labels))
    assert not is_node_strategy_valid(NodeStrategy(ColocationStrategy(enable=True)))
    assert not is_node_strategy_valid(None)


@pytest.mark.parametrize(
    "requirement",
    [
        RawRequirement("a", "In"),
        RawRequirement("a", "Exists", ("b",)),
        RawRequirement("a", "Like", ("b",)),
        RawRequirement("a b", "Exists"),
        RawRequirement("", "Exists"),
        RawRequirement("A_.com/x", "Exists"),
        RawRequirement("a", "In", ("b c",)),
    ],
)
def test_selectors_that_cannot_be_evaluated(requirement: RawRequirement) -> None:
    with pytest.raises(ManifestError):
        selector_of(RawSelector(match_expressions=(requirement,)))


def configs(*selectors: dict[str, Any]) -> str:
    entries = [{"name": f"c{i}", "nodeSelector": one} for i, one in enumerate(selectors)]
    return json.dumps({"nodeConfigs": entries})


A_IN = {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}
A_NOT_1 = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}
A_NOT_2 = {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["2"]}]}
A_EXISTS = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
A_ABSENT = {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (A_IN, A_NOT_1),
        (A_NOT_1, A_NOT_2),
        (A_EXISTS, A_NOT_1),
        (A_EXISTS, A_EXISTS),
        (A_ABSENT, A_NOT_1),
        (A_EXISTS, A_IN),
    ],
)
def test_selectors_that_can_meet_are_refused(first: dict[str, Any], second: dict[str, Any]) -> None:
    for text in (configs(first, second), configs(second, first)):
        verdict = admit_config(text)
        assert isinstance(verdict, Refusal)
        assert verdict.reason is RefusalReason.OVERLAP
        assert verdict.strategies == ("c0", "c1")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (A_EXISTS, A_ABSENT),
        ({"matchLabels": {"a": "1"}}, A_NOT_1),
        ({"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}}),
    ],
)
def test_selectors_that_cannot_meet_or_only_on_a_node_of_both_are_admitted(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    assert admit_config(configs(first, second)) == Admitted()


def test_a_node_that_two_selectors_name_is_shown_by_name() -> None:
    text = configs({"matchLabels": {"a": "1"}}, {"matchLabels": {"b": "1"}})
    nodes = [("n2", {"a": "1", "b": "1"}), ("n1", {"a": "1", "b": "1"}), ("n0", {"a": "1"})]
    verdict = admit_config(text, nodes=nodes)
    assert isinstance(verdict, Refusal)
    assert (verdict.reason, verdict.example_nodes) == (RefusalReason.NODE, ("n1",))


def test_every_field_out_of_range_is_named() -> None:
    verdict = admit_config('{"degradeTimeMinutes":0,"nodeConfigs":[]}')
    assert isinstance(verdict, Refusal)
    assert verdict.fields == (
        ("ColocationCfg.ColocationStrategy.DegradeTimeMinutes", "DegradeTimeMinutes must be 1 or greater"),
    )


@pytest.mark.parametrize("text", ["3-1", "a", "1,", "-1", "1-", "99999999999"])
def test_cpu_lists_that_are_none(text: str) -> None:
    with pytest.raises(ManifestError):
        cpuset_size(text)


def test_a_huge_cpu_range_is_counted_not_listed() -> None:
    assert cpuset_size("0-999999999") == 10**9
