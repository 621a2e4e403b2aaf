"""What a plugin of one's own does wrongly is named, and hurts no more than it has to."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    ModelError,
    Node,
    NodeState,
    Nominated,
    PluginSetting,
    Pod,
    Policy,
    PreemptionRules,
    Shortfall,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.framework import Evaluator, NodeView, Plugin, Scope
from koordcore.testing import check_plugin

NODES = [Node(name=name, allocatable={"cpu": 8000, "pods": 10}) for name in "abc"]
PODS = [Pod(name=f"p{number}", requests={"cpu": 1000 + number}) for number in range(2)]


def choking(*_: object) -> Any:
    raise KeyError("site-42")


def plugin(**answers: Any) -> type[Plugin]:
    """A plugin that concerns every pod, with an evaluator that answers so."""
    kind = type("Answering", (Evaluator,), {"scope": Scope.NODE, **answers})
    made = {"request_of": lambda self, pod: "any", "evaluator": lambda self, pod, request: kind()}
    return type("Own", (Plugin,), made)


def policy_with(kind: type[Plugin]) -> Policy:
    return Policy(plugins=(*Policy().plugins, PluginSetting(plugin=kind)))


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"fits": lambda self, view: np.ones(1, np.bool_)}, "fits for 3 nodes: expected 3 truth values"),
        ({"fits": lambda self, view: np.ones(4, np.bool_)}, "of shape (4,)"),
        ({"fits": lambda self, view: [True] * 3}, "got [True, True, True]"),
        ({"scores": lambda self, view: np.full(3, 49.7)}, "scores for 3 nodes: expected 3 whole numbers"),
        ({"fits": choking}, "fits: KeyError: 'site-42'"),
        (
            {"fits": lambda self, view: np.zeros(view.size, np.bool_), "reasons": lambda self, view: ["no"]},
            "reasons: expected pairs of a text and truth values, got 'no'",
        ),
        (
            {
                "normalises": True,
                "scores": lambda self, view: np.arange(view.size),
                "normalise": lambda self, raw, feasible: raw * 1000,
            },
            "normalise: scores from 0 to 2000, not within 0..100",
        ),
        (
            {"fits": lambda self, view: np.zeros(view.size, np.bool_), "reasons": lambda self, view: 5},
            "reasons: expected a sequence of pairs, got 5",
        ),
        (
            {"fits": lambda self, view: np.zeros(view.size, np.bool_), "shortfalls": lambda self, view: 5},
            "shortfalls: expected a tuple of Shortfall, got 5",
        ),
        ({"refuse": lambda self: "not today"}, "refuse: expected a Refusal or None, got 'not today'"),
        ({"allocate": lambda self, pod, view: "port 3"}, "allocate: expected a Reserved"),
        ({"allocate": lambda self, pod, view: Shortfall("no port")}, "no port, and fits takes the pod there"),
    ],
)
def test_a_wrong_answer_is_named_with_its_plugin(answers: dict[str, Any], told: str) -> None:
    policy = policy_with(plugin(**answers))
    snapshot = ClusterSnapshot(nodes=NODES, pending=PODS)
    for ask in (lambda: schedule(snapshot, policy=policy), lambda: explain(snapshot, PODS[0], policy=policy)):
        with pytest.raises(ModelError, match=r"^plugin Own: ") as caught:
            ask()
        assert told in str(caught.value)


def test_what_only_an_explanation_asks_for_is_named_as_well() -> None:
    answers = {
        "fits": lambda self, view: np.zeros(view.size, np.bool_),
        "shortfalls": lambda self, view: (Shortfall("far"),),
        "details": lambda self, view: "far",
    }
    snapshot = ClusterSnapshot(nodes=NODES, pending=PODS)
    assert not schedule(snapshot, policy=policy_with(plugin(**answers))).bound
    with pytest.raises(ModelError, match=r"^plugin Own: details: expected a tuple of str, got 'far'$"):
        explain(snapshot, PODS[0], policy=policy_with(plugin(**answers)))


@pytest.mark.parametrize("said", ["helped_by", "needs", "reads", "looks_at"])
def test_what_a_plugin_says_of_itself_is_a_frozenset(said: str) -> None:
    kind = type("Own", (plugin(),), {said: "Device"})
    with pytest.raises(ModelError, match=f"plugin Own: {said}: expected a frozenset or None, got 'Device'"):
        schedule(ClusterSnapshot(nodes=NODES, pending=PODS), policy=policy_with(kind))


def test_a_misspelt_kind_of_change_would_let_pods_sleep_and_is_refused() -> None:
    kinds = frozenset({"node added", "pod endet", "NodeMetric"})
    kind = type("Own", (plugin(),), {"helped_by": kinds})
    with pytest.raises(ModelError, match="plugin Own: helped_by: no change is of the kind 'pod endet'"):
        schedule(ClusterSnapshot(nodes=NODES, pending=PODS), policy=policy_with(kind))
    kind = type("Own", (plugin(),), {"helped_by": kinds - {"pod endet"}})
    assert schedule(ClusterSnapshot(nodes=NODES, pending=PODS), policy=policy_with(kind)).bound


class Sited(Plugin):
    """It knows few sites, and chokes on the others."""

    def request_of(self, pod: Pod) -> int:
        return {"home": 1}[pod.labels.get("site", "home")]


def test_a_pod_on_which_it_chokes_is_refused_alone() -> None:
    strange = attrs.evolve(PODS[0], labels={"site": "mars"})
    snapshot = ClusterSnapshot(nodes=NODES, pending=[strange, PODS[1]])
    result = schedule(snapshot, policy=policy_with(Sited))
    refused = result.decision(strange.key)
    assert isinstance(refused, Unschedulable)
    assert "plugin Sited: request_of: KeyError: 'mars'" in refused.message
    assert [one.pod for one in result.bound] == [PODS[1].key]


def test_what_lies_outside_its_restriction_does_not_pass_its_filter() -> None:
    for answer, told in ((np.zeros(2, np.bool_), "restriction for"), (None, "")):
        found = check_plugin(plugin(restriction=lambda self, answer=answer: answer))
        assert any(told in one.message for one in found) == bool(told)


class OneEach(Plugin):
    """No two pods of a team on one node."""

    def request_of(self, pod: Pod) -> str | None:
        return pod.labels.get("team")

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return NoneThere(self, request)


class NoneThere(Evaluator):
    scope = Scope.NODE

    def __init__(self, owner: Plugin, team: str) -> None:
        self.owner, self.team = owner, team

    def fits(self, view: NodeView) -> Any:
        there = [self.owner.workspace.pods_on(row).values() for row in view.numbers.tolist()]
        return np.array([all(one.labels.get("team") != self.team for one in pods) for pods in there])

    def reasons(self, view: NodeView) -> Any:
        return [("another pod of the team is there", ~self.fits(view))]


def test_whom_it_wants_gone_is_no_needless_victim() -> None:
    """Nobody but the plugin knows why it has to leave; what the library knows is checked all the same."""
    low = Pod(name="low", requests={"cpu": 1000}, labels={"team": "a"}, priority=0).at("a")
    high = Pod(name="high", requests={"cpu": 1000}, labels={"team": "a"}, priority=100)
    snapshot = ClusterSnapshot(nodes=[NodeState(NODES[0], (low,))], pending=[high])
    policy = policy_with(OneEach)
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    assert [type(one) for one in result.decisions] == [Nominated]
    assert verify(snapshot, result) == ()
    needless = attrs.evolve(result, policy=Policy())
    assert "could stay" in str(verify(snapshot, needless))


def test_it_decides_where_it_does_nothing_wrong() -> None:
    result = schedule(ClusterSnapshot(nodes=NODES, pending=PODS), policy=policy_with(plugin()))
    assert [type(one) for one in result.decisions] == [Bound, Bound]


class Licensed(Plugin):
    def request_of(self, pod: Pod) -> str | None:
        return pod.labels.get("licence")

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        made = Installed()
        made.mask = np.array([request in node.labels for node in self.workspace.layout.nodes])
        return made


class Installed(Evaluator):
    mask: Any

    def fits(self, view: NodeView) -> Any:
        return self.mask[view.rows]

    def reasons(self, view: NodeView) -> Any:
        return [("licence is not installed", ~self.fits(view))]


def test_an_array_made_of_no_nodes_is_right_whatever_it_holds() -> None:
    snapshot = ClusterSnapshot(pending=[Pod(name="p", labels={"licence": "m"})])
    result = schedule(snapshot, policy=policy_with(Licensed), preempt=PreemptionRules())
    assert [type(one) for one in result.decisions] == [Unschedulable]
    assert explain(snapshot, "default/p", policy=policy_with(Licensed)).decision == result.decisions[0]
