"""Laws of the load-aware kernels."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import attrs
import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from koordcore.model.durations import SECOND
from koordcore.model.load import AggregatedArgs, LoadAwareArgs
from koordcore.model.metrics import AggregatedUsage, NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod
from koordcore.protocol.load import ANNOTATION_USAGE_THRESHOLDS
from koordcore.scheduling.plugins.load import load_state
from koordcore.scoring.load import LoadState
from koordcore.scoring.load_nodes import NO_LIMIT, threshold_limits
from koordcore.snapshot import ClusterSnapshot
from tests.reference.load_aware import Load, nearest, reference_filter, reference_score

NOW = 1_700_000_000
NAMES = ("cpu", "memory", "x/y")

percents = st.integers(0, 100)
sections = st.dictionaries(st.sampled_from(NAMES), percents, max_size=2)
amounts = st.fixed_dictionaries({}, optional={name: st.integers(0, 120) for name in NAMES})
times = st.none() | st.integers(-400, 30).map(lambda age: datetime.fromtimestamp(NOW + age, UTC))


@st.composite
def arguments(draw: st.DrawFn) -> LoadAwareArgs:
    weights = draw(st.dictionaries(st.sampled_from(("cpu", "memory")), st.integers(1, 9), max_size=2))
    kinds = st.sampled_from(("", "avg", "p95"))
    windows = st.sampled_from((0, 300 * SECOND, 600 * SECOND))
    aggregated = st.builds(
        AggregatedArgs,
        usage_thresholds=sections,
        usage_type=kinds,
        usage_duration=windows,
        score_type=kinds,
        score_duration=windows,
    )
    return LoadAwareArgs(
        filter_expired_node_metrics=draw(st.booleans()),
        enable_schedule_when_node_metrics_expired=draw(st.booleans()),
        dominant_resource_weight=draw(st.integers(0, 3)),
        resource_weights=weights,
        usage_thresholds=draw(sections),
        prod_usage_thresholds=draw(sections),
        prod_usage_include_sys=draw(st.booleans()),
        score_according_prod_usage=draw(st.booleans()),
        estimated_seconds_after_pod_scheduled=draw(st.none() | st.integers(-1, 200)),
        estimated_seconds_after_initialized=draw(st.none() | st.integers(-1, 200)),
        aggregated=draw(st.none() | aggregated),
        supported_resources=draw(st.sampled_from(((), ("x/y",)))),
    )


def pods(name: str) -> st.SearchStrategy[Pod]:
    return st.builds(
        Pod,
        name=st.just(name),
        requests=amounts,
        limits=amounts,
        priority=st.sampled_from((0, 9500, 7500, 5500)),
        owners=st.sampled_from(((), (OwnerReference("DaemonSet", "d"),))),
        scheduled=times,
        initialized=times,
    )


@st.composite
def metrics(draw: st.DrawFn, node: str) -> NodeMetric | None:
    if not draw(st.booleans()):
        return None
    usage = amounts.map(measured_of)
    statistics = st.dictionaries(st.sampled_from(("avg", "p95")), usage).map(
        lambda found: AggregatedUsage(300 * SECOND, found)
    )
    rows = [
        PodMetric(namespace="default", name=f"p{number}", priority=priority, usage=draw(usage))
        for number, priority in enumerate(
            draw(st.lists(st.sampled_from(("koord-prod", "koord-mid")), max_size=3))
        )
    ]
    return NodeMetric(
        node=node,
        update_time=draw(st.none() | st.integers(-200, 0).map(lambda age: (NOW + age) * SECOND)),
        report_interval=draw(st.none() | st.just(30 * SECOND)),
        node_usage=draw(st.none() | usage),
        system_usage=draw(usage),
        aggregated_node_usages=tuple(draw(st.lists(statistics, max_size=1))),
        pods=tuple(rows),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Node], dict[str, NodeMetric], list[tuple[Pod, int]]]:
    nodes = []
    for number in range(draw(st.integers(1, 3))):
        notes = draw(st.none() | st.fixed_dictionaries({}, optional={"usageThresholds": sections}))
        annotations = {} if notes is None else {ANNOTATION_USAGE_THRESHOLDS: json.dumps(notes)}
        nodes.append(Node(name=f"n{number}", allocatable=draw(amounts), annotations=annotations))
    found = {node.name: draw(metrics(node.name)) for node in nodes}
    placed = [
        (draw(pods(f"p{number}")), draw(st.integers(0, len(nodes) - 1)))
        for number in range(draw(st.integers(0, 4)))
    ]
    return nodes, {name: one for name, one in found.items() if one is not None}, placed


@given(cases(), arguments(), pods("new"))
def test_kernels_equal_the_rule_node_by_node(
    case: tuple[list[Node], dict[str, NodeMetric], list[tuple[Pod, int]]], args: LoadAwareArgs, pod: Pod
) -> None:
    nodes, measured, placed = case
    state = LoadState(nodes, measured, args, NOW * SECOND)
    for one, row in placed:
        state.place(one, row)
    request = state.request_of(pod)
    reasons = [state.reasons[code] for code in state.fit(request)]
    scores = state.score(request).tolist()
    for row, node in enumerate(nodes):
        load = Load(measured.get(node.name), [one for one, at in placed if at == row], args, NOW * SECOND)
        assert reasons[row] == reference_filter(node, load, pod)
        assert scores[row] == reference_score(node, load, pod)
        assert dict(state.describe(row)["prodDelta"]) == load.prod_delta
        part = np.array([row])
        assert state.score(request, part).tolist() == [scores[row]]
        assert [state.reasons[code] for code in state.fit(request, part)] == [reasons[row]]


@given(cases(), arguments(), pods("new"))
def test_taking_away_undoes_placing(
    case: tuple[list[Node], dict[str, NodeMetric], list[tuple[Pod, int]]], args: LoadAwareArgs, pod: Pod
) -> None:
    nodes, measured, placed = case
    plain = LoadState(nodes, measured, args, NOW * SECOND)
    plain.place_all((row, (one,)) for one, row in placed)
    used = LoadState(nodes, measured, args, NOW * SECOND)
    used.read([*((one, row, 1) for one, row in placed), (pod, 0, 1), (pod, 0, -1)])
    request = plain.request_of(pod)
    assert_array_equal(plain.fit(request), used.fit(request))
    assert_array_equal(plain.score(request), used.score(request))
    assert plain.describe(0) == used.describe(0)


@pytest.mark.parametrize("measured", [True, False])
def test_pods_of_a_node_need_not_stand_together(measured: bool) -> None:
    """The first and the last are on the same node, one between them is not."""
    nodes = [Node(name=f"n{number}", allocatable={"cpu": 1000}) for number in range(2)]
    placed = [(Pod(name=f"p{number}", requests={"cpu": 100}), number % 2) for number in range(3)]
    shown = tuple(
        PodMetric(namespace="default", name=pod.name, usage=measured_of({"cpu": 1})) for pod, _ in placed
    )
    metric = NodeMetric(node="n1", node_usage=measured_of({"cpu": 1}), pods=shown if measured else ())
    at_once, singly = (
        LoadState(nodes, {"n0": attrs.evolve(metric, node="n0"), "n1": metric}, LoadAwareArgs(), NOW * SECOND)
        for _ in range(2)
    )
    at_once.place_all((row, (one,)) for one, row in placed)
    for pod, row in placed:
        singly.place(pod, row)
    assert [at_once.describe(row) for row in (0, 1)] == [singly.describe(row) for row in (0, 1)]


@given(cases(), arguments(), pods("new"), st.integers(0, 4))
def test_a_fork_goes_its_own_way(
    case: tuple[list[Node], dict[str, NodeMetric], list[tuple[Pod, int]]],
    args: LoadAwareArgs,
    pod: Pod,
    early: int,
) -> None:
    """Some pods before the fork, the others after it: together as compiled anew, and the origin as before."""
    nodes, measured, placed = case
    origin = LoadState(nodes, measured, args, NOW * SECOND)
    origin.place_all((row, (one,)) for one, row in placed[:early])
    request = origin.request_of(pod)
    before = origin.fit(request).tolist(), origin.score(request).tolist()
    fork = origin.fork()
    fork.read([(one, row, 1) for one, row in placed[early:]])
    whole = LoadState(nodes, measured, args, NOW * SECOND)
    whole.place_all((row, (one,)) for one, row in placed)
    for row in range(len(nodes)):
        assert fork.describe(row) == whole.describe(row)
    assert_array_equal(fork.fit(fork.request_of(pod)), whole.fit(whole.request_of(pod)))
    assert_array_equal(fork.score(fork.request_of(pod)), whole.score(whole.request_of(pod)))
    assert before == (origin.fit(request).tolist(), origin.score(request).tolist())


@given(cases(), arguments(), pods("new"), st.lists(st.integers(-400, 400), min_size=1, max_size=5))
def test_a_line_of_snapshots_is_followed(
    case: tuple[list[Node], dict[str, NodeMetric], list[tuple[Pod, int]]],
    args: LoadAwareArgs,
    pod: Pod,
    moments: list[int],
) -> None:
    """Pods come and go and the clock is set forward and back: always as compiled anew."""
    nodes, measured, placed = case
    snapshot = ClusterSnapshot(nodes=nodes, records=list(measured.values()))
    waiting = [one.at(nodes[row].name) for one, row in placed]
    for step, moment in enumerate(moments):
        now = (NOW + moment) * SECOND
        for _ in range(2):  # the second question finds what the first one left
            state = load_state(snapshot, args, now)
            fresh = LoadState.of_snapshot(snapshot, args, now)
            request = state.request_of(pod)
            assert_array_equal(state.fit(request), fresh.fit(fresh.request_of(pod)))
            assert_array_equal(state.score(request), fresh.score(fresh.request_of(pod)))
            assert all(state.describe(row) == fresh.describe(row) for row in range(len(nodes)))
            state.place(pod, 0)
        if waiting:
            snapshot = snapshot.assume(waiting.pop())
        elif step % 2:
            snapshot = snapshot.forget(*[one.key for one in snapshot.bound_pods()][:1])


@given(cases(), arguments(), pods("new"))
def test_without_metrics_the_filter_is_neutral(
    case: tuple[list[Node], dict[str, NodeMetric], list[tuple[Pod, int]]], args: LoadAwareArgs, pod: Pod
) -> None:
    nodes, _, placed = case
    state = LoadState(nodes, {}, args, NOW * SECOND)
    state.place_all((row, (one,)) for one, row in placed)
    request = state.request_of(pod)
    assert not state.fit(request).any()
    assert not state.score(request).any()


@given(st.integers(1, 2**53), st.integers(-5, 120))
def test_a_limit_is_the_last_amount_that_passes(total: int, threshold: int) -> None:
    limit = int(threshold_limits(np.array([[total]]), np.array([[threshold]]))[0, 0])
    if threshold == 0:
        assert limit == NO_LIMIT
        return
    assert nearest(float(limit) / float(total) * 100) <= threshold
    assert nearest(float(limit + 1) / float(total) * 100) > threshold
