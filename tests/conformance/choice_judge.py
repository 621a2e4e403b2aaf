"""Judge which of several legal choices a whole cycle made, where a ruling or a row of deviations decides.

Each function gives the reason for which ours is right, worked out anew from the objects, or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from koordcore.allocators.device import DEFAULT_DEVICE_POLICY
from koordcore.allocators.numa_request import CPUDemand, CPURequest, cpu_request_of, demand_on
from koordcore.explaining.cycle import FilterVerdict
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.decisions import Bound
from koordcore.model.numa import DEFAULT_NUMA_ARGS
from koordcore.model.pods import Pod
from koordcore.model.reservations import Reservation, ReservationOwner
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.reservation import RESERVATION_IGNORED
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.reservations.cache import with_holders
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.plugins.exact import numa_state
from koordcore.snapshot.following import once
from koordcore.topology.cpu import parse_cpulist
from koordcore.topology.numa import NUMATopologyPolicy
from tests.conformance.cycles import DEVICES, STATUS, USED, Scene
from tests.reference import devices as checker
from tests.reference.devices_brute import placements
from tests.reference.numa_placement import StaticResult

__all__ = [
    "better_cards",
    "better_numa_nodes",
    "no_devices",
    "nominated_refuse",
    "not_asked_for",
    "placed_on",
    "policy_on",
    "rated_otherwise",
]

MOST: Final = "MostAllocated"
RATED: Final = {"DeviceShare", "NodeNUMAResource"}
_ELSEWHERE: Final = {"koordinator.sh/fpga", "huawei.com/npu-core"}


# --- devices ---------------------------------------------------------------------------------------------


def _cases(scene: Scene, node: str) -> list[dict[str, Any]]:
    """Give a node as the device checker reads it: without a reservation, and inside each the pod may use."""
    used = (
        {USED: json.dumps({"name": one.name, "uid": one.uid})}
        for one in scene.snapshot.of(Reservation)
        if one.active
        and one.status.node_name == node
        and any(_owns(owner, scene.pod) for owner in one.owners)
    )
    return [scene.devices_case(node, annotations) for annotations in ({}, *used)]


def _owns(owner: ReservationOwner, pod: Pod) -> bool:
    """Tell whether a pod may be an owner; what is not looked at here is taken as a match."""
    if owner.selector is not None and not owner.selector.matches(pod.labels):
        return False
    return owner.object is None or owner.object.name in ("", pod.name)


def no_devices(scene: Scene, node: str, verdict: FilterVerdict) -> str:
    """Say that no set of devices of a node serves the pod legally, whatever reservation it may use.

    Every set is tried (rulings 2, 21, 23). Where NUMA nodes bind devices it may be that some set serves; a
    refusal is not excused then.
    """
    ignoring = RESERVATION_IGNORED in scene.pod.labels or is_reserve_pod(scene.pod)
    if verdict.plugin not in RATED or _ELSEWHERE & set(scene.pod.requests) or ignoring:
        return ""
    if not any("Devices" in reason for reason in verdict.reasons):
        return ""
    cases = _cases(scene, node)
    if any(case["device"] is None or next(placements(case), None) is not None for case in cases):
        return ""
    return f"no set of devices of {node} serves the pod legally (rulings 2, 21, 23)"


def card_score(scene: Scene, case: Mapping[str, Any], part: Mapping[str, Any]) -> int:
    """Rate one card for what is taken of it, 0..100, by the documented formula (devices 4.1)."""
    setting = scene.policy.plugin("DeviceShare")
    args, machine = (setting and setting.args) or DEFAULT_DEVICE_POLICY, checker.Machine(case)
    minor, asked = part["minor"], checker.amounts_of(part["resources"])
    total = checker.amounts_of(machine.devices["gpu", minor].get("resources"))
    free = machine.free("gpu", minor)
    score = weights = 0
    for name, weight in args.weights.items():
        if not total.get(name):
            continue
        used = total[name] - free.get(name, 0) + asked.get(name, 0)
        if str(args.strategy) == MOST:
            score += weight * (min(used, total[name]) * 100 // total[name])
        else:
            score += weight * (0 if used > total[name] else (total[name] - used) * 100 // total[name])
        weights += weight
    return score // weights if weights else 0


def better_cards(scene: Scene, case: Mapping[str, Any], mine: Any, theirs: Any) -> str:
    """Say why cards are better of two legal choices that the objective of whole nodes does not tell apart."""
    ours, other = mine.get("gpu") or [], theirs.get("gpu") or []
    if len(ours) != len(other) or not ours:
        return ""
    wanted = checker.Wanted(case["pod"])
    if not wanted.whole and len(ours) == 1:
        first, second = card_score(scene, case, ours[0]), card_score(scene, case, other[0])
        return f"DEV-9: the card scores {first}, the reference's {second}" if first > second else ""
    table = (checker.Machine(case).table or {}).get(str(wanted.cards)) or []
    order = [sorted(one["minors"]) for one in table]
    chosen = [sorted(part["minor"] for part in parts) for parts in (ours, other)]
    if (
        wanted.whole
        and all(one in order for one in chosen)
        and order.index(chosen[0]) < order.index(chosen[1])
    ):
        return "1: what stays free is rated by the best partitions; of equal ones the first of the table"
    return ""


def policy_on(scene: Scene, node: str) -> NUMATopologyPolicy:
    """Give the topology policy for the pod on a node."""
    known = numa_state(scene.snapshot, scene.snapshot.node(node))
    asked = cpu_request_of(scene.pod)
    demand = demand_on(asked, known.node) if isinstance(asked, CPURequest) else None
    return demand.policy if isinstance(demand, CPUDemand) else NUMATopologyPolicy.NONE


def placed_on(scene: Scene, node: str) -> Bound | None:
    """Give our own placement of the pod on a node; ``None`` for none that is legal."""
    workspace = open_workspace(scene.snapshot, scene.policy, scene.now)
    decision = place_there(
        workspace, PluginSet(workspace, scene.policy), scene.pod, workspace.layout.row_of[node]
    )
    return None if decision is None or scene.faults(decision) else decision


def rated_otherwise(scene: Scene, node: str, own: Mapping[str, int], other: Mapping[str, int]) -> str:
    """Say why devices and NUMA nodes of one node have other scores: other cards would be taken there.

    Ours have to be the best legal ones, and there have to be others. Nothing else may differ.
    """
    if {name for name in {*own, *other} if own.get(name) != other.get(name)} - RATED:
        return ""
    decision = placed_on(scene, node)
    if decision is None or DEVICES not in decision.annotations or _ELSEWHERE & set(scene.pod.requests):
        return ""
    case = scene.devices_case(node, decision.annotations)
    mine = json.loads(decision.annotations[DEVICES])
    legal = list(placements(case))
    chosen = {part["minor"] for part in mine.get("gpu", ())}
    if all({part["minor"] for part in one.get("gpu", ())} == chosen for one in legal):
        return ""
    if len(chosen) == 1 and not checker.Wanted(case["pod"]).whole:
        best = max(card_score(scene, case, one["gpu"][0]) for one in legal)
        right = card_score(scene, case, mine["gpu"][0]) == best
        note = "DEV-9: cards are rated by what is free"
    else:
        right = checker.objective(case, mine) <= min(checker.objective(case, one) for one in legal)
        note = "1, 3: the best cards are taken"
    return f"{note}; scores of {node} are those of its NUMA nodes" if right else ""


# --- CPUs and NUMA nodes -----------------------------------------------------------------------------------


def _numa_nodes(decision: Bound) -> list[int]:
    status = json.loads(decision.annotations.get(STATUS, "{}"))
    return sorted(entry["node"] for entry in status.get("numaNodeResources", ()))


def _cpus(annotations: Mapping[str, str]) -> int:
    return parse_cpulist(json.loads(annotations.get(STATUS, "{}")).get("cpuset", ""))


def _reserved_cpus(scene: Scene, node: str) -> int:
    """Give the CPUs that reservations of a node were given."""
    found = 0
    for one in scene.snapshot.of(Reservation):
        if one.active and one.status.node_name == node:
            found |= _cpus(one.annotations)
    return found


def better_numa_nodes(scene: Scene, ours: Bound, other: Bound) -> str:
    """Say why CPUs and NUMA nodes are better than the reference's, both legal and on one node.

    What reservations hold counts as taken (RSV-16), whether the pod ignores them or finds them too small.
    """
    mine, theirs = _numa_nodes(ours), _numa_nodes(other)
    if len(mine) < len(theirs):
        return f"5: NUMA nodes {mine} before {theirs}"
    asked = cpu_request_of(scene.pod)
    state = numa_state(once(scene.snapshot, with_holders), once(scene.snapshot, with_holders).node(ours.node))
    demand = demand_on(asked, state.node) if isinstance(asked, CPURequest) else None
    if not isinstance(demand, CPUDemand) or ours.reservation or other.reservation:
        return ""
    if mine == theirs:
        kept = _reserved_cpus(scene, ours.node)
        first, second = (
            (
                parse_cpulist(json.loads(one.annotations.get(STATUS, "{}")).get("cpuset", "")) & kept
            ).bit_count()
            for one in (ours, other)
        )
        return f"RSV-16: {first} reserved CPUs taken before {second}" if first < second else ""
    if len(mine) != 1 or len(theirs) != 1:
        return ""
    ground = StaticResult(state.node, state.allocations, demand)
    ranks = [(-_score(scene, ground, nodes), nodes) for nodes in (mine, theirs)]
    return (
        f"RSV-16: what is held counts as taken: {ranks[0]} before {ranks[1]}" if ranks[0] < ranks[1] else ""
    )


def _score(scene: Scene, ground: StaticResult, nodes: Sequence[int]) -> int:
    """Rate one NUMA node for the pod, 0..100, by what its holders leave."""
    setting = scene.policy.plugin("NodeNUMAResource")
    args = (setting and setting.args) or DEFAULT_NUMA_ARGS
    capacity = {zone.node: zone.resources for zone in ground.node.zones}
    score = weights = 0
    (numa,) = nodes
    for name, weight in args.weights:
        total = capacity[numa].get(name, 0)
        if not total:
            continue
        used = total - ground.available[numa].get(name, 0) + scene.pod.requests.get(name, 0)
        most = str(args.numa_scoring) == MOST
        score += weight * (min(used, total) * 100 // total if most else max(0, total - used) * 100 // total)
        weights += weight
    return score // weights if weights else 0


# --- filters -----------------------------------------------------------------------------------------------


def not_asked_for(scene: Scene, other: Mapping[str, Any]) -> str:
    """Say that the reference refuses for want of what the pod does not ask for (RSV-2)."""
    lacking = [
        reason.removeprefix("Insufficient ").removesuffix(" by node")
        for reason in other.get("reasons", ())
        if reason.startswith("Insufficient ") and reason.endswith(" by node")
    ]
    if other.get("plugin") != "Reservation" or len(lacking) < len(other["reasons"]):
        return ""
    return "" if set(lacking) & set(scene.pod.requests) else f"RSV-2: {lacking} is not asked for"


def nominated_refuse(scene: Scene, node: str, verdict: FilterVerdict) -> str:
    """Say that a pod that is nominated on a node wants nobody like this one beside it (PRE-23)."""
    if verdict.plugin != "InterPodAffinity" or verdict.reasons != (_EXISTING,):
        return ""
    for one in scene.snapshot.pending:
        anti = None if one.affinity is None else one.affinity.anti
        if one.nominated_node != node or one.priority < scene.pod.priority or one.key == scene.pod.key:
            continue
        if anti is not None and any(_concerns(term, scene, one.namespace) for term in anti.required):
            return f"PRE-23: the anti-affinity of {one.key}, nominated on {node}, counts"
    return ""


_EXISTING: Final = "node(s) didn't satisfy existing pods anti-affinity rules"


def _concerns(term: Any, scene: Scene, namespace: str) -> bool:
    selector: LabelSelector | None = term.selector
    spaces = term.namespaces or (namespace,)
    return scene.pod.namespace in spaces and selector is not None and selector.matches(scene.pod.labels)
