"""Models of use: training, forgetting, saving, and what prod leaves."""

from __future__ import annotations

import json

import pytest

from koordcore.colocation.amounts import Amounts
from koordcore.colocation.batch import Failed
from koordcore.colocation.checkpoints import format_checkpoint, format_state, parse_checkpoint, parse_state
from koordcore.colocation.histogram import (
    CPU_BUCKETS,
    CPU_HALF_LIFE,
    Checkpoint,
    LinearBuckets,
    empty_histogram,
)
from koordcore.colocation.histogram_bank import empty_bank
from koordcore.colocation.peak import PeakPod, peaks_of_state, prod_reclaimable
from koordcore.colocation.prediction import (
    NO_MODELS,
    NODE_MODEL,
    SYSTEM_MODEL,
    Use,
    class_model,
    collect_garbage,
    predict,
    restore,
    save_step,
    train,
    update,
)
from koordcore.errors import ManifestError, ModelError
from koordcore.model.durations import MINUTE, SECOND
from koordcore.model.metrics import Measured, measured_of
from tests.reference.histograms import merge

NOW = 1_800_000_000 * SECOND
GIB = 2**30


def test_an_idle_node_predicts_the_end_of_the_first_bucket() -> None:
    state = train(NO_MODELS, [], {}, Use(0.0, 0.0), NOW)
    for name in (NODE_MODEL, SYSTEM_MODEL, class_model("koord-prod"), class_model("")):
        found = predict(state, name)
        assert found is not None
        assert (found.cpu["p95"], found.memory["p98"]) == (25, 5 * 2**20)


def test_a_pod_without_both_measurements_is_left_to_the_system() -> None:
    state = train(NO_MODELS, [("a", "koord-prod")], {"a": Use(1.0, None)}, Use(2.0, 2e9), NOW)
    assert predict(state, "a") is None
    system = predict(state, SYSTEM_MODEL)
    assert system is not None
    assert system.cpu["max"] == 2001


def test_a_node_that_cannot_be_measured_keeps_its_model() -> None:
    state = train(NO_MODELS, [], {}, Use(None, 2e9), NOW)
    assert predict(state, NODE_MODEL) is None
    assert predict(state, SYSTEM_MODEL) is not None


def test_training_gives_another_state_and_leaves_the_old_one() -> None:
    first = update(NO_MODELS, {"a": (1.0, 1e9)}, NOW)
    kept = format_state(first)
    update(first, {"a": (5.0, 5e9), "b": (1.0, 1e9)}, NOW + MINUTE)
    assert format_state(first) == kept
    assert NO_MODELS.names == ()


def test_models_stand_in_the_order_of_their_names_however_they_came() -> None:
    one = update(update(NO_MODELS, {"b": (1.0, 1e9)}, NOW), {"a": (2.0, 2e9)}, NOW)
    both = update(NO_MODELS, {"a": (2.0, 2e9), "b": (1.0, 1e9)}, NOW)
    assert one.equals(both)


def test_a_model_lives_half_an_hour_without_samples() -> None:
    state = update(NO_MODELS, {"a": (1.0, 1e9)}, NOW)
    assert collect_garbage(state, NOW + 30 * MINUTE).names == ("a",)
    assert collect_garbage(state, NOW + 30 * MINUTE + 1).names == ()


def test_saving_takes_the_oldest_first_and_rests_ten_minutes() -> None:
    state = update(NO_MODELS, dict.fromkeys("abc", (1.0, 1000000000.0)), NOW)
    state, first = save_step(state, NOW, limit=2)
    state, second = save_step(state, NOW + MINUTE, limit=2)
    assert [one.name for one in first] == ["a", "b"]
    assert [one.name for one in second] == ["c"]
    state, third = save_step(state, NOW + 10 * MINUTE, limit=2)
    assert [one.name for one in third] == ["a", "b"]


def test_a_restart_keeps_what_is_known_and_names_what_it_dropped() -> None:
    state = train(NO_MODELS, [("a", "koord-prod")], {"a": Use(1.0, 1e9)}, Use(2.0, 2e9), NOW)
    _, saved = save_step(state, NOW, limit=100)
    again, dropped = restore(saved, [], with_node=False)
    assert dropped == (NODE_MODEL, "a")
    assert predict(again, SYSTEM_MODEL) == predict(state, SYSTEM_MODEL)


def test_a_checkpoint_that_cannot_be_loaded_leaves_an_empty_model() -> None:
    _, saved = save_step(update(NO_MODELS, {"a": (1.0, 1e9)}, NOW), NOW)
    raw = format_checkpoint(saved[0])
    raw["CPU"] = {"bucketWeights": {"158": 1}, "totalWeight": 1.0}
    state, _ = restore([parse_checkpoint(raw)], ["a"], with_node=False)
    found = predict(state, "a")
    assert found is not None
    assert (found.cpu["max"], found.memory["max"] > 0) == (0, True)


def test_checkpoints_and_states_come_back_from_json() -> None:
    state = update(NO_MODELS, {"a": (1.3, 1e9), "b": (0.1, 2e9)}, NOW)
    state, saved = save_step(update(state, {"a": (7.7, 3e9)}, NOW + MINUTE), NOW + MINUTE)
    text = json.dumps([format_checkpoint(one) for one in saved])
    assert [parse_checkpoint(raw) for raw in json.loads(text)] == list(saved)
    assert parse_state(json.loads(json.dumps(format_state(state)))).equals(state)


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        ({"version": 2, "models": []}, "version"),
        ({"version": 1, "models": [{"name": "a"}]}, r"models\[0\]"),
        ({"version": 1}, "models"),
    ],
)
def test_a_state_that_cannot_be_read_names_the_place(raw: dict[str, object], place: str) -> None:
    with pytest.raises(ManifestError, match=place):
        parse_state(raw)


def test_samples_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ModelError):
        update(NO_MODELS, {"a": (float("nan"), 1.0)}, NOW)
    with pytest.raises(ModelError):
        empty_histogram(CPU_BUCKETS).add(float("inf"))


def test_histograms_of_other_shapes_do_not_merge() -> None:
    one = empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE)
    with pytest.raises(ModelError, match="half-lives"):
        merge(one, empty_histogram(CPU_BUCKETS, 2 * CPU_HALF_LIFE))
    with pytest.raises(ModelError, match="buckets"):
        merge(one, empty_histogram(LinearBuckets(5.0, 0.3, 0.1), CPU_HALF_LIFE))


def test_a_sample_of_one_half_life_later_weighs_twice_as_much() -> None:
    histogram = empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE).add(1.0, 1.0, NOW)
    later = histogram.add(4.0, 1.0, NOW + CPU_HALF_LIFE)
    weights = sorted(weight for weight in later.weights if weight)
    assert weights[1] == pytest.approx(2 * weights[0], rel=1e-12)


def test_loading_a_negative_total_is_refused() -> None:
    with pytest.raises(ModelError, match="negative"):
        empty_histogram(CPU_BUCKETS).load(Checkpoint(weights={}, total=-1.0))


def pod(uid: str, *, age: int = 48, priority_class: str = "koord-prod") -> PeakPod:
    return PeakPod(
        uid=uid,
        namespace="d",
        name=uid,
        request=measured_of({"cpu": 2000, "memory": 2 * GIB}),
        priority_class=priority_class,
        created=NOW - age * 60 * MINUTE,
    )


def peaks(name: str) -> Measured | None:
    known = {
        "b": (500, GIB),
        SYSTEM_MODEL: (500, GIB // 2),
        class_model("koord-prod"): (800, GIB),
        class_model(""): (0, 0),
    }
    found = known.get(name)
    return None if found is None else measured_of({"cpu": found[0], "memory": found[1]})


NODE = measured_of({"cpu": 3000, "memory": 3 * GIB})


def test_the_smaller_of_two_predictors_holds() -> None:
    report = prod_reclaimable([pod("b")], peaks, NODE, NOW)
    assert isinstance(report.by_pod, Amounts)
    assert isinstance(report.by_priority, Amounts)
    assert report.by_pod.cpu == 1450 * 10**6
    assert report.by_priority.cpu == 570 * 10**6
    assert report.reclaimable == report.by_priority


def test_a_cold_pod_leaves_nothing_and_raises_the_peak_by_its_request() -> None:
    report = prod_reclaimable([pod("b", age=24)], peaks, NODE, NOW)
    assert report.by_pod == Amounts()
    assert report.by_pod_peak.cpu == 2000 * 10**6


def test_a_pod_twice_or_without_a_model_is_named() -> None:
    report = prod_reclaimable([pod("b"), pod("b"), pod("z")], peaks, NODE, NOW)
    assert [one.uid for one in report.unadded] == ["b", "z"]


def test_pods_below_prod_do_not_count() -> None:
    report = prod_reclaimable([pod("b", priority_class="koord-batch")], peaks, NODE, NOW)
    assert report.by_pod_peak == Amounts()


def test_a_missing_model_or_allocatable_makes_the_report_empty() -> None:
    assert isinstance(prod_reclaimable([], peaks_of_state(NO_MODELS), NODE, NOW).reclaimable, Failed)
    assert isinstance(prod_reclaimable([], peaks, None, NOW).reclaimable, Failed)


@pytest.mark.parametrize("half_life", [0, -SECOND])
def test_a_half_life_is_positive(half_life: int) -> None:
    with pytest.raises(ModelError, match="positive"):
        empty_histogram(CPU_BUCKETS, half_life)
    with pytest.raises(ModelError, match="positive"):
        empty_bank(CPU_BUCKETS, half_life, 1)
