"""Subjects ``load.*``: estimates, filter and score of load-aware scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.errors import ModelError
from koordcore.manifests import node_from_manifest, pod_from_manifest
from koordcore.model.pods import Pod
from koordcore.protocol.load import parse_load_aware_args, raw_capacity
from koordcore.protocol.node_metric import parse_node_metric
from koordcore.protocol.times import parse_timestamp
from koordcore.scoring.load import LoadState
from tests.conformance.core import Case, subject
from tests.reference.load_estimates import estimate_pod


@subject("load.estimate")
def estimate(case: Case) -> Any:
    given = case.input
    try:
        args = parse_load_aware_args(given["args"])
    except ModelError as error:
        return {"argsError": str(error)}
    if "node" in given:
        return {"capacity": dict(raw_capacity(node_from_manifest(given["node"])))}
    return {"estimate": dict(estimate_pod(pod_of(given["pod"]), args))}


def pod_of(raw: Mapping[str, Any]) -> Pod:
    """Read a pod; some cases leave out the name, which does not matter here."""
    metadata = {"name": "pod", **(raw.get("metadata") or {})}
    return pod_from_manifest({**raw, "metadata": metadata})


def compiled(given: Mapping[str, Any]) -> LoadState:
    args = parse_load_aware_args(given["args"])
    node = node_from_manifest(given["node"])
    metric = given.get("nodeMetric")
    metrics = {} if metric is None else {node.name: parse_node_metric(metric)}
    state = LoadState([node], metrics, args, parse_timestamp(given["now"]))
    for entry in given.get("assignedPods") or []:
        moment = entry.get("assignTime")
        state.place(pod_of(entry["pod"]), 0, None if moment is None else parse_timestamp(moment))
    return state


@subject("load.filter")
def load_filter(case: Case) -> Any:
    try:
        state = compiled(case.input)
    except ModelError as error:
        return {"argsError": str(error)}
    code = int(state.fit(state.request_of(pod_of(case.input["pod"])))[0])
    return {"code": "Unschedulable", "reasons": [state.reasons[code]]} if code else {"code": "Success"}


@subject("load.score")
def load_score(case: Case) -> Any:
    try:
        state = compiled(case.input)
    except ModelError as error:
        return {"argsError": str(error)}
    answer: dict[str, Any] = {"score": int(state.score(state.request_of(pod_of(case.input["pod"])))[0])}
    if "nodeMetric" in case.input:
        answer["load"] = {name: dict(vector) for name, vector in state.describe(0).items()}
    return answer
