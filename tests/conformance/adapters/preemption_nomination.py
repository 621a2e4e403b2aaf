"""Nominated pods in the filters, and nominations of rejected pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.manifests.nodes import node_from_manifest
from koordcore.manifests.pods import pod_from_manifest
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.snapshot import ClusterSnapshot
from tests.conformance.core import Case, subject
from tests.reference.nominations import (
    NominatingMode,
    Nomination,
    counted_nominations,
    filter_with_nominations,
    renominate,
)


def first_refusal(node: Mapping[str, Any], pods: list[Pod], pod: Pod) -> tuple[str, tuple[str, ...]]:
    """What the first filter that refuses says."""
    labels = {"kubernetes.io/hostname": node["metadata"]["name"], **(node["metadata"].get("labels") or {})}
    named = node_from_manifest({**node, "metadata": {**node["metadata"], "labels": labels}})
    snapshot = ClusterSnapshot(nodes=[NodeState(named, tuple(one.at(named.name) for one in pods))])
    scheduling_class = PluginSet(Workspace(snapshot), Policy()).class_of(pod)
    assert not isinstance(scheduling_class, Refusal)
    # The cases ask for affinity between pods before they ask for room.
    for part in sorted(scheduling_class.parts, key=lambda part: part.plugin.name == "NodeResourcesFit"):
        mask = part.evaluator.fits(scheduling_class.view()) if part.setting.filters else None
        if mask is None or mask[0]:
            continue
        hopeless = part.evaluator.unresolvable(scheduling_class.view())
        code = "Unschedulable" if hopeless is None or not hopeless[0] else "UnschedulableAndUnresolvable"
        return code, tuple(
            reason for reason, holds in part.evaluator.reasons(scheduling_class.view()) if holds[0]
        )
    return "Success", ()


def stored(raw: Mapping[str, Any], scheduler: str) -> Pod:
    """Read a pod as the API server stores it: with a scheduler's name."""
    return pod_from_manifest({**raw, "spec": {"schedulerName": scheduler, **raw["spec"]}})


def taken_over(raw: Mapping[str, Any]) -> dict[str, Any]:
    default = Nomination(NominatingMode(raw["defaultMode"]), raw["defaultNode"])
    found = renominate(
        default,
        code=None if raw.get("statusNil") else raw["statusCode"],
        rejecters=[name for name in (raw.get("tag"), *raw.get("tagExtra", [])) if name],
        assumed_node=raw["assumedNode"],
    )
    return {"mode": found.mode.value, "nominatedNodeName": found.node, "rejecter": found.rejecter}


@subject("preemption.nomination")
def nomination(case: Case) -> Any:
    raw = case.input
    if raw["kind"] == "takeover":
        return taken_over(raw)
    pod = pod_from_manifest(raw["pod"])
    added = counted_nominations(
        pod,
        [stored(one, raw["localSchedulers"][0]) for one in raw["nominated"]],
        node=raw["node"]["metadata"]["name"],
        same_job=frozenset(raw.get("sameJobUIDs") or ()),
        local_schedulers=frozenset(raw["localSchedulers"]),
        cross_scheduler=bool(raw.get("crossSchedulerNomination")),
    )
    running = [pod_from_manifest(one) for one in raw["pods"]]
    verdict = filter_with_nominations(
        added,
        lambda more: first_refusal(raw["node"], [*running, *more], pod),
        single_pass=bool(raw.get("skipFilterWithNominatedPods")),
    )
    return {
        "added": [str(one.key) for one in verdict.added],
        "code": verdict.code,
        "reasons": list(verdict.reasons),
        "filterPasses": verdict.passes,
    }
