"""Laws of overcommit and prediction, on small nodes of every shape."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from hypothesis import given, strategies as st
from immutabledict import immutabledict

from koordcore.colocation.batch import Batch, Degraded, Failed, batch_of_node
from koordcore.colocation.columns import Outcome, compile_loads, compile_strategies, lend_cluster
from koordcore.colocation.histogram import (
    CPU_BUCKETS,
    CPU_HALF_LIFE,
    MEMORY_BUCKETS,
    Histogram,
    empty_histogram,
)
from koordcore.colocation.histogram_bank import bank_of, empty_bank
from koordcore.colocation.mid import Mid, mid_of_node
from koordcore.colocation.waterfall import waterfalls_of
from koordcore.model.colocation import (
    DEFAULT_STRATEGY,
    CalculatePolicy,
    ColocationStrategy,
    NodeLoad,
    PodLoad,
    ZoneLoad,
    overlay,
)
from koordcore.model.durations import MINUTE
from koordcore.model.metrics import HostApplicationMetric, Measured, NodeMetric, PodMetric
from tests.reference import colocation_overcommit as reference
from tests.reference.histograms import merge

NOW = 1_800_000_000 * 10**9
NANO = 10**9

cores = st.integers(0, 40).map(lambda n: n * 700_000_001)
byte_counts = st.integers(0, 40).map(lambda n: n * (3 * 2**30 + 1) * NANO)
amounts: st.SearchStrategy[Measured] = st.fixed_dictionaries(
    {}, optional={"cpu": cores, "memory": byte_counts}
).map(immutabledict)
full: st.SearchStrategy[Measured] = st.fixed_dictionaries({"cpu": cores, "memory": byte_counts}).map(
    immutabledict
)
classes = st.sampled_from(["koord-prod", "koord-mid", "koord-batch", "koord-free"])
names = st.sampled_from(["a", "b", "c", "d"])
percents = st.none() | st.integers(0, 160)
policies = st.sampled_from([None, *(policy.value for policy in CalculatePolicy), "other"])


@st.composite
def nodes(draw: st.DrawFn, zones: bool = False) -> NodeLoad:
    pods = draw(
        st.lists(
            st.builds(
                PodLoad,
                namespace=st.just("d"),
                name=names,
                request=amounts,
                priority_class=classes,
                qos=st.sampled_from(["LSE", "LS", "BE"]),
                phase=st.sampled_from(["Running", "Pending", "Succeeded"]),
                numa_nodes=st.lists(st.integers(-1, 3), max_size=3).map(tuple),
            ),
            max_size=4,
            unique_by=lambda pod: pod.name,
        )
    )
    measured = st.builds(
        PodMetric,
        namespace=st.just("d"),
        name=names,
        usage=amounts,
        priority=st.sampled_from(["koord-prod", "koord-batch", ""]),
    )
    metric = draw(
        st.none()
        | st.builds(
            NodeMetric,
            node=st.just("n"),
            update_time=st.none() | st.integers(0, 20).map(lambda age: NOW - age * MINUTE),
            node_usage=st.none() | full | amounts,
            system_usage=amounts,
            pods=st.lists(measured, max_size=4, unique_by=lambda one: one.name).map(tuple),
            host_applications=st.lists(
                st.builds(HostApplicationMetric, name=names, usage=amounts, priority=classes), max_size=2
            ).map(tuple),
            prod_reclaimable=st.none() | amounts,
        )
    )
    return NodeLoad(
        name="n",
        capacity=draw(full),
        allocatable=draw(st.none() | full),
        reserved=draw(amounts),
        pods=tuple(pods),
        metric=metric,
        zones=tuple(ZoneLoad(f"node-{i}", draw(full)) for i in range(draw(st.integers(1, 3))))
        if zones
        else (),
    )


strategies = st.builds(
    ColocationStrategy,
    cpu_reclaim_threshold_percent=percents,
    memory_reclaim_threshold_percent=percents,
    cpu_calculate_policy=policies,
    memory_calculate_policy=policies,
    batch_cpu_threshold_percent=st.none() | st.integers(-5, 160),
    batch_memory_threshold_percent=st.none() | st.integers(-5, 160),
    degrade_time_minutes=st.none() | st.integers(0, 15),
    mid_reclaim_mode=st.sampled_from([None, "static"]),
    mid_cpu_threshold_percent=percents,
    mid_memory_threshold_percent=percents,
    mid_unallocated_percent=percents,
    mid_static_cpu_reserved_percent=percents,
    mid_static_memory_reserved_percent=percents,
)


@given(st.lists(st.tuples(nodes(), strategies, st.booleans()), min_size=1, max_size=5))
def test_the_columns_say_what_the_nodes_say_one_by_one(
    cluster: list[tuple[NodeLoad, ColocationStrategy, bool]],
) -> None:
    loads = [node for node, _, _ in cluster]
    said = [strategy for _, strategy, _ in cluster]
    lending = lend_cluster(
        compile_loads(loads), compile_strategies(said, enabled=[on for _, _, on in cluster]), NOW
    )
    for row, (node, strategy, on) in enumerate(cluster):
        codes = (Outcome(lending.batch_outcome[row]), Outcome(lending.mid_outcome[row]))
        if not on:
            assert codes == (Outcome.DISABLED, Outcome.DISABLED)
            continue
        outcomes: tuple[Any, Any] = (batch_of_node(node, strategy, NOW), mid_of_node(node, strategy, NOW))
        for code, outcome, column in zip(codes, outcomes, (lending.batch, lending.mid), strict=True):
            match outcome:
                case Batch() | Mid():
                    assert code is Outcome.LENT
                    assert list(outcome.resources.values()) == column[:, row].tolist()
                case Degraded():
                    assert code is Outcome.DEGRADED
                case Failed():
                    assert code is Outcome.FAILED
                case _:
                    raise AssertionError(outcome)


@given(nodes(), strategies)
def test_batch_and_mid_are_what_the_formulas_say(node: NodeLoad, said: ColocationStrategy) -> None:
    strategy = overlay(DEFAULT_STRATEGY, said)
    batch, mid = batch_of_node(node, said, NOW), mid_of_node(node, said, NOW)
    if isinstance(batch, Batch):
        assert batch.cpu.amount == reference.batch(node, strategy, "cpu") * NANO
        assert batch.memory.amount == reference.batch(node, strategy, "memory") * NANO
    if isinstance(mid, Mid) and strategy.mid_reclaim_mode != "static":
        assert list(mid.resources.values()) == [
            reference.mid(node, strategy, name) for name in ("cpu", "memory")
        ]


@given(nodes(), strategies)
def test_no_more_is_lent_than_the_waterfall_leaves(node: NodeLoad, strategy: ColocationStrategy) -> None:
    batch = batch_of_node(node, strategy, NOW)
    if isinstance(batch, Batch):
        for terms in (batch.cpu, batch.memory):
            left = terms.capacity - terms.margin - terms.taken - terms.pods
            assert 0 <= terms.amount <= max(left, 0)
    mid = mid_of_node(node, strategy, NOW)
    if isinstance(mid, Mid):
        for one in (mid.cpu, mid.memory):
            assert 0 <= one.amount <= max(one.capacity * one.threshold_percent / 100 + 1, 0)


@given(nodes(), strategies)
def test_waterfalls_add_up(node: NodeLoad, strategy: ColocationStrategy) -> None:
    for one in waterfalls_of(node, strategy, NOW):
        assert sum(step.amount for step in one.steps if not step.detail) == one.lent
        assert bool(one.steps) != (
            "reason" in one.message or "content" in one.message or "missing" in one.message
        )


@given(nodes(), strategies, cores)
def test_more_prod_usage_never_lends_more(node: NodeLoad, strategy: ColocationStrategy, more: int) -> None:
    before = batch_of_node(node, strategy, NOW)
    if not isinstance(before, Batch) or node.metric is None or not node.metric.pods:
        return
    first = node.metric.pods[0]
    heavier = attrs.evolve(
        first, usage=immutabledict({**first.usage, "cpu": first.usage.get("cpu", 0) + more})
    )
    metric = attrs.evolve(node.metric, pods=(heavier, *node.metric.pods[1:]))
    after = batch_of_node(attrs.evolve(node, metric=metric), strategy, NOW)
    assert isinstance(after, Batch)
    assert after.cpu.amount <= before.cpu.amount


@given(nodes(zones=True), strategies)
def test_numa_nodes_get_whole_amounts_within_their_own(node: NodeLoad, strategy: ColocationStrategy) -> None:
    batch = batch_of_node(node, strategy, NOW)
    if not isinstance(batch, Batch):
        return
    percents = overlay(DEFAULT_STRATEGY, strategy)
    assert set(batch.zones) == {zone.name for zone in node.zones}
    for zone in node.zones:
        lent = batch.zones[zone.name]
        assert all(type(amount) is int and amount >= 0 for amount in lent.values())
        if (percents.memory_reclaim_threshold_percent or 0) <= 100:
            assert lent["kubernetes.io/batch-memory"] <= zone.allocatable["memory"] // NANO


@given(nodes(), strategies)
def test_one_numa_node_of_the_whole_capacity_lends_what_the_node_lends(
    node: NodeLoad, strategy: ColocationStrategy
) -> None:
    measured = {pod.name for pod in node.metric.pods} if node.metric else set()
    known = attrs.evolve(
        node,
        pods=tuple(attrs.evolve(pod, numa_nodes=()) for pod in node.pods if pod.name in measured),
        zones=(ZoneLoad("node-0", node.capacity),),
    )
    batch = batch_of_node(known, strategy, NOW)
    if isinstance(batch, Batch):
        whole, zone = batch.resources, batch.zones["node-0"]
        assert zone["kubernetes.io/batch-memory"] == whole["kubernetes.io/batch-memory"]
        # Each share of cpu is rounded up to a milli-core, so the zone may be behind by one per term.
        behind = whole["kubernetes.io/batch-cpu"] - zone["kubernetes.io/batch-cpu"]
        assert 0 <= behind <= 2 + len(node.pods) + len(measured)


samples = st.lists(
    st.tuples(st.floats(0, 2000), st.floats(0.001, 10), st.integers(0, 90 * 24)), min_size=1, max_size=12
)


def filled(values: list[tuple[float, float, int]]) -> Histogram:
    histogram = empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE)
    for value, weight, hours in values:
        histogram = histogram.add(value, weight, NOW + hours * 60 * MINUTE)
    return histogram


@given(samples)
def test_percentiles_rise_with_their_share_and_stay_above_the_bucket(
    values: list[tuple[float, float, int]],
) -> None:
    histogram = filled(values)
    shares = [0.0, 0.5, 0.9, 0.95, 1.0]
    found = [histogram.percentile(share) for share in shares]
    assert found == sorted(found)
    if not histogram.is_empty:
        # Not always the very end: beside a sample 2**53 times as heavy, another is lost in the sum.
        assert found[-1] <= CPU_BUCKETS.start(min(histogram.highest + 1, CPU_BUCKETS.count - 1))


@given(samples, samples)
def test_merging_is_commutative_but_for_rounding_and_weights_too_light_to_count(
    left: list[tuple[float, float, int]], right: list[tuple[float, float, int]]
) -> None:
    one, other = merge(filled(left), filled(right)), merge(filled(right), filled(left))
    assert one.reference == other.reference
    assert math.isclose(one.total, other.total, rel_tol=1e-12)
    assert np.allclose(one.weights, other.weights, rtol=1e-12, atol=2 * CPU_BUCKETS.epsilon)


@given(samples)
def test_merging_with_nothing_changes_nothing(values: list[tuple[float, float, int]]) -> None:
    histogram = filled(values)
    assert merge(histogram, empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE)).equals(histogram)


@given(samples)
def test_adding_leaves_the_old_value_alone(values: list[tuple[float, float, int]]) -> None:
    histogram = filled(values)
    before = attrs.astuple(histogram, recurse=False)
    histogram.add(1.0, 1.0, NOW)
    assert attrs.astuple(histogram, recurse=False) == before


@given(samples)
def test_a_checkpoint_keeps_percentiles_within_one_bucket(values: list[tuple[float, float, int]]) -> None:
    histogram = filled(values)
    loaded = empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE).load(histogram.save())
    heavy = sum(weight for weight in histogram.weights if weight >= max(histogram.weights) / 10_000)
    if math.isclose(heavy, histogram.total, rel_tol=1e-9) and heavy:
        for share in (0.5, 0.95):
            low, high = sorted([histogram.percentile(share - 0.01), histogram.percentile(share + 0.01)])
            assert low <= loaded.percentile(share) <= high


@given(st.floats(0, 3e12))
def test_the_table_of_buckets_is_the_formula(value: float) -> None:
    for buckets in (CPU_BUCKETS, MEMORY_BUCKETS):
        assert empty_histogram(buckets).bucket_of(value) == buckets.exact_bucket(value)


rounds = st.lists(
    st.tuples(
        st.integers(0, 200 * 24),
        st.dictionaries(st.integers(0, 3), st.floats(0, 2000), min_size=1),
        st.floats(0.001, 5),
    ),
    min_size=1,
    max_size=6,
)


@given(rounds)
def test_a_bank_says_what_its_histograms_say_one_by_one(
    steps: list[tuple[int, dict[int, float], float]],
) -> None:
    bank = empty_bank(CPU_BUCKETS, CPU_HALF_LIFE, 4)
    singles = [empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE)] * 4
    for hours, values, weight in steps:
        time = NOW + hours * 60 * MINUTE
        rows = np.array(sorted(values), dtype=np.int64)
        bank = bank.add(rows, np.array([values[row] for row in sorted(values)]), time, weight=weight)
        for row, value in values.items():
            singles[row] = singles[row].add(value, weight, time)
    assert [bank.row(index) for index in range(4)] == singles
    for share in (0.0, 0.5, 0.95, 1.0):
        assert bank.percentile(share).tolist() == [one.percentile(share) for one in singles]
    again = bank_of(CPU_BUCKETS, CPU_HALF_LIFE, singles)
    assert again.equals(bank)
    assert again.joined(bank).take(np.array([4, 0], dtype=np.int64)).row(0) == singles[0]
