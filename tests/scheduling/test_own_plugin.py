"""A plugin of one's own, in one's own file, handed to a policy as a class."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
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
    Unschedulable,
    ViolationKind,
    schedule,
    verify,
)
from koordcore.cli import main
from koordcore.explaining import explain
from koordcore.framework import Evaluator, NodeView, Plugin
from koordcore.manifests.policy_manifest import configuration_manifest
from koordcore.manifests.scheduler_config import policies_from_manifest, scheduler_configuration
from koordcore.model.installed import offered_plugins
from koordcore.simulate import PodArrival, replay_schedule
from koordcore.testing import check_plugin


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


def test_verify_checks_everything_else() -> None:
    """A rule of one's own is nobody else's to check; what else a plan breaks is found."""
    snapshot = ClusterSnapshot(
        nodes=NODES,
        pending=[
            Pod(name="licensed", requests={"cpu": 3000}, labels={"licence": "matlab"}),
            Pod(name="plain", requests={"cpu": 3000}),
        ],
    )
    result = schedule(snapshot, policy=POLICY)
    assert verify(snapshot, result) == ()
    moved = tuple(attrs.evolve(one, node="b") for one in result.bound)
    crowded = snapshot.assume(*(pod.at("b") for pod in snapshot.pending))
    wrong = attrs.evolve(result, decisions=moved, snapshot=crowded)
    assert ViolationKind.RESOURCE in {one.kind for one in verify(snapshot, wrong)}


def test_a_dry_run_asks_it_too() -> None:
    """Only the node with the licence is worth evicting somebody."""
    running = [
        NodeState(node, (Pod(name=f"low-{node.name}", requests={"cpu": 4000}, node_name=node.name),))
        for node in NODES
    ]
    pod = Pod(name="licensed", requests={"cpu": 1000}, labels={"licence": "matlab"}, priority=10)
    snapshot = ClusterSnapshot(nodes=running, pending=[pod])
    result = schedule(snapshot, policy=POLICY, preempt=PreemptionRules())
    (nominated,) = result.decisions
    assert isinstance(nominated, Nominated)
    assert nominated.node == "b"
    assert verify(snapshot, result) == ()


def test_a_replay_asks_it() -> None:
    pods = [
        Pod(name=f"licensed-{number}", requests={"cpu": 3000}, labels={"licence": "matlab"})
        for number in range(2)
    ]
    events = [PodArrival(number, pod, 60) for number, pod in enumerate(pods)]
    run = replay_schedule(ClusterSnapshot(nodes=NODES), events, policy=POLICY)
    assert [(one.node, one.time) for one in run.placements] == [("b", 0), ("b", 60)]


MODULE = """
import attrs
import numpy as np
from koordcore.framework import Evaluator, Plugin

@attrs.frozen
class Args:
    prefix: str = ""

class Licensed(Plugin):
    arguments = Args
    def request_of(self, pod):
        return pod.labels.get("licence")
    def evaluator(self, pod, request):
        evaluator, wanted = Installed(), (self.args or Args()).prefix + request
        evaluator.mask = np.array([wanted in node.labels for node in self.workspace.layout.nodes])
        return evaluator

class Installed(Evaluator):
    def fits(self, view):
        return self.mask[view.rows]
    def reasons(self, view):
        return [("licence is not installed", ~self.fits(view))]

class Bare(Plugin):
    def request_of(self, pod):
        return self.args["of"][0] if "licence" in pod.labels else None
    def evaluator(self, pod, request):
        evaluator = Installed()
        evaluator.mask = np.array([request in node.labels for node in self.workspace.layout.nodes])
        return evaluator
"""
POINTS = """
[koordcore.plugins]
Licensed = acme_scheduling:Licensed
Bare = acme_scheduling:Bare
Broken = os:sep
Missing = acme_scheduling:Nobody
Gone = acme_is_gone:Licensed
Raises = acme_raises:Licensed
NodeName = os:sep
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package that offers plugins."""
    (tmp_path / "acme_scheduling.py").write_text(MODULE)
    told = tmp_path / "acme-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    offered_plugins.cache_clear()
    yield tmp_path
    offered_plugins.cache_clear()
    sys.modules.pop("acme_scheduling", None)


PODS = [
    Pod(name="p", requests={"cpu": 100}, labels={"licence": "lab"}),
    Pod(name="q", requests={"cpu": 100}, labels={"licence": "cad"}),
]


def configuration(point: str, name: str = "Licensed", **args: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {point: {"enabled": [{"name": name}]}},
                "pluginConfig": [{"name": name, "args": args}],
            }
        ],
    }


@pytest.mark.parametrize("point", ["filter", "multiPoint"])
def test_a_policy_file_names_what_an_installed_package_offers(installed: Path, point: str) -> None:
    """With the arguments that the file says; the library's own names cannot be taken."""
    raw = configuration(point, prefix="mat")
    (policy,) = policies_from_manifest(raw)
    assert scheduler_configuration(raw).unused == ()
    snapshot = ClusterSnapshot(nodes=NODES, pending=PODS)
    result = schedule(snapshot, policy=policy)
    assert [(one.pod.name, one.node) for one in result.bound] == [("p", "b")]
    assert isinstance(result.decision("default/q"), Unschedulable)
    assert check_plugin("Licensed", snapshots=[snapshot]) == ()
    # Written out and read again it is the same.
    assert policies_from_manifest(configuration_manifest(policy)) == (policy,)


def test_a_plugin_without_a_class_of_arguments_gets_what_the_file_says(installed: Path) -> None:
    (policy,) = policies_from_manifest(configuration("filter", "Bare", of=["matlab"]))
    result = schedule(ClusterSnapshot(nodes=NODES, pending=PODS), policy=policy)
    assert {one.node for one in result.bound} == {"b"}


def test_what_is_offered_wrongly_is_told(installed: Path) -> None:
    assert schedule(ClusterSnapshot(nodes=NODES, pending=PODS)).bound[0].node  # NodeName is the library's
    with pytest.raises(ModelError, match=r"Broken: expected a subclass of koordcore\.framework\.Plugin"):
        schedule(ClusterSnapshot(nodes=NODES), policy=Policy(plugins=(PluginSetting(name="Broken"),)))
    (policy,) = policies_from_manifest(configuration("filter", suffix="x"))
    with pytest.raises(ModelError, match=r"Licensed: args: .*unexpected keyword argument 'suffix'"):
        schedule(ClusterSnapshot(nodes=NODES), policy=policy)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Missing", "entry point acme_scheduling:Nobody in koordcore.plugins: AttributeError: "),
        ("Gone", "entry point acme_is_gone:Licensed in koordcore.plugins: ModuleNotFoundError: "),
        ("Raises", "entry point acme_raises:Licensed in koordcore.plugins: ValueError: not today"),
    ],
)
def test_what_is_offered_and_cannot_be_imported_is_told(
    installed: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    """It is no defect of the library."""
    (installed / "acme_raises.py").write_text("raise ValueError('not today')")
    policy, cluster = installed / "policy.json", installed / "cluster.json"
    policy.write_text(json.dumps(configuration("filter", name)))
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}))
    for verb in ("schedule", "report", "compare"):
        status = main([verb, str(cluster), "--policy", str(policy)])
        err = capsys.readouterr().err
        assert status == 2, (verb, err)
        assert f"plugin {name}: {told}" in err


def test_the_command_line_asks_it(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, cluster = installed / "policy.json", installed / "cluster.json"
    policy.write_text(json.dumps(configuration("filter", prefix="mat")))
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name, "labels": dict(node.labels)},
            "status": {"allocatable": {"cpu": "4", "pods": "9"}},
        }
        for node in NODES
    ] + [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod.name, "labels": dict(pod.labels)},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }
        for pod in PODS
    ]
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["schedule", "--policy", str(policy), str(cluster), "-o", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert "licence is not installed" in json.dumps(told)
    assert main(["explain", "--policy", str(policy), "p", str(cluster)]) == 0
    assert "licence is not installed" in capsys.readouterr().out


def test_a_setting_needs_a_name_or_a_class() -> None:
    with pytest.raises(ModelError, match="name: a plugin needs a name"):
        PluginSetting()
