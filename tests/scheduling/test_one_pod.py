"""One pod at a time: the node that its hint names first, and reasons that are worked out once."""

from __future__ import annotations

from typing import Any

import numpy as np

from koordcore import ClusterSnapshot, Node, PluginSetting, Pod, Policy, schedule
from koordcore.framework import Evaluator, NodeView, Plugin
from tests.scheduling.test_network import ROOM, hinted

ASKED: list[int] = []


def test_a_hint_goes_before_every_score_also_for_the_first_of_the_nodes() -> None:
    busy = Pod(name="busy", requests={"cpu": 4000}).at("a")
    snapshot = ClusterSnapshot(nodes=[Node(name=name, allocatable=ROOM) for name in "ab"]).assume(busy)
    assert [one.node for one in schedule(snapshot, [hinted()]).bound] == ["b"]
    assert [one.node for one in schedule(snapshot, [hinted(preferredNodeNames=["a"])]).bound] == ["a"]


class Closed(Plugin):
    """No node takes anybody."""

    def request_of(self, pod: Pod) -> str:
        return "everybody"

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return Never()


class Never(Evaluator):
    def fits(self, view: NodeView) -> Any:
        return np.zeros(view.size, dtype=np.bool_)

    def reasons(self, view: NodeView) -> Any:
        ASKED.append(view.size)
        return [("closed", np.ones(view.size, dtype=np.bool_))]


def times_asked(count: int) -> int:
    """How often the plugin is asked why it refuses so many equal pods."""
    policy = Policy(plugins=(*Policy().plugins, PluginSetting(plugin=Closed, scores=False)))
    pods = [Pod(name=f"p{number}", requests={"cpu": 100}) for number in range(count)]
    ASKED.clear()
    result = schedule(ClusterSnapshot(nodes=[Node(name="n", allocatable=ROOM)], pending=pods), policy=policy)
    assert not result.bound
    assert len(result.decisions) == count
    return len(ASKED)


def test_plugins_are_asked_once_why_equal_pods_are_refused() -> None:
    assert times_asked(5) == times_asked(1) > 0
