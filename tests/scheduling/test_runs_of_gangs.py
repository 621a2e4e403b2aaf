"""Runs of gangs that are planned as one: never worse than one by one, and cut to what nodes really take."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import numpy as np
import pytest

from koordcore import PluginSetting, Pod, Policy, schedule, verify
from koordcore.framework import Evaluator, NodeView, Plugin, Scope
from koordcore.framework.workspace import Workspace
from koordcore.model.policy import GangTurns
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from tests.scheduling.test_gangs import NETWORK, cluster, members, node
from tests.scheduling.test_groups import group, node as labelled, pods
from tests.scheduling.test_together import TOGETHER, queue, rack, started

pytestmark = pytest.mark.solver


def test_where_a_quota_makes_the_common_plan_the_worse_one_gangs_go_one_by_one() -> None:
    """The plan starts the gang of three that waits one by one, which uses up the quota of the three last."""
    most = make_resources({"cpu": 3000})
    team = {"quota.scheduling.koordinator.sh/name": "team"}
    own = [attrs.evolve(pod, labels=team) for pod in queue(3, 1, 1, 1, first=3)]
    snapshot = cluster(
        rack(a=5, b=5, c=1, d=1, e=1),
        [*queue(2, 2, 3), *own],
        NETWORK,
        ElasticQuota(name="team", max=most, min=most),
    )
    result = schedule(snapshot, policy=TOGETHER)
    assert verify(snapshot, result) == ()
    assert started(result) == started(schedule(snapshot)) == ["g0", "g1", "g2", "g4", "g5", "g6"]


class OneOfEachApp(Plugin):
    """A node takes one pod of every application; how many it takes in all the plugin does not say."""

    def request_of(self, pod: Pod) -> str | None:
        return pod.labels.get("app")

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return NobodyElse(self.workspace, request)


class NobodyElse(Evaluator):
    scope = Scope.NODE

    def __init__(self, workspace: Workspace, app: str) -> None:
        self._workspace, self._app = workspace, app

    def fits(self, view: NodeView) -> Any:
        there = map(self._workspace.pods_on, range(len(self._workspace.layout.names)))
        free = [all(pod.labels.get("app") != self._app for pod in pods.values()) for pods in there]
        return np.array(free)[view.rows]

    def reasons(self, view: NodeView) -> Any:
        return [("another pod of the application is here", ~self.fits(view))]


def test_a_node_that_takes_one_of_two_gangs_is_offered_to_one_of_them_again() -> None:
    """Both small gangs would go to ``n``, which takes one of them; the other goes to ``o``."""
    plugins = (*Policy().plugins, PluginSetting(plugin=OneOfEachApp, scores=False))
    policy = Policy(plugins=plugins, gangs=GangTurns.TOGETHER)
    small = [attrs.evolve(pod, labels={"app": "x"}) for name in "ab" for pod in members(name, 1, 1000, 1)]
    waiting = [*small, *members("c", 1, 3000, 1)]
    snapshot = cluster([node("m", 3000), node("n", 2000), node("o", 1000)], waiting)
    result = schedule(snapshot, policy=policy)
    assert verify(snapshot, result) == ()
    assert {one.pod.name: one.node for one in result.bound} == {"a-0": "n", "b-0": "o", "c-0": "m"}
    (plan,) = result.together
    assert plan.started == plan.jobs == ("default/a", "default/b", "default/c")


@pytest.mark.parametrize(("first", "other"), [("rack", "zone"), ("", "zone"), ("rack", "")])
def test_groups_of_different_labels_share_no_plan_although_one_between_them_waits(
    first: str, other: str
) -> None:
    """The group between lacks a member and is not tried; no plan has the domains of both others."""

    def later(minute: int, waiting: list[Pod]) -> list[Pod]:
        return [attrs.evolve(pod, created=datetime(2026, 1, 1, 0, minute, tzinfo=UTC)) for pod in waiting]

    waiting = [*later(1, pods("a", 2)), *later(2, pods("s", 1)), *later(3, pods("b", 2))]
    nodes = [labelled("n1", 2000, rack="r", zone="z"), labelled("n2", 2000, zone="z")]
    records = [group("a", 2, first), group("s", 2, other), group("b", 2, other)]
    snapshot = cluster(nodes, waiting, *records)
    result = schedule(snapshot, policy=TOGETHER)
    assert verify(snapshot, result) == ()
    assert len(result.bound) == 4
    assert result.together == ()
    assert result.decisions == schedule(snapshot).decisions
