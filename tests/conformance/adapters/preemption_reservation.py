"""Preemption for one pod: the Reservation plugin's and the stock one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from koordcore.manifests.loading import snapshot_from_objects
from koordcore.manifests.pods import pod_from_manifest
from koordcore.manifests.reservations import reservation_from_manifest
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.pods import Pod
from koordcore.preemption.running import amounts_of
from koordcore.reservations.state import reserve_pod
from tests.conformance.core import Case, difference, subject
from tests.reference.nominations import counted_nominations
from tests.reference.one_node_preemption import (
    NodeVictims,
    importance,
    may_evict_any,
    may_evict_for_reservation,
    preempt_for_pod,
    select_on_node,
)
from tests.reference.preemption_refusals import NodeRefusal, plain_refusals


def read(raw: Mapping[str, Any], key: str) -> list[Pod]:
    return [pod_from_manifest(one) for one in raw.get(key) or []]


def written(found: NodeVictims, *, ordered: bool = False) -> dict[str, Any]:
    victims = sorted(found.victims, key=importance) if ordered else found.victims
    code = "Success" if found.refusal is None else found.refusal.code
    return {
        "victims": [str(pod.key) for pod in victims],
        "pdbViolations": found.violations,
        "status": {"code": code, "reasons": list(found.refusal.reasons) if found.refusal else []},
    }


@subject("preemption.reservation")
def reservation(case: Case) -> Any:
    raw = case.input
    if "reservation" in raw:
        preemptor = reserve_pod(reservation_from_manifest(raw["reservation"]))
    else:
        preemptor = pod_from_manifest(raw["pod"])
    snapshot = snapshot_from_objects(
        [*raw["nodes"], *raw["pods"], *(raw.get("pdbs") or [])], strict=True
    ).snapshot
    layout, budgets = snapshot.layout, snapshot.of(PodDisruptionBudget)
    nominated = read(raw, "nominated")
    on_node: dict[str, list[Pod]] = {name: [] for name in layout.names}
    for pod in read(raw, "pods"):
        on_node[str(pod.node_name)].append(pod)
    refusals = plain_refusals(layout, [preemptor])

    def refuse(name: str, pods: Sequence[Pod]) -> NodeRefusal | None:
        row = layout.row_of[name]
        left = layout.allocatable[:, row].copy()
        for pod in (*pods, *counted_nominations(preemptor, nominated, node=name)):
            left -= amounts_of(layout, pod)
        return refusals(str(preemptor.key), row, left)

    per_node: dict[str, Any] = {}
    for name, pods in on_node.items():
        found = {}
        for plugin, rule in (
            ("Reservation", may_evict_for_reservation),
            ("DefaultPreemption", may_evict_any),
        ):
            victims = select_on_node(
                preemptor,
                pods,
                may_evict=rule,
                budgets=budgets,
                refuse=partial(refuse, name),
            )
            found[plugin] = written(victims, ordered=plugin == "DefaultPreemption")
        if not difference(found["Reservation"], found["DefaultPreemption"]):
            del found["DefaultPreemption"]
        per_node[name] = found
    outcome = preempt_for_pod(
        preemptor,
        on_node=on_node,
        statuses={node: status["code"] for node, status in raw["statuses"].items()},
        may_evict=may_evict_for_reservation,
        budgets=budgets,
        nominated=nominated,
        refuse=refuse,
    )
    return {
        "preemptor": {"key": str(preemptor.key), "priority": preemptor.priority},
        "perNode": per_node,
        "postFilter": {
            "status": {
                "code": "Unschedulable" if outcome.message else "Success",
                "reasons": [f"preemption: {outcome.message}"] if outcome.message else [],
            },
            "result": None if outcome.node is None else {"nominatedNodeName": outcome.node},
            # Who terminates already is chosen, and deleted by whoever did so before.
            "victims": sorted(str(pod.key) for pod in outcome.victims if pod.deleted is None),
            "clearedNominations": sorted(str(pod.key) for pod in outcome.cleared),
        },
    }
