"""Ratios, and what is written to nodes and NUMA zones."""

from __future__ import annotations

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.colocation.batch import Failed
from koordcore.colocation.config import completed_config
from koordcore.colocation.normalization import (
    amplification_changed,
    amplification_ratios,
    amplify_node,
    as_reported,
    normalization_changed,
    normalization_ratio,
)
from koordcore.colocation.sync import (
    NodeResource,
    NodeStatus,
    amplified_batch_cpu,
    is_different,
    needs_status_sync,
    prepare_node,
    run_cycle,
)
from koordcore.colocation.zones import ZoneResource, ZoneStatus, update_zones
from koordcore.errors import ManifestError
from koordcore.model.colocation import NO_STRATEGY, ColocationConfig, ColocationStrategy, NodeLoad
from koordcore.model.durations import SECOND
from koordcore.model.metrics import NodeMetric, measured_of
from koordcore.protocol.normalization import (
    AmplificationConfig,
    NormalizationConfig,
    format_amplification,
    parse_amplification_config,
    parse_normalization_config,
)

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
RAW = "node.koordinator.sh/raw-allocatable"
INFO = {"node.koordinator.sh/cpu-basic-info": '{"cpuModel":"X","turboEnabled":true}'}
NOW = 1_800_000_000 * SECOND


def models(**fields: object) -> NormalizationConfig:
    return parse_normalization_config({"enable": True, "ratioModel": {"X": fields}})


def test_the_setting_of_the_cpu_picks_the_ratio() -> None:
    assert normalization_ratio(models(baseRatio=1.5, turboEnabledRatio=1.65), {}, INFO) == 1.65


@pytest.mark.parametrize(
    ("config", "topology"),
    [
        (None, INFO),
        (models(baseRatio=1.5), INFO),
        (models(turboEnabledRatio=5.01), INFO),
        (models(turboEnabledRatio=1.5), None),
        (models(turboEnabledRatio=1.5), {}),
        (models(turboEnabledRatio=1.5), {"node.koordinator.sh/cpu-basic-info": "{"}),
    ],
)
def test_a_ratio_that_cannot_be_told_is_a_failure(
    config: NormalizationConfig | None, topology: dict[str, str] | None
) -> None:
    assert isinstance(normalization_ratio(config, {}, topology), Failed)


def test_a_label_overrides_the_switch() -> None:
    label = "node.koordinator.sh/cpu-normalization-enabled"
    config = models(turboEnabledRatio=1.5)
    assert normalization_ratio(config, {label: "false"}, INFO) == 1.0
    assert isinstance(normalization_ratio(config, {label: "yes"}, INFO), Failed)
    assert normalization_ratio(NormalizationConfig(), {label: "1"}, INFO) != 1.5


def test_ratios_of_configuration_and_normalization_multiply() -> None:
    config = parse_amplification_config({"enable": True, "resourceAmplificationRatio": {"cpu": 0.8}})
    ratios = amplification_ratios(config, "n", {}, {RATIO: "1.5"})
    assert not isinstance(ratios, Failed)
    assert format_amplification(ratios) == '{"cpu":1.20}'
    assert isinstance(amplification_ratios(config, "n", {}, {}), Failed)
    assert isinstance(amplification_ratios(config, "n", {}, {RATIO: "x"}), Failed)
    assert not amplification_ratios(AmplificationConfig(), "n", {}, {})


def test_the_webhook_amplifies_once_and_follows_the_kubelet() -> None:
    notes = {AMPLIFICATION: '{"cpu":1.5}'}
    first = amplify_node(measured_of({"cpu": 10_000, "memory": 100}), notes)
    assert first.allocatable is not None
    assert first.allocatable["cpu"] == 15 * 10**9
    again = amplify_node(first.allocatable, first.annotations, before=first.allocatable)
    assert again == first
    smaller = amplify_node(measured_of({"cpu": 8000}), first.annotations, before=first.allocatable)
    assert smaller.allocatable is not None
    assert smaller.allocatable["cpu"] == 12 * 10**9
    assert RAW not in amplify_node(first.allocatable, {RAW: "{}"}).annotations


def test_what_the_webhook_cannot_read_is_a_problem_with_its_place() -> None:
    broken = amplify_node(measured_of({"cpu": 1000}), {AMPLIFICATION: "{"})
    assert AMPLIFICATION in broken.problem
    assert RAW in broken.annotations


@pytest.mark.parametrize("amount", ["-1", "1e18"])
def test_saved_amounts_that_no_node_offers_are_a_problem(amount: str) -> None:
    own = measured_of({"cpu": 10_000, "memory": 2**30})
    notes = {AMPLIFICATION: '{"cpu":2}', RAW: f'{{"memory":"{amount}"}}'}
    broken = amplify_node(own, notes)
    assert f"[{RAW}][memory]: no node offers such an amount" in broken.problem
    assert broken.allocatable == as_reported(own, notes) == own


@pytest.mark.parametrize("ratio", ["1e308", "1e999", "1e15", "1" + "0" * 400])
def test_a_ratio_beyond_what_can_be_counted_is_a_problem_with_its_place(ratio: str) -> None:
    own = measured_of({"cpu": 10_000, "memory": 2**30})
    broken = amplify_node(own, {AMPLIFICATION: f'{{"cpu":{ratio}}}'})
    assert f"[{AMPLIFICATION}][cpu]: " in broken.problem
    assert broken.allocatable == own
    with pytest.raises(ManifestError, match="64 bits"):
        parse_amplification_config({"resourceAmplificationRatio": {"cpu": 10**400}})
    assert amplified_batch_cpu(10_000, {RATIO: "1e308"}) == 10_000


def test_small_changes_of_ratios_are_not_written() -> None:
    assert not normalization_changed({RATIO: "1.20"}, {RATIO: "1.21"}).needed
    assert normalization_changed({RATIO: "1.20"}, {RATIO: "1.22"}).needed
    assert normalization_changed({}, {RATIO: "1.22"}).reason == "old ratio is nil"
    assert normalization_changed({}, {}).reason == "ratios are nil"
    assert normalization_changed({RATIO: "1"}, {}).reason == "new ratio is nil"
    assert amplification_changed({}, {AMPLIFICATION: "{}"}).needed
    assert (
        amplification_changed({AMPLIFICATION: "{}"}, {AMPLIFICATION: "{}"}).reason
        == "ratio remains unchanged"
    )


@pytest.mark.parametrize(
    ("old", "new", "different"),
    [
        (None, None, False),
        (None, 0, True),
        (0, 1, True),
        (0, 0, False),
        (1000, 1100, False),
        (1000, 1101, True),
    ],
)
def test_a_tenth_is_no_difference_yet(old: int | None, new: int | None, different: bool) -> None:
    scaled = [None if one is None else one * 10**9 for one in (old, new)]
    assert is_different(scaled[0], scaled[1], 0.1) is different


def test_five_minutes_are_not_over_until_they_are() -> None:
    amounts = measured_of({BATCH_CPU: 1})
    for late, due in ((0, False), (1, True)):
        last = NOW - 300 * SECOND - late
        assert needs_status_sync(NO_STRATEGY, amounts, amounts, last_sync=last, now=NOW) is due
    assert needs_status_sync(NO_STRATEGY, amounts, amounts, last_sync=None, now=NOW)
    assert not needs_status_sync(NO_STRATEGY, amounts, None, last_sync=None, now=NOW)


def test_a_cycle_of_an_amplified_node_lends_what_one_of_a_plain_node_does() -> None:
    capacity = measured_of({"cpu": 100_000, "memory": 2**36})
    own = measured_of({"cpu": 90_000, "memory": 2**35})
    report = NodeMetric(node="n", update_time=0, node_usage=measured_of({"cpu": 1}), pods=())
    plain = NodeLoad(name="n", capacity=capacity, allocatable=own, metric=report)
    shown = attrs.evolve(plain, allocatable=measured_of({"cpu": 180_000, "memory": 2**35}))
    notes = {AMPLIFICATION: '{"cpu":2.00}', RAW: '{"cpu":"90"}'}
    config = completed_config(ColocationConfig(ColocationStrategy(enable=True)))
    wanted = run_cycle(plain, {}, {}, config, last_sync=None, now=0).resource.resources
    assert run_cycle(shown, {}, notes, config, last_sync=None, now=0).resource.resources == wanted
    assert wanted[BATCH_CPU] == 50_000 * 10**9


def test_a_node_without_allocatable_is_lent_nothing() -> None:
    resource = NodeResource(resources=measured_of({BATCH_CPU: 5, BATCH_MEMORY: 5}))
    prepared = prepare_node(NodeStatus(capacity=measured_of({"cpu": 1}), allocatable=None), resource)
    assert prepared.allocatable is None
    assert BATCH_CPU not in prepared.capacity


def test_other_resources_and_annotations_stay() -> None:
    status = NodeStatus(
        capacity=measured_of({"pods": 10, BATCH_CPU: 7}),
        allocatable=measured_of({"pods": 9, BATCH_CPU: 7}),
        annotations=immutabledict({"x": "y"}),
    )
    prepared = prepare_node(status, NodeResource())
    assert prepared.capacity == measured_of({"pods": 10})
    assert prepared.annotations is not None
    assert prepared.annotations["x"] == "y"


def zone(batch: int) -> ZoneStatus:
    parts = [ZoneResource("cpu", 50, 50, 50)]
    return ZoneStatus("node-0", (*parts, ZoneResource(BATCH_CPU, batch, batch, batch)))


def test_stale_zones_are_emptied_once() -> None:
    gone = update_zones((zone(5),), NodeResource(), NO_STRATEGY, last_update=NOW, now=NOW)
    assert gone.updated
    assert gone.zones == (zone(0),)
    assert not update_zones(gone.zones, NodeResource(), NO_STRATEGY, last_update=NOW, now=NOW).updated


def test_new_zone_resources_are_put_in_the_order_of_names() -> None:
    resource = NodeResource(
        zone_resources=immutabledict({"node-0": measured_of({BATCH_CPU: 5, BATCH_MEMORY: 6})})
    )
    bare = ZoneStatus("node-0", (ZoneResource("memory", 1, 1, 1), ZoneResource("cpu", 1, 1, 1)))
    found = update_zones((bare,), resource, NO_STRATEGY, last_update=NOW, now=NOW)
    assert [one.name for one in found.zones[0].resources] == ["cpu", BATCH_CPU, BATCH_MEMORY, "memory"]
