"""Adapters of ``score.*``: one plugin, or one score, on a small cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from koordcore import ManifestError
from koordcore.framework.evaluator import Evaluator, Refusal
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.registry import plugin_type
from koordcore.framework.workspace import Workspace
from koordcore.manifests import node_from_manifest, pod_from_manifest
from koordcore.manifests.scheduler_args import PLUGIN_ARGS
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.scheduling.plugins.placement import NodeLabelEvaluator
from koordcore.snapshot import ClusterSnapshot
from tests.conformance import Case, Missing, subject
from tests.conformance.adapters.score_placement import PLACEMENT

SUCCESS, SKIP = "Success", "Skip"
HOPELESS, REFUSED = "UnschedulableAndUnresolvable", "Unschedulable"

WITH_PRE_FILTER = ("NodeResourcesFit", "NodePorts", "NodeAffinity", "PodTopologySpread", "InterPodAffinity")
WITHOUT_FILTER = ("NodeResourcesBalancedAllocation", "ImageLocality")
WITH_SCORE = (
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "TaintToleration",
    "NodeAffinity",
    "PodTopologySpread",
    "InterPodAffinity",
    "ImageLocality",
)


def cluster(raw: Mapping[str, Any], records: tuple[ClusterRecord, ...] = ()) -> ClusterSnapshot:
    """The nodes of a case with the pods that it binds to them."""
    nodes = raw["nodes"] if "nodes" in raw else [raw["node"]]
    pods = [pod_from_manifest(one) for one in raw.get("pods", ())]
    named = [node_from_manifest(one) for one in nodes]
    states = []
    for node in named:
        here = tuple(
            pod.at(node.name)
            for pod in pods
            if pod.node_name == node.name or (pod.node_name is None and len(named) == 1)
        )
        states.append(NodeState(node, here))
    return ClusterSnapshot(nodes=states, records=records)


def open_plugin(
    case: Case, name: str, records: tuple[ClusterRecord, ...] = ()
) -> tuple[Workspace, Plugin, Pod]:
    """The plugin over the cluster of a case, and the pod to place."""
    args = PLUGIN_ARGS[name](case.input.get("args") or {}) if name in PLUGIN_ARGS else None
    workspace = Workspace(cluster(case.input, records))
    return workspace, plugin_type(name)(workspace, args), pod_from_manifest(case.input["pod"])


def single_score(case: Case, name: str) -> dict[str, int]:
    """The raw score of the only node."""
    workspace, plugin, pod = open_plugin(case, name)
    scores = plugin.evaluator(pod, plugin.request_of(pod)).scores(NodeView(workspace))
    assert scores is not None
    return {"score": int(scores[0])}


@subject("score.fitplus")
def fit_plus(case: Case) -> Any:
    return single_score(case, "NodeResourcesFitPlus")


@subject("score.scarce")
def scarce(case: Case) -> Any:
    return single_score(case, "ScarceResourceAvoidance")


def stock(case: Case, records: tuple[ClusterRecord, ...] = ()) -> Any:
    """PreFilter, Filter, PreScore, Score and NormalizeScore of one stock plugin."""
    name = case.input["plugin"]
    try:
        workspace, plugin, pod = open_plugin(case, name, records)
    except ManifestError as error:
        return {"argsError": str(error)}
    request = plugin.request_of(pod)
    if isinstance(request, Refusal):
        return {"preFilter": {"code": HOPELESS, "reasons": [request.reason]}}
    evaluator = plugin.evaluator(pod, request) if request is not None else Evaluator()
    answer: dict[str, Any] = {}
    names = workspace.layout.names
    view = NodeView(workspace)
    fits = evaluator.fits(view)
    feasible = np.ones(len(names), bool) if fits is None else fits
    allowed = np.ones(len(names), bool)
    if name in WITH_PRE_FILTER:
        refusal = evaluator.refuse()
        if refusal is not None:
            return {"preFilter": {"code": HOPELESS, "reasons": [refusal.reason]}}
        skipped = request is None or fits is None
        answer["preFilter"] = {"code": SKIP if skipped else SUCCESS}
        restriction = evaluator.named if isinstance(evaluator, NodeLabelEvaluator) else None
        if restriction is not None:
            answer["preFilter"]["nodeNames"] = list(restriction)
            allowed = np.array([one in restriction for one in names], bool)
        if skipped:
            feasible = np.ones(len(names), bool)
    if name not in WITHOUT_FILTER and answer.get("preFilter", {}).get("code") != SKIP:
        answer["filter"] = filter_table(evaluator, view, feasible, allowed)
    feasible = feasible & allowed
    if name in WITH_SCORE and feasible.any():
        answer.update(score_table(evaluator, view, feasible))
    return answer


def filter_table(evaluator: Evaluator, view: NodeView, feasible: Any, allowed: Any) -> dict[str, Any]:
    """Code and sorted reasons of each node that is looked at."""
    hopeless = evaluator.unresolvable(view)
    reasons = evaluator.reasons(view)
    table: dict[str, Any] = {}
    for row, node in enumerate(view.workspace.layout.names):
        if not allowed[row]:
            continue
        if feasible[row]:
            table[node] = {"code": SUCCESS}
            continue
        code = HOPELESS if hopeless is not None and hopeless[row] else REFUSED
        table[node] = {"code": code, "reasons": sorted(text for text, holds in reasons if holds[row])}
    return table


def score_table(evaluator: Evaluator, view: NodeView, feasible: Any) -> dict[str, Any]:
    """Raw and normalised scores of the feasible nodes; Skip where the plugin has no preference."""
    raw = evaluator.scores(view)
    names = view.workspace.layout.names
    if raw is None:
        return {"preScore": SKIP}
    final = evaluator.normalise(raw, feasible)
    rows = np.flatnonzero(feasible).tolist()
    return {
        "preScore": SUCCESS,
        "raw": {names[row]: int(raw[row]) for row in rows},
        "normalized": {names[row]: int(final[row]) for row in rows},
    }


PLUGINS: dict[str, Callable[[Case], Any]] = dict.fromkeys(
    (
        "NodeResourcesFit",
        "NodeResourcesBalancedAllocation",
        "TaintToleration",
        "NodeUnschedulable",
        "NodeName",
        "NodeAffinity",
        "NodePorts",
    ),
    stock,
)
PLUGINS.update(PLACEMENT)


@subject("score.upstream")
def upstream(case: Case) -> Any:
    plugin = case.input["plugin"]
    if plugin not in PLUGINS:
        raise Missing(f"no plugin {plugin}")
    return PLUGINS[plugin](case)
