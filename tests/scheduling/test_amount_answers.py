"""What amounts of one node are worth, remembered and looked up ahead: as if the node had just been asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, PluginSetting, Pod, Policy
from koordcore.framework import state_scores
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.registry import known_plugins
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.plugin_args import FitArgs, ScoringStrategy

LARGE = 10**15  # above what is divided in floats
POLICIES = (
    koordinator_policy(known_plugins()),
    Policy(
        plugins=(
            PluginSetting(name="NodeResourcesFit", args=FitArgs(strategy=ScoringStrategy.MOST_ALLOCATED)),
            PluginSetting(name="NodeResourcesFitPlus", weight=3),
        )
    ),
)
sizes = st.fixed_dictionaries(
    {"cpu": st.sampled_from([0, 900, 4000]), "memory": st.sampled_from([2**33, LARGE])},
    optional={"acme.com/x": st.integers(0, 3)},
)
asked = st.fixed_dictionaries({}, optional={"cpu": st.integers(0, 1500), "acme.com/x": st.integers(0, 1)})


def _class_of(plugins: PluginSet, pod: Pod) -> SchedulingClass:
    found = plugins.class_of(pod)
    assert isinstance(found, SchedulingClass)
    return found


@given(
    nodes=st.lists(sizes, min_size=1, max_size=5),
    kinds=st.lists(asked, min_size=1, max_size=3),
    number=st.integers(0, len(POLICIES) - 1),
    moves=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans()), max_size=24),
)
@settings(max_examples=47)
def test_asking_after_each_pod_is_asking_anew(
    nodes: list[dict[str, int]],
    kinds: list[dict[str, int]],
    number: int,
    moves: list[tuple[int, int, bool]],
) -> None:
    snapshot = ClusterSnapshot(
        nodes=[Node(name=f"n{i}", allocatable={**one, "pods": 6}) for i, one in enumerate(nodes)]
    )
    workspace = Workspace(snapshot)
    plugins = PluginSet(workspace, POLICIES[number])
    pods = [Pod(name=f"k{place}", requests=one, priority=9500) for place, one in enumerate(kinds)]
    classes = [_class_of(plugins, pod) for pod in pods]
    for at, (drawn, place, back) in enumerate(moves):
        kind, row = drawn % len(pods), place % len(nodes)
        mark = workspace.checkpoint()
        there = Pod(name=f"p{at}", requests=kinds[kind], priority=9500).at(f"n{row}")
        workspace.bind(there, row, classes[kind].change)
        plugins.placed(there, row)
        if back:
            classes[kind].feasible()
            workspace.rollback(mark)
            plugins.removed(there, row)
        known = classes[kind].feasible()
        fresh_plugins = PluginSet(workspace, POLICIES[number])
        fresh = _class_of(fresh_plugins, pods[kind])
        feasible = fresh.feasible()
        assert np.array_equal(known, feasible)
        assert np.array_equal(classes[kind].totals(known), fresh.totals(feasible))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_scores, "_MOST", 4)
    snapshot = ClusterSnapshot(nodes=[Node(name="n", allocatable={"cpu": 10**6, "pods": 100})])
    workspace = Workspace(snapshot)
    own = _class_of(PluginSet(workspace, POLICIES[0]), Pod(name="k", requests={"cpu": 10}))
    for number in range(30):
        workspace.bind(Pod(name=f"p{number}", requests={"cpu": 10 + number}).at("n"), 0)
        assert own.feasible().all()
    single = own._known.single  # nothing else shows what is kept
    assert single is not None
    assert len(single._known) <= 4 + state_scores._FARTHEST
