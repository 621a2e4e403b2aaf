"""Adapters of ``cycle.*``: whole scheduling cycles under the shipped profile."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from koordcore.explaining.cycle import Cycle, FilterVerdict
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.plugins import KOORDINATOR_CONFIGURATION
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model.pods import PodKey
from koordcore.model.policy import Policy
from tests.conformance import Case, Verdict, equality, subject
from tests.conformance.cycle_judge import judge_cycle, judge_ruled_cycle
from tests.conformance.cycles import Scene
from tests.conformance.numa_words import worded_otherwise

HOPELESS, REFUSED, SUCCESS = "UnschedulableAndUnresolvable", "Unschedulable", "Success"


def shipped_policy(override: Mapping[str, Any] | None) -> Policy:
    """The shipped profile, with the arguments of some plugins replaced."""
    raw = json.loads(json.dumps(KOORDINATOR_CONFIGURATION, default=dict))
    profile = raw["profiles"][0]
    if override:
        replaced = {one["name"]: one for one in override["pluginConfig"]}
        kept = [one for one in profile["pluginConfig"] if one["name"] not in replaced]
        profile["pluginConfig"] = [*kept, *replaced.values()]
    return policies_from_manifest(raw)[0]


def verdict(one: FilterVerdict) -> dict[str, Any]:
    """A status as the framework shows it."""
    if one.passed:
        return {"code": SUCCESS}
    return {
        "code": REFUSED if one.resolvable else HOPELESS,
        "plugin": one.plugin,
        "reasons": sorted(one.reasons),
    }


def pre_filter(cycle: Cycle) -> dict[str, Any]:
    """The verdict of PreFilter with the nodes that it left."""
    found = verdict(cycle.admission)
    # The reference reads the device request while it restores reservations, so that plugin is named.
    if found.get("plugin") == "DeviceShare":
        found["plugin"] = "Reservation"
    if cycle.allowed is not None:
        found |= {"nodes": sorted(cycle.allowed), "rejectors": sorted(cycle.rejectors)}
    return found


def written(cycle: Cycle) -> dict[str, Any]:
    """What PreBind writes on the pod, JSON values parsed."""
    decision = cycle.decision
    if decision is None:
        return {}
    found: dict[str, Any] = {}
    if decision.annotations:
        found["annotations"] = {key: json.loads(value) for key, value in decision.annotations.items()}
    if decision.labels:
        found["labels"] = dict(decision.labels)
    return found


def report(cycle: Cycle) -> dict[str, Any]:
    """A cycle in the case's form."""
    answer: dict[str, Any] = {"preFilter": pre_filter(cycle), "best": list(cycle.best)}
    if cycle.admission.passed:
        answer["filter"] = {node: verdict(one) for node, one in cycle.filters.items()}
    if cycle.scores:
        # Claims are not modelled. The reference lists both plugins with 0 for pods that do not concern them.
        silent = {"DeviceShare": 0, "DynamicResources": 0}
        answer["scores"] = {node: {**silent, **row} for node, row in cycle.scores.items()}
        answer["total"] = dict(cycle.totals)
    if cycle.decision is None:
        return answer | {"message": cycle.message}
    answer["node"] = cycle.decision.node
    answer["permit"] = "Wait" if cycle.waits else SUCCESS
    return answer | written(cycle)


def judge(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Equal; refused by the NUMA plugin in other words (ruling 5); or different where ours is right."""
    verdict_, detail = equality(case, answer)
    if case.ruled:
        fault = judge_ruled_cycle(scene_of(case), answer, case.raw["upstream"])
        return (Verdict.WRONG, fault) if fault else (verdict_, detail)
    if verdict_ is not Verdict.WRONG:
        return verdict_, detail
    scene = scene_of(case)
    if any(worded_otherwise(scene.pod, answer, expected) for expected in case.expectations):
        return Verdict.RULED, "5: one joint answer, so NUMA nodes word their refusal differently"
    found = (judge_cycle(scene, answer, expected) for expected in case.expectations)
    return next((one for one in found if one is not None), (verdict_, detail))


_LAST: list[tuple[Case, Scene]] = []
"""The scene of the case asked last: adapter and judge look at the same one."""


def scene_of(case: Case) -> Scene:
    """Show what stands before the cycle."""
    if not _LAST or _LAST[0][0].input is not case.input:
        _LAST[:] = [(case, _read_scene(case))]
    return _LAST[0][1]


def _read_scene(case: Case) -> Scene:
    given = case.input
    objects = [*case.tables["clusters"][given["cluster"]], *given.get("objects", ())]
    override = None if given["config"] == "default" else case.tables["configs"][given["config"]]
    snapshot = snapshot_from_objects([*objects, given["pod"]], strict=True).snapshot
    metadata = given["pod"]["metadata"]
    pod = snapshot.pod(PodKey(metadata["namespace"], metadata["name"]))
    assert pod is not None
    return Scene(snapshot, pod, shipped_policy(override), datetime.fromisoformat(given["now"]), objects)


@subject("cycle.decide", judge=judge)
def decide(case: Case) -> Any:
    return report(scene_of(case).cycle)
