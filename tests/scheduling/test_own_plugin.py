"""A plugin of one's own, in one's own file, handed to a policy as a class."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    ModelError,
    Node,
    PluginSetting,
    Pod,
    Policy,
    Unschedulable,
    schedule,
)
from koordcore.explaining import explain
from koordcore.framework import Evaluator, NodeView, Plugin, registry


class Licensed(Plugin):
    """Pods that need a licence go where it is installed."""

    name = "Licensed"

    def request_of(self, pod: Pod) -> str | None:
        return pod.labels.get("licence")

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return HasLicence([request in node.labels for node in self.workspace.layout.nodes])


class HasLicence(Evaluator):
    def __init__(self, installed: list[bool]) -> None:
        self._installed = np.array(installed)

    def fits(self, view: NodeView) -> Any:
        return self._installed[view.rows]

    def reasons(self, view: NodeView) -> Any:
        return [("licence is not installed", ~self._installed[view.rows])]


class Quiet(Plugin):
    """Nodes with the label quiet are liked."""

    name = "Quiet"

    def request_of(self, pod: Pod) -> str:
        return "quiet"

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return LikesQuiet([100 * (request in node.labels) for node in self.workspace.layout.nodes])


class LikesQuiet(Evaluator):
    def __init__(self, scores: list[int]) -> None:
        self._scores = np.array(scores)

    def scores(self, view: NodeView) -> Any:
        return self._scores[view.rows]


ROOM = {"cpu": 4000, "pods": 9}
NODES = [
    Node(name="a", allocatable=ROOM),
    Node(name="b", allocatable=ROOM, labels={"matlab": "yes"}),
    Node(name="c", allocatable=ROOM, labels={"quiet": "yes"}),
]
POLICY = Policy(
    plugins=(
        *Policy().plugins,
        PluginSetting(plugin=Licensed, scores=False),
        PluginSetting(plugin=Quiet, filters=False, weight=100),
    )
)


def test_an_own_filter_and_an_own_score_decide() -> None:
    """The filter keeps a pod to its licence, the score draws the others; explain says the same."""
    pods = [
        Pod(name="licensed", requests={"cpu": 100}, labels={"licence": "matlab"}),
        Pod(name="none", requests={"cpu": 100}, labels={"licence": "cad"}),
        Pod(name="plain", requests={"cpu": 100}),
    ]
    snapshot = ClusterSnapshot(nodes=NODES, pending=pods)
    result = schedule(snapshot, policy=POLICY)
    assert {one.pod.name: one.node for one in result.bound} == {"licensed": "b", "plain": "c"}
    refused = result.decision("default/none")
    assert isinstance(refused, Unschedulable)
    assert refused.message == "0/3 nodes are available: 3 licence is not installed."
    for pod in pods:
        assert explain(snapshot, pod, policy=POLICY).decision == result.decision(pod.key)
    # A later call on the line goes on with the plugins of the first.
    later = schedule(result.snapshot, [Pod(name="next", requests={"cpu": 100})], policy=POLICY)
    assert isinstance(later.decisions[0], Bound)
    assert later.decisions[0].node == "c"


def test_an_installed_package_offers_a_plugin_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy file names it; the library's own names cannot be taken."""
    offered = {
        "Licensed": EntryPoint("Licensed", f"{__name__}:Licensed", registry.GROUP),
        "Broken": EntryPoint("Broken", "os:sep", registry.GROUP),
    }
    monkeypatch.setattr(registry, "_offered", lambda: offered)
    monkeypatch.setattr(EntryPoint, "load", lambda one: Licensed if one.name == "Licensed" else "/")
    assert {"Licensed", "NodeName"} <= registry.known_plugins()
    policy = Policy(plugins=(PluginSetting(name="Licensed", scores=False),))
    pod = Pod(name="p", labels={"licence": "matlab"})
    assert schedule(ClusterSnapshot(nodes=NODES, pending=[pod]), policy=policy).bound[0].node == "b"
    with pytest.raises(ModelError, match=r"Broken: expected a subclass of koordcore\.framework\.Plugin"):
        schedule(ClusterSnapshot(nodes=NODES), policy=Policy(plugins=(PluginSetting(name="Broken"),)))


def test_a_setting_needs_a_name_or_a_class() -> None:
    with pytest.raises(ModelError, match="name: a plugin needs a name"):
        PluginSetting()
