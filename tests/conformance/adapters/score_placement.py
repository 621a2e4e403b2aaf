"""Subject ``score.upstream``, plugins that look at other pods and at images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from koordcore._arrays import BoolVector, ClusterLayout, IntVector, compile_layout
from koordcore.manifests import node_from_manifest, pod_from_manifest
from koordcore.manifests.scheduler_args import PLUGIN_ARGS
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.scoring.groups import PodGroups
from koordcore.scoring.images import ImageIndex, pod_images, score_images
from koordcore.scoring.interpod import (
    REASON_AFFINITY,
    REASON_ANTI_AFFINITY,
    REASON_EXISTING_ANTI_AFFINITY,
    InterPodFilter,
    InterPodScore,
    Namespaces,
    interpod_request,
    normalise_interpod,
)
from koordcore.scoring.spread import (
    REASON_MISSING_LABEL,
    REASON_SKEW,
    SpreadFilter,
    SpreadScore,
    spread_request,
)
from tests.conformance.core import Case

SUCCESS: Final = {"code": "Success"}


def cluster(given: Mapping[str, Any]) -> tuple[ClusterLayout, PodGroups, Pod]:
    nodes = sorted((node_from_manifest(one) for one in given["nodes"]), key=lambda node: node.name)
    layout = compile_layout([NodeState(node) for node in nodes])
    pods = [pod_from_manifest(one) for one in given["pods"]]
    placed = ((pod, layout.row_of[str(pod.node_name)]) for pod in pods)
    return layout, PodGroups(layout, placed), pod_from_manifest(given["pod"])


def verdicts(layout: ClusterLayout, *refusals: tuple[BoolVector, str, bool]) -> dict[str, Any]:
    """The first refusal of each node speaks; the flag tells that evicting pods may help."""
    answer: dict[str, Any] = {}
    for row, name in enumerate(layout.names):
        answer[name] = SUCCESS
        for mask, reason, resolvable in refusals:
            if mask[row]:
                code = "Unschedulable" if resolvable else "UnschedulableAndUnresolvable"
                answer[name] = {"code": code, "reasons": [reason]}
                break
    return answer


def by_name(layout: ClusterLayout, values: IntVector, feasible: BoolVector) -> dict[str, int]:
    return {layout.names[row]: int(values[row]) for row in np.flatnonzero(feasible).tolist()}


def topology_spread(case: Case) -> Any:
    layout, groups, pod = cluster(case.input)
    PLUGIN_ARGS["PodTopologySpread"](case.input.get("args") or {})
    request = spread_request(pod)
    feasible = np.ones(len(layout.names), np.bool_)
    if request is None:
        return {"preFilter": {"code": "Skip"}, "preScore": "Skip"}
    answer: dict[str, Any] = {"preFilter": {"code": "Skip"}, "preScore": "Skip"}
    if request.of(hard=True):
        feasible, missing, skewed = SpreadFilter(groups, request).judge()
        answer["preFilter"] = SUCCESS
        answer["filter"] = verdicts(
            layout, (missing, REASON_MISSING_LABEL, False), (skewed, REASON_SKEW, True)
        )
    if not feasible.any():
        del answer["preScore"]
    elif request.of(hard=False):
        kernel = SpreadScore(groups, request)
        raw = kernel.raw(feasible)
        answer["preScore"] = "Success"
        answer["raw"] = by_name(layout, raw, feasible)
        answer["normalized"] = by_name(layout, kernel.normalise(raw, feasible), feasible)
    return answer


def interpod_affinity(case: Case) -> Any:
    layout, groups, pod = cluster(case.input)
    args = PLUGIN_ARGS["InterPodAffinity"](case.input.get("args") or {})
    namespaces = Namespaces(
        {
            one["metadata"]["name"]: one["metadata"].get("labels") or {}
            for one in case.input.get("namespaces") or []
        }
    )
    request = interpod_request(pod)
    kernel = InterPodFilter(groups, namespaces, request)
    feasible = np.ones(len(layout.names), np.bool_)
    answer: dict[str, Any] = {"preFilter": {"code": "Skip"}}
    if kernel.active:
        lonely, crowded, unwanted = kernel.judge()
        feasible = ~(lonely | crowded | unwanted)
        answer["preFilter"] = SUCCESS
        answer["filter"] = verdicts(
            layout,
            (lonely, REASON_AFFINITY, False),
            (crowded, REASON_ANTI_AFFINITY, True),
            (unwanted, REASON_EXISTING_ANTI_AFFINITY, True),
        )
    if feasible.any():
        raw = InterPodScore(groups, namespaces, request, args).raw()
        answer["preScore"] = "Skip" if raw is None else "Success"
        if raw is not None:
            answer["raw"] = by_name(layout, raw, feasible)
            answer["normalized"] = by_name(layout, normalise_interpod(raw, feasible), feasible)
    return answer


def image_locality(case: Case) -> Any:
    layout, _, pod = cluster(case.input)
    index = ImageIndex(layout.nodes)
    sizes = [index.sizes(image, layout.names) for image in pod_images(pod)]
    scores = score_images(sizes, len(layout.names))
    shown = by_name(layout, scores, np.ones(len(layout.names), np.bool_))
    return {"raw": shown, "normalized": shown}


PLACEMENT: Final[Mapping[str, Callable[[Case], Any]]] = {
    "PodTopologySpread": topology_spread,
    "InterPodAffinity": interpod_affinity,
    "ImageLocality": image_locality,
}
