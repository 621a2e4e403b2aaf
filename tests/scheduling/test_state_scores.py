"""States ranked for several classes at once: as if each class had been asked alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, PluginSetting, Pod, Policy
from koordcore.framework import node_states, state_scores
from koordcore.framework.evaluator import Evaluator
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.state_scores import AmountParts
from koordcore.framework.workspace import Workspace
from koordcore.model.plugin_args import FitArgs, ScoringStrategy

amounts = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.integers(0, 9000),
        "memory": st.integers(0, 2**34),
        "ephemeral-storage": st.integers(0, 2**45),
        "acme.com/x": st.integers(0, 3),
        "acme.com/nowhere": st.integers(0, 1),
    },
)


def policy(strategy: ScoringStrategy, resources: tuple[str, ...]) -> Policy:
    fit = FitArgs(strategy=strategy, resources=tuple((name, 1 + len(name) % 2) for name in resources))
    return Policy(
        name="amounts",
        plugins=(
            PluginSetting(name="NodeResourcesFit", weight=3, args=fit),
            PluginSetting(name="NodeResourcesBalancedAllocation", filters=False),
        ),
    )


def parts_of(plugins: PluginSet, pod: Pod) -> AmountParts:
    """The evaluators of a pod's class, as the class would make them."""
    *_, fit, balanced = plugins.plugins  # whoever is there whatever the policy comes first
    evaluator = fit.evaluator(pod, fit.request_of(pod))
    scorers: list[tuple[int, Evaluator]] = [(3, evaluator)]
    request = balanced.request_of(pod)
    if request is not None:
        scorers.append((1, balanced.evaluator(pod, request)))
    return AmountParts(tuple(scorers), (evaluator,))


@given(
    nodes=st.lists(amounts, min_size=1, max_size=6),
    asked=st.lists(amounts, min_size=1, max_size=5),
    resources=st.sampled_from([("cpu", "memory"), ("cpu", "memory", "acme.com/x"), ("ephemeral-storage",)]),
    data=st.data(),
)
@settings(max_examples=60)
def test_together_is_each_alone(
    nodes: list[dict[str, int]], asked: list[dict[str, int]], resources: tuple[str, ...], data: st.DataObject
) -> None:
    snapshot = ClusterSnapshot(
        nodes=[Node(name=f"n{i}", allocatable={**one, "pods": 2}) for i, one in enumerate(nodes)]
    )
    workspace = Workspace(snapshot)
    plugins = PluginSet(workspace, policy(ScoringStrategy.LEAST_ALLOCATED, resources))
    workspace.bind(Pod(name="there", requests={"cpu": 700, "memory": 2**31}).at("n0"), 0)
    alike: dict[object, list[AmountParts]] = {}
    for number, requests in enumerate(asked):
        parts = parts_of(plugins, Pod(name=f"p{number}", requests=requests))
        alike.setdefault(parts.batch_key, []).append(parts)
    rows = np.array(data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=1, max_size=8)), np.int64)
    for batch_key, group in alike.items():
        if batch_key is None:
            continue
        score, enough = AmountParts.together(group).answers(NodeView(workspace, rows))
        alone = [one.answers(NodeView(workspace, rows)) for one in group]
        expected = np.array([one[0] for one in alone])
        assert np.array_equal(np.broadcast_to(np.asarray(score), expected.shape), expected)
        mask = np.array([one[1] for one in alone])
        assert np.array_equal(np.broadcast_to(np.asarray(enough), mask.shape), mask)


def test_other_strategies_are_asked_alone() -> None:
    workspace = Workspace(ClusterSnapshot(nodes=[Node(name="n", allocatable={"cpu": 1000, "memory": 2**30})]))
    plugins = PluginSet(workspace, policy(ScoringStrategy.MOST_ALLOCATED, ("cpu", "memory")))
    assert parts_of(plugins, Pod(name="p", requests={"cpu": 1})).batch_key is None


@pytest.mark.parametrize("most", [1, 2, 256])
def test_classes_come_and_go(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_states, "WARM_UP", 0)
    monkeypatch.setattr(node_states, "LARGEST_PART", 100.0)
    monkeypatch.setattr(state_scores, "MOST_MEMBERS", most)
    nodes = [
        Node(name=f"n{i:02}", allocatable={"cpu": 8000 + 500 * (i % 3), "memory": 2**34, "pods": 5})
        for i in range(12)
    ]
    workspace = Workspace(ClusterSnapshot(nodes=nodes))
    plugins = PluginSet(workspace, policy(ScoringStrategy.LEAST_ALLOCATED, ("cpu", "memory")))
    plugins._most = 4  # classes are dropped and made anew all the time
    shapes = [{"cpu": 300 * (1 + turn % 7), "memory": 2**28 * (1 + turn % 3)} for turn in range(21)]
    rolled_back = by_states = 0
    for turn in range(90):
        pod = Pod(name=f"p{turn:02}", requests=shapes[(turn * turn) % 11 if turn % 4 else turn % 3])
        found = plugins.class_of(pod)
        assert isinstance(found, SchedulingClass)
        choice = found.best()
        assert choice == found.best_of(found.feasible()), "as if every node had been asked"
        if choice.row < 0:
            break
        mark = workspace.checkpoint()
        workspace.bind(pod.at(nodes[choice.row].name), choice.row)
        if turn % 5 == 4:
            workspace.rollback(mark)
            rolled_back += 1
        by_states += found._known.membership is not None  # or the comparison says nothing
    assert rolled_back > 5
    assert by_states > 20
