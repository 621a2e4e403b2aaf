"""Members of a gang that a node takes together, or only together, or never together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from benchmarks.claims_data import whole_gpus
from koordcore import PluginSetting, Pod, Policy, Reservation, schedule, verify
from koordcore.framework import Evaluator, NodeView, Plugin, Scope
from koordcore.framework.plugin import Together
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import HostPort
from koordcore.model.policy import DEFAULT_POLICY
from koordcore.scheduling.gang_binding import never_together
from koordcore.scheduling.gang_input import PlanningInput, offers_of, planning_input_of
from koordcore.scheduling.group_plans import flat_tree
from tests.scheduling import test_claims_gangs as claims
from tests.scheduling.test_claims_reservations import reservation
from tests.scheduling.test_gangs import MUST, NETWORK, cluster, members, node

pytestmark = pytest.mark.solver


class Pairs(Plugin):
    """A node takes one pod, or two that get their places on it together; how many the plugin does not say."""

    def request_of(self, pod: Pod) -> str:
        return "everybody"

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return One(self)

    def together(self, pods: Sequence[Pod], row: int) -> Together | None:
        plan = {pod.key: number for number, pod in enumerate(pods)} if len(pods) == 2 else {}
        return Together(plan=plan, rows=np.zeros(0, np.int64))


class One(Evaluator):
    scope = Scope.NODE

    def __init__(self, plugin: Pairs) -> None:
        self._plugin = plugin

    def fits(self, view: NodeView) -> Any:
        workspace, most = self._plugin.workspace, 2 if self._plugin.planned else 1
        there = [len(workspace.pods_on(row)) for row in range(len(workspace.layout.names))]
        return np.array(there)[view.rows] < most

    def reasons(self, view: NodeView) -> Any:
        return [("somebody is here", ~self.fits(view))]


def test_equal_members_go_to_nodes_in_as_large_parties_as_these_take() -> None:
    """Four would go to one node, of which it takes one by one, and no three; two it takes."""
    policy = Policy(plugins=(*Policy().plugins, PluginSetting(plugin=Pairs, scores=False)))
    snapshot = cluster(
        [node("a1", 4000, "a"), node("a2", 4000, "a")], members("g", 4, 1000, 4, spec=MUST), NETWORK
    )
    result = schedule(snapshot, policy=policy)
    assert verify(snapshot, result) == ()
    assert sorted(one.node for one in result.bound) == ["a1", "a1", "a2", "a2"]


def test_of_a_node_that_takes_one_kind_only_nothing_is_said_about_both() -> None:
    """Both kinds have the same host port, which they would contend for on the first node."""
    small, large = (
        Pod(name=name, requests={"cpu": cpu}, host_ports=(HostPort(8080),))
        for name, cpu in (("small", 1000), ("large", 3000))
    )
    workspace = Workspace(cluster([node("n1", 4000), node("n2", 2000), node("n3", 500)], []))
    plugins = PluginSet(workspace, DEFAULT_POLICY)
    inputs = planning_input_of(workspace, plugins, [small, large], flat_tree(workspace))
    assert isinstance(inputs, PlanningInput)
    (known,) = never_together(plugins, inputs, offers_of(inputs), range(3))
    assert (known.nodes, known.counts) == ((0,), (1, 1))


@pytest.mark.parametrize("held", ["a", "b"])
def test_what_no_node_has_free_for_both_kinds_a_reservation_may_lend_them(held: str) -> None:
    """Of three cards one is reserved for the gang: only with it the node serves both kinds at once."""
    hold = reservation("gpu", once=False)
    assert hold.template is not None
    hold = attrs.evolve(hold, template=attrs.evolve(hold.template, requests={"cpu": 1000}))
    cards = [whole_gpus(name, 3 if name == held else 2) for name in ("a", "b")]
    reserved = schedule(claims.cluster([whole_gpus(held, 3)], []).with_records(hold)).snapshot.of(Reservation)
    gang = [
        attrs.evolve(
            claims.member(f"m{number}", kind, least=3),
            labels={"app": "mine"},
            annotations=members("g", 1, 0, 3, spec=MUST)[0].annotations,
        )
        for number, kind in enumerate(("two", "two", "gpu"))
    ]
    nodes = [node(name, 2000, "x") for name in ("a", "b")]
    snapshot = claims.cluster(cards, gang).with_nodes(*nodes).with_records(NETWORK, *reserved)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    lent = {one.pod.name: one.node for one in result.bound if one.on_loan}
    assert len(result.bound) == 3
    assert list(lent.values()) == [held, held]
    assert "m2" in lent
